"""What README says works: its Python example runs, its commands exist, its make targets are there."""

import re
from pathlib import Path

import typer

from convloom.cli import app

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def test_the_example_gives_the_shape_it_states():
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    scope = {}
    exec(example, scope)
    (stated,) = re.findall(r"# (\(.*\))", example)
    assert str(scope["y"].shape) == stated


def test_every_command_is_in_the_table_and_the_other_way_round():
    named = set(re.findall(r"^\| `convloom (\w+)", README, re.MULTILINE))
    assert named == set(typer.main.get_command(app).commands)


def test_the_make_targets_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {word for line in re.findall(r"^    make ([a-z ]+)", README, re.MULTILINE) for word in line.split()}
    assert {"run", "test"} <= named <= targets
