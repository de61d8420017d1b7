"""Rows of sm_90's bulk copies: tensor loads (tiled, image columns, multicast), stores, reductions; linear copies.

Source: NVIDIA, PTX ISA, "cp.async.bulk" and "cp.async.bulk.tensor".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import numpy as np

from convloom.errors import IllegalProblem
from convloom.target.instruction import (
    Completion,
    Constraint,
    Direction,
    Execution,
    Family,
    Instruction,
    Operand,
    OperandKind,
    Ordering,
    OutOfBounds,
    Proxy,
    Register,
    Rule,
    Semantics,
)
from convloom.target.memory import CLUSTER_PITCH, Flags, Memory, Space
from convloom.target.number_format import Array, as_elements, exact, rounded, storage
from convloom.target.nvidia_sm80 import immediate, nvidia, order_row, ptx
from convloom.target.swizzle import swizzled
from convloom.target.tensor_map import GRANULE, ColumnMap, TensorMap, TiledMap
from convloom.target.transaction_barrier import advance

NEEDS = nvidia(90)
TILE_ALIGNMENT = 128
"""Bytes: alignment of a tile in shared memory (16 for linear copies)."""

_MAP = Operand("map", Direction.IN, Register.B64, kind=OperandKind.TENSOR_MAP, space=Space.GLOBAL)
_BARRIER = Operand("barrier", Direction.IN, kind=OperandKind.ADDRESS, space=Space.CLUSTER)
_MASK = Operand("mask", Direction.IN)
_DESTINATION = Operand("destination", Direction.IN, kind=OperandKind.ADDRESS, space=Space.CLUSTER)
_SOURCE = Operand("source", Direction.IN, kind=OperandKind.ADDRESS, space=Space.SHARED)
_GLOBAL = Operand("address", Direction.IN, Register.B64, kind=OperandKind.ADDRESS, space=Space.GLOBAL)
_SIZE = Operand("size", Direction.IN)
_TX = ".mbarrier::complete_tx::bytes"


def tensor_map(execution: Execution, kind: type[TensorMap]) -> TensorMap:
    """The map operand, checked; IllegalProblem for the wrong kind or a broken rule."""
    found = execution.values["map"]
    if not isinstance(found, kind):
        raise IllegalProblem(
            f"this instruction needs a {kind.__name__}; got {type(found).__name__}; choose the other row"
        )
    found.check()
    return found


def complete_bytes(memory: Memory, space: Space, barriers: Array, nbytes: Array, active: Flags | None) -> None:
    """Counts bytes as arrived on barriers (addresses (*batch, n))."""

    def combine(words: Array, done: Array) -> Array:
        return advance(words, completed_bytes=done.astype(np.int64))

    memory.update(space, barriers, np.broadcast_to(nbytes, barriers.shape).astype(np.uint64), combine, active)


# --- where the data lies --------------------------------------------------------------------------------------------


def _signed(words: Array) -> Array:
    return words.view(np.int32).astype(np.int64)


def _global_units(execution: Execution, map: TensorMap, row_granule: int = 1) -> tuple[Array, Flags]:
    """(addresses, inside) of the copy's units: (*batch, lanes, units)."""
    start = _signed(execution.words("coordinates"))
    if isinstance(map, ColumnMap):
        coordinates = map.coordinates(start, execution.words("offsets").astype(np.int64))
    else:
        coordinates = cast(TiledMap, map).coordinates(start)
    addresses, inside = map.byte_addresses(coordinates, row_granule)
    return addresses, inside if execution.active is None else inside & execution.active[..., None]


def _shared_units(execution: Execution, name: str, map: TensorMap) -> Array:
    """Swizzled shared addresses of the units, in the order of the global ones: (*batch, lanes, units)."""
    return swizzled(execution.number(name)[..., None] + map.tile_offsets(), map.swizzle)


def _flat(per_lane: Array) -> Array:
    """(*batch, lanes, units) -> (*batch, lanes * units), the shape that Memory takes."""
    return per_lane.reshape(*per_lane.shape[:-2], -1)


def _everywhere(execution: Execution, shape: tuple[int, ...]) -> Flags:
    return np.broadcast_to(True if execution.active is None else execution.active[..., None], shape)


# --- loads ----------------------------------------------------------------------------------------------------------


def _load(kind: type[TensorMap], multicast: bool) -> Semantics:
    def run(execution: Execution) -> dict[str, Array]:
        map = tensor_map(execution, kind)
        addresses, inside = _global_units(execution, map)
        data = execution.space.load(Space.GLOBAL, _flat(addresses), map.unit, _flat(inside))
        places = _shared_units(execution, "destination", map)
        for shift, active in _receivers(execution) if multicast else ((0, execution.active),):
            taking = np.broadcast_to(True if active is None else active[..., None], places.shape)
            execution.space.store(Space.CLUSTER, _flat(places) + shift, data, _flat(taking))
            barriers = execution.number("barrier") + shift
            complete_bytes(execution.space, Space.CLUSTER, barriers, np.asarray(map.nbytes), active)
        return {}

    return run


def _receivers(execution: Execution) -> Iterator[tuple[int, Flags]]:
    """(address shift, lanes that send there) for each block of the cluster that a mask names."""
    mask = execution.number("mask")
    active = np.ones(mask.shape, bool) if execution.active is None else execution.active
    for rank in range(16):
        chosen = active & ((mask >> rank & 1) != 0)
        if chosen.any():
            yield (rank + 1) * CLUSTER_PITCH, chosen


def _load_row(rank: int, columns: bool, multicast: bool) -> Instruction:
    mode = "im2col" if columns else "tile"
    coordinates = Operand("coordinates", Direction.IN, registers=rank)
    offsets = (Operand("offsets", Direction.IN, registers=rank - 2),) if columns else ()
    return Instruction(
        name=f"cp.async.bulk.tensor.{rank}d.{mode}.load{'.multicast' if multicast else ''}",
        family=Family.TENSOR_LOAD,
        needs=NEEDS,
        lanes=1,
        operands=(_DESTINATION, _MAP, coordinates, _BARRIER, *offsets, *((_MASK,) if multicast else ())),
        texts=ptx(_load_pattern(rank, mode, multicast)),
        semantics=_load(ColumnMap if columns else TiledMap, multicast),
        constraints=(
            Constraint("destination", Rule.MULTIPLE, (TILE_ALIGNMENT,)),
            Constraint("barrier", Rule.MULTIPLE, (8,)),
        ),
        out_of_bounds=OutOfBounds.ZERO_PER_BOX,
        completion=Completion.BARRIER_BYTES,
        proxy=Proxy.ASYNC,
        meaning="Counts all bytes of the tile on the barrier, those outside the tensor too. With multicast the tile "
        "and the count go to the same addresses in every block that the mask names.",
    )


def _load_pattern(rank: int, mode: str, multicast: bool) -> str:
    """Offsets and the mask are 16-bit operands: converted inside."""
    count = (rank - 2) * (mode == "im2col")
    narrow = [f"offset{number}" for number in range(count)] + ["mask"] * multicast
    sources = [f"$offsets#{number}" for number in range(count)] + ["$mask"] * multicast
    declared = "".join(
        f".reg .b16 {name}; cvt.u16.u32 {name}, {source}; " for name, source in zip(narrow, sources, strict=True)
    )
    opcode = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}{_TX}{'.multicast::cluster' if multicast else ''}"
    )
    offsets = f", {{{', '.join(narrow[:count])}}}" if count else ""
    mask = ", mask" if multicast else ""
    return f"{{ {declared}{opcode} [$destination], [$map, {{$coordinates}}], [$barrier]{offsets}{mask}; }}"


# --- stores and reductions ------------------------------------------------------------------------------------------


def _read_tile(execution: Execution, map: TensorMap) -> tuple[Array, Array, Flags]:
    """(bytes, global addresses, inside) of a tile in shared memory, unit by unit, batch axes in front."""
    if any(step != 1 for step in map.steps):
        raise IllegalProblem(f"a tensor store takes maps with steps of 1; got {map.steps}; make a map for the store")
    start = _signed(execution.words("coordinates"))
    active = _everywhere(execution, start.shape)
    if (active & (start < 0)).any():
        raise IllegalProblem(
            f"a tensor store starts at coordinates >= 0, else it faults; got {start[active].min()}; "
            "let the tile begin inside"
        )
    addresses, inside = _global_units(execution, map, GRANULE)
    places = _shared_units(execution, "source", map)
    active = _everywhere(execution, places.shape)
    data = execution.space.load(Space.SHARED, _flat(places), map.unit, _flat(active))
    return data, _flat(addresses), _flat(inside)


def _store(execution: Execution) -> dict[str, Array]:
    data, addresses, inside = _read_tile(execution, tensor_map(execution, TiledMap))
    execution.space.store(Space.GLOBAL, addresses, data, inside)
    return {}


def _sum(old: Array, new: Array) -> Array:
    return old + new


_COMBINE: dict[str, Callable[[Array, Array], Array]] = {"add": _sum, "min": np.minimum, "max": np.maximum}


def _reduce(operation: str) -> Semantics:
    combine = _COMBINE[operation]

    def run(execution: Execution) -> dict[str, Array]:
        map = tensor_map(execution, TiledMap)
        data, addresses, inside = _read_tile(execution, map)
        kind, size = map.dtype, map.dtype.nbytes
        elements = as_elements(data, kind)
        each = addresses[..., None] + np.arange(0, map.unit, size)

        def one(old: Array, new: Array) -> Array:
            return rounded(combine(exact(old, kind), exact(new, kind)), kind)

        active = np.broadcast_to(inside[..., None], each.shape)
        operand = elements.astype(storage(kind), copy=False)
        execution.space.update(Space.GLOBAL, _flat(each), _flat(operand), one, _flat(active))
        return {}

    return run


def _store_row(rank: int, operation: str | None) -> Instruction:
    opcode = "cp.async.bulk.tensor" if operation is None else "cp.reduce.async.bulk.tensor"
    kind = "" if operation is None else f".{operation}"
    return Instruction(
        name=f"{opcode}.{rank}d.tile.{operation or 'store'}",
        family=Family.TENSOR_STORE,
        needs=NEEDS,
        lanes=1,
        operands=(_MAP, Operand("coordinates", Direction.IN, registers=rank), _SOURCE),
        texts=ptx(f"{opcode}.{rank}d.global.shared::cta{kind}.tile.bulk_group [$map, {{$coordinates}}], [$source];"),
        semantics=_store if operation is None else _reduce(operation),
        constraints=(Constraint("source", Rule.MULTIPLE, (TILE_ALIGNMENT,)),),
        out_of_bounds=OutOfBounds.ZERO_PER_BOX,
        completion=Completion.BULK_GROUP,
        proxy=Proxy.ASYNC,
        meaning="Elements outside the tensor are not written, with one exception (measured on an H200): a row of the "
        "box that crosses the end of dimension 0 is cut at the next multiple of 16 bytes, so up to 15 bytes behind the "
        "tensor's row are written. Start coordinates below 0 are a fault. Reductions are indivisible per element.",
    )


# --- linear copies --------------------------------------------------------------------------------------------------


def _linear_load(execution: Execution) -> dict[str, Array]:
    sizes = execution.number("size")
    active = _everywhere(execution, (*sizes.shape, 1))[..., 0]
    for size in np.unique(sizes[active]):
        chosen = active & (sizes == size)
        data = execution.space.load(Space.GLOBAL, execution.number("address"), int(size), chosen)
        execution.space.store(Space.CLUSTER, execution.number("destination"), data, chosen)
    complete_bytes(execution.space, Space.CLUSTER, execution.number("barrier"), sizes, active)
    return {}


def _linear_store(execution: Execution) -> dict[str, Array]:
    sizes = execution.number("size")
    active = _everywhere(execution, (*sizes.shape, 1))[..., 0]
    for size in np.unique(sizes[active]):
        chosen = active & (sizes == size)
        data = execution.space.load(Space.SHARED, execution.number("source"), int(size), chosen)
        execution.space.store(Space.GLOBAL, execution.number("address"), data, chosen)
    return {}


def _linear_row(load: bool) -> Instruction:
    shared = "destination" if load else "source"
    text = (
        f"cp.async.bulk.shared::cluster.global{_TX} [$destination], [$address], $size, [$barrier];"
        if load
        else "cp.async.bulk.global.shared::cta.bulk_group [$address], [$source], $size;"
    )
    return Instruction(
        name=f"cp.async.bulk.{'load' if load else 'store'}",
        family=Family.TENSOR_LOAD if load else Family.TENSOR_STORE,
        needs=NEEDS,
        lanes=1,
        operands=(_DESTINATION, _GLOBAL, _SIZE, _BARRIER) if load else (_GLOBAL, _SOURCE, _SIZE),
        texts=ptx(text),
        semantics=_linear_load if load else _linear_store,
        constraints=tuple(Constraint(name, Rule.MULTIPLE, (16,)) for name in (shared, "address", "size")),
        out_of_bounds=OutOfBounds.FAULT,
        completion=Completion.BARRIER_BYTES if load else Completion.BULK_GROUP,
        proxy=Proxy.ASYNC,
    )


def _group_rows() -> Iterator[Instruction]:
    pending = ((immediate("pending"),), (Constraint("pending", Rule.WITHIN, (0, 63)),))
    facts = (
        ("commit_group", Ordering.COMMIT, "", (), (), "The thread's bulk stores since the last commit are one group."),
        ("wait_group", Ordering.WAIT, " $pending", *pending, "All but `pending` groups are written to global memory."),
        (
            "wait_group.read",
            Ordering.WAIT_READ,
            " $pending",
            *pending,
            "All but `pending` groups have read their source.",
        ),
    )
    for name, ordering, tail, operands, rules, meaning in facts:
        opcode = f"cp.async.bulk.{name}"
        text = f"{opcode}{tail};"
        yield order_row(
            opcode, NEEDS, Family.TENSOR_STORE, ordering, text, meaning, operands, rules, group=Completion.BULK_GROUP
        )


ROWS: tuple[Instruction, ...] = (
    *(_load_row(rank, False, multicast) for rank in range(1, 6) for multicast in (False, True)),
    *(_load_row(rank, True, multicast) for rank in range(3, 6) for multicast in (False, True)),
    *(_store_row(rank, operation) for rank in range(1, 6) for operation in (None, *_COMBINE)),
    _linear_row(True),
    _linear_row(False),
    *_group_rows(),
)
