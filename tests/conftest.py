"""Settings that all tests share."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("CONVLOOM_VERIFY", "1")  # the rules of the IR are checked after every pass

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write tests/golden/ anew instead of comparing")


@pytest.fixture
def golden(request):
    """Compares a text with the file of a name in tests/golden/."""

    def check(name, text):
        file = GOLDEN / name
        if request.config.getoption("--update-golden"):
            file.write_text(text, encoding="utf-8")
        assert file.exists(), f"{file.name} is missing; run pytest with --update-golden and look at what it writes"
        assert text == file.read_text(encoding="utf-8"), f"{file.name} differs; if that is meant: --update-golden"

    return check
