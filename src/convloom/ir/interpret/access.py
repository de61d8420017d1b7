"""Reads and writes of shared and global memory by many threads, with their checks.

Places have the shape (lanes, threads, blocks), an axis being 1 where the index does not vary along it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from convloom.ir.interpret.chunk import Chunk
from convloom.ir.interpret.findings import FindingKind
from convloom.ir.interpret.memory import Array, Bools, GlobalMemory, Ints, SharedMemory
from convloom.ir.interpret.order import Use
from convloom.ir.ops import Buffer, Scope


def combined(active: Bools | None, mask: Any) -> Bools | None:
    """The active threads for which the mask holds; None: all."""
    if mask is None or (isinstance(mask, bool | np.bool_) and mask):
        return active
    wanted = np.asarray(mask)
    if wanted.ndim == 0:
        wanted = wanted.reshape(1, 1)
    return wanted if active is None else active & wanted


def lane_places(index: Any, lanes: int) -> Ints:
    """Places of consecutive numbers from `index` on."""
    first = np.asarray(index, np.int64)
    first = first.reshape(1, 1, 1) if first.ndim == 0 else first[None]
    return first if lanes == 1 else first + np.arange(lanes, dtype=np.int64)[:, None, None]


def inside(chunk: Chunk, subject: str, places: Ints, taken: Bools | None, allowed: range) -> Ints:
    """The places moved into the allowed range; those of taking threads that were outside are findings."""
    if not places.size or (int(places.min()) >= allowed.start and int(places.max()) < allowed.stop):
        return places
    outside = (places < allowed.start) | (places >= allowed.stop)
    report_lanes(chunk, FindingKind.OUT_OF_BOUNDS, subject, outside, taken, places)
    return np.clip(places, allowed.start, max(allowed.stop - 1, allowed.start))


def report_lanes(
    chunk: Chunk, kind: FindingKind, subject: str, where: Bools, taken: Bools | None, indices: Ints
) -> None:
    """Records the taking threads of which some lane is affected, with the first such lane's index."""
    affected = where if taken is None else where & taken
    if affected.any():
        lane = np.argmax(affected, axis=0)[None]
        shown = np.take_along_axis(np.broadcast_to(indices, affected.shape), lane, axis=0)[0]
        chunk.report(kind, subject, affected.any(axis=0), shown)


def check_alignment(
    chunk: Chunk, subject: str, places: Ints, taken: Bools | None, address: int, item_bytes: int
) -> None:
    """Vector accesses begin at a multiple of their size, or of the largest alignment that the target asks for."""
    needed = min(len(places) * item_bytes, chunk.launch.options.alignment)
    if len(places) > 1 and needed & (needed - 1) == 0:
        wrong = (address + places[:1] * item_bytes) % needed != 0
        if wrong.any():
            report_lanes(chunk, FindingKind.MISALIGNED, subject, wrong, taken, places[:1])


def zeroed(values: Array, mask: Any) -> Array:
    """The values where the mask holds, zeros elsewhere."""
    if mask is None or mask is True:
        return values
    return np.where(np.asarray(mask), values, np.zeros((), values.dtype))


# --- shared memory --------------------------------------------------------------------------------------------------


def read_shared(chunk: Chunk, buffer: Buffer, index: Any, lanes: int, taken: Bools | None) -> Array:
    """Values of shape (lanes, threads or 1, blocks)."""
    memory = chunk.shared[buffer.name]
    places = shared_places(chunk, buffer, index, lanes, taken)
    if chunk.launch.options.known:
        _check_known(chunk, memory, f"shared {buffer.name}", places, taken)
    if chunk.launch.options.races:
        note_race(chunk, buffer, places, taken, written=False)
    count_access(chunk, buffer, places, taken)
    if places.shape[2] == 1:
        return memory.values[places[..., 0]]
    return memory.values[places, np.arange(places.shape[2])]


def write_shared(chunk: Chunk, buffer: Buffer, index: Any, values: Array, taken: Bools | None) -> None:
    """Stores values of shape (lanes, threads, blocks), axes of 1 broadcast."""
    places = shared_places(chunk, buffer, index, len(values), taken)
    if chunk.launch.options.races:
        note_race(chunk, buffer, places, taken, written=True)
    count_access(chunk, buffer, places, taken, written=True)
    put_shared(chunk, buffer, places, values, taken)


def put_shared(chunk: Chunk, buffer: Buffer, places: Ints, values: Array, taken: Bools | None) -> None:
    """Stores values at checked places, without noting an access."""
    memory = chunk.shared[buffer.name]
    threads, blocks = chunk.shape
    places = np.broadcast_to(places, (len(values), threads, places.shape[2]))
    values = np.broadcast_to(values, (len(values), threads, blocks))
    if places.shape[2] == 1 and (taken is None or taken.shape[1] == 1):
        kept = slice(None) if taken is None else np.broadcast_to(taken, (threads, 1))[:, 0]
        rows = places[:, kept, 0]
        memory.values[rows] = values[:, kept]
        memory.knowledge.complete[rows] = True
        return
    columns = np.broadcast_to(np.arange(blocks), values.shape)
    chosen = _chosen(places, columns, taken)
    memory.values[chosen] = values if taken is None else values[np.broadcast_to(taken, values.shape)]
    memory.knowledge.details()[chosen] = True


def shared_places(chunk: Chunk, buffer: Buffer, index: Any, lanes: int, taken: Bools | None) -> Ints:
    """The places of an access, checked for alignment and bounds."""
    memory, subject = chunk.shared[buffer.name], f"shared {buffer.name}"
    places = lane_places(index, lanes)
    check_alignment(chunk, subject, places, taken, 0, memory.values.itemsize)
    return inside(chunk, subject, places, taken, range(memory.size))


def _chosen(places: Ints, columns: Ints, taken: Bools | None) -> tuple[Ints, Ints]:
    """(row, column) of every taken access."""
    rows = np.broadcast_to(places, columns.shape)
    if taken is None:
        return rows, columns
    kept = np.broadcast_to(taken, columns.shape)
    return rows[kept], columns[kept]


def _check_known(chunk: Chunk, memory: SharedMemory, subject: str, places: Ints, taken: Bools | None) -> None:
    unknown = ~memory.knowledge.complete[places]
    if unknown.any() and memory.knowledge.detail is not None:
        detail = memory.knowledge.detail
        if places.shape[2] == 1:
            unknown = unknown & ~detail[places[..., 0]]
        else:
            unknown = unknown & ~detail[places, np.arange(places.shape[2])]
    if unknown.any():
        report_lanes(chunk, FindingKind.UNINITIALISED, subject, unknown, taken, places)


def note_race(
    chunk: Chunk, buffer: Buffer, places: Ints, taken: Bools | None, *, written: bool, told: bool = True
) -> None:
    """Two threads of a block touch an element between two barriers, one writing; or a copy to it is in flight.

    `told` False: the access is noted for later ones, and is no fault itself.
    """
    if chunk.order is not None:
        chunk.order.note_shared(buffer, places, taken, Use.WRITE if written else Use.READ)
        return
    memory, subject = chunk.shared[buffer.name], f"shared {buffer.name}"
    flying = memory.flying(places) if told else None
    if flying is not None and flying.any():
        report_lanes(chunk, FindingKind.RACE, f"{subject} (copy in flight)", flying, taken, places)
    threads, blocks = chunk.shape
    uniform = places.shape[2] == 1 and (taken is None or taken.shape[1] == 1) and not memory.per_block
    shape = (len(places), threads, 1 if uniform else blocks)
    owners = memory.owners if uniform else memory.spread()
    where = np.broadcast_to(places, shape)
    if not uniform:
        where = where * blocks + np.arange(blocks)
    who = np.broadcast_to(chunk.threads, shape)
    if taken is None:
        conflict = (owners.write if written else owners.read)(where, who)
    else:
        kept = np.broadcast_to(taken, shape)
        conflict = np.zeros(shape, np.bool_)
        conflict[kept] = (owners.write if written else owners.read)(where[kept], who[kept])
    if told and conflict.any():
        report_lanes(chunk, FindingKind.RACE, subject, conflict, taken, places)


# --- global memory --------------------------------------------------------------------------------------------------


def read_global(chunk: Chunk, buffer: Buffer, index: Any, lanes: int, taken: Bools | None) -> Array:
    """Values of shape (lanes, threads or 1, blocks or 1)."""
    memory, subject = chunk.launch.memories[buffer.name], f"global {buffer.name}"
    indices = _global_indices(chunk, memory, subject, index, lanes, taken)
    places = indices + memory.origin
    if not memory.values.size:
        return np.zeros(places.shape, memory.values.dtype)
    if chunk.launch.options.known and memory.known is not None:
        unknown = ~memory.known[places]
        if unknown.any():
            report_lanes(chunk, FindingKind.UNINITIALISED, subject, unknown, taken, indices)
    if chunk.order is not None:
        chunk.order.note_global(buffer, places, indices, taken, Use.READ)
    elif memory.owners is not None:
        _check_global_race(chunk, memory.owners, subject, places, indices, taken, written=False)
    count_access(chunk, buffer, indices, taken)
    return memory.values[places]


def write_global(chunk: Chunk, buffer: Buffer, index: Any, values: Array, taken: Bools | None) -> None:
    """Stores values of shape (lanes, threads, blocks), axes of 1 broadcast."""
    memory, subject = chunk.launch.memories[buffer.name], f"global {buffer.name}"
    indices = _global_indices(chunk, memory, subject, index, len(values), taken)
    if not memory.values.size:
        return
    shape = (len(values), *chunk.shape)
    places = np.broadcast_to(indices + memory.origin, shape)
    if chunk.order is not None:
        chunk.order.note_global(buffer, places, indices, taken, Use.WRITE)
    elif memory.owners is not None:
        _check_global_race(chunk, memory.owners, subject, places, indices, taken, written=True)
    count_access(chunk, buffer, indices, taken, written=True)
    values = np.broadcast_to(values, shape)
    if taken is not None:
        kept = np.broadcast_to(taken, shape)
        places, values = places[kept], values[kept]
    memory.values[places] = values
    if memory.known is not None:
        memory.known[places] = True


def add_global(chunk: Chunk, buffer: Buffer, index: Any, values: Array, taken: Bools | None) -> None:
    """Adds values of shape (lanes, threads, blocks) to what is there; additions of many threads do not conflict."""
    memory, subject = chunk.launch.memories[buffer.name], f"global {buffer.name}"
    indices = _global_indices(chunk, memory, subject, index, len(values), taken)
    if not memory.values.size:
        return
    shape = (len(values), *chunk.shape)
    places, values = np.broadcast_to(indices + memory.origin, shape), np.broadcast_to(values, shape)
    kept = np.ones(shape, np.bool_) if taken is None else np.broadcast_to(taken, shape)
    if chunk.launch.options.known and memory.known is not None:
        unknown = ~memory.known[places]
        if unknown.any():
            report_lanes(chunk, FindingKind.UNINITIALISED, subject, unknown, taken, indices)
    if chunk.order is not None:
        chunk.order.note_global(buffer, places, indices, taken, Use.UPDATE)
    elif memory.owners is not None:
        conflict = np.zeros(shape, np.bool_)
        conflict[kept] = memory.owners.add(places[kept])
        if conflict.any():
            report_lanes(chunk, FindingKind.RACE, subject, conflict, taken, indices)
    count_access(chunk, buffer, indices, taken, written=True)
    np.add.at(memory.values, places[kept], values[kept])


def _global_indices(
    chunk: Chunk, memory: GlobalMemory, subject: str, index: Any, lanes: int, taken: Bools | None
) -> Ints:
    indices = lane_places(index, lanes)
    check_alignment(chunk, subject, indices, taken, memory.address, memory.values.itemsize)
    return inside(chunk, subject, indices, taken, memory.indices)


def _check_global_race(
    chunk: Chunk, owners: Any, subject: str, places: Ints, indices: Ints, taken: Bools | None, *, written: bool
) -> None:
    """Two threads of the launch touch an element, one of them writing: barriers order shared memory only."""
    shape = (len(places), *chunk.shape)
    numbers = chunk.threads + np.arange(chunk.blocks.start, chunk.blocks.stop) * chunk.launch.kernel.threads
    where, who = np.broadcast_to(places, shape), np.broadcast_to(numbers, shape)
    kept = np.ones(shape, np.bool_) if taken is None else np.broadcast_to(taken, shape)
    conflict = np.zeros(shape, np.bool_)
    conflict[kept] = (owners.write if written else owners.read)(where[kept], who[kept])
    if conflict.any():
        report_lanes(chunk, FindingKind.RACE, subject, conflict, taken, indices)


def count_access(chunk: Chunk, buffer: Buffer, indices: Ints, taken: Bools | None, *, written: bool = False) -> None:
    """Counts an access where counting is asked for."""
    counts = chunk.launch.counts
    if counts is None or buffer.dtype is None:
        return
    memory = chunk.launch.memories.get(buffer.name) if buffer.scope is Scope.GLOBAL else None
    size = buffer.dtype.nbytes
    first = (0 if memory is None else memory.address) + indices[0] * size
    counts.access(chunk.path, buffer, first, len(indices) * size, taken, chunk.shape, written)
