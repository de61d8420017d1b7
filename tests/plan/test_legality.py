"""Every rule of legality has a plan that breaks it, and the reason names the rule and the value."""

from dataclasses import replace

import pytest

from convloom.compiler import generate, plan_for, prepare
from convloom.dtypes import F16, F32, F64
from convloom.errors import Infeasible
from convloom.plan import legality
from convloom.plan.check_plan import check_plan
from convloom.plan.choose import given_plan
from convloom.plan.split import Reduction, Split
from convloom.plan.tiled import Along, Transfer, parse_plan, plan_text
from convloom.problem.conv import Direction, Scaling, TensorSpec
from convloom.problem.conv_arguments import conv_problem
from convloom.problem.gemm import Gemm
from convloom.problem.layout import dense
from convloom.target.arch import CPU, OPENCL, SM_90A

SPECS = [TensorSpec(F32, dense(shape)) for shape in ((64, 48), (48, 96), (64, 96))]
PRODUCT = prepare(Gemm((), 64, 96, 48, *SPECS)).contraction
GOOD = parse_plan(
    "tiled block=16x32x8 thread=4x4 chunk=4x4 lanes=1 unroll=1 g=- m=m0 n=n0 serial=- k=k0"
    " a=k*4+0 b=row*4+0 store=4 index=32 swap=0 row=fma stages=1 groups=1 split=none walk=1"
)

BROKEN = {
    "axes missing": ({"m": ()}, r"the m axes of a plan are those of the contraction, \['m0'\]; got \[\]"),
    "axes unknown": ({"n": ("n0", "n1")}, r"the n axes .* got \['n0', 'n1'\]"),
    "axes twice": ({"serial": ("k0",)}, r"the k axes .* got \['k0', 'k0'\]"),
    "block_m": ({"block_m": 18}, "thread_m must divide block_m; got 4 and 18"),
    "block_n": ({"block_n": 30}, "thread_n must divide block_n; got 4 and 30"),
    "chunk_m": ({"thread_m": 2, "chunk_m": 4}, "chunk_m must divide thread_m; got 4 and 2"),
    "chunk_n": ({"thread_n": 2, "chunk_n": 4}, "chunk_n must divide thread_n; got 4 and 2"),
    "lanes in chunk": ({"lanes": 8}, "lanes must divide chunk_n; got 8 and 4"),
    "store": ({"store": 8}, "store must divide chunk_n; got 8 and 4"),
    "chunk of three": ({"block_m": 18, "thread_m": 6, "chunk_m": 3}, "chunk_m must be a power of two up to 16; got 3"),
    "vector of three": ({"a": Transfer(Along.K, 3, 0)}, "transfer a must be a power of two; got 3"),
    "vector of a": ({"block_k": 2}, "vector of transfer a must divide the tile along it; got 4 and 2"),
    "vector of b": (
        {"b": Transfer(Along.ROW, 16, 0), "block_n": 24},
        "vector of transfer b must divide the tile along it; got 16 and 24",
    ),
    "padding of b": ({"b": Transfer(Along.ROW, 4, 2)}, "padding of transfer b must keep its vectors aligned; got 2"),
    "padding of a": ({"a": Transfer(Along.K, 4, 3)}, "padding must keep fragments aligned, .* got 3 and 0"),
    "lanes": ({"lanes": 4}, "lanes must be a power of two up to 1 on sm_90a; got 4"),
    "swizzle of rows": (
        {"b": Transfer(Along.ROW, 4, 0, 2)},
        "swizzle of transfer b must be .* up to 1 here",
    ),
    "three sets of fragments": ({"fragments": 3}, "one or two sets of fragments are kept; got 3"),
    "sets of fragments in a loop": ({"fragments": 2, "unroll_k": False}, "need an unrolled loop over k"),
    "collected by threads": ({"collect": 4}, "collected in shared memory behind matrix instructions only; got row fma"),
    "index": ({"index_bits": 16}, "32 or 64 bits; got 16"),
    "threads": ({"block_m": 256, "block_n": 512}, "at most 1024 threads on sm_90a; this plan has 8192"),
    "shared memory": ({"block_k": 4096}, "bytes of shared memory on sm_90a; this plan needs 786432"),
    "registers": (
        {"block_m": 256, "block_n": 256, "thread_m": 32, "thread_n": 32},
        "255 registers on sm_90a; this plan needs about 1128",
    ),
    "shares of K": ({"k_groups": 3}, "3 K groups .* take equal shares of a K tile, multiples of 1; block_k is 8"),
    "sums of K groups": (
        {"k_groups": 4, "block_m": 256, "block_n": 128, "thread_m": 16, "thread_n": 8},
        "bytes of shared memory on sm_90a; this plan needs 405504",
    ),
    "width of a": ({"a": Transfer(Along.ROW, 4, 0)}, "transfer a moves 4 numbers along M; the view allows 1"),
    "width of b": ({"b": Transfer(Along.K, 8, 0)}, "transfer b moves 8 numbers along K; the view allows 1"),
    "width of the store": ({"chunk_n": 8, "thread_n": 8, "store": 8}, "a store moves 8 numbers along n; .* allow 4"),
}


def test_the_plan_that_the_others_are_made_of_is_legal():
    assert check_plan(GOOD, PRODUCT, SM_90A) is None
    assert generate(PRODUCT, SM_90A, GOOD).source.text
    assert given_plan(plan_text(GOOD), PRODUCT, SM_90A) == GOOD


@pytest.mark.parametrize("name", BROKEN)
def test_broken_rule_is_named(name):
    changes, words = BROKEN[name]
    plan = replace(GOOD, **changes)
    infeasible = check_plan(plan, PRODUCT, SM_90A)
    assert infeasible is not None, "the plan is legal"
    with pytest.raises(Infeasible, match=words):
        given_plan(plan_text(plan), PRODUCT, SM_90A)


def test_lanes_are_stored_whole_or_one_by_one():
    vector = replace(GOOD, lanes=4, thread_n=8, chunk_n=8)
    assert check_plan(replace(vector, store=4), PRODUCT, CPU) is None
    assert check_plan(replace(vector, store=1), PRODUCT, CPU) is None
    assert "got store 2 for 4 lanes" in check_plan(replace(vector, store=2), PRODUCT, CPU).reason


def test_axes_that_differ_between_phases_are_loops():
    family = prepare(
        conv_problem(
            direction=Direction.BWD_D, batch=1, in_channels=4, out_channels=4, in_spatial=(9,), kernel=(3,), stride=2
        )
    ).contraction
    plan = plan_for(family, SM_90A)
    (taps,) = [name for name in plan.serial if name in {axis.name for axis in family.axes if not axis.extent.is_const}]
    merged = replace(plan, serial=tuple(name for name in plan.serial if name != taps), merged=(*plan.merged, taps))
    assert check_plan(merged, family, SM_90A).reason == (
        f"axes whose extent differs between phases are serial loops; ['{taps}'] are merged"
    )


def test_limits_are_those_of_the_target():
    wide = replace(GOOD, block_m=64, block_n=128)
    assert check_plan(wide, PRODUCT, SM_90A) is None
    assert "at most 256 threads on opencl; this plan has 512" in check_plan(wide, PRODUCT, OPENCL).reason


def test_instructions_fit_types_and_target():
    matrix = replace(GOOD, row="mma.m16n8k16.f32.f16.f16", thread_m=16, thread_n=16, chunk_m=16, chunk_n=2, store=2)
    assert "multiplies f16 by f16 to f32; the contraction has f32" in check_plan(matrix, PRODUCT, SM_90A).reason
    assert "cpu has no instruction mma" in check_plan(matrix, PRODUCT, CPU).reason
    assert "cpu has no asynchronous copies" in check_plan(replace(GOOD, stages=2), PRODUCT, CPU).reason


def test_collected_tiles():
    """Of whole sums, stores as wide as C allows, and nobody reads what C held."""
    halves = [TensorSpec(F16, dense(shape)) for shape in ((64, 48), (48, 96), (64, 96))]
    product = prepare(Gemm((), 64, 96, 48, *halves)).contraction
    good = parse_plan(
        "tiled block=32x32x16 thread=16x16 chunk=16x8 lanes=1 unroll=0 g=- m=m0 n=n0 serial=- k=k0 a=k*8+8 b=row*8+8"
        " store=2 index=32 swap=0 row=mma.m16n8k16.f32.f16.f16 stages=3 groups=1 split=none walk=1 collect=8"
    )
    assert check_plan(good, product, SM_90A) is None
    assert "got split passes*2" in check_plan(replace(good, split=Split(Reduction.PASSES, 2)), product, SM_90A).reason
    assert "up to 8 here" in check_plan(replace(good, collect=16), product, SM_90A).reason
    old = prepare(Gemm((), 64, 96, 48, *halves, scaling=Scaling(beta=True))).contraction
    assert "reads its old content" in check_plan(good, old, SM_90A).reason


def test_atomic_sums_need_atomic_additions():
    specs = [TensorSpec(F64, dense(shape)) for shape in ((64, 48), (48, 96), (64, 96))]
    doubles = prepare(Gemm((), 64, 96, 48, *specs)).contraction
    plan = replace(
        GOOD, split=Split(Reduction.ATOMIC, 4), a=Transfer(Along.K, 2, 0), b=Transfer(Along.ROW, 2, 0), store=2
    )
    assert check_plan(plan, doubles, SM_90A) is None
    assert check_plan(plan, PRODUCT, OPENCL) is None
    assert "adds numbers of (32,) bits atomically; sums are f64" in check_plan(plan, doubles, OPENCL).reason


def test_every_rule_is_broken_by_some_plan():
    """The table is complete but for the rules of the tests above."""
    apart = {"phase_axes_serial", "_instruction_fits", "_atomic_types"}
    plans = [replace(GOOD, **changes) for name, (changes, _) in BROKEN.items() if not name.startswith("axes")]
    for rule in legality.RULES:
        if rule.__name__ not in {*apart, "axes_covered"}:
            assert any(rule(plan, PRODUCT, SM_90A) for plan in plans), f"no plan breaks {rule.__name__}"
