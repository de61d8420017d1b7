"""What orders threads of ordered launches: named barriers, transaction barriers, atomics, fences; tiny text kernels."""

import numpy as np
import pytest

from convloom.errors import InternalError
from convloom.ir.interpret import FindingKind, GlobalMemory, Options, interpret
from convloom.ir.interpret.options import Landing
from convloom.ir.interpret.ordered.roles import groups
from convloom.ir.parse import parse_kernel
from convloom.ir.verify import verify

HEAD = """kernel tiny
  threads {threads}
  index 32
  buffer a f32
  result c f32
  result part f32
  result count s32
  map a_map = tiled(a, sizes=(32, 4), strides=(128,), steps=(1, 1), box=(32, 1), swizzle=0, offset=0)
  map c_map = tiled(c, sizes=(32, 4), strides=(128,), steps=(1, 1), box=(32, 1), swizzle=0, offset=0)
  blocks {blocks}
"""
COUNT = 128


def run(body, threads=64, blocks=1, **options):
    """(kinds of findings, c, all findings as text) of one launch."""
    lines = [line for line in body.splitlines() if line.strip()]
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    text = HEAD.format(threads=threads, blocks=blocks) + "\n".join("  " + line[margin:] for line in lines)
    kernel = parse_kernel(text)
    verify(kernel, "writing it")
    c = np.zeros(COUNT, np.float32)
    memories = {
        "a": GlobalMemory(np.arange(COUNT, dtype=np.float32), address=256),
        "c": GlobalMemory(c, address=256),
        "part": GlobalMemory(np.zeros(COUNT, np.float32), known=np.zeros(COUNT, bool), address=256),
        "count": GlobalMemory(np.zeros(4, np.int32), address=256),
    }
    outcome = interpret(kernel, memories, {}, {}, blocks, Options(**options))
    return outcome.findings.kinds(), c, "; ".join(map(str, outcome.findings))


def seeds(body, **options):
    """The kinds found under each of a few seeds."""
    return [run(body, seed=seed, **options)[0] for seed in range(4)]


RACE, DEADLOCK = {FindingKind.RACE}, {FindingKind.DEADLOCK}

# --- named barriers -------------------------------------------------------------------------------------------------

HANDOVER = """
    shared s f32[64]
    when tid < 32
      write s[tid] = read(a, tid, 1)
      do {first} (barrier=index(3), threads=index(64))
    when 32 <= tid
      do bar.sync (barrier=index({number}), threads=index(64))
      write c[tid - 32] = read(s, 63 - tid, 1)
"""


@pytest.mark.parametrize("first", ["bar.sync", "bar.arrive"])
def test_a_named_barrier_hands_over(first):
    kinds, c, _ = run(HANDOVER.format(first=first, number=3))
    assert kinds == set()
    assert c[:32].tolist() == list(range(31, -1, -1))


def test_different_barriers_never_meet():
    kinds, _, text = run(HANDOVER.format(first="bar.sync", number=4))
    assert kinds == DEADLOCK
    assert "barrier 3, where 32 of 64 threads arrived" in text
    assert "barrier 4, where 32 of 64 threads arrived" in text


def test_one_who_only_arrives_sees_nothing():
    body = """
        shared s f32[64]
        when tid < 32
          do bar.arrive (barrier=index(1), threads=index(64))
          write c[tid] = read(s, tid, 1)
        when 32 <= tid
          write s[tid % 32] = read(a, tid, 1)
          do bar.sync (barrier=index(1), threads=index(64))
    """
    assert all(kinds >= RACE for kinds in seeds(body))


def test_threads_of_a_warp_are_not_ordered_by_running_together():
    body = """
        shared s f32[64]
        write s[tid] = read(a, tid, 1)
        write c[tid] = read(s, 63 - tid, 1)
        do bar.sync (barrier=index(1), threads=index(64))
    """
    assert all(kinds >= RACE for kinds in seeds(body))


# --- transaction barriers -------------------------------------------------------------------------------------------

RING = """
    shared s f32[64]
    shared full b64[1]
    when tid == 0
      do mbarrier.init (barrier=address(full, 0), count=index({count}))
    barrier
    when tid < 32
      write s[tid] = read(a, tid, 1)
      do mbarrier.arrive (barrier=address(full, 0))
    when 32 <= tid
      {wait}
      write c[tid - 32] = read(s, 63 - tid, 1)
"""
WAIT = "do mbarrier.wait.parity (barrier=address(full, 0), parity=index({}))"


def test_arrivals_release_to_those_who_wait():
    kinds, c, _ = run(RING.format(count=32, wait=WAIT.format(0)))
    assert kinds == set()
    assert c[:32].tolist() == list(range(31, -1, -1))


@pytest.mark.parametrize("seed", range(3))
def test_no_wait_or_the_wrong_parity_is_found(seed):
    assert run(RING.format(count=32, wait="# nothing"), seed=seed)[0] >= RACE
    wrong, _, _ = run(RING.format(count=32, wait=WAIT.format(1)), seed=seed)
    assert wrong & {*RACE, *DEADLOCK}  # which one depends on who comes first


def test_a_missing_arrival_is_a_deadlock():
    kinds, _, text = run(RING.format(count=33, wait=WAIT.format(0)))
    assert kinds == DEADLOCK
    assert "with 1 of 33 arrivals" in text


def test_one_thread_waits_for_itself_only():
    wait = f"when tid == 32\n        {WAIT.format(0)}"
    assert run(RING.format(count=32, wait=wait))[0] >= RACE


COPY = """
    shared s f32[64] align 128
    shared full b64[1]
    when tid == 0
      do mbarrier.init (barrier=address(full, 0), count=index(1))
      {fence}
    barrier
    when tid == 0
      do mbarrier.arrive.expect_tx (barrier=address(full, 0), nbytes=index(128))
      do cp.async.bulk.load (destination=address(s, 0), address=address(a, 32), size=index(128), {barrier})
    {wait}
    when tid < 32
      write c[tid] = read(s, tid, 1)
"""
FULL = "barrier=address(full, 0)"
FENCE = "do fence.mbarrier_init ()"


@pytest.mark.parametrize("landing", list(Landing))
def test_linear_bulk_copy(landing):
    kinds, c, _ = run(COPY.format(barrier=FULL, fence=FENCE, wait=WAIT.format(0)), landing=landing)
    assert kinds == set()
    assert c[:32].tolist() == list(range(32, 64))
    unfenced = COPY.format(barrier=FULL, fence="# none", wait=WAIT.format(0))
    assert run(unfenced, landing=landing)[0] == {FindingKind.UNFENCED}
    assert run(COPY.format(barrier=FULL, fence=FENCE, wait="# none"), landing=landing)[0] >= RACE


REREAD = """
    shared s f32[32] align 128
    shared full b64[1]
    when tid < 32
      write c[tid] = read(a, tid, 1)
    {fence}
    when tid == 0
      do mbarrier.init (barrier=address(full, 0), count=index(1))
      do fence.mbarrier_init ()
    barrier
    when tid == 0
      do mbarrier.arrive.expect_tx (barrier=address(full, 0), nbytes=index(128))
      do cp.async.bulk.load (destination=address(s, 0), address=address(c, 0), size=index(128), {barrier})
    {wait}
    when tid < 32
      write c[tid] = read(a, tid + 32, 1)
    {late}
"""
NONE = "# none"
EVERYWHERE = "do fence.proxy.async ()"


@pytest.mark.parametrize("landing", list(Landing))
def test_a_copy_reads_global_memory_until_its_phase_is_over(landing):
    def found(fence, wait, late=NONE):
        return run(REREAD.format(fence=fence, wait=wait, late=late, barrier=FULL), landing=landing)[0]

    assert found(EVERYWHERE, WAIT.format(0)) == set()
    assert found(NONE, WAIT.format(0)) == {FindingKind.UNFENCED}
    assert found(EVERYWHERE, NONE, WAIT.format(0)) >= RACE


# --- copies of threads that arrive for them -------------------------------------------------------------------------

GATHER = """
    shared s f32[256] align 128
    shared full b64[1]
    when tid == 0
      do mbarrier.init (barrier=address(full, 0), count=index({count}))
    barrier
    when tid < 32
      do cp.async.ca.4 (destination=address(s, tid), source=address(a, 2 * tid), source_bytes=index(4))
      {commit}
      {arrive}
      {later}
    when 32 <= tid
      {wait}
      {fence}
      {use}
"""
ARRIVE = "do cp.async.mbarrier.arrive.noinc (barrier=address(full, 0))"
COPY_LATE = "do cp.async.ca.4 (destination=address(s, tid), source=address(a, tid), source_bytes=index(4))"
USE = "write c[tid - 32] = read(s, 63 - tid, 1)"
BULK_USE = """when tid == 32
        do cp.async.bulk.store (address=address(c, 0), source=address(s, 0), size=index(128))
        do cp.async.bulk.commit_group ()
        do cp.async.bulk.wait_group (pending=index(0))"""


def gather(landing=Landing.LATEST, seed=0, **parts):
    given = {"count": 32, "commit": NONE, "arrive": ARRIVE, "later": NONE, "wait": WAIT.format(0), "fence": NONE}
    return run(GATHER.format(**{**given, "use": USE, **parts}), landing=landing, seed=seed)


@pytest.mark.parametrize("landing", list(Landing))
@pytest.mark.parametrize("commit", [NONE, "do cp.async.commit_group ()"])
def test_an_arrival_behind_copies_hands_them_over(landing, commit):
    for seed in range(3):
        kinds, c, text = gather(landing, seed, commit=commit)
        assert kinds == set(), text
        assert c[:32].tolist() == list(range(62, -2, -2))


@pytest.mark.parametrize("landing", list(Landing))
def test_faults_around_an_arrival_behind_copies(landing):
    for seed in range(2):
        assert gather(landing, seed, wait=NONE)[0] >= RACE
        assert gather(landing, seed, arrive="do mbarrier.arrive (barrier=address(full, 0))")[0] >= RACE
        assert gather(landing, seed, later=COPY_LATE)[0] >= RACE  # it is no part of the arrival
        assert gather(landing, seed, count=33)[0] == DEADLOCK
        assert gather(landing, seed, count=31)[0] >= RACE


def test_an_arrival_that_nobody_waits_for_must_not_outlive_its_block():
    assert gather(Landing.LATEST, wait=NONE, use=NONE)[0] == {FindingKind.UNFINISHED}
    assert gather(Landing.EARLIEST, wait=NONE, use=NONE)[0] == set()


def test_what_was_copied_needs_a_proxy_fence_of_those_who_waited():
    assert gather(use=BULK_USE)[0] == {FindingKind.UNFENCED}
    kinds, c, _ = gather(use=BULK_USE, fence=EVERYWHERE)
    assert kinds == set()
    assert c[:32].tolist() == list(range(0, 64, 2))


def test_an_arrival_behind_copies_releases_nothing_else():
    write = "write s[tid + 64] = read(a, tid, 1)"
    body = GATHER.replace("{arrive}", f"{write}\n      {{arrive}}")
    use = "write c[tid - 32] = read(s, tid + 32, 1)"
    given = {"count": 32, "commit": NONE, "later": NONE, "wait": WAIT.format(0), "fence": NONE, "use": use}
    assert run(body.format(arrive=ARRIVE, **given))[0] >= RACE
    both = "do mbarrier.arrive (barrier=address(full, 0))\n      " + ARRIVE
    assert run(body.format(arrive=both, **{**given, "count": 64}))[0] == set()


def test_groups_are_waited_for_as_before_an_arrival():
    """A thread that arrives in between still waits for its own groups by their number."""
    copy = COPY_LATE.replace("s, tid", "s, tid + 64")
    later = f"{copy}\n      do cp.async.commit_group ()\n      do cp.async.wait_group (pending=index({{}}))"
    later += "\n      write part[tid] = read(s, tid + 64, 1)"
    given = {"wait": NONE, "use": NONE, "landing": Landing.LATEST}
    assert gather(later=later.format(0), **given)[0] <= {FindingKind.UNFINISHED}
    assert gather(later=later.format(1), **given)[0] >= RACE


# --- register budgets -----------------------------------------------------------------------------------------------

BUDGETS = """
    when tid < 128
      {producer}
    when 128 <= tid
      {consumers}
"""


def budgets(producer, consumers, threads=384):
    kinds, _, text = run(BUDGETS.format(producer=producer, consumers=consumers), threads=threads)
    return kinds, text


def budget(direction, registers):
    return f"do setmaxnreg.{direction} (registers=index({registers}))"


def test_budgets_that_fit_the_block_are_given():
    """384 threads begin with 168 registers each: 504 for the three warpgroups together."""
    for given, taken in ((40, 232), (24, 240), (24, 232)):
        assert budgets(budget("dec", given), budget("inc", taken)) == (set(), "")
    assert budgets(budget("dec", 40), budget("inc", 232), threads=256) == (set(), "")  # the block begins with 232


def test_budgets_beyond_the_block_are_waited_for_in_vain():
    kinds, text = budgets(budget("dec", 40), budget("inc", 240))
    assert kinds == DEADLOCK
    assert "registers for a budget of 240; the block's pool has" in text
    assert budgets(NONE, budget("inc", 232))[0] == DEADLOCK  # nobody gives any
    assert budgets(budget("dec", 24), budget("inc", 232), threads=512)[0] == DEADLOCK


def test_budgets_go_the_way_they_say_and_for_whole_warpgroups():
    broken = {FindingKind.BROKEN_RULE}
    assert budgets(budget("dec", 176), budget("inc", 168))[0] == broken
    assert budgets(budget("inc", 40), budget("dec", 160))[0] == broken
    half = f"when tid < bid + 64\n        {budget('dec', 40)}"
    kinds, text = budgets(half, budget("inc", 168))
    assert kinds == broken
    assert "budgets of the warps of one warpgroup: 40, 40, 168, 168" in text
    with pytest.raises(InternalError, match=r"registers of setmaxnreg\.dec must be within 24, 256; got 16"):
        budgets(budget("dec", 16), budget("inc", 168))


# --- proxies and bulk groups ----------------------------------------------------------------------------------------

STORE = """
    shared s f32[64] align 128
    when tid < 32
      write s[tid] = read(a, tid, 1)
    {before}
    barrier
    when tid == 0
      {after}
      do {copy} (map=map(c_map), coordinates=numbers(0, 2), source=address(s, 0))
      do cp.async.bulk.commit_group ()
      {wait}
    barrier
    when tid < 32
      write s[tid] = read(a, tid + 32, 1)
"""
PROXY = "do fence.proxy.async.shared ()"
DONE = "do cp.async.bulk.wait_group.read (pending=index(0))"
TENSOR_STORE = "cp.async.bulk.tensor.2d.tile.store"


@pytest.mark.parametrize("landing", list(Landing))
@pytest.mark.parametrize("copy", [TENSOR_STORE, "cp.reduce.async.bulk.tensor.2d.tile.add"])
def test_a_store_behind_a_fence(copy, landing):
    kinds, c, _ = run(STORE.format(before=PROXY, after=NONE, copy=copy, wait=DONE), landing=landing)
    assert kinds == set()
    assert c[64:96].tolist() == list(range(32))
    assert not c[:64].any()


def test_faults_around_a_store():
    given = {"copy": TENSOR_STORE}
    assert run(STORE.format(before=NONE, after=NONE, wait=DONE, **given))[0] == {FindingKind.UNFENCED}
    assert run(STORE.format(before=NONE, after=PROXY, wait=DONE, **given))[0] == set()  # anywhere on the way
    assert run(STORE.format(before=PROXY, after=NONE, wait=NONE, **given))[0] == {*RACE, FindingKind.UNFINISHED}


# --- order between blocks -------------------------------------------------------------------------------------------

LAST = """
    register old s32[1]
    write part[bid * 32 + tid] = read(a, bid * 32 + tid, 1)
    barrier
    when tid == 0
      {before}
      do atom.add.s32.global.{order} (d=registers(old, 0, 1), address=address(count, 0), value=index(1))
      {after}
      let arrived[0,] = read(old, 0, 1)
      when arrived == 2
        for i[0,31] < 32 serial
          write c[i] = add(add(read(part, i, 1), read(part, i + 32, 1)), read(part, i + 64, 1))
"""
GPU = "do fence.acq_rel.gpu ()"


@pytest.mark.parametrize(("order", "fence"), [("acq_rel", NONE), ("relaxed", GPU)])
def test_the_last_block_sees_all_parts(order, fence):
    for seed in range(3):
        body = LAST.format(order=order, before=fence, after=fence)
        kinds, c, _ = run(body, threads=32, blocks=3, seed=seed, multiprocessors=3)
        assert kinds == set()
        assert c[:32].tolist() == [3 * i + 96 for i in range(32)]


@pytest.mark.parametrize(
    ("order", "before", "after"),
    [
        ("relaxed", NONE, NONE),
        ("release", NONE, NONE),
        ("acquire", NONE, NONE),
        ("relaxed", GPU, NONE),
        ("relaxed", NONE, GPU),
    ],
)
def test_half_an_order_is_a_race(order, before, after):
    for seed in range(3):
        body = LAST.format(order=order, before=before, after=after)
        assert run(body, threads=32, blocks=3, seed=seed, multiprocessors=3)[0] == RACE


TURNS = """
    when tid == 0
      do wait.acquire.b32 (address=address(count, 0), value=index(bid))
    barrier
    write c[tid] = add(read(c, tid, 1), read(a, bid * 32 + tid, 1))
    barrier
    when tid == 0
      {pass_on}
"""
RELEASE = "do st.release.b32 (address=address(count, 0), value=index(bid + 1))"


def test_blocks_take_turns_by_a_semaphore():
    for multiprocessors in (1, 2, 3):
        kinds, c, _ = run(TURNS.format(pass_on=RELEASE), threads=32, blocks=3, multiprocessors=multiprocessors)
        assert kinds == set()
        assert c[:32].tolist() == [3 * i + 96 for i in range(32)]
    kinds, _, text = run(TURNS.format(pass_on=NONE), threads=32, blocks=3)
    assert kinds == DEADLOCK
    assert "the value 1 in global memory" in text


@pytest.mark.parametrize("name", ["red.add.f32.global.relaxed", "atom.add.f32.global.relaxed"])
def test_atomic_additions_of_blocks_arrive(name):
    result = "d=registers(r, 1, 1), " if name.startswith("atom") else ""
    body = f"""
        register r f32[2]
        write r[0] = read(a, tid, 1)
        do {name} ({result}address=address(c, tid % 2), value=registers(r, 0, 1))
    """
    kinds, c, _ = run(body, threads=32, blocks=3)
    assert kinds == set()
    assert c[:3].tolist() == [3 * sum(range(0, 32, 2)), 3 * sum(range(1, 32, 2)), 0]
    assert run(body + "\n        write c[0] = read(a, 0, 1) if tid == 0", threads=32, blocks=3)[0] >= RACE


def test_shared_atomics_count():
    body = """
        shared s s32[1]
        when tid == 0
          write s[0] = convert(const(0.0, f32, 1), s32)
        barrier
        do red.add.s32.shared.relaxed (address=address(s, 0), value=index(tid))
        barrier
        write c[tid] = convert(read(s, 0, 1), f32)
    """
    kinds, c, _ = run(body)
    assert kinds == set()
    assert set(c[:64].tolist()) == {sum(range(64))}


# --- groups ---------------------------------------------------------------------------------------------------------


def test_a_name_bound_anew_says_nothing_of_who_multiplies_together():
    """`w` names the warpgroup first and what memory holds later: any warp may then reach the multiply."""
    body = """
        register n index[1]
        let w[0,1] = index(tid // 128)
        write n[0] = index(bid)
        let w[0,1] = read(n, 0, 1)
        when w == 0
          do wgmma.commit_group ()
    """
    lines = [line[8:] for line in body.splitlines() if line.strip()]
    text = HEAD.format(threads=256, blocks=1) + "\n".join("  " + line for line in lines)
    assert groups(parse_kernel(text)) == [range(128), range(128, 256)]
    once = text.replace("  let w[0,1] = read(n, 0, 1)\n", "")
    assert groups(parse_kernel(once)) == [range(128), *(range(first, first + 32) for first in range(128, 256, 32))]
