"""Tensor maps and bulk copies against plain loops; tensor loads feed wgmma."""

from itertools import product

import numpy as np
import pytest

from convloom.dtypes import F16, F32, S32, U8
from convloom.errors import IllegalProblem
from convloom.target.catalogue import row_named
from convloom.target.group_multiply import MatrixDescriptor
from convloom.target.instruction import Completion, OutOfBounds, Proxy
from convloom.target.memory import CLUSTER_PITCH, FlatMemory, MemoryFault
from convloom.target.nvidia_wgmma import wgmma
from convloom.target.swizzle import Swizzle
from convloom.target.tensor_map import ColumnMap, TiledMap
from convloom.target.transaction_barrier import advance, decode, initial
from tests.target.rows.packing import unpacked

BARRIER = 4096 - 64
SPAN = {Swizzle.NONE: 0, Swizzle.B32: 32, Swizzle.B64: 64, Swizzle.B128: 128}


def words(*numbers):
    return np.array(numbers, np.int64).astype(np.int32).view(np.uint32)[None, None, :]


def ready_memory(content, nbytes, size=4096, poison=0xEE):
    shared = np.full((1, size), poison, np.uint8)
    shared[0, BARRIER : BARRIER + 8] = advance(initial(np.ones(1, np.int64)), 1, np.array([nbytes])).view(np.uint8)
    return FlatMemory(content, shared)


def parity(memory, block=0):
    return int(decode(memory.shared_bytes[block, BARRIER : BARRIER + 8].view(np.uint64)).parity[0])


def place(row, column_bytes, row_bytes, swizzle):
    """Byte of a tile: the number of the 16-byte chunk is xored with that of its 128-byte line."""
    address = row * (SPAN[swizzle] or row_bytes) + column_bytes
    chunk, line = address // 16 % 8, address // 128
    mask = {0: 0, 32: 1, 64: 3, 128: 7}[SPAN[swizzle]]
    return address // 128 * 128 + (chunk ^ line % 8 & mask) * 16 + address % 16


def tensor_of(map, content):
    """The tensor as an array, slowest dimension first, read with its strides."""
    strides = (*map.strides[::-1], map.dtype.nbytes)
    view = np.frombuffer(content.tobytes(), np.uint8)[map.address :]
    return np.ndarray(map.sizes[::-1], map.dtype.numpy, view.copy(), 0, strides)


@pytest.mark.parametrize("swizzle", list(Swizzle))
@pytest.mark.parametrize("start", [(0, 0, 0), (-8, -1, 1), (8, 5, 2), (16, -9, 0), (64, 0, 0)])
def test_a_box_is_copied_row_by_row_with_zeros_outside(swizzle, start):
    rng = np.random.default_rng(7)
    steps = (1, 2, 1)
    map = TiledMap(F16, 32, (20, 9, 4), (48, 48 * 9), steps, swizzle, (8, 6, 3))
    content = rng.integers(1, 256, 32 + 48 * 9 * 4).astype(np.uint8)
    content[33::2] &= 0x3F
    tensor = tensor_of(map, content)
    memory = ready_memory(content, map.nbytes)
    row = row_named("cp.async.bulk.tensor.3d.tile.load")
    operands = {"map": map, "coordinates": words(*start), "destination": words(0), "barrier": words(BARRIER)}
    row.execute(operands, memory)
    expected = memory.shared_bytes.copy()
    expected[0, :BARRIER] = 0xEE
    for z, y, x in product(range(3), range(3), range(8)):
        at = (start[2] + z, start[1] + 2 * y, start[0] + x)
        inside = all(0 <= c < s for c, s in zip(at, tensor.shape, strict=True))
        value = tensor[at] if inside else np.float16(0)
        byte = place(z * 3 + y, x * 2, 16, swizzle)
        expected[0, byte : byte + 2] = np.frombuffer(value.tobytes(), np.uint8)
    assert np.array_equal(memory.shared_bytes, expected)
    assert map.nbytes == 8 * 3 * 3 * 2
    assert parity(memory) == 1


def window_pixels(map, start, pixels):
    """Window positions one after the other, by a walk: fastest spatial dimension first, then the batch."""
    at = list(start)
    for _ in range(pixels):
        yield tuple(at)
        for dimension in range(len(map.lower)):
            at[dimension] += map.steps[dimension + 1]
            if at[dimension] <= map.sizes[dimension + 1] - 1 + map.upper[dimension]:
                break
            at[dimension] = map.lower[dimension]
        else:
            at[-1] += 1


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("offsets", [(0, 0), (2, 1)])
def test_image_columns_walk_over_window_positions(stride, offsets):
    rng = np.random.default_rng(stride)
    map = ColumnMap(
        F16, 0, (16, 7, 5, 3), (32, 32 * 7, 32 * 35), (1, stride, stride, 1), Swizzle.B32, (-1, -1), (-1, -1), 16, 60
    )
    content = rng.integers(1, 256, 32 * 35 * 3).astype(np.uint8)
    tensor = tensor_of(map, content).view(np.uint16)
    memory = ready_memory(content, map.nbytes)
    start = (-1 + stride, -1, 1)
    operands = {
        "map": map,
        "coordinates": words(0, *start),
        "destination": words(0),
        "barrier": words(BARRIER),
        "offsets": words(*offsets),
    }
    row_named("cp.async.bulk.tensor.4d.im2col.load").execute(operands, memory)
    for pixel, (w, h, n) in enumerate(window_pixels(map, start, 60)):
        w, h = w + offsets[0], h + offsets[1]
        inside = 0 <= w < 7 and 0 <= h < 5 and 0 <= n < 3
        for channel in range(16):
            byte = place(pixel, channel * 2, 32, Swizzle.B32)
            got = memory.shared_bytes[0, byte : byte + 2].view(np.uint16)[0]
            assert got == (tensor[n, h, w, channel] if inside else 0)
    assert parity(memory) == 1


def test_columns_start_on_window_positions():
    map = ColumnMap(F16, 0, (16, 8, 2), (32, 256), (1, 2, 1), Swizzle.NONE, (-1,), (-1,), 16, 8)
    with pytest.raises(IllegalProblem, match="starts at a window position"):
        map.coordinates(np.array([[0, 0, 0]]), np.array([[0]]))


def test_rules_of_tensor_maps():
    good = TiledMap(F16, 0, (64, 8), (128,), (1, 1), Swizzle.B128, (64, 8))
    assert good.broken_rules() == ()
    broken = TiledMap(F16, 8, (64, 8), (100,), (1, 9), Swizzle.B64, (64, 300))
    rules = "; ".join(broken.broken_rules())
    for part in ("an address", "strides below", "steps in 1..8", "at most the swizzle's 64 bytes", "sizes in 1..256"):
        assert part in rules
    assert (
        "multiple of 16 bytes; got 24"
        in TiledMap(U8, 0, (64, 8), (64,), (1, 1), Swizzle.NONE, (24, 8)).broken_rules()[0]
    )
    far = ColumnMap(F16, 0, (16, 8, 8, 8, 2), (32,) * 4, (1,) * 5, Swizzle.NONE, (-17, 0, 0), (0, 0, 0), 16, 8)
    assert "corners in -16..15" in "; ".join(far.broken_rules())
    with pytest.raises(IllegalProblem, match="corners"):
        far.check()


def test_first_coordinate_is_a_multiple_of_sixteen_bytes():
    map = TiledMap(F16, 0, (64, 8), (128,), (1, 1), Swizzle.NONE, (8, 8))
    with pytest.raises(IllegalProblem, match="multiple of 16 bytes"):
        map.coordinates(np.array([[4, 0]]))


@pytest.mark.parametrize("swizzle", [Swizzle.NONE, Swizzle.B64])
@pytest.mark.parametrize("operation", ["store", "add", "min", "max"])
def test_stores_write_the_tensor_and_the_rest_of_a_cut_chunk(operation, swizzle):
    """A row of 10 s32 = 40 bytes: the box's third chunk is written whole, 8 bytes of it behind the row."""
    rng = np.random.default_rng(9)
    map = TiledMap(S32, 16, (10, 6), (64,), (1, 1), swizzle, (16, 4))
    content = rng.integers(-9, 9, 4 + 16 * 6).astype(np.int32)
    tile = rng.integers(-9, 9, (4, 16)).astype(np.int32)
    shared = np.zeros((1, 512), np.uint8)
    for y, x in product(range(4), range(16)):
        byte = place(y, 4 * x, 64, swizzle)
        shared[0, byte : byte + 4] = np.frombuffer(tile[y, x].tobytes(), np.uint8)
    memory = FlatMemory(content.view(np.uint8).copy(), shared)
    opcode = "cp.async.bulk.tensor" if operation == "store" else "cp.reduce.async.bulk.tensor"
    row = row_named(f"{opcode}.2d.tile.{operation}")
    row.execute({"map": map, "coordinates": words(0, 4), "source": words(0)}, memory)
    expected = content[4:].reshape(6, 16).copy()
    combine = {"store": lambda old, new: new, "add": np.add, "min": np.minimum, "max": np.maximum}[operation]
    expected[4:, :12] = combine(expected[4:, :12], tile[:2, :12])
    assert np.array_equal(memory.global_bytes.view(np.int32)[4:].reshape(6, 16), expected)


def test_stores_neither_start_below_zero_nor_step():
    memory = FlatMemory(np.zeros(4096, np.uint8), np.zeros((1, 4096), np.uint8))
    row = row_named("cp.async.bulk.tensor.2d.tile.store")
    map = TiledMap(F32, 0, (16, 6), (64,), (1, 1), Swizzle.NONE, (16, 4))
    with pytest.raises(IllegalProblem, match="starts at coordinates >= 0, else it faults; got -1"):
        row.execute({"map": map, "coordinates": words(0, -1), "source": words(0)}, memory)
    stepping = TiledMap(F32, 0, (16, 6), (64,), (1, 2), Swizzle.NONE, (16, 4))
    with pytest.raises(IllegalProblem, match="steps of 1"):
        row.execute({"map": stepping, "coordinates": words(0, 0), "source": words(0)}, memory)


def test_multicast_reaches_the_blocks_of_the_mask():
    map = TiledMap(F16, 0, (8, 4), (16,), (1, 1), Swizzle.NONE, (8, 4))
    content = np.arange(64).astype(np.uint8)
    shared = np.full((2, 4, 4096), 0xEE, np.uint8)  # 2 clusters of 4 blocks
    shared[..., BARRIER : BARRIER + 8] = advance(initial(np.ones(1, np.int64)), 1, np.array([64])).view(np.uint8)
    memory = FlatMemory(content, shared)

    def everywhere(number):
        return np.full((2, 4, 1, 1), number, np.uint32)

    row_named("cp.async.bulk.tensor.2d.tile.load.multicast").execute(
        {
            "map": map,
            "coordinates": np.zeros((2, 4, 1, 2), np.uint32),
            "destination": everywhere(256),
            "barrier": everywhere(BARRIER),
            "mask": everywhere(0b1010),
        },
        memory,
        active=np.array([[[False], [True], [False], [False]], [[False], [False], [False], [False]]]),
    )
    for cluster, rank in product(range(2), range(4)):
        reached = cluster == 0 and rank in (1, 3)
        tile = shared[cluster, rank, 256 : 256 + 64]
        assert np.array_equal(tile, content if reached else np.full(64, 0xEE))
        assert parity(memory_of(shared[cluster, rank])) == int(reached)


def memory_of(block):
    return FlatMemory(None, block[None])


def test_cluster_addresses():
    shared = np.arange(3 * 16, dtype=np.uint8).reshape(3, 16)
    memory = FlatMemory(None, shared)
    from_rank = row_named("mapa").execute(
        {"address": np.full((3, 1, 1), 4, np.uint32), "rank": np.full((3, 1, 1), 2, np.uint32)}
    )["d"]
    assert (from_rank == 3 * CLUSTER_PITCH + 4).all()
    space = row_named("mbarrier.arrive.cluster").operand("barrier").space
    assert memory.load(space, from_rank[..., 0].astype(np.int64), 1)[..., 0].tolist() == [[36], [36], [36]]
    assert memory.load(space, np.full((3, 1), 4), 1)[..., 0].tolist() == [[4], [20], [36]]
    with pytest.raises(MemoryFault, match="one of 3 blocks"):
        memory.load(space, np.full((3, 1), 4 * CLUSTER_PITCH), 1)


def test_linear_copies():
    source = np.arange(256).astype(np.uint8)
    memory = ready_memory(source, 48)
    address = np.full((1, 1, 1), 32, np.uint64)
    row_named("cp.async.bulk.load").execute(
        {"destination": words(64), "address": address, "size": words(48), "barrier": words(BARRIER)}, memory
    )
    assert np.array_equal(memory.shared_bytes[0, 64:112], source[32:80])
    assert parity(memory) == 1
    row_named("cp.async.bulk.store").execute({"address": address, "source": words(0), "size": words(16)}, memory)
    assert (memory.global_bytes[32:48] == 0xEE).all()
    assert np.array_equal(np.delete(memory.global_bytes, range(32, 48)), np.delete(source, range(32, 48)))


def test_a_tensor_load_feeds_a_group_multiply():
    """NHWC pixels by image columns (A) times filters by a tiled load (B): one tap of a convolution with padding."""
    rng = np.random.default_rng(11)
    x = rng.integers(-4, 5, (2, 8, 8, 16)).astype(np.float16)
    filters = rng.integers(-4, 5, (8, 9, 16)).astype(np.float16)  # k, tap, c
    content = np.concatenate([x.reshape(-1), filters.reshape(-1)]).view(np.uint8)
    columns = ColumnMap(F16, 0, (16, 8, 8, 2), (32, 256, 2048), (1, 1, 1, 1), Swizzle.B32, (-1, -1), (-1, -1), 16, 64)
    tiles = TiledMap(F16, 4096, (16, 9, 8), (32, 288), (1, 1, 1), Swizzle.B32, (16, 1, 8))
    memory = ready_memory(content, columns.nbytes + tiles.nbytes)
    s, r = 2, 0
    common = {"barrier": words(BARRIER)}
    row_named("cp.async.bulk.tensor.4d.im2col.load").execute(
        {**common, "map": columns, "coordinates": words(0, -1, -1, 0), "destination": words(0), "offsets": words(s, r)},
        memory,
    )
    assert parity(memory) == 0
    row_named("cp.async.bulk.tensor.3d.tile.load").execute(
        {**common, "map": tiles, "coordinates": words(0, r * 3 + s, 0), "destination": words(2048)}, memory
    )
    assert parity(memory) == 1
    row = wgmma(8, F16, F16)
    codes = [MatrixDescriptor(start, 16, 256, Swizzle.B32).encode() for start in (0, 2048)]
    values = {name: np.full((1, 128, 1), code, np.uint64) for name, code in zip("ab", codes, strict=True)}
    values |= {"sign_a": 1, "sign_b": 1, "major_a": 0, "major_b": 0}
    values |= {"d": np.zeros((1, 128, 4), np.uint32), "accumulate": np.zeros((1, 128, 1), np.uint32)}
    d = unpacked(row, "d", row.execute(values, memory)["d"])[0]
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))[0, r : r + 8, s : s + 8].reshape(64, 16)
    assert np.array_equal(d, padded.astype(np.float32) @ filters[:, r * 3 + s].astype(np.float32).T)


def test_laws_of_the_rows():
    load, store = row_named("cp.async.bulk.tensor.2d.tile.load"), row_named("cp.async.bulk.tensor.2d.tile.store")
    assert load.out_of_bounds is store.out_of_bounds is OutOfBounds.ZERO_PER_BOX
    assert load.proxy is store.proxy is Proxy.ASYNC
    assert (load.completion, store.completion) == (Completion.BARRIER_BYTES, Completion.BULK_GROUP)
