"""The layer table of docs/architecture.md is the law for imports; this test reads the table and the code."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "convloom"
TABLE_ROW = re.compile(r"^\| (`[^|]+) \| [^|]+ \| ([^|]+) \|$")


def read_table():
    """layer name -> text of its 'may import' cell, top layer last, as the table has them."""
    rows = {}
    for line in (ROOT / "docs" / "architecture.md").read_text().splitlines():
        if found := TABLE_ROW.match(line):
            for name in re.findall(r"`([a-z_]+)/?`", found[1]):
                rows[name] = found[2]
    return rows


def base_layers(table):
    return [name for name, allowed in table.items() if allowed == "earlier ones"]


def allowed_imports(table):
    """layer -> every layer it may import: the named ones, theirs in turn, and the base records."""
    names = list(table)
    base = base_layers(table)
    result = {}
    for position, (name, cell) in enumerate(table.items()):
        named = {word for word in re.findall(r"[a-z_]+", cell) if word in names}
        if cell == "earlier ones":
            result[name] = set(base[: base.index(name)])
        elif cell == "the above":
            result[name] = set(names[:position])
        elif cell.startswith("all"):
            result[name] = set(names) - named - {name}
        else:
            result[name] = set(base).union(named, *(result[other] for other in named))
    return result


def layer_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def package_of(path):
    return ".".join(["convloom", *path.relative_to(SOURCE).parts[:-1]])


def imported_modules(path):
    """Absolute names of what a file imports; `from convloom import x` gives convloom.x."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package_of(path).split(".")
            base = parts[: len(parts) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module == "convloom":
                yield from (f"convloom.{alias.name}" for alias in node.names)
            else:
                yield module


def forbidden_imports(path, allowed):
    layer = layer_of(path)
    for module in imported_modules(path):
        parts = module.split(".")
        if (
            parts[0] == "convloom"
            and len(parts) > 1
            and parts[1] != layer
            and parts[1] not in allowed.get(layer, set())
        ):
            yield f"{path.relative_to(ROOT)} imports {module}"


SOURCES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.name != "__init__.py")


def test_the_table_is_read():
    allowed = allowed_imports(read_table())
    assert allowed["errors"] == set()
    assert allowed["view"] == set(base_layers(read_table())) | {"expr"}
    assert allowed["runtime"] == set(base_layers(read_table()))
    assert "problem" not in allowed["ir"]
    assert {"report", "cli"}.isdisjoint(allowed["frontend"])


def test_every_module_has_a_layer():
    present = {layer_of(path) for path in SOURCES}
    assert present <= set(read_table()), "a new package or module needs a row in docs/architecture.md"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downwards(path):
    assert list(forbidden_imports(path, allowed_imports(read_table()))) == []


def test_a_forbidden_import_is_found(tmp_path, monkeypatch):
    bad = tmp_path / "runtime" / "launch.py"
    bad.parent.mkdir()
    bad.write_text("from convloom.problem import conv\nfrom convloom import plan\nfrom ..errors import ConvloomError\n")
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    found = list(forbidden_imports(bad, {"runtime": {"artifact", "errors"}}))
    assert found == ["runtime/launch.py imports convloom.problem", "runtime/launch.py imports convloom.plan"]
