"""docs/source-document-000.md names only files and tests that exist, and claims nothing without both."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "source-document-000.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| described")
]
STATES = {"done", "not yet", "left to ptxas", "waits for the Intel target"}


@cache
def functions_in(path):
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def named(text, pattern):
    return re.findall(f"`({pattern})`", text)


def test_the_page_has_rows_of_four_cells():
    assert len(ROWS) > 50
    assert {len(row) for row in ROWS} == {4}
    assert {row[1] for row in ROWS} == STATES


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_files_and_tests_of_a_row_exist(row):
    _, state, files, tests = row
    for file in named(files, r"[\w/]+\.py"):
        assert (ROOT / "src" / "convloom" / file).is_file(), file
    if state == "done":
        assert named(files, r"[\w/]+\.py")
        assert named(tests, r"[^`]+")


@pytest.mark.parametrize("test", sorted(set(named(PAGE, r"tests/[\w/]+\.py::\w+"))))
def test_a_named_test_exists(test):
    path, _, name = test.partition("::")
    assert (ROOT / path).is_file()
    assert name in functions_in(path)
