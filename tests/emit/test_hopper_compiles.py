"""Machine code of Hopper kernels, without a GPU: the instructions that were meant, nothing spilled or serialised."""

import re

import pytest

from convloom.compiler import generate, prepare
from convloom.errors import UnsupportedTarget
from convloom.plan.choose import choose_plan
from convloom.plan.hopper import HopperPlan, Output
from convloom.problem.notation.choose import parse_line
from convloom.runtime.nvrtc import current_nvrtc, resources_from_log
from convloom.target.arch import SM_90A
from tests.notations import defaults

LAYERS = {
    "3x3": "mb32ic256ih56iw56oc256oh56ow56_kh3kw3sh1sw1ph1pw1dh0dw0",
    "3x3, strided": "mb64ic256ih28iw28oc256oh14ow14_kh3kw3sh2sw2ph1pw1dh0dw0",
    "1x1": "mb64ic512ih7iw7oc2048oh7ow7_kh1kw1sh1sw1ph0pw0dh0dw0",
}
LOADS = {"columns": "UTMALDG.*IM2COL", "tile": "UTMALDG"}


@pytest.fixture(scope="module")
def compiler():
    try:
        return current_nvrtc()
    except UnsupportedTarget as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("direction", ["fwd", "bwd_d", "bwd_w"])
@pytest.mark.parametrize("layer", LAYERS)
def test_the_planner_s_kernels(compiler, layer, direction):
    contraction = prepare(parse_line(LAYERS[layer], defaults(direction, "f16", "axb"))).contraction
    plan = choose_plan(contraction, SM_90A)
    assert isinstance(plan, HopperPlan)
    source = generate(contraction, SM_90A, plan).source
    binary = compiler.compile(source)
    found = resources_from_log(binary.log)
    assert not found.serialised
    assert "setmaxnreg" not in binary.log  # nor any other advice of the assembler
    if found.spill_bytes:
        pytest.skip(f"this compiler spills {found.spill_bytes} bytes: such a candidate is passed over")
    try:
        code = compiler.disassemble(binary)
    except UnsupportedTarget as error:
        pytest.skip(str(error))
    m, n, _ = plan.instruction.shape
    assert re.search(f"HGMMA.{m}x{n}x16", code)
    for kind in {plan.a, plan.b}:
        assert re.search(LOADS[kind.value], code)
    assert ("UTMASTG" in code) is (plan.output in (Output.SHARED, Output.TURNED))
    assert not re.search(r"\b(LDL|STL)\b", code)
