"""Where the shared buffers of a kernel lie in one common space."""

from __future__ import annotations

from convloom.ir.ops import Allocate, Buffer, Kernel, Scope
from convloom.ir.rewrite import statements_in

_ALIGNMENT = 128  # of every buffer, in bytes: the widest swizzle or bulk copy needs no more


def shared_offsets(kernel: Kernel) -> dict[Buffer, int]:
    """Byte offset of each SHARED buffer, in the order of allocation."""
    offsets: dict[Buffer, int] = {}
    end = 0
    for statement in statements_in(kernel.body):
        if isinstance(statement, Allocate) and statement.buffer.scope is Scope.SHARED:
            buffer = statement.buffer
            offsets[buffer] = -(-end // max(buffer.alignment, _ALIGNMENT)) * max(buffer.alignment, _ALIGNMENT)
            end = offsets[buffer] + _padded(buffer)
    return offsets


def shared_bytes(kernel: Kernel) -> int:
    """Bytes of shared memory that a block needs."""
    return max((offset + _padded(buffer) for buffer, offset in shared_offsets(kernel).items()), default=0)


def shared_alignment(kernel: Kernel) -> int:
    """Bytes that the common space must be aligned to."""
    return max((buffer.alignment for buffer in shared_offsets(kernel)), default=_ALIGNMENT) or _ALIGNMENT


def _padded(buffer: Buffer) -> int:
    nbytes = buffer.size * (8 if buffer.dtype is None else buffer.dtype.nbytes)
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
