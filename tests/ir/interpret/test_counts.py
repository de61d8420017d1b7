"""Counts against small kernels worked out by hand, and the cost model's numbers against counts."""

from random import Random

import pytest

from convloom.compiler import plan_for, prepare
from convloom.errors import IllegalProblem
from convloom.frontend.interpret_counts import interpret_counted
from convloom.ir.interpret import Options
from convloom.ir.ops import Scope
from convloom.plan.draw_plan import draw_plan
from convloom.plan.predicted import LINE_BYTES, predicted
from convloom.plan.split import NO_SPLIT
from convloom.plan.tiled import plan_text
from convloom.problem.notation import parse_problem
from convloom.problem.notation.choose import parse_line
from convloom.problem.numerics import result_dtype
from convloom.target.arch import CPU, INTERPRET, SM_90A
from convloom.target.memory_requests import Geometry
from tests.ir.interpret.kernels import memory, run
from tests.notations import defaults
from tests.plan.dividing import undivided

COUNTED = Options(counted=True)


def counted(body, threads=32, blocks=1, a=None):
    a = memory(range(4096)) if a is None else a
    outcome, _ = run(body, a, memory([0.0] * 4096), threads=threads, blocks=blocks, options=COUNTED)
    assert list(outcome.findings) == []
    return outcome.counts


def site(counts, scope, written):
    (found,) = [site for site in counts.of_scope(scope) if site.written is written]
    return found


@pytest.mark.parametrize(
    ("index", "wavefronts"),
    [
        ("tid", 1),
        ("tid * 2", 2),  # every second bank
        ("tid * 32", 32),  # one bank
        ("tid * 33", 1),
        ("tid * 4", 4),
        ("tid % 2", 1),  # one word is served to all
        ("5", 1),
        ("(tid % 8) * 32 + tid // 8", 8),
    ],
)
def test_bank_conflicts_of_four_byte_loads(index, wavefronts):
    body = f"""
    shared t f32[1056]
    for i[0,32] < 33 unrolled
      write t[i * 32 + tid] = read(a, tid, 1)
    barrier
    register r f32[1]
    write r[0] = read(t, {index}, 1)
    """
    found = site(counted(body), Scope.SHARED, written=False)
    assert (found.requests, found.units, found.ideal) == (1, wavefronts, 1)


@pytest.mark.parametrize(("index", "wavefronts"), [("tid * 4", 4), ("(tid % 8) * 4", 4), ("(tid % 4) * 32", 16)])
def test_sixteen_byte_loads_are_served_in_quarters(index, wavefronts):
    body = f"""
    shared t f32[128]
    for i[0,3] < 4 unrolled
      write t[i * 32 + tid] = read(a, tid, 1)
    barrier
    register r f32[4]
    write r[0] = read(t, {index}, 4)
    """
    assert site(counted(body), Scope.SHARED, written=False).units == wavefronts


@pytest.mark.parametrize(
    ("index", "lanes", "sectors", "ideal"),
    [
        ("tid", 1, 4, 4),
        ("tid * 8", 1, 32, 4),
        ("tid + 1", 1, 5, 4),
        ("tid * 4", 4, 16, 16),
        ("0", 1, 1, 1),
        ("tid * 16", 4, 32, 16),
    ],
)
def test_sectors_of_global_loads(index, lanes, sectors, ideal):
    body = f"register r f32[{lanes}]\nwrite r[0] = read(a, {index}, {lanes})\n"
    found = site(counted(body), Scope.GLOBAL, written=False)
    assert (found.requests, found.units, found.ideal) == (1, sectors, ideal)
    assert found.moved_bytes == 32 * 4 * lanes


def test_absent_threads_cost_nothing():
    body = "register r f32[1]\nwrite r[0] = read(a, tid * 8, 1, if_=tid < 5)\n"
    found = site(counted(body, threads=64), Scope.GLOBAL, written=False)
    assert (found.requests, found.accesses, found.units) == (1, 5, 5)


def test_sums_over_blocks_threads_and_loops():
    body = """
    register r f32[1]
    write r[0] = const(0.0, f32, 1)
    for i[0,2] < 3 serial
      write r[0] = mad(read(a, bid * 64 + tid, 1), read(a, i, 1), read(r, 0, 1))
      barrier
    when tid < 40
      write r[0] = add(read(r, 0, 1), read(r, 0, 1))
    write c[bid * 64 + tid] = read(r, 0, 1)
    """
    for chunk_threads in (64, 4096):
        outcome, _ = run(
            body, memory(range(4096)), memory([0.0] * 4096), threads=64, blocks=5,
            options=Options(counted=True, chunk_threads=chunk_threads),
        )  # fmt: skip
        counts = outcome.counts
        assert counts.operations == {"multiply-add": 5 * 64 * 3, "add": 5 * 40}
        assert counts.barriers == 15
        assert counts.moved_bytes(Scope.GLOBAL, written=True) == 5 * 64 * 4
        assert site(counts, Scope.GLOBAL, written=True).units == 5 * 8


def test_the_geometry_is_a_parameter():
    assert Geometry().subgroup * Geometry().word_bytes == 128


# --- estimates ------------------------------------------------------------------------------------------------------

WHOLE = [  # every plan of these loads its fragments without bank conflicts
    ("mb2ic32ih8oc32oh8kh1", "fwd", "f32", None),
    ("mb2ic32ih8oc32oh8kh1", "bwd_w", "f32", None),
    ("mb2ic64ih8oc64oh8kh3ph1", "fwd", "f16", "axb"),
    ("mb2ic64ih8oc64oh8kh3ph1", "bwd_d", "f16", "axb"),
    ("mb2ic64ih8oc64oh8kh3ph1", "bwd_w", "f16", "axb"),
    ("mb4ic64ih8oc64oh8kh1", "fwd", "s8:s8:s32", "axb"),
    ("mb4ic64ih8oc64oh8kh1", "fwd", "f64", "axb"),
]


@pytest.mark.parametrize(("line", "direction", "dtypes", "tag"), WHOLE)
def test_estimates_are_what_is_counted(line, direction, dtypes, tag):
    options = defaults(direction, dtypes, tag) if tag else defaults(direction, dtypes)
    problem = parse_line(line, options)
    contraction = prepare(problem).contraction
    whole = plan_for(contraction, INTERPRET)
    if whole.split != NO_SPLIT:  # parts of unequal lengths are estimated by the longest
        whole = undivided(contraction, INTERPRET)
    found = interpret_counted(problem, INTERPRET, plan_text(whole))
    counts, expected = found.outcome.counts, found.predicted
    assert found.check.passed
    assert found.outcome.blocks == expected.blocks
    assert counts.barriers == expected.barriers
    assert counts.operations["multiply-add"] == expected.multiply_adds
    stores = sum(site.accesses for site in counts.of_scope(Scope.GLOBAL) if site.written)
    loads = sum(site.accesses for site in counts.of_scope(Scope.GLOBAL) if not site.written)
    assert 0.7 * expected.store_accesses <= stores <= expected.store_accesses  # tails are masked
    assert 0.7 * expected.load_accesses <= loads <= expected.load_accesses  # so is padding
    assert counts.sector_bytes() >= expected.global_bytes  # what passes the caches is at most what is asked for
    assert 0.7 * expected.load_sectors <= units(counts, Scope.GLOBAL, written=False) <= expected.load_sectors
    check_shared_memory(counts, found, problem)
    assert counts.rows.get(found.plan.row, 0) == expected.multiplies


def units(counts, scope, *, written):
    return sum(site.units for site in counts.of_scope(scope) if site.written is written and site.buffer != "c_tile")


def moved(counts, *, written):
    sites = counts.of_scope(Scope.SHARED)
    return sum(site.moved_bytes for site in sites if site.written is written and site.buffer != "c_tile")


def collected_bytes(found, problem):
    """What the estimate holds of C's tiles in shared memory: whole tiles without conflicts, unlike the counts."""
    plan = found.plan
    numbers = found.predicted.blocks * plan.block_m * plan.block_n if plan.collect else 0
    return numbers * result_dtype(problem).nbytes


def check_shared_memory(counts, found, problem):
    expected, collected = found.predicted, collected_bytes(found, problem)
    apart = expected.handed_bytes - collected
    assert moved(counts, written=True) == expected.written_bytes + apart
    assert moved(counts, written=False) == expected.read_bytes + apart
    assert units(counts, Scope.SHARED, written=True) == expected.written_wavefronts + apart // LINE_BYTES
    assert units(counts, Scope.SHARED, written=False) == expected.read_wavefronts + apart // LINE_BYTES


# Any legal plan: what is stored to shared memory, with its bank conflicts, is read off layouts before there is code.
DRAWN = [("f32", None), ("f16", "axb"), ("s8:s8:s32", "axb"), ("f64", None)]


@pytest.mark.parametrize(("dtypes", "tag"), DRAWN)
def test_requests_of_drawn_plans_are_what_is_counted(dtypes, tag):
    options = defaults("fwd", dtypes, tag) if tag else defaults("fwd", dtypes)
    problem = parse_line("mb2ic16ih6oc24oh6kh3ph1", options)
    contraction = prepare(problem).contraction
    random, rows, conflicts, tried = Random(3), set(), 0, 0
    while tried < 8:
        plan = draw_plan(random, contraction, INTERPRET)
        known = None if plan is None or plan.split != NO_SPLIT else predicted(plan, contraction, INTERPRET)
        if plan is None or known is None:
            continue
        tried += 1
        rows.add(plan.row)
        found = interpret_counted(problem, INTERPRET, plan_text(plan))
        counts, expected = found.outcome.counts, found.predicted
        tiles = [site for site in counts.of_scope(Scope.SHARED) if site.buffer not in ("group_sums", "c_tile")]
        collected = collected_bytes(found, problem)
        stored = [site for site in tiles if site.written]
        assert sum(site.moved_bytes for site in stored) == expected.written_bytes - collected
        assert sum(site.units for site in stored) == expected.written_wavefronts - collected // LINE_BYTES
        conflicts += sum(site.units > site.ideal for site in stored)
        assert sum(site.moved_bytes for site in tiles if not site.written) == expected.read_bytes - collected
        assert counts.rows.get(plan.row, 0) == expected.multiplies
        assert counts.barriers == expected.barriers
        useful = problem.ops / 2 / expected.multiply_adds  # the rest is masked: tails of tiles
        loaded = units(counts, Scope.GLOBAL, written=False)
        assert 0.7 * useful * expected.load_sectors <= loaded <= 2 * expected.load_sectors  # of the tile at the corner
    assert conflicts > 0
    assert len(rows) > (1 if dtypes.startswith(("f16", "s8")) else 0)


PHASES = (
    "tiled block=32x64x64 thread=16x32 chunk=16x8 lanes=1 unroll=0 g=- m=m0,m1,m2 n=n0 serial=k0,k1 k=k2"
    " a=k*8+8 b=row*8+8 store=2 index=32 swap=0 row=mma.m16n8k16.f32.f16.f16 stages=3 groups=1 split=none walk=1"
)


def test_phases_are_estimated_by_their_mean_number_of_steps_rounded_up():
    problem = parse_line("mb2ic64ih8oc64oh4kh3ph1sh2", defaults("bwd_d", "f16", "axb"))
    found = interpret_counted(problem, INTERPRET, PHASES)
    assert found.outcome.blocks == found.predicted.blocks
    assert found.outcome.counts.barriers == 9  # 1 + 2 + 2 + 4 taps
    assert found.predicted.barriers == 4 * 3


def test_any_gpu_target_can_be_counted():
    found = interpret_counted(parse_problem("mb1ic8ih6oc16oh6kh3ph1"), SM_90A)
    assert found.check.passed
    assert found.outcome.counts.rows == {}


def test_the_cpu_target_is_refused():
    with pytest.raises(IllegalProblem, match="kernels of GPU targets"):
        interpret_counted(parse_problem("mb1ic8ih6oc16oh6kh3ph1"), CPU)
