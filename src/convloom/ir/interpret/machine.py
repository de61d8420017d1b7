"""Runs a whole launch of a kernel, chunk of blocks after chunk of blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from convloom.errors import IllegalProblem, InternalError
from convloom.ir.interpret.chunk import Launch
from convloom.ir.interpret.counts import Counts
from convloom.ir.interpret.findings import Findings
from convloom.ir.interpret.memory import GlobalMemory, Owners
from convloom.ir.interpret.options import Options
from convloom.ir.interpret.ordered import needs_order, run_ordered
from convloom.ir.interpret.schedule import run_blocks
from convloom.ir.ops import Kernel, MapParameter
from convloom.target.tensor_map import ColumnMap, TensorMap, TiledMap


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an interpretation found, what it counted (None: not asked for), and how many blocks ran."""

    findings: Findings
    counts: Counts | None
    blocks: int


def interpret(
    kernel: Kernel,
    memories: Mapping[str, GlobalMemory],
    arguments: Mapping[str, int],
    floats: Mapping[str, float],
    blocks: int,
    options: Options | None = None,
    maps: Mapping[str, TensorMap] | None = None,
) -> Outcome:
    """Runs a whole launch on the memories, which it changes; index arguments and float arguments by name.

    `maps`: the tensor maps of the launch, whose addresses count from number 0 of their buffers; those left out are made
    from the kernel, where their sizes are constants.

    The kernel must not be serialised for a CPU. Raises nothing for faults of the kernel: they are findings.
    """
    options = options or Options()
    for buffer in kernel.buffers:
        memory = memories[buffer.name]
        tracked = options.races and buffer.written
        memory.owners = Owners.of_size(memory.values.size) if tracked else None
    launch = Launch(kernel, memories, floats, options, Findings(), Counts() if options.counted else None)
    if options.clocks or needs_order(kernel):
        with np.errstate(all="ignore"):
            run_ordered(launch, blocks, arguments, _maps(kernel, maps or {}))
        return Outcome(launch.findings, launch.counts, blocks)
    step = max(1, options.chunk_threads // kernel.threads)
    with np.errstate(all="ignore"):
        for first in range(0, blocks, step):
            run_blocks(launch, range(first, min(first + step, blocks)), arguments)
    return Outcome(launch.findings, launch.counts, blocks)


def _maps(kernel: Kernel, given: Mapping[str, TensorMap]) -> dict[str, TensorMap]:
    return {item.name: given[item.name] if item.name in given else constant_map(item) for item in kernel.maps}


def constant_map(map: MapParameter) -> TensorMap:
    """The tensor map of constant sizes; IllegalProblem if they are not."""
    expressions = (*map.sizes, *map.strides, map.offset)
    if not all(item.is_const for item in expressions):
        raise IllegalProblem(f"sizes of map {map.name} must be constants; they are not; pass the map to interpret")
    return tensor_map(map, tuple(item.value for item in expressions))


def tensor_map(map: MapParameter, values: tuple[int, ...]) -> TensorMap:
    """The tensor map of a launch from its sizes, strides in bytes, and offset."""
    dtype, rank = map.buffer.dtype, len(map.sizes)
    if dtype is None:
        raise InternalError(f"tensor maps are of values; {map.name} is of index integers; report this")
    sizes, strides, offset = values[:rank], values[rank:-1], values[-1]
    shared = dtype, offset * dtype.nbytes, sizes, strides, map.steps, map.swizzle
    if map.box:
        return TiledMap(*shared, box=map.box)
    return ColumnMap(*shared, map.lower, map.upper, map.channels, map.pixels)
