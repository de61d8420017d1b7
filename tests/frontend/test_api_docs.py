"""The examples of docs/api.md run as they stand, and the package exports what it lists."""

import doctest
from pathlib import Path

import convloom

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"


def test_examples():
    results = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.attempted > 20
    assert results.failed == 0


def test_exports():
    for name in convloom.__all__:
        assert getattr(convloom, name).__module__.startswith("convloom.")
        assert name in dir(convloom)
    assert not hasattr(convloom, "convolve")
