"""Byte-addressed memory as instructions see it: the interface, and the plain one for tests and single instructions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from convloom.errors import ConvloomError
from convloom.target.number_format import Array

Bytes: TypeAlias = NDArray[np.uint8]
Flags: TypeAlias = NDArray[np.bool_]


class Space(Enum):
    """An address space."""

    GLOBAL = "global"  # one for all
    SHARED = "shared"  # one per thread block
    CLUSTER = "cluster"  # the shared memories of a group of blocks (see CLUSTER_PITCH)


CLUSTER_PITCH = 1 << 24
"""Address (rank + 1) * CLUSTER_PITCH + a of the CLUSTER space is address a in the shared memory of the cluster's block
`rank`; addresses below the pitch are those of the block itself."""


class MemoryFault(ConvloomError, IndexError):
    """An instruction touched bytes outside its address space."""


class Memory(Protocol):
    """What semantics may do to memory; an interpreter records who did what behind this interface.

    Addresses are integers of shape (*batch, n): batch axes are those of the registers in front of the lanes, and an
    address belongs to the thread block that its batch position stands for. `active` has the shape of `addresses`;
    None means everywhere.
    """

    def load(self, space: Space, addresses: Array, nbytes: int, active: Flags | None = None) -> Bytes:
        """`nbytes` bytes from each address on: shape (*addresses.shape, nbytes); zeros where not active."""
        ...

    def store(self, space: Space, addresses: Array, data: Bytes, active: Flags | None = None) -> None:
        """Writes data[..., :] from each address on; the shape of data is (*addresses.shape, nbytes)."""
        ...

    def update(
        self,
        space: Space,
        addresses: Array,
        operand: Array,
        combine: Callable[[Array, Array], Array],
        active: Flags | None = None,
    ) -> Array:
        """One indivisible memory := combine(memory, operand) per address, in an unspecified order; the old words.

        Words have the type of `operand`, whose shape is that of `addresses`.
        """
        ...


class FlatMemory:
    """Memory in plain arrays: global of shape (bytes,), shared of shape (*batch, bytes). MemoryFault out of bounds.

    For CLUSTER the last batch axis counts the blocks of a cluster. Overlapping stores of one instruction: the last
    lane's bytes stay.
    """

    def __init__(self, global_bytes: Bytes | None = None, shared_bytes: Bytes | None = None) -> None:
        self.global_bytes = np.zeros(0, np.uint8) if global_bytes is None else global_bytes
        self.shared_bytes = np.zeros(0, np.uint8) if shared_bytes is None else shared_bytes

    def load(self, space: Space, addresses: Array, nbytes: int, active: Flags | None = None) -> Bytes:
        """See `Memory`."""
        flat, places = self._places(space, addresses, nbytes, active)
        if not flat.size:
            return np.zeros(places.shape, np.uint8)
        loaded = flat[places]
        return loaded if active is None else np.where(active[..., None], loaded, np.uint8(0))

    def store(self, space: Space, addresses: Array, data: Bytes, active: Flags | None = None) -> None:
        """See `Memory`."""
        flat, places = self._places(space, addresses, data.shape[-1], active)
        data = np.broadcast_to(data, places.shape)
        if active is None:
            flat[places] = data
        else:
            chosen = np.broadcast_to(active, addresses.shape)
            flat[places[chosen]] = data[chosen]

    def update(
        self,
        space: Space,
        addresses: Array,
        operand: Array,
        combine: Callable[[Array, Array], Array],
        active: Flags | None = None,
    ) -> Array:
        """See `Memory`; where addresses repeat, lane by lane in order."""
        flat, places = self._places(space, addresses, operand.dtype.itemsize, active)
        chosen = np.ones(addresses.shape, bool) if active is None else np.broadcast_to(active, addresses.shape)
        words, operands = places[chosen], operand[chosen]
        old = np.zeros(addresses.shape, operand.dtype)
        old[chosen] = _updated(flat, words, operands, combine)
        return old

    def _places(self, space: Space, addresses: Array, nbytes: int, active: Flags | None) -> tuple[Bytes, Array]:
        """(all bytes of the space as one flat array, position in it of each byte touched; 0 where not active)."""
        first = addresses.astype(np.int64)
        block, first, size = _RESOLVE[space](self, first)
        inside = (first >= 0) & (first + nbytes <= size)
        if active is not None:
            inside, first = inside | ~active, np.where(active, first, 0)
        if not inside.all():
            worst = first[~inside].reshape(-1)[0]
            raise MemoryFault(
                f"an access of {nbytes} bytes must lie in {size} bytes of {space.value} memory; got address {worst}; "
                "check the address or mask the lane"
            )
        flat = self.global_bytes if space is Space.GLOBAL else self.shared_bytes.reshape(-1)
        return flat, (block * size + first)[..., None] + np.arange(nbytes)

    def _in_global(self, addresses: Array) -> tuple[Array, Array, int]:
        return np.zeros((), np.int64), addresses, self.global_bytes.size

    def _in_shared(self, addresses: Array) -> tuple[Array, Array, int]:
        return self._block_numbers(addresses.ndim), addresses, self.shared_bytes.shape[-1]

    def _in_cluster(self, addresses: Array) -> tuple[Array, Array, int]:
        ranks, size = self.shared_bytes.reshape(1, *self.shared_bytes.shape).shape[-2:]
        own = self._block_numbers(addresses.ndim)
        rank = np.where(addresses < CLUSTER_PITCH, own % ranks, addresses // CLUSTER_PITCH - 1)
        if ((rank < 0) | (rank >= ranks)).any():
            raise MemoryFault(
                f"a cluster address must name one of {ranks} blocks; got {rank.max()}; check the block's number"
            )
        return own // ranks * ranks + rank, addresses % CLUSTER_PITCH, size

    def _block_numbers(self, ndim: int) -> Array:
        batch = self.shared_bytes.shape[:-1]
        return np.arange(int(np.prod(batch, dtype=np.int64))).reshape(*batch, *(1,) * (ndim - len(batch)))


def _updated(flat: Bytes, places: Array, operands: Array, combine: Callable[[Array, Array], Array]) -> Array:
    """The old words at byte positions (n, bytes), after flat := combine(flat, operands) one after the other."""
    if np.unique(places[:, 0]).size != len(places):
        parts = [_updated(flat, places[i : i + 1], operands[i : i + 1], combine) for i in range(len(places))]
        return np.concatenate(parts)
    old = flat[places].view(operands.dtype)[:, 0]
    flat[places] = np.ascontiguousarray(combine(old, operands))[:, None].view(np.uint8)
    return old


_RESOLVE: Mapping[Space, Callable[[FlatMemory, Array], tuple[Array, Array, int]]] = {
    Space.GLOBAL: FlatMemory._in_global,  # pyright: ignore[reportPrivateUsage]
    Space.SHARED: FlatMemory._in_shared,  # pyright: ignore[reportPrivateUsage]
    Space.CLUSTER: FlatMemory._in_cluster,  # pyright: ignore[reportPrivateUsage]
}
