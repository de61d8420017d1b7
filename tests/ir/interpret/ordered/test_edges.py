"""Bulk copies over the edges of tensors in ordered launches: columns for a cluster of four, sums of many blocks."""

import numpy as np
import pytest

from convloom.ir.interpret import FindingKind, GlobalMemory, Options, interpret
from convloom.ir.interpret.options import Landing
from convloom.ir.parse import parse_kernel
from convloom.ir.verify import verify

RACE, UNFENCED, UNFINISHED = FindingKind.RACE, FindingKind.UNFENCED, FindingKind.UNFINISHED
NONE = "# none"
PITCH = 32  # numbers from one row of c to the next


def launched(text, memories, blocks, **options):
    """(kinds of findings, all of them as text)."""
    kernel = parse_kernel(text)
    verify(kernel, "writing it")
    outcome = interpret(kernel, memories, {}, {}, blocks, Options(**options))
    return outcome.findings.kinds(), "; ".join(map(str, outcome.findings))


# --- image columns --------------------------------------------------------------------------------------------------

WIDTH, BATCH, CHANNELS, PIXELS, CLUSTER = 10, 3, 4, 8, 4

COLUMNS = """kernel columns
  threads 32
  cluster 4
  index 32
  buffer a f32
  result c f32
  map a_map = columns(a, sizes=(4, 10, 3), strides=(16, 160), steps=(1, 1, 1), lower=(-1,), upper=(-1,), \
channels=4, pixels=8, swizzle=0, offset=0)
  blocks 8
  shared s f32[128] align 128
  shared full b64[1]
  when tid == 0
    do mbarrier.init (barrier=address(full, 0), count=index(1))
    {fence}
    do mbarrier.arrive.expect_tx (barrier=address(full, 0), nbytes=index({nbytes}))
  {meet}
  when tid == 0
    do cp.async.bulk.tensor.3d.im2col.load.multicast (destination=address(s, bid % 4 * {step}), map=map(a_map), \
coordinates=numbers(0, bid % 4 * 8 % 10 - 1, bid % 4 * 8 // 10), barrier=address(full, 0), offsets=numbers({tap}), \
mask=index({mask}))
  {wait}
  for i[0,3] < 4 unrolled
    write c[bid * 128 + i * 32 + tid] = read(s, i * 32 + tid, 1)
  {meet_again}
"""
MEET = "do barrier.cluster.arrive ()\n  do barrier.cluster.wait ()"
WAIT = "do mbarrier.wait.parity (barrier=address(full, 0), parity=index(0))"
IMAGE = np.arange(1, WIDTH * BATCH * CHANNELS + 1, dtype=np.float32)
RIGHT = {
    "fence": "do fence.mbarrier_init ()",
    "nbytes": CLUSTER * PIXELS * CHANNELS * 4,
    "meet": MEET,
    "step": PIXELS * CHANNELS,
    "tap": 0,
    "mask": 15,
    "wait": WAIT,
    "meet_again": NONE,
}


def columns(landing=Landing.LATEST, seed=0, **parts):
    """(kinds, what each block stored, text)."""
    c = np.zeros(8 * 128, np.float32)
    memories = {
        "a": GlobalMemory(IMAGE.copy(), address=1 << 20),
        "c": GlobalMemory(c, known=np.zeros(c.size, bool), address=1 << 20),
    }
    text = COLUMNS.format(**{**RIGHT, **parts})
    kinds, found = launched(text, memories, 8, landing=landing, seed=seed, multiprocessors=4)
    return kinds, c.reshape(8, 32, CHANNELS), found


def expected(tap):
    """32 window positions, one after the other over width and batch: zeros beside the image and behind the last one."""
    padded = np.zeros((BATCH + 1, WIDTH + 2, CHANNELS), np.float32)
    padded[:BATCH, 1:-1] = IMAGE.reshape(BATCH, WIDTH, CHANNELS)
    return padded[:, tap : tap + WIDTH].reshape(-1, CHANNELS)[: PIXELS * CLUSTER]


@pytest.mark.parametrize("landing", list(Landing))
@pytest.mark.parametrize("tap", [0, 1, 2])
def test_image_columns_reach_every_block_of_a_cluster(landing, tap):
    for seed in range(2):
        kinds, stored, text = columns(landing, seed, tap=tap)
        assert kinds == set(), text
        assert all((block == expected(tap)).all() for block in stored)


def test_faults_of_columns_sent_to_a_cluster():
    for seed in range(3):
        assert columns(seed=seed, wait=NONE)[0] >= {RACE}
        assert columns(seed=seed, fence=NONE)[0] >= {UNFENCED}
        assert columns(seed=seed, nbytes=RIGHT["nbytes"] - 128)[0] & {RACE, FindingKind.BROKEN_RULE}
        assert columns(seed=seed, mask=7)[0] == {FindingKind.DEADLOCK}  # the fourth block gets nothing
        assert columns(seed=seed, step=0)[0] >= {RACE}  # all blocks send to one place
    found = [columns(seed=seed, meet="barrier")[0] for seed in range(4)]  # a barrier of the block only
    assert all(kinds & {FindingKind.UNINITIALISED, RACE, UNFENCED, FindingKind.OUT_OF_BOUNDS} for kinds in found)


# --- reductions -----------------------------------------------------------------------------------------------------

REDUCE = """kernel reduce
  threads 32
  index 32
  buffer a f32
  result c f32
  map c_map = tiled(c, sizes=(28, 5), strides=(128,), steps=(1, 1), box=(32, 4), swizzle=0, offset=0)
  blocks 3
  shared s f32[128] align 128
  for i[0,3] < 4 unrolled
    write s[i * 32 + tid] = read(a, i * 32 + tid, 1)
  {fence}
  barrier
  when tid == 0
    do cp.reduce.async.bulk.tensor.2d.tile.{operation} (map=map(c_map), coordinates=numbers(0, 2), source=address(s, 0))
    do cp.async.bulk.commit_group ()
    {wait}
  {after}
"""


def reduce(operation="add", landing=Landing.LATEST, seed=0, **parts):
    """(kinds, c as rows of the pitch, text)."""
    c = np.full(8 * PITCH, 5, np.float32)
    memories = {
        "a": GlobalMemory(np.arange(128, dtype=np.float32), address=1 << 20),
        "c": GlobalMemory(c, address=1 << 20),
    }
    given = {"fence": "do fence.proxy.async.shared ()", "wait": "do cp.async.bulk.wait_group (pending=index(0))"}
    text = REDUCE.format(operation=operation, **{**given, "after": NONE, **parts})
    kinds, found = launched(text, memories, 3, landing=landing, seed=seed, multiprocessors=3)
    return kinds, c.reshape(8, PITCH), found


@pytest.mark.parametrize("landing", list(Landing))
@pytest.mark.parametrize(
    ("operation", "law"), [("add", lambda old, new: old + 3 * new), ("min", np.minimum), ("max", np.maximum)]
)
def test_reductions_of_blocks_over_the_edges(operation, law, landing):
    """The tensor is 28 x 5, the boxes reach to row 5 and column 31: nothing there changes."""
    for seed in range(2):
        kinds, c, text = reduce(operation, landing, seed)
        assert kinds == set(), text
        wanted = np.full((8, PITCH), 5, np.float32)
        wanted[2:5, :28] = law(wanted[2:5, :28], np.arange(128).reshape(4, 32)[:3, :28])
        assert (c == wanted).all()


def test_faults_around_reductions():
    assert reduce(fence=NONE)[0] == {UNFENCED}
    assert reduce(wait=NONE)[0] == {UNFINISHED}
    inside, outside = "write c[2 * 32 + tid] = read(a, tid, 1)", "write c[5 * 32 + tid] = read(a, tid, 1) if bid == 0"
    for seed in range(3):
        assert reduce(seed=seed, after=inside)[0] >= {RACE}
        assert reduce(seed=seed, after=outside)[0] == set()  # no box writes beyond the tensor
        old = "write s[tid] = read(c, 2 * 32 + tid, 1)"
        assert reduce(seed=seed, after=old)[0] >= {RACE}  # other blocks may still add
