"""Runs a whole launch of a kernel, chunk of blocks after chunk of blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from convloom.ir.interpret.chunk import Launch
from convloom.ir.interpret.counts import Counts
from convloom.ir.interpret.findings import Findings
from convloom.ir.interpret.memory import GlobalMemory, Owners
from convloom.ir.interpret.options import Options
from convloom.ir.interpret.schedule import run_blocks
from convloom.ir.ops import Kernel


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
) -> Outcome:
    """Runs a whole launch on the memories, which it changes; index arguments and float arguments by name.

    The kernel must not be serialised for a CPU. Raises nothing for faults of the kernel: they are findings.
    """
    options = options or Options()
    for buffer in kernel.buffers:
        memory = memories[buffer.name]
        tracked = options.races and buffer.written
        memory.owners = Owners.of_size(memory.values.size) if tracked else None
    launch = Launch(kernel, memories, floats, options, Findings(), Counts() if options.counted else None)
    step = max(1, options.chunk_threads // kernel.threads)
    with np.errstate(all="ignore"):
        for first in range(0, blocks, step):
            run_blocks(launch, range(first, min(first + step, blocks)), arguments)
    return Outcome(launch.findings, launch.counts, blocks)
