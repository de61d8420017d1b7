"""Reads and writes of register arrays, which every thread has for itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from convloom.ir.interpret.access import inside, lane_places, report_lanes
from convloom.ir.interpret.chunk import Chunk
from convloom.ir.interpret.findings import FindingKind
from convloom.ir.interpret.memory import Array, Bools, Ints, LocalMemory
from convloom.ir.ops import Buffer


def read_register(chunk: Chunk, buffer: Buffer, index: Any, lanes: int) -> Array:
    """Values of shape (lanes, threads, blocks)."""
    if chunk.order is not None:
        chunk.order.touch_registers(buffer, index, lanes)
    memory, subject = chunk.registers[buffer.name], f"register {buffer.name}"
    if isinstance(index, int) and 0 <= index <= memory.size - lanes:
        if chunk.launch.options.known and not memory.knowledge.complete[index : index + lanes].all():
            _check_known(chunk, memory, subject, np.arange(index, index + lanes)[:, None, None])
        return memory.values[index : index + lanes]
    places = inside(chunk, subject, lane_places(index, lanes), chunk.active, range(memory.size))
    places = np.broadcast_to(places, (lanes, *chunk.shape))
    if chunk.launch.options.known:
        _check_known(chunk, memory, subject, places)
    return np.take_along_axis(memory.values, places, axis=0)


def _check_known(chunk: Chunk, memory: LocalMemory, subject: str, places: Ints) -> None:
    unknown = ~memory.knowledge.complete[places]
    detail = memory.knowledge.detail
    if detail is not None and unknown.any():
        spread = np.broadcast_to(places, (len(places), *chunk.shape))
        unknown = unknown & ~np.take_along_axis(detail, spread, axis=0)
    if unknown.any():
        report_lanes(chunk, FindingKind.UNINITIALISED, subject, unknown, chunk.active, places)


def write_register(chunk: Chunk, buffer: Buffer, index: Any, values: Array, taken: Bools | None) -> None:
    """Stores values of shape (lanes, threads, blocks), axes of 1 broadcast."""
    memory, subject = chunk.registers[buffer.name], f"register {buffer.name}"
    lanes = len(values)
    if chunk.order is not None:
        chunk.order.touch_registers(buffer, index, lanes)
    if isinstance(index, int) and 0 <= index <= memory.size - lanes:
        part = slice(index, index + lanes)
        if taken is None:
            memory.values[part] = values
            memory.knowledge.complete[part] = True
            return
        np.copyto(memory.values[part], values, where=taken)
        if not memory.knowledge.complete[part].all():
            memory.knowledge.details()[part] |= taken
        return
    places = inside(chunk, subject, lane_places(index, lanes), taken, range(memory.size))
    _scatter(memory, np.broadcast_to(places, (lanes, *chunk.shape)), values, taken)


def _scatter(memory: LocalMemory, places: Ints, values: Array, taken: Bools | None) -> None:
    """Each thread to a place of its own; what is not taken keeps its value."""
    details = memory.knowledge.details()
    if taken is not None:
        values = np.where(taken, values, np.take_along_axis(memory.values, places, axis=0))
    known = np.ones((1, 1, 1), np.bool_) if taken is None else taken | np.take_along_axis(details, places, axis=0)
    np.put_along_axis(memory.values, places, np.broadcast_to(values, places.shape), axis=0)
    np.put_along_axis(details, places, np.broadcast_to(known, places.shape), axis=0)
