"""What the loads of one K step ask of memory, read off views and layouts: sectors, bytes and wavefronts."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np
from numpy.typing import NDArray

from convloom.expr import Expr, const, evaluate, free_symbols, local_sym
from convloom.plan.access_facts import flat_axes, typical_value
from convloom.plan.flat_axis import MASKED_IN_FACTORS, Merged, tile_view
from convloom.plan.shared_layout import SharedLayout, tile_layouts
from convloom.plan.tiled import Along, TiledPlan, Transfer
from convloom.problem.contraction import Contraction, Operand
from convloom.target.memory_requests import Geometry, sectors, wavefronts

Ints = NDArray[np.int64]
_GEOMETRY = Geometry()
_BASE = 1 << 40  # an aligned place for a tensor: offsets in front of it are those of padding


@dataclass(frozen=True, slots=True)
class TileRequests:
    """Of all threads of a block, for the tiles of both operands; masks taken as true."""

    sectors: int  # of global memory
    written_bytes: int  # to shared memory
    wavefronts: int  # of the stores to it


def tile_requests(plan: TiledPlan, oriented: Contraction) -> TileRequests:
    """The requests for the tiles at the corner of a contraction whose A and B are the plan's."""
    tile = (plan.block_m, plan.block_n, plan.block_k)
    flat = flat_axes(oriented, plan.m, plan.n, plan.merged, plan.g, tile)
    layouts = tile_layouts(plan, oriented.acc)
    sides = ((oriented.a, "M", plan.a, layouts[0]), (oriented.b, "N", plan.b, layouts[1]))
    parts = [_side(plan, oriented, flat, *side) for side in sides]
    return TileRequests(
        sum(part.sectors for part in parts),
        sum(part.written_bytes for part in parts),
        sum(part.wavefronts for part in parts),
    )


def _side(
    plan: TiledPlan,
    oriented: Contraction,
    flat: tuple[Merged, ...],
    operand: Operand,
    row_axis: str,
    transfer: Transfer,
    layout: SharedLayout,
) -> TileRequests:
    numbers, present = _requests(layout.rows * layout.depth // transfer.vector, plan.threads)
    per_line = (layout.rows if transfer.along is Along.ROW else layout.depth) // transfer.vector
    line, within = numbers // per_line, numbers % per_line * transfer.vector
    row, k = (within, line) if transfer.along is Along.ROW else (line, within)
    size = operand.dtype.nbytes
    places = _offsets(plan, oriented, flat, operand, row_axis, row, k) * size + _BASE
    moved, _ = sectors(places, present, transfer.vector * size, _GEOMETRY)
    piece = gcd(transfer.vector, layout.run(transfer.along is Along.K))
    turns = 0
    for step in range(0, transfer.vector, piece):
        rows, ks = (row + step, k) if transfer.along is Along.ROW else (row, k + step)
        stored = _shared(layout, rows, ks) * layout.dtype.nbytes
        turns += wavefronts(stored, present, piece * layout.dtype.nbytes, _GEOMETRY)[0]
    return TileRequests(moved, layout.rows * layout.depth * layout.dtype.nbytes, turns)


def _requests(accesses: int, threads: int) -> tuple[Ints, NDArray[np.bool_]]:
    """Numbers of accesses as (requests, threads of a subgroup), and which of them there are."""
    whole = -(-threads // _GEOMETRY.subgroup) * _GEOMETRY.subgroup
    rounds = np.arange(-(-accesses // threads))[:, None] * threads
    numbers = rounds + np.arange(whole)
    present = (np.arange(whole) < threads) & (numbers < accesses)
    return (
        np.where(present, numbers, 0).reshape(-1, _GEOMETRY.subgroup),
        present.reshape(-1, _GEOMETRY.subgroup),
    )


_ROW, _K = local_sym("tile_row", lo=0), local_sym("tile_k", lo=0)


def _offsets(
    plan: TiledPlan,
    oriented: Contraction,
    flat: tuple[Merged, ...],
    operand: Operand,
    row_axis: str,
    row: Ints,
    k: Ints,
) -> Ints:
    view = tile_view(operand.view, flat, plan.serial, MASKED_IN_FACTORS)
    moving: dict[str, Expr] = {row_axis: _ROW, "K": _K}
    offset = view.access({axis.name: moving.get(axis.name, const(0)) for axis in view.axes}).offset
    phase = {parameter.symbol.name: parameter.values[0] for parameter in oriented.phases}
    values: dict[str, int | Ints] = {
        symbol.name: typical_value(symbol, phase) for symbol in free_symbols(offset) if symbol not in (_ROW, _K)
    }
    found = evaluate(offset, {**values, _ROW.name: row, _K.name: k})
    return np.broadcast_to(np.asarray(found, np.int64), row.shape)


def _shared(layout: SharedLayout, row: Ints, k: Ints) -> Ints:
    found = evaluate(layout.index(_ROW, _K), {_ROW.name: row, _K.name: k})
    return np.broadcast_to(np.asarray(found, np.int64), row.shape)
