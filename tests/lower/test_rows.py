"""Every row that multiplies, in every direction: exact results on the interpret device, no fault, no bank conflict."""

from dataclasses import replace

import pytest

from convloom.compiler import generate, plan_for, prepare
from convloom.dtypes import BF16, E4M3, E5M2, F16, F32, S8, U8
from convloom.frontend.compile import compile
from convloom.frontend.dynamic_twin import dynamic_twin
from convloom.frontend.interpret_device import InterpretDevice
from convloom.frontend.problem_check import check_problem
from convloom.ir.interpret import Options
from convloom.ir.ops import Scope
from convloom.plan.check_plan import check_plan
from convloom.plan.legality import row_multiplies
from convloom.plan.products import Products
from convloom.plan.shared_layout import conflict_free_pad, lines_along_k, stored_type
from convloom.plan.tiled import SCALAR, Along, parse_plan, plan_text
from convloom.problem.data import DataKind
from convloom.problem.notation.choose import parse_problem
from convloom.target.arch import INTERPRET, SM_80
from convloom.target.catalogue import row_named
from convloom.target.fragment_access import Way, columns_together, is_conflict_free, packing, way_of
from tests.lower.row_plans import multiplying, plans

ROWS = multiplying(INTERPRET)
BY_ROW = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
DIRECTIONS = {"fwd": (0, 1, 2), "bwd_d": (2, 1, 0), "bwd_w": (0, 2, 1)}  # places of src, wei, dst among (a, b, c)
LINE = "mb2ic19iw9oc21ow5kw3sw2pw1"  # no size is a multiple of a tile
PIPELINES = ((1, 1), (3, 2), (2, 1), (1, 2))


def problem_of(row, direction, tag):
    types = [row.fragment(name).dtype.name for name in "abd"]
    names = "tf32" if types[0] == "tf32" else ":".join(types[place] for place in DIRECTIONS[direction])
    return parse_problem(LINE, direction=direction, dtypes=names, stag=tag, wtag=tag, dtag=tag)


def counted(problem, plan, called=None):
    """The outcome of a check and the shared accesses that cost more than they must."""
    kernel = compile(problem, InterpretDevice(Options(counted=True)), plan_text(plan))
    outcome = check_problem(kernel, DataKind.INT, problem=called)
    counts = kernel._preferred.launches[0].built.last.counts
    assert plan.row == SCALAR or plan.row in counts.rows
    return outcome, [site for site in counts.of_scope(Scope.SHARED) if site.excess > 1]


@pytest.mark.parametrize("direction", DIRECTIONS)
@BY_ROW
def test_row_in_every_direction(row, direction):
    """Layouts, pipelines and dynamic sizes take turns over the rows, so that each meets each."""
    turn = ROWS.index(row) + list(DIRECTIONS).index(direction)
    problem = problem_of(row, direction, ("abx", "axb")[turn % 2])
    twin = dynamic_twin(problem) if turn % 3 == 0 else None
    compiled = problem if twin is None else twin.dynamic
    stages, fragments = PIPELINES[turn % len(PIPELINES)]
    found = list(plans(row, prepare(compiled).contraction, INTERPRET, stages, fragments))
    assert found
    plan, _ = found[turn % len(found)]
    outcome, conflicts = counted(compiled, plan, None if twin is None else twin.static)
    assert outcome.passed, outcome.reason
    assert not [site for site in conflicts if not site.written]


@pytest.mark.parametrize("along", list(Along))
@pytest.mark.parametrize("name", ["a", "b"])
@BY_ROW
def test_fragments_are_loaded_without_conflicts(row, name, along):
    """The padding that plans choose serves every length of a line."""
    along_k = lines_along_k(row, along)
    nbytes, pack = stored_type(row, name).nbytes, packing(row, name, along_k)
    for length in (16, 32, 48, 64, 96, 128, 256):
        pad = conflict_free_pad(row, name, along, length)
        line = length * (1 if along_k else pack) + pad
        assert is_conflict_free(row, name, along_k, line * nbytes)
        assert pad * nbytes % 16 == 0
        assert pad * nbytes <= 64


FMA = (
    "tiled block=64x32x16 thread=4x4 chunk=4x4 lanes=1 unroll=1 g=- m=m0 n=n0 serial=- k=k0 a=k*4+0{0} b=k*4+0{0}"
    " store=1 index=32 swap=0 row=fma stages=1 groups=1 split=none walk=1 fragments=2"
)
DOT = FMA.replace("x16 thread", "x64 thread").replace("row=fma", "row=dp4a.s8.s8").replace("k*4+0", "k*16+0")


@pytest.mark.parametrize(("text", "types"), [(FMA, "f32"), (DOT, "s8:s8:s32")])
def test_swizzles_spread_what_threads_scatter(text, types):
    """Tiles that arrive along k and are read along rows: four lines meet in a bank, or none."""
    line = "gemm -transA false -transB true -transO false -g 1 -m 70 -n 40 -k 96"
    problem = parse_problem(line, dtypes=types)
    plain, conflicts = counted(problem, parse_plan(text.format("")))
    assert plain.passed
    assert {site.excess for site in conflicts} == {4.0}
    swizzled, conflicts = counted(problem, parse_plan(text.format("~4")))
    assert swizzled.passed, swizzled.reason
    assert not conflicts


@pytest.mark.parametrize(("text", "types"), [(FMA, "f32"), (DOT, "s8:s8:s32")])
def test_asynchronous_copies_scatter_what_lies_apart(text, types):
    """A vector along k becomes copies of 4 bytes, one for each line of the tile, and no register holds it."""
    problem = parse_problem("gemm -transA false -transB true -transO false -g 1 -m 70 -n 40 -k 96", dtypes=types)
    kernel = compile(problem, InterpretDevice(Options(counted=True)), text.format("~4").replace("stages=1", "stages=3"))
    outcome = check_problem(kernel, DataKind.INT)
    assert outcome.passed, outcome.reason
    counts = kernel._preferred.launches[0].built.last.counts
    assert counts.rows["cp.async.ca.4"] > 0
    assert not [site for site in counts.of_scope(Scope.SHARED) if site.excess > 1]


def test_swizzles_that_do_not_fit_are_refused():
    contraction = prepare(parse_problem("gemm -transB true -g 1 -m 70 -n 40 -k 96")).contraction
    for swizzle, most in (("~3", 4), ("~8", 4)):
        reason = check_plan(parse_plan(FMA.format(swizzle)), contraction, SM_80).reason
        assert f"the swizzle of transfer a must be a power of two up to {most} here; got {swizzle[1:]}" in reason


@pytest.mark.parametrize("tag", ["axb", "abx"])
@pytest.mark.parametrize("types", ["f32", "f16", "tf32", "f64", "s8:s8:s32"])
def test_chosen_plans_have_no_bank_conflicts_in_loads(types, tag):
    problem = parse_problem("mb1ic32ih6oc32oh6kh3ph1", dtypes=types, stag=tag, wtag=tag, dtag=tag)
    plan = plan_for(prepare(problem).contraction, INTERPRET)
    outcome, conflicts = counted(problem, plan)
    assert outcome.passed
    assert not [site for site in conflicts if not site.written]


def test_ways_follow_from_types_and_lines():
    """16-bit tiles are turned by matrix loads; bytes are not, so that four k lie together; f64 fills no matrix."""
    f16, s8, f64 = (
        row_named(f"mma.{name}") for name in ("m16n8k16.f32.f16.f16", "m16n8k32.s32.s8.s8", "m8n8k4.f64.f64.f64")
    )
    assert [way_of(f16, "a", along_k) for along_k in (True, False)] == [Way.MATRIX, Way.TURNED]
    assert [way_of(s8, "b", along_k) for along_k in (True, False)] == [Way.MATRIX, Way.WORDS]
    assert [way_of(f64, "a", along_k) for along_k in (True, False)] == [Way.WORDS, Way.WORDS]
    assert [packing(row, "a", False) for row in (f16, s8, f64)] == [1, 4, 1]
    assert [columns_together(row) for row in (f16, s8, f64)] == [2, 2, 2]


def test_rows_take_what_they_hold_exactly():
    """Factors may be stored narrower than the row multiplies them; wider ones only where tf32 is allowed."""
    half, tf32, bytes_ = (
        row_named(f"mma.{name}") for name in ("m16n8k16.f32.f16.f16", "m16n8k8.f32.tf32.tf32", "m16n8k32.s32.u8.s8")
    )
    s32, f32 = bytes_.fragment("d").dtype, half.fragment("d").dtype
    assert row_multiplies(half, Products(E4M3, E5M2, f32, False))
    assert row_multiplies(tf32, Products(F16, BF16, f32, False))
    assert not row_multiplies(half, Products(F16, BF16, f32, False))
    assert not row_multiplies(tf32, Products(F32, F32, f32, False))
    assert row_multiplies(tf32, Products(F32, F32, f32, True))
    assert row_multiplies(bytes_, Products(U8, S8, s32, False))
    assert not row_multiplies(bytes_, Products(S8, U8, s32, False))


def test_f32_is_not_multiplied_in_tf32_unasked():
    """Products of odd numbers above 2**11 have digits that tf32 does not hold."""
    row = row_named("mma.m16n8k8.f32.tf32.tf32")
    strict = replace(problem_of(row, "fwd", "axb"), tf32=False)
    allowed = prepare(replace(strict, tf32=True)).contraction
    plan, _ = next(plans(row, allowed, SM_80))
    assert check_plan(plan, allowed, SM_80) is None
    assert (
        "multiplies tf32 by tf32 to f32; the contraction has f32"
        in check_plan(plan, prepare(strict).contraction, SM_80).reason
    )
    assert "tf32.tf32" in generate(allowed, SM_80, plan).source.text


NARROW = (
    "tiled block=32x32x16 thread=16x8 chunk=16x8 lanes=1 unroll=1 g=- m=n0 n=m0 serial=- k=k0 a=k*8+8 b=k*8+8 store={0}"
    " index=32 swap=1 row=mma.m16n8k16.f32.f16.f16 stages=2 groups=1 split=none walk=1 fragments=1 collect={1}"
)


@pytest.mark.parametrize("collect", [1, 2, 8])
@pytest.mark.parametrize("store", [1, 2])
def test_lines_of_collected_tiles_keep_what_is_written_and_stored_aligned(store, collect):
    line = "gemm -transA false -transB true -transO false -g 1 -m 70 -n 40 -k 48"
    problem = parse_problem(line, dtypes="f16")
    outcome, _ = counted(problem, parse_plan(NARROW.format(store, collect)))
    assert outcome.passed, outcome.reason
