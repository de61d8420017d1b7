"""Settings that all tests share."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("CONVLOOM_VERIFY", "1")  # the rules of the IR are checked after every pass

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="run the tests marked slow, which take an hour or more")
    parser.addoption("--update-golden", action="store_true", help="write tests/golden/ anew instead of comparing")


def pytest_collection_modifyitems(config, items):
    """Leaves the slow tests out unless asked for, without a word about each."""
    if not config.getoption("--slow"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


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
