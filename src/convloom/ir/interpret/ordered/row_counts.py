"""Counts what an instruction row of an ordered launch asks of memory: requests of subgroups, or bulk copies."""

from __future__ import annotations

import numpy as np

from convloom.ir.interpret.chunk import Chunk
from convloom.ir.interpret.counts import Counts
from convloom.ir.interpret.memory import Array, Bools
from convloom.ir.interpret.ordered.world import World, item_bytes
from convloom.ir.ops import Buffer
from convloom.target.instruction import Completion, Family, Instruction
from convloom.target.memory import CLUSTER_PITCH, Space

_BULK = (Completion.BULK_GROUP, Completion.BARRIER_BYTES)


def count_row(
    world: World,
    chunk: Chunk,
    row: Instruction,
    space: Space,
    addresses: Array,
    nbytes: int,
    active: Bools | None,
    *,
    written: bool,
) -> None:
    """Adds one access of a row to the counts, where counting is asked for: byte addresses (*groups, lanes).

    The words of barriers are left out.
    """
    counts = world.launch.counts
    if counts is None or row.family is Family.BARRIER or row.completion is Completion.COPIES_DONE:
        return
    kept = np.ones(addresses.shape, np.bool_) if active is None else np.broadcast_to(active, addresses.shape)
    if not kept.any():
        return
    buffer, first = _place(world, space, addresses.astype(np.int64), kept)
    if buffer is None:
        return
    if row.completion in _BULK:
        counts.bulk(chunk.path, buffer, first[kept], nbytes, written)
        return
    first, kept = _whole_subgroups(counts, first, kept)
    counts.access(chunk.path, buffer, first, nbytes, kept, (len(first), 1), written)


def _place(world: World, space: Space, addresses: Array, kept: Bools) -> tuple[Buffer | None, Array]:
    """The buffer that an access means (by its first address), and addresses as counted in it."""
    if space is Space.GLOBAL:
        name, memory, first = world.global_place(addresses[kept])
        shifted = addresses - int(addresses[kept].flat[0]) + int(first.flat[0])
        return world.buffers[name], shifted + memory.address - memory.origin * memory.values.itemsize
    local = addresses % CLUSTER_PITCH
    one = int(local[kept].flat[0])
    for buffer in world.shared.values():
        start = world.offsets[buffer.name]
        if start <= one < start + buffer.size * item_bytes(buffer):
            return buffer, local
    return None, local


def _whole_subgroups(counts: Counts, first: Array, kept: Bools) -> tuple[Array, Bools]:
    """As columns, each group of lanes filled up to whole subgroups with absent lanes."""
    missing = -first.shape[-1] % counts.geometry.subgroup
    if missing:
        widths = [(0, 0)] * (first.ndim - 1) + [(0, missing)]
        first, kept = np.pad(first, widths), np.pad(kept, widths)
    return first.reshape(-1, 1), kept.reshape(-1, 1)
