"""The state machine of a transaction barrier (mbarrier): 64 bits, and what each operation does to them.

A phase ends when no arrival and no byte is pending; then the next one begins with all arrivals pending. Hardware keeps
the bits to itself; this layout is convloom's own: pending arrivals [0, 20), arrivals per phase [20, 40), bytes still
expected, biased [40, 62), parity of the current phase [63].
Source of the laws: NVIDIA, PTX ISA, "mbarrier: phase completion, tx-count".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from convloom.errors import ConvloomError
from convloom.target.number_format import Array

MAX_COUNT = (1 << 20) - 1
"""Most arrivals of a phase, and most bytes expected at a time."""
_BIAS = 1 << 21
_BYTES_MASK = (1 << 22) - 1


class BarrierFault(ConvloomError):
    """More arrivals than a phase has, or a count out of range."""


@dataclass(frozen=True, slots=True)
class BarrierState:
    """Decoded words: int64 arrays of one shape; `parity` is that of the phase that is not complete yet."""

    pending: Array
    expected: Array
    pending_bytes: Array
    parity: Array

    def encode(self) -> Array:
        """The 64-bit words. BarrierFault for a count out of range."""
        counts = (("arrivals pending", self.pending, 0), ("bytes expected", self.pending_bytes, -MAX_COUNT))
        for name, count, least in counts:
            if ((count < least) | (count > MAX_COUNT)).any():
                raise BarrierFault(
                    f"{name} of a barrier must lie in {least}..{MAX_COUNT}; got {count.min()}..{count.max()}; "
                    "check who arrives and how many bytes each phase moves"
                )
        biased = (self.pending_bytes + _BIAS).astype(np.uint64) << np.uint64(40)
        counts_word = self.pending.astype(np.uint64) | self.expected.astype(np.uint64) << np.uint64(20)
        return counts_word | biased | self.parity.astype(np.uint64) << np.uint64(63)


def decode(words: Array) -> BarrierState:
    """The state in 64-bit words."""

    def field(bit: int, mask: int) -> Array:
        return (words >> np.uint64(bit)).astype(np.int64) & mask

    return BarrierState(field(0, MAX_COUNT), field(20, MAX_COUNT), field(40, _BYTES_MASK) - _BIAS, field(63, 1))


def initial(count: Array) -> Array:
    """The words of a fresh barrier for `count` arrivals per phase (1 .. 2**20 - 1)."""
    if (count < 1).any():
        raise BarrierFault(
            f"a barrier counts at least 1 arrival; got {count.min()}; give the number of arriving threads"
        )
    zero = np.zeros_like(count)
    return BarrierState(count, count, zero, zero).encode()


def advance(
    words: Array, arrivals: Array | int = 0, expected_bytes: Array | int = 0, completed_bytes: Array | int = 0
) -> Array:
    """The words after bytes are announced, then completed, then arrivals counted; a finished phase begins the next."""
    state = decode(words)
    pending = state.pending - arrivals
    pending_bytes = state.pending_bytes + expected_bytes - completed_bytes
    done = (pending == 0) & (pending_bytes == 0)
    pending = np.where(done, state.expected, pending)
    return BarrierState(pending, state.expected, pending_bytes, state.parity ^ done).encode()


def passed(words: Array, parity: Array) -> Array:
    """Whether the phase with this parity is over: 0/1. True too for a phase two behind, which parity cannot tell."""
    return (decode(words).parity != (parity & 1)).astype(np.int64)
