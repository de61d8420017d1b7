"""Flat axes: tiles over the end are masked where they must be, and every point is met once."""

import itertools

import numpy as np
import pytest

from convloom.compiler import prepare
from convloom.expr import const, sym
from convloom.plan.access_facts import by_stride, element_strides, flat_axes, typical_value
from convloom.plan.flat_axis import MASKED_IN_FACTORS, MASKED_IN_RESULT, merged_axis, tile_view
from convloom.problem.contraction import AxisKind
from tests.problem.drawing import draw


def constant_extents(contraction):
    return {axis.name: axis.extent.value for axis in contraction.axes}


@pytest.mark.parametrize("seed", range(40))
def test_tiles_reach_what_the_view_reaches(seed):
    """Offsets and validity over flat coordinates against those over the axes; beyond the ends nothing is valid."""
    contraction = prepare(draw(seed).static).contraction
    if contraction.phases:
        return
    names = [tuple(axis.name for axis in contraction.of_kind(kind)) for kind in AxisKind]
    g, m, n, k = names
    merged = flat_axes(contraction, m, n, k, g, (4, 4, 4))
    operands = ((contraction.a, MASKED_IN_FACTORS), (contraction.b, MASKED_IN_FACTORS))
    for operand, masked in (*operands, (contraction.c, MASKED_IN_RESULT)):
        view = tile_view(operand.view, merged, (), masked)
        extents = [axis.extent.value for axis in view.axes]
        if int(np.prod(extents)) > 20000:
            continue
        grid = np.indices(extents, sparse=True)
        found = reached(view, {axis.name: at for axis, at in zip(view.axes, grid, strict=True)}, extents)
        own = [axis.extent.value for axis in operand.view.axes]
        places = np.indices(own, sparse=True)
        wanted = reached(operand.view, {axis.name: at for axis, at in zip(operand.view.axes, places, strict=True)}, own)
        assert set(found) == set(wanted)
        if operand is contraction.c:
            assert len(found) == len(set(found)) == len(wanted), "an element of the result is met twice"


def reached(view, coordinates, extents):
    """Offsets of the valid points, one entry for each."""
    if not coordinates:
        access = view.access({})
        valid = all(condition.value for condition in access.conditions)
        return [access.offset.value] if valid else []
    access = view.access(coordinates)
    valid = np.ones(extents, bool)
    for condition in access.conditions:
        valid &= np.broadcast_to(condition != 0, extents)
    return list(np.broadcast_to(access.offset, extents)[valid])


def test_rows_beyond_an_absent_axis_are_masked_in_the_result():
    """A result without any axis of N: only the first column of a tile may be stored."""
    found = 0
    for seed in range(70):
        contraction = prepare(draw(seed).static).contraction
        if contraction.of_kind(AxisKind.N) or contraction.phases:
            continue
        g, m, _, k = (tuple(axis.name for axis in contraction.of_kind(kind)) for kind in AxisKind)
        view = tile_view(contraction.c.view, flat_axes(contraction, m, (), k, g, (2, 4, 2)), (), MASKED_IN_RESULT)
        corner = {axis.name: const(0) for axis in view.axes}
        assert all(c.value for c in view.access(corner).conditions)
        assert not all(c.value for c in view.access({**corner, "N": const(1)}).conditions)
        found += 1
    assert found > 1


def test_extents_and_tiles():
    contraction = prepare(draw(0).static).contraction
    m = tuple(axis.name for axis in contraction.of_kind(AxisKind.M))
    flat = merged_axis(contraction, "M", m, 4)
    extent = int(np.prod([constant_extents(contraction)[name] for name in m]))
    assert flat.extent is const(extent)
    assert flat.tiles is const(-(-extent // 4))
    assert merged_axis(contraction, "M", ()).extent is const(1)


def test_typical_values_keep_facts():
    for divisor, low, high, hint in itertools.product((1, 7, 16), (None, 1, 100), (None, 200), (None, 50, 64)):
        symbol = sym("typical", divisor=divisor, lo=low, hi=high, hint=hint)
        value = typical_value(symbol)
        assert low is None or value >= low
        assert high is None or value <= high
    assert typical_value(sym("plain", lo=1)) == 64
    assert typical_value(sym("hinted", lo=1, hint=7)) == 7
    assert typical_value(sym("a", lo=1, hint=8) * 3 + 1) == 25


def test_axes_are_ordered_by_stride():
    contraction = prepare(draw(1).static).contraction
    strides = element_strides(contraction.c.view)
    order = by_stride(contraction.axes, strides)
    known = [strides.get(name, 0) for name in order]
    assert known == sorted(known, reverse=True)
    assert sorted(order) == sorted(axis.name for axis in contraction.axes)
