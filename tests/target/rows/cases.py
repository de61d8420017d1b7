"""Random operands for every row that moves or computes data, as cases of the harness."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

import ml_dtypes
import numpy as np

from convloom.artifact import Language
from convloom.dtypes import BF16, E4M3, E5M2, F16, F32, S8, S32, U8
from convloom.target.asm_text import statement
from convloom.target.catalogue import all_rows, row_named
from convloom.target.group_multiply import MatrixDescriptor
from convloom.target.instruction import Completion, Family, Instruction, Ordering
from convloom.target.lane_map import to_lanes
from convloom.target.multiply import fragment_matrix
from convloom.target.number_format import TF32
from convloom.target.nvidia_wgmma import wgmma
from convloom.target.swizzle import Swizzle
from convloom.target.tensor_map import ColumnMap, TiledMap
from convloom.target.transaction_barrier import advance, initial
from tests.target.rows.harness import Case
from tests.target.rows.packing import packed, random_numbers

BLOCKS = 16
COARSE = 2.0**-11
"""What tensor cores lose of a sum of fp8 products, as a part of the sum of magnitudes."""


def words(array) -> np.ndarray:
    return np.asarray(array).astype(np.uint32)[..., None]


def text(name: str, **arguments: str) -> str:
    """A row of the harness's own frame."""
    return statement(row_named(name), Language.CUDA, {key: [value] for key, value in arguments.items()})


# --- registers to registers -----------------------------------------------------------------------------------------


def lane_arithmetic(row: Instruction, rng: np.random.Generator) -> Case:
    values = {}
    for name in "abc":
        word = row.operand(name).register.word
        if row.name in ("fma.f32", "fma.f64"):
            kind = {"fma.f32": np.float32, "fma.f64": np.float64}[row.name]
            values[name] = rng.standard_normal((BLOCKS, 32, 1)).astype(kind).view(word)
        else:
            values[name] = rng.integers(0, 2**32, (BLOCKS, 32, 1), dtype=np.uint32)
    return Case(row, values)


def rounding_bound(row: Instruction, a, b, c) -> np.ndarray:
    """Bound of the sum's error in each entry: 2 * terms * unit * sum of magnitudes; fp8: COARSE of it more."""
    unit = 2.0**-53 if row.fragment("d").dtype.bits == 64 else 2.0**-24
    magnitude = np.abs(a) @ np.abs(b) + np.abs(c)
    coarse = COARSE if a_is_tiny(row) else 0.0
    return (2 * (row.shape[2] + 1) * unit + coarse) * magnitude


def a_is_tiny(row: Instruction) -> bool:
    return "e4m3" in row.name or "e5m2" in row.name


def matrix_multiply(row: Instruction, rng: np.random.Generator) -> Case:
    values = {}
    for name in "abc":
        fragment = row.fragment(name)
        matrix = random_numbers(rng, fragment.dtype, (BLOCKS, *fragment.shape), small=False)
        values[name] = packed(row, name, matrix)
    tolerance = None
    if row.fragment("d").dtype.is_float:
        a, b, c = (fragment_matrix(values[name], row.fragment(name)) for name in "abc")
        tolerance = to_lanes(rounding_bound(row, a, b, c), row.fragment("d").layout)
    return Case(row, values, tolerance=tolerance)


def exact_multiply(row: Instruction, rng: np.random.Generator) -> Case:
    """Small integers: every partial sum is representable, so all bits must agree."""
    values = {
        name: packed(row, name, random_numbers(rng, row.fragment(name).dtype, (BLOCKS, *row.fragment(name).shape)))
        for name in "abc"
    }
    return Case(row, values, label="exact")


# --- memory ---------------------------------------------------------------------------------------------------------


def matrix_move(row: Instruction, rng: np.random.Generator) -> Case:
    shared = rng.integers(0, 256, (BLOCKS, 2048)).astype(np.uint8)
    address = np.stack([rng.permutation(128)[:32] * 16 for _ in range(BLOCKS)])
    values = {"address": words(address)}
    if row.family is Family.MATRIX_STORE:
        values["a"] = rng.integers(0, 2**32, (BLOCKS, 32, row.operand("a").registers), dtype=np.uint32)
    return Case(row, values, shared=shared)


def vector_access(row: Instruction, rng: np.random.Generator) -> Case:
    width = int(row.name.rsplit(".", 1)[1]) // 8
    content = rng.integers(0, 256, (BLOCKS, 32 * width)).astype(np.uint8)
    address = np.stack([rng.permutation(32) * width for _ in range(BLOCKS)])
    if ".global." in row.name:
        address = (address + np.arange(BLOCKS)[:, None] * 32 * width)[..., None].astype(np.uint64)
        values, memory = {"address": address}, {"global_bytes": content.reshape(-1)}
    else:
        values, memory = {"address": words(address)}, {"shared": content}
    if row.family is Family.STORE:
        values["a"] = rng.integers(0, 2**32, (BLOCKS, 32, row.operand("a").registers), dtype=np.uint32)
    return Case(row, values, **memory)


_ADDED = {"s32": np.int32, "f32": np.float32, "f64": np.float64, "f16x2": np.float16, "bf16x2": ml_dtypes.bfloat16}


def atomic_access(row: Instruction, rng: np.random.Generator) -> Case:
    """Every lane at a place of its own: small whole numbers are added exactly."""
    kind = next((_ADDED[part] for part in row.name.split(".") if part in _ADDED), np.int32)
    width = 8 if kind is np.float64 else 4
    count = width // np.dtype(kind).itemsize

    def numbers(shape) -> np.ndarray:
        return rng.integers(-50, 50, (*shape, count)).astype(kind).view(f"u{width}")

    address = np.stack([rng.permutation(32) * width for _ in range(BLOCKS)])
    content = np.ascontiguousarray(numbers((BLOCKS, 32))).view(np.uint8).reshape(BLOCKS, -1)
    if ".shared." in row.name:
        values, memory = {"address": words(address)}, {"shared": content}
    else:
        address = (address + np.arange(BLOCKS)[:, None] * 32 * width)[..., None].astype(np.uint64)
        values, memory = {"address": address}, {"global_bytes": content.reshape(-1)}
    if any(operand.name == "value" for operand in row.operands):
        values["value"] = numbers((BLOCKS, 32))
    return Case(row, values, **memory)


def asynchronous_copy(row: Instruction, rng: np.random.Generator) -> Case:
    nbytes = int(row.name.rsplit(".", 1)[1])
    source = rng.integers(1, 256, BLOCKS * 32 * nbytes).astype(np.uint8)
    values = {
        "destination": words(np.stack([rng.permutation(32) * nbytes for _ in range(BLOCKS)])),
        "source": (rng.integers(0, BLOCKS * 32, (BLOCKS, 32, 1)) * nbytes).astype(np.uint64),
        "source_bytes": words(rng.integers(0, nbytes + 1, (BLOCKS, 32))),
    }
    after = text("cp.async.commit_group") + " " + text("cp.async.wait_group", pending="0")
    return Case(row, values, np.full((BLOCKS, 32 * nbytes), 0xEE, np.uint8), source, after=after)


def arrival_behind_copies(row: Instruction, rng: np.random.Generator) -> Case:
    """32 threads copy 16 bytes each, which nobody commits, and arrive for them; all wait for the phase, and read."""
    barrier = 32 * 16
    shared = np.full((BLOCKS, barrier + 16), 0xEE, np.uint8)
    copied = rng.integers(1, 256, (BLOCKS, barrier)).astype(np.uint8)
    shared[:, :barrier] = copied  # as the semantics find them: copied already
    shared[:, barrier : barrier + 8] = initial(np.full(1, 32)).view(np.uint8)
    place = "(u64)block * 512 + lane * 16"
    copy = text(
        "cp.async.cg.16", destination="base + lane * 16", source=f"(u64)global_bytes + {place}", source_bytes="16u"
    )
    before = (
        f"if (lane == 0) {{ {text('mbarrier.init', barrier=f'base + {barrier}', count='32u')} }} "
        f"*(uint4 *)(tile + lane * 16) = make_uint4(0, 0, 0, 0); __syncthreads(); {copy}"
    )
    values = {"barrier": words(np.full((BLOCKS, 32), barrier))}
    after = f"wait_for(base + {barrier}, 0, failed);"
    return Case(row, values, shared, copied.reshape(-1), before, after, ignored=(barrier, barrier + 8))


# --- wgmma ----------------------------------------------------------------------------------------------------------

IMAGE = 64 * 1024


def shared_numbers(rng: np.random.Generator, dtype, nbytes: int, small: bool) -> np.ndarray:
    count = nbytes // dtype.nbytes
    return random_numbers(rng, dtype, (4, count), small).view(np.uint8).reshape(4, nbytes)


def group_multiply(
    row: Instruction, rng: np.random.Generator, swizzle: Swizzle, majors: tuple[int, int], start_step: int, small: bool
) -> Case:
    """Descriptors with random offsets into an image full of numbers; the address law alone decides what is read."""
    a_type, b_type = (by_name(part) for part in row.name.split(".")[3:5])
    halves = [shared_numbers(rng, dtype, IMAGE, small) for dtype in (a_type, b_type)]
    shared = np.concatenate(halves, axis=1)
    values: dict[str, object] = {}
    for half, name, major in ((0, "a", majors[0]), (1, "b", majors[1])):
        if row.operand(name).fragment is not None:
            fragment = row.fragment(name)
            values[name] = packed(row, name, random_numbers(rng, fragment.dtype, (4, *fragment.shape), small))
            continue
        codes = [descriptor(rng, half * IMAGE, swizzle, start_step) for _ in range(4)]
        values[name] = np.broadcast_to(np.array(codes, np.uint64)[:, None, None], (4, 128, 1))
        if f"major_{name}" in {operand.name for operand in row.operands}:
            values[f"major_{name}"] = major
    d = row.fragment("d")
    values["d"] = packed(row, "d", random_numbers(rng, d.dtype, (4, *d.shape), small))
    values["accumulate"] = np.broadcast_to(np.array([1, 0, 1, 1], np.uint32)[:, None, None], (4, 128, 1))
    if d.dtype.is_float:
        values |= {"sign_a": 1, "sign_b": -1 if start_step == 16 else 1}
    after = text("wgmma.commit_group") + " " + text("wgmma.wait_group", pending="0")
    label = f"{swizzle.name} {majors[0]}{majors[1]} {start_step} {'exact' if small else ''}"
    case = Case(row, values, shared, before=text("wgmma.fence"), after=after, label=label)
    if d.dtype.is_float and not small:
        case.tolerance = group_tolerance(case, (a_type, b_type))
    return case


def group_tolerance(case: Case, types) -> np.ndarray:
    """As rounding_bound; the sum of magnitudes is what the row itself gives for operands without their signs."""
    row = case.row
    values = {**case.values, "sign_a": 1, "sign_b": 1, "accumulate": np.ones_like(case.values["accumulate"])}
    for name, dtype in (("a", types[0]), ("d", row.fragment("d").dtype)):
        if row.operand(name).fragment is not None:
            word = row.operand(name).register.word
            values[name] = without_signs(values[name], dtype).view(word)
    halves = [
        without_signs(half, dtype).view(np.uint8)
        for half, dtype in zip(np.split(case.shared, 2, 1), types, strict=True)
    ]
    unsigned = Case(row, values, np.concatenate(halves, axis=1))
    magnitude = fragment_matrix(unsigned.expected()[0]["d"], row.fragment("d"))
    coarse = COARSE if a_is_tiny(row) else 0.0
    bound = (2 * (row.shape[2] + 1) * 2.0**-24 + coarse) * magnitude
    return to_lanes(bound, row.fragment("d").layout)


def without_signs(words: np.ndarray, dtype) -> np.ndarray:
    """The magnitudes of packed floating-point numbers."""
    kind = np.dtype(f"u{dtype.nbytes}")
    return np.ascontiguousarray(words).view(kind) & kind.type((1 << dtype.bits - 1) - 1)


def by_name(name: str):
    return {dtype.name: dtype for dtype in (F16, BF16, F32, TF32, E4M3, E5M2, S8, U8, S32)}[name]


def descriptor(rng: np.random.Generator, start: int, swizzle: Swizzle, start_step: int) -> int:
    """Offsets such that 256 outer indices or 8 blocks stay inside the image."""
    leading, stride = (int(rng.integers(1, 65)) * 16 for _ in range(2))
    return MatrixDescriptor(
        start + int(rng.integers(0, 1024 // start_step)) * start_step, leading, stride, swizzle
    ).encode()


_WIDTHS = (8, 24, 64, 96, 152, 256)


def group_multiplies(rng: np.random.Generator) -> Iterator[Case]:
    for n in _WIDTHS:
        for majors in ((0, 0), (0, 1), (1, 0), (1, 1)):
            swizzle = list(Swizzle)[(n // 8 + majors[0] + 2 * majors[1]) % 4]
            yield group_multiply(wgmma(n, F16, F16), rng, swizzle, majors, 1024, small=n == 64)
    for swizzle in Swizzle:
        for majors in ((0, 0), (1, 1)):
            for start_step in (16, 128):
                yield group_multiply(wgmma(128, F16, F16), rng, swizzle, majors, start_step, small=False)
        yield group_multiply(wgmma(64, F16, F16, True), rng, swizzle, (0, 0), 32, small=False)
        yield group_multiply(wgmma(64, BF16, BF16, True), rng, swizzle, (0, 1), 1024, small=True)
        yield group_multiply(wgmma(40, BF16, BF16), rng, swizzle, (1, 0), 1024, small=False)
        for a_type, b_type in ((TF32, TF32), (E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3), (E5M2, E5M2)):
            for in_registers in (False, True):
                row = wgmma(32, a_type, b_type, in_registers)
                yield group_multiply(row, rng, swizzle, (0, 0), 32, small=swizzle is Swizzle.B64)
        for a_type in (S8, U8):
            for b_type in (S8, U8):
                yield group_multiply(wgmma(48, a_type, b_type), rng, swizzle, (0, 0), 1024, small=False)
                yield group_multiply(wgmma(24, a_type, b_type, True), rng, swizzle, (0, 0), 32, small=False)


# --- tensor copies --------------------------------------------------------------------------------------------------


def tiled_map(rng, dtype, sizes, box, swizzle, steps=None) -> tuple[TiledMap, int]:
    """A map with padded strides; also the bytes that the tensor takes."""
    strides, pitch = [], sizes[0] * dtype.nbytes
    for size in sizes[1:]:
        pitch = -(-pitch // 16) * 16 + 16 * int(rng.integers(0, 3))
        strides.append(pitch)
        pitch *= size
    tensor = TiledMap(dtype, 256, tuple(sizes), tuple(strides), tuple(steps or (1,) * len(sizes)), swizzle, tuple(box))
    return tensor, 256 + pitch + 4096


def load_frame(barrier: int) -> tuple[str, str]:
    """Text before and after a load: barrier of one arrival, then the wait."""
    before = (
        f"if (lane == 0) {{ {text('mbarrier.init', barrier=f'base + {barrier}', count='1u')} "
        f"{text('fence.mbarrier_init')} "
        f"{text('mbarrier.arrive.expect_tx', barrier=f'base + {barrier}', nbytes='NBYTESu')} }} __syncthreads();"
    )
    return before, f"wait_for(base + {barrier}, 0, failed);"


def tensor_load(rng, tensor: TiledMap | ColumnMap, extent: int, start, offsets=None) -> Case:
    kind = "im2col" if isinstance(tensor, ColumnMap) else "tile"
    row = row_named(f"cp.async.bulk.tensor.{tensor.rank}d.{kind}.load")
    nbytes = -(-tensor.tile_bytes // 1024) * 1024
    shared = np.full((BLOCKS, nbytes + 1024), 0xEE, np.uint8)
    barrier = nbytes + 512
    ready = advance(initial(np.ones(1, np.int64)), arrivals=1, expected_bytes=np.array([tensor.nbytes]))
    shared[:, barrier : barrier + 8] = ready.view(np.uint8)
    before, after = load_frame(barrier)
    values = {
        "map": tensor,
        "destination": words(np.zeros((BLOCKS, 1))),
        "barrier": words(np.full((BLOCKS, 1), barrier)),
        "coordinates": np.asarray(start).astype(np.int32).view(np.uint32)[:, None, :],
    }
    if offsets is not None:
        values["offsets"] = np.asarray(offsets).astype(np.uint32)[:, None, :]
    content = random_content(rng, tensor.dtype, extent)
    label = f"{tensor.dtype} {tensor.swizzle.name} {tensor.row_bytes}B x{'.'.join(map(str, tensor.steps))}"
    before = before.replace("NBYTES", str(tensor.nbytes))
    return Case(row, values, shared, content, before, after, ignored=(barrier, barrier + 8), label=label)


def random_content(rng, dtype, nbytes: int) -> np.ndarray:
    nbytes = -(-nbytes // 8) * 8
    return random_numbers(rng, dtype, (nbytes // dtype.nbytes,), small=False).view(np.uint8).reshape(-1)


def starts(rng, tensor, low=-3, high=3) -> np.ndarray:
    """Start coordinates around the tensor's edges; the first one a multiple of 16 bytes."""
    granule = 16 // tensor.dtype.nbytes
    columns = [rng.integers(-1, tensor.sizes[0] // granule + 1, BLOCKS) * granule]
    columns += [rng.integers(low, size + high, BLOCKS) for size in tensor.sizes[1:]]
    return np.stack(columns, axis=-1)


def tiled_loads(rng) -> Iterator[Case]:
    plans = (
        (F16, (72, 20), (64, 16), Swizzle.B128, None),
        (F16, (72, 20), (32, 16), Swizzle.B64, None),
        (F16, (40, 20), (16, 16), Swizzle.B32, None),
        (F16, (44, 20), (64, 16), Swizzle.NONE, None),
        (F16, (72, 20), (32, 16), Swizzle.B128, None),  # rows narrower than the swizzle
        (F16, (72, 20), (16, 16), Swizzle.B64, None),
        (U8, (100, 9), (128, 8), Swizzle.B128, None),
        (F32, (30,), (64,), Swizzle.NONE, None),
        (F32, (256,), (32,), Swizzle.B128, None),
        (F32, (33, 7, 5), (32, 4, 3), Swizzle.B128, None),
        (F16, (64, 9, 8, 3), (64, 6, 4, 2), Swizzle.B128, None),
        (F16, (24, 5, 4, 3, 3), (16, 3, 3, 2, 2), Swizzle.B32, None),
        (F16, (64, 15, 14, 3), (64, 8, 7, 2), Swizzle.B128, (1, 2, 3, 1)),
        (BF16, (32, 15, 6), (32, 16, 2), Swizzle.B64, (1, 8, 1)),
    )
    for dtype, sizes, box, swizzle, steps in plans:
        tensor, extent = tiled_map(rng, dtype, sizes, box, swizzle, steps)
        yield tensor_load(rng, tensor, extent, starts(rng, tensor))


def column_loads(rng) -> Iterator[Case]:
    # channels, spatial sizes, batch, kernel, stride, pad, pixels
    plans = (
        (F16, 64, (10,), 3, (3,), (1,), (1,), 64, Swizzle.B128, 64),
        (F16, 64, (9, 7), 2, (3, 3), (1, 1), (1, 1), 128, Swizzle.B128, 64),
        (F16, 40, (9, 7), 3, (3, 2), (2, 3), (1, 0), 32, Swizzle.B64, 32),
        (F32, 32, (8, 8), 2, (1, 1), (2, 2), (0, 0), 48, Swizzle.B128, 32),
        (F16, 16, (6, 5, 4), 2, (3, 3, 3), (1, 2, 1), (1, 1, 1), 100, Swizzle.B32, 16),
        (BF16, 24, (12, 5), 2, (5, 3), (1, 1), (2, 1), 33, Swizzle.NONE, 24),
    )
    for dtype, channels, spatial, batch, kernel, stride, pad, pixels, swizzle, width in plans:
        sizes = (channels, *spatial, batch)
        lower = tuple(-p for p in pad)
        upper = tuple(p - (k - 1) for p, k in zip(pad, kernel, strict=True))
        tiled, extent = tiled_map(rng, dtype, sizes, sizes, swizzle)
        steps = (1, *stride, 1)
        tensor = ColumnMap(dtype, 256, sizes, tiled.strides, steps, swizzle, lower, upper, width, pixels)
        grid = [rng.integers(0, count, BLOCKS) for count in tensor.positions]
        start = [np.zeros(BLOCKS, np.int64)]
        start += [g * s + low for g, s, low in zip(grid, stride, lower, strict=True)]
        start.append(rng.integers(-1 if pixels == 64 else 0, batch, BLOCKS))
        offsets = np.stack([rng.integers(0, k, BLOCKS) for k in kernel], axis=-1)
        yield tensor_load(rng, tensor, extent, np.stack(start, axis=-1), offsets)


class Where(Enum):
    """Where the boxes of stores lie."""

    INSIDE = "inside"
    UPPER = "over the upper edges"
    OUTSIDE = "wholly outside"


def store_starts(rng, tensor, where: Where) -> np.ndarray:
    """Start coordinates, the last one the block's number."""
    granule = 16 // tensor.dtype.nbytes
    columns = []
    for place, (size, box) in enumerate(zip(tensor.sizes, tensor.box, strict=True)):
        high = size - box + 1 if where is not Where.UPPER else size
        columns.append(rng.integers(0, max(high, 1), BLOCKS))
        if place == 0:
            columns[0] = columns[0] // granule * granule
    if where is Where.OUTSIDE:
        columns[1] = np.full(BLOCKS, tensor.sizes[1])
    return np.stack([*columns[:-1], np.arange(BLOCKS)], axis=-1)


def tensor_stores(rng) -> Iterator[Case]:
    first = (F16, (72, 20, BLOCKS), (64, 16, 1), Swizzle.B128, "store")
    plans = (
        *((*first, where) for where in Where),
        (F16, (36, 9, 2, BLOCKS), (32, 4, 2, 1), Swizzle.B64, "store", Where.UPPER),
        (F32, (24, BLOCKS), (16, 1), Swizzle.NONE, "store", Where.UPPER),
        (U8, (40, 3, 2, 2, BLOCKS), (32, 2, 2, 2, 1), Swizzle.B32, "store", Where.UPPER),
        (F16, (36, 9, 2, BLOCKS), (24, 4, 2, 1), Swizzle.B128, "store", Where.UPPER),
        (F32, (36, 10, BLOCKS), (32, 8, 1), Swizzle.B128, "add", Where.INSIDE),
        (F16, (33, 7, BLOCKS), (32, 8, 1), Swizzle.NONE, "add", Where.UPPER),
        (BF16, (72, 7, BLOCKS), (64, 8, 1), Swizzle.B128, "add", Where.UPPER),
        (F16, (33, 7, BLOCKS), (32, 8, 1), Swizzle.B64, "min", Where.UPPER),
        (BF16, (33, 7, BLOCKS), (32, 8, 1), Swizzle.NONE, "max", Where.UPPER),
        (S32, (33, 7, BLOCKS), (32, 8, 1), Swizzle.NONE, "max", Where.UPPER),
        (S32, (33, 7, BLOCKS), (32, 8, 1), Swizzle.B128, "add", Where.UPPER),
    )
    done = text("cp.async.bulk.commit_group") + " " + text("cp.async.bulk.wait_group", pending="0")
    for dtype, sizes, box, swizzle, operation, where in plans:
        tensor, extent = tiled_map(rng, dtype, sizes, box, swizzle)
        opcode = "cp.async.bulk.tensor" if operation == "store" else "cp.reduce.async.bulk.tensor"
        row = row_named(f"{opcode}.{tensor.rank}d.tile.{operation}")
        shared = np.stack([random_content(rng, dtype, -(-tensor.tile_bytes // 1024) * 1024) for _ in range(BLOCKS)])
        values = {
            "map": tensor,
            "coordinates": store_starts(rng, tensor, where).astype(np.int32).view(np.uint32)[:, None, :],
            "source": words(np.zeros((BLOCKS, 1))),
        }
        label = f"{dtype} {swizzle.name} {where.value}"
        yield Case(row, values, shared, random_content(rng, dtype, extent), after=done, label=label)


def multicasts(rng) -> Iterator[Case]:
    """Two blocks: each sends its own box to both; both wait for both."""
    clusters = BLOCKS // 2
    tensor, extent = tiled_map(rng, F16, (64, 40), (64, 8), Swizzle.B128)
    row = row_named("cp.async.bulk.tensor.2d.tile.load.multicast")
    shared = np.full((clusters, 2, 3072), 0xEE, np.uint8)
    total = 2 * tensor.nbytes
    ready = advance(initial(np.ones(1, np.int64)), arrivals=1, expected_bytes=np.array([total]))
    shared[..., 2560:2568] = ready.view(np.uint8)
    before, after = load_frame(2560)
    sync = " ".join((text("barrier.cluster.arrive"), text("barrier.cluster.wait")))
    place = np.broadcast_to(np.array([0, 1024]), (clusters, 2))[..., None]
    values = {
        "map": tensor,
        "destination": words(place),
        "barrier": words(np.full((clusters, 2, 1), 2560)),
        "coordinates": np.stack([np.zeros((clusters, 2)), rng.integers(-4, 40, (clusters, 2))], -1)
        .astype(np.int32)
        .view(np.uint32)[:, :, None, :],
        "mask": words(np.full((clusters, 2, 1), 3)),
    }
    content = random_content(rng, F16, extent)
    before = before.replace("NBYTES", str(total)) + " " + sync
    yield Case(row, values, shared, content, before, after, cluster=2, ignored=(2560, 2568), label="x2")


def linear_copies(rng) -> Iterator[Case]:
    source = rng.integers(0, 256, BLOCKS * 1024).astype(np.uint8)
    address = (np.arange(BLOCKS)[:, None, None] * 1024 + 48).astype(np.uint64)
    size = words(rng.integers(1, 50, (BLOCKS, 1)) * 16)
    shared = np.full((BLOCKS, 2048), 0xEE, np.uint8)
    ready = np.concatenate([advance(initial(np.ones(1, np.int64)), 1, np.array([int(one)])) for one in size[:, 0, 0]])
    shared[:, 1536:1544] = ready[:, None].view(np.uint8)
    before, after = load_frame(1536)
    before = before.replace("NBYTESu", "(unsigned)operands[(u64)block * 4 + 2]")
    loads = {
        "destination": words(np.full((BLOCKS, 1), 32)),
        "address": address,
        "size": size,
        "barrier": words(np.full((BLOCKS, 1), 1536)),
    }
    yield Case(row_named("cp.async.bulk.load"), loads, shared, source, before, after, ignored=(1536, 1544))
    stores = {"address": address, "source": words(np.full((BLOCKS, 1), 64)), "size": size}
    image = rng.integers(0, 256, (BLOCKS, 2048)).astype(np.uint8)
    done = text("cp.async.bulk.commit_group") + " " + text("cp.async.bulk.wait_group", pending="0")
    yield Case(row_named("cp.async.bulk.store"), stores, image, source, after=done)


_BY_FAMILY: dict[Family, Callable[[Instruction, np.random.Generator], Case]] = {
    Family.MULTIPLY_ADD: lane_arithmetic,
    Family.DOT: lane_arithmetic,
    Family.MATRIX_MULTIPLY: matrix_multiply,
    Family.MATRIX_LOAD: matrix_move,
    Family.MATRIX_STORE: matrix_move,
    Family.LOAD: vector_access,
    Family.STORE: vector_access,
}


def warp_cases(seed: int = 1) -> Iterator[Case]:
    """Every row of the generic and the warp-level files."""
    rng = np.random.default_rng(seed)
    for row in all_rows().values():
        if row.family is Family.ATOMIC and row.ordering is not Ordering.AWAIT:
            yield atomic_access(row, rng)
        if row.family in _BY_FAMILY:
            yield _BY_FAMILY[row.family](row, rng)
        if row.family is Family.MATRIX_MULTIPLY and row.fragment("d").dtype.is_float:
            yield exact_multiply(row, rng)
        if row.family is Family.ASYNC_COPY and row.operands and len(row.operands) == 3:
            yield asynchronous_copy(row, rng)
        if row.completion is Completion.COPIES_DONE:
            yield arrival_behind_copies(row, rng)


def tensor_cases(seed: int = 2) -> Iterator[Case]:
    """Tensor and linear copies."""
    rng = np.random.default_rng(seed)
    for source in (tiled_loads, column_loads, tensor_stores, multicasts, linear_copies):
        yield from source(rng)


def group_cases(seed: int = 3) -> Iterator[Case]:
    """Asynchronous multiplies."""
    yield from group_multiplies(np.random.default_rng(seed))
