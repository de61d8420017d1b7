"""Evaluates a contraction point by point with NumPy, through the views alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from convloom.expr import evaluate
from convloom.problem.contraction import AxisKind, Contraction, Operand


@dataclass(frozen=True)
class Memory:
    """A flat buffer and the position of the element at offset 0 in it."""

    values: np.ndarray
    origin: int


def evaluate_contraction(
    contraction: Contraction, memories: Mapping[str, Memory], sizes: Mapping[str, int], size: int, origin: int
) -> tuple[np.ndarray, np.ndarray]:
    """(exact sums of products plus bias in the result's flat buffer, how often each of its elements was written)."""
    result, written = np.zeros(size, np.int64), np.zeros(size, np.int64)
    for phase in range(contraction.phase_count):
        values = {**sizes, **{p.symbol.name: p.values[phase] for p in contraction.phases}}
        extents = {axis.name: int(evaluate(axis.extent, values)) for axis in contraction.axes}
        if 0 in [extents[axis.name] for axis in contraction.axes if axis.kind is not AxisKind.K]:
            continue
        _run_phase(contraction, memories, values, extents, result, written, origin)
    return result, written


def _run_phase(contraction, memories, values, extents, result, written, origin):
    names = [axis.name for axis in contraction.axes]
    grid = dict(zip(names, np.indices([extents[name] for name in names], sparse=True), strict=True))
    shape = tuple(extents[name] for name in names)
    a, b = (_fetch(operand, memories, grid, values) for operand in (contraction.a, contraction.b))
    kdims = tuple(place for place, axis in enumerate(contraction.axes) if axis.kind is AxisKind.K)
    total = np.broadcast_to(a * b, shape).sum(axis=kdims, keepdims=True)
    if contraction.bias is not None:
        total = total + _fetch(contraction.bias, memories, _first_of_k(contraction, grid), values)
    found, condition = _access(contraction.c, _first_of_k(contraction, grid), values)
    offset, valid = np.broadcast_to(found + origin, total.shape), np.broadcast_to(condition, total.shape)
    assert ((offset[valid] >= 0) & (offset[valid] < result.size)).all(), "the result lies outside its buffer"
    np.add.at(result, offset[valid], total[valid])
    np.add.at(written, offset[valid], 1)


def _first_of_k(contraction, grid):
    """Coordinates of one point per element of C; an axis of K has its first point, or none if it is empty."""
    kinds = {axis.name: axis.kind for axis in contraction.axes}
    return {name: np.zeros((1,) * at.ndim, np.int64) if kinds[name] is AxisKind.K else at for name, at in grid.items()}


def _access(operand: Operand, grid, values):
    """(offset, validity) over the grid."""
    names = [axis.name for axis in operand.view.axes]
    if not names:
        access = operand.view.access({})
        return np.asarray(evaluate(access.offset, values)), np.all([evaluate(c, values) for c in access.conditions])
    access = operand.view.access({name: np.asarray(grid[name]) for name in names}, values)
    valid = np.ones((), bool)
    for condition in access.conditions:
        valid = valid & (condition != 0)
    return np.asarray(access.offset), valid


def _fetch(operand: Operand, memories, grid, values):
    """The operand over the grid; zero where it is not valid. A valid element outside of the buffer is an error."""
    memory = memories[operand.name]
    found, condition = _access(operand, grid, values)
    offset, valid = np.broadcast_arrays(found + memory.origin, condition)
    inside = (offset >= 0) & (offset < memory.values.size)
    assert (inside | ~valid).all(), f"a valid element of {operand.name} lies outside its buffer"
    if not memory.values.size:
        return np.zeros(offset.shape, np.int64)
    return np.where(valid, memory.values[np.where(inside, offset, 0)], 0)
