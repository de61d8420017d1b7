"""Generated CUDA text compiles for every type and direction, without a GPU, and chosen plans do not spill."""

from pathlib import Path

import pytest

from convloom.compiler import generate, plan_for, prepare
from convloom.dtypes import BF16, F16, F32, F64, S8, S32, U8
from convloom.errors import UnsupportedTarget
from convloom.problem.conv import Direction
from convloom.problem.notation.choose import parse_problem
from convloom.runtime import nvrtc
from convloom.target.arch import SM_80, SM_90A
from tests.emit.sources import PROBLEMS, source_of

DIVIDED = ("mb64ic64ih56oc64oh56kh3ph1", "mb64ic64ih56oc256oh56kh1", "g64mb32ic64ih28oc64oh28kh3ph1")
SUITES = Path(__file__).parents[2] / "suites"
TYPES = (
    (F32, F32, F32),
    (F64, F64, F64),
    (F16, F16, F16),
    (BF16, BF16, BF16),
    (F16, F16, F32),
    (F16, BF16, F32),
    (S8, S8, S32),
    (U8, S8, U8),
    (U8, S8, F32),
    (F32, F32, S8),
)


@pytest.fixture(scope="module")
def compiler():
    try:
        return nvrtc.current_nvrtc()
    except UnsupportedTarget as error:
        pytest.skip(str(error))


def resources(compiler, source):
    """What the compiler reports; it raises with its log if it refuses the text."""
    return nvrtc.resources_from_log(compiler.compile(source).log)


def chosen(text, target=SM_90A, **keywords):
    contraction = prepare(parse_problem(text, **keywords)).contraction
    return generate(contraction, target, plan_for(contraction, target)).program.launches


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("types", TYPES, ids=lambda types: ":".join(map(str, types)))
def test_every_type_and_direction(compiler, types, direction):
    operands = {
        Direction.FWD: types,
        Direction.BWD_D: (types[2], types[1], types[0]),
        Direction.BWD_W: (types[0], types[2], types[1]),
    }[direction]
    bias = None if direction is Direction.BWD_W else (F32 if types[2] is not F64 else F64)
    for source in chosen("mb2ic16ih14oc24oh7kh3sh2ph1", direction=direction, dtypes=operands, bias=bias):
        found = resources(compiler, source)
        assert found.spill_bytes == 0
        assert 0 < found.registers <= 255


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("target", [SM_80, SM_90A], ids=lambda target: target.name)
def test_goldens_compile(compiler, name, target):
    assert 0 < resources(compiler, source_of(name, target)).registers <= 255


@pytest.mark.parametrize("file", ["resnet50", "grouped", "depthwise", "conv3d", "conv1d", "odd"])
def test_chosen_plans_of_layers_do_not_spill(compiler, file):
    lines = [line for line in (SUITES / f"{file}.txt").read_text().splitlines() if line and not line.startswith("#")]
    directions = list(Direction)
    for place, line in enumerate(lines[:: max(len(lines) // 4, 1)]):
        dtypes = ("f32", "f16")[place % 2]
        for source in chosen(line, direction=directions[place % 3], dtypes=dtypes):
            found = resources(compiler, source)
            assert found.spill_bytes == 0, f"{source.name} of {line} {dtypes}: {found}"
            assert found.shared_bytes + source.shared_bytes <= SM_90A.max_shared_bytes


@pytest.mark.parametrize("dtypes", ["f32", "f16"])
@pytest.mark.parametrize(
    "line", ["mb64ic64ih56oc64oh56kh3ph1", "mb64ic64ih56oc256oh56kh1", "g64mb32ic64ih28oc64oh28kh3ph1"]
)
def test_divided_sums_compile_without_spills(compiler, line, dtypes):
    launches = chosen(line, direction=Direction.BWD_W, dtypes=dtypes)
    assert len(launches) == 2
    for source in launches:
        assert resources(compiler, source).spill_bytes == 0, source.name
