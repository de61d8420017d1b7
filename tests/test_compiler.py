"""The facade: from a problem to source text with its launch recipe."""

from dataclasses import replace

import pytest

from convloom.artifact import WORKSPACE, Access, Language, ScalarKind
from convloom.compiler import contract, generate, plan_for, prepare, source_digest
from convloom.dtypes import F32, F64
from convloom.errors import Infeasible
from convloom.expr import sym
from convloom.plan.tiled import plan_text
from convloom.problem.conv import Conv, Direction, Scaling
from convloom.problem.conv_arguments import conv_problem
from convloom.problem.notation.choose import parse_problem
from convloom.runtime.launch_expression import evaluate
from convloom.target.arch import CPU, OPENCL, SM_90A, TARGETS
from tests.problem.drawing import draw

LAYER = "mb2ic16ih14oc32oh14kh3ph1"
ALL_TARGETS = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


def generated(problem, target=CPU, plan=None):
    contraction = prepare(problem).contraction
    return generate(contraction, target, plan_for(contraction, target, plan))


@ALL_TARGETS
@pytest.mark.parametrize("direction", list(Direction))
def test_sources_are_complete_and_deterministic(target, direction):
    problem = parse_problem(LAYER, direction=direction)
    first, again = generated(problem, target), generated(problem, target)
    assert first.source == again.source
    assert source_digest(first.source) == source_digest(again.source)
    assert first.source.language is target.language
    assert first.source.arch == target.arch
    assert first.source.name in first.source.text
    assert first.source.block == (first.plan.threads, 1, 1)
    used = {(buffer.name, buffer.access) for launch in first.program.launches for buffer in launch.buffers}
    assert used - {(WORKSPACE, Access.READ), (WORKSPACE, Access.READ_WRITE)} == {
        ("a", Access.READ),
        ("b", Access.READ),
        ("c", Access.READ_WRITE),
    }


@ALL_TARGETS
def test_the_chosen_plan_as_text_gives_the_same_source(target):
    problem = parse_problem(LAYER)
    chosen = generated(problem, target)
    assert generated(problem, target, plan_text(chosen.plan)).source == chosen.source


def test_a_plan_that_does_not_fit_is_refused():
    plan = plan_text(generated(parse_problem(LAYER)).plan)
    with pytest.raises(Infeasible, match="got"):
        generated(parse_problem(LAYER), CPU, plan.replace("store=", "store=7"))
    with pytest.raises(Infeasible, match="family"):
        generated(parse_problem(LAYER), CPU, "fastest")


def test_digests_tell_sources_apart():
    problems = [parse_problem(LAYER), parse_problem(LAYER.replace("oc32", "oc33")), parse_problem(LAYER, dtypes="f64")]
    digests = {source_digest(generated(p, target).source) for p in problems for target in (CPU, OPENCL, SM_90A)}
    assert len(digests) == 9
    assert all(len(digest) == 16 for digest in digests)


def test_digest_covers_the_launch_recipe():
    source = generated(parse_problem(LAYER)).source
    assert source_digest(replace(source, grid=("1", "1", "1"))) != source_digest(source)
    assert source_digest(replace(source, requirements=())) == source_digest(replace(source, requirements=()))


@ALL_TARGETS
@pytest.mark.parametrize("seed", range(10))
def test_grid_counts_the_tiles(target, seed):
    drawn = draw(seed)
    for problem in (drawn.static, drawn.dynamic):
        made = generated(problem, target)
        blocks = evaluate(made.source.grid[0], drawn.values)
        sizes = {kind.value: 1 for kind in {axis.kind for axis in made.contraction.axes}}
        for axis in made.contraction.axes:
            sizes[axis.kind.value] *= evaluate(str(axis.extent), {**drawn.values, **phase(made.contraction)})
        m, n = ("n", "m") if made.plan.swap else ("m", "n")
        tiles = -(-sizes.get(m, 1) // made.plan.block_m) * -(-sizes.get(n, 1) // made.plan.block_n)
        assert blocks == tiles * sizes.get("g", 1) * made.contraction.phase_count * made.plan.split.parts


def phase(contraction):
    return {parameter.symbol.name: parameter.values[0] for parameter in contraction.phases}


def test_factors_are_floating_arguments():
    problem = conv_problem(
        batch=1, in_channels=4, out_channels=4, in_spatial=(8,), kernel=(3,), scaling=Scaling(True, True)
    )
    scalars = {scalar.name: scalar for scalar in generated(problem).source.scalars}
    assert [scalars[name].kind for name in ("alpha", "beta")] == [ScalarKind.F32] * 2
    wide = replace(problem, **{role: replace(getattr(problem, role), dtype=F64) for role in ("src", "wei", "dst")})
    assert {scalar.kind for scalar in generated(wide).source.scalars} == {ScalarKind.F64}


def test_bias_is_an_input():
    problem = conv_problem(batch=1, in_channels=4, out_channels=4, in_spatial=(8,), kernel=(3,), bias=F32)
    buffers = {buffer.name: buffer for buffer in generated(problem).source.buffers}
    assert buffers["bias"].access is Access.READ
    assert buffers["bias"].dtype == "f32"


def test_dims_of_any_name_do_not_clash():
    """Names that kernels use themselves, for sizes with and without hints."""
    for name in ("tid", "bid", "acc", "a_tile", "arg0", "k_tile", "phase", "step", "f32", "s8"):
        size = sym(name, lo=1, hint=64)
        problem = conv_problem(batch=size, in_channels=4, out_channels=4, in_spatial=(8,), kernel=(3,))
        for target in (CPU, SM_90A):
            source = generated(problem, target).source
            assert evaluate(source.grid[0], {name: 5}) > 0


def test_contractions_are_remembered():
    problem = parse_problem(LAYER)
    assert prepare(problem) is prepare(parse_problem(LAYER))
    assert isinstance(problem, Conv)
    assert contract(problem) == contract(parse_problem(LAYER))
    assert generated(problem).source.language is Language.C
