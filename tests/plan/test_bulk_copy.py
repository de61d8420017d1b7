"""Which tensor copies views allow: found from structure, the same for all directions."""

import numpy as np
import pytest

from convloom.compiler import prepare
from convloom.expr import evaluate
from convloom.plan.access_facts import by_stride, element_strides, k_orders
from convloom.plan.bulk_copy import BulkCopy, CopyKind, bulk_copy, flat_symbol
from convloom.plan.flat_axis import merged_axis
from convloom.problem.access_pattern import axis_symbol
from convloom.problem.contraction import AxisKind
from convloom.problem.notation.choose import parse_line
from convloom.target.group_multiply import Major
from tests.notations import defaults

SMALL = "mb2ic64ih6iw5oc64oh6ow5_kh3kw3sh1sw1ph1pw1dh0dw0"
STRIDED = "mb2ic64ih8iw7oc64oh4ow4_kh3kw3sh2sw2ph1pw1dh0dw0"
POINT = "mb2ic64ih6iw5oc72oh6ow5_kh1kw1sh1sw1ph0pw0dh0dw0"
STRIDED_POINT = "mb2ic64ih8iw6oc64oh4ow3_kh1kw1sh2sw2ph0pw0dh0dw0"
DEEP = "mb1ic64id3ih4iw5oc64od3oh4ow5_kd3kh3kw3sd1sh1sw1pd1ph1pw1dd0dh0dw0"
DILATED = "mb2ic64ih9iw9oc64oh9ow9_kh3kw3sh1sw1ph2pw2dh1dw1"


def half(text, direction, tag="axb"):
    return parse_line(text, defaults(direction, "f16", tag))


FOUND = {  # (kind, contiguous direction) of A and B, in the arrangement with the deepest flat K
    (SMALL, "fwd"): {("columns", "K"), ("tile", "K")},
    (STRIDED, "fwd"): {("columns", "K"), ("tile", "K")},
    (POINT, "fwd"): {("tile", "K")},
    (STRIDED_POINT, "fwd"): {("columns", "K"), ("tile", "K")},
    (DEEP, "fwd"): {("columns", "K"), ("tile", "K")},
    (DILATED, "fwd"): {("columns", "K"), ("tile", "K")},
    (SMALL, "bwd_d"): {("columns", "K"), ("tile", "OUTER")},
    (STRIDED, "bwd_d"): {("columns", "K"), ("tile", "OUTER")},
    (POINT, "bwd_d"): {("tile", "K"), ("tile", "OUTER")},
    (SMALL, "bwd_w"): {("columns", "OUTER"), ("tile", "OUTER")},
    (STRIDED, "bwd_w"): {("columns", "OUTER"), ("tile", "OUTER")},
    (POINT, "bwd_w"): {("tile", "OUTER")},
    (DEEP, "bwd_w"): {("columns", "OUTER"), ("tile", "OUTER")},
}


def arranged(text, direction):
    """(contraction, M, N, K) of the first order of K for which both operands have copies."""
    contraction = prepare(half(text, direction)).contraction
    strides = element_strides(contraction.c.view)
    m, n = (by_stride(contraction.of_kind(kind), strides) for kind in (AxisKind.M, AxisKind.N))
    rows, columns = merged_axis(contraction, "M", m, 64), merged_axis(contraction, "N", n, 64)
    for order in k_orders(contraction):
        k = merged_axis(contraction, "K", order.merged, 64)
        found = [bulk_copy(contraction, *pair, k) for pair in ((contraction.a, rows), (contraction.b, columns))]
        if all(isinstance(item, BulkCopy) for item in found):
            return contraction, (rows, columns), k, order, found
    raise AssertionError("no order of K has copies of both operands")


@pytest.mark.parametrize(("text", "direction"), FOUND)
def test_kinds(text, direction):
    *_, found = arranged(text, direction)
    assert {(item.kind.value, item.major.name) for item in found} == FOUND[text, direction]


@pytest.mark.parametrize(("text", "direction"), FOUND)
def test_coordinates_lead_to_the_offsets_of_the_view(text, direction):
    """At random points: coordinate times stride, over all dimensions, is the offset, and inside means valid."""
    contraction, directions, k, _, found = arranged(text, direction)
    rng = np.random.default_rng(0)
    for operand, rows, copy in zip((contraction.a, contraction.b), directions, found, strict=True):
        for _ in range(300):
            phase = _one_phase(contraction, rng)
            extents = {axis.name: evaluate(axis.extent, phase) for axis in contraction.axes}
            if 0 in extents.values():
                continue
            point = {name: int(rng.integers(extent)) for name, extent in extents.items()}
            names = {axis_symbol(axis).name: point[axis.name] for axis in operand.view.axes}
            for flat in (rows, k):
                value = 0
                for part, extent in zip(flat.parts, flat.extents, strict=True):
                    value = value * evaluate(extent, phase) + point[part]
                names[flat_symbol(flat.name).name] = value
            access = operand.view.access({axis.name: np.array(point[axis.name]) for axis in operand.view.axes}, phase)
            places = [evaluate(item.start + item.shift, {**names, **phase}) for item in copy.dimensions]
            inside = all(
                0 <= place < evaluate(item.size, phase) for place, item in zip(places, copy.dimensions, strict=True)
            )
            assert inside == all(condition for condition in access.conditions)
            if inside:
                strides = [evaluate(item.stride, phase) for item in copy.dimensions]
                assert access.offset == evaluate(copy.offset, phase) + np.dot(places, strides)


def _one_phase(contraction, rng):
    number = int(rng.integers(contraction.phase_count))
    return {item.symbol.name: item.values[number] for item in contraction.phases}


@pytest.mark.parametrize(("text", "direction"), FOUND)
def test_windows_are_as_many_as_their_axis_has_positions(text, direction):
    _, directions, k, _, found = arranged(text, direction)
    for rows, copy in zip(directions, found, strict=True):
        if copy.kind is not CopyKind.COLUMNS:
            continue
        outer = rows if copy.major is Major.K else k
        windows = copy.dimensions[1:-1]
        counts = [(item.size.value - 1 + item.upper - item.lower) // item.step + 1 for item in windows]
        extents = [extent.value for extent in reversed(outer.extents)]
        assert counts == extents[: len(counts)]


REASONS = {
    "channels first": (SMALL, "abx", "no direction of its tiles is contiguous"),
    "three channels": (
        "mb2ic3ih6iw5oc64oh6ow5_kh3kw3sh1sw1ph1pw1dh0dw0",
        "axb",
        "strides of a tensor map are multiples of 16 bytes; one is 27 numbers",
    ),
    "wide steps": (
        "mb2ic64ih20iw20oc64oh3ow3_kh4kw4sh9sw9ph1pw1dh0dw0",
        "axb",
        "windows are at most 8 apart; its are 9",
    ),
    "far padding": (
        "mb2ic64ih9iw9oc64oh9ow9_kh5kw5sh1sw1ph160pw160dh79dw79",
        "axb",
        "corners of windows lie in -128..127; its are -160",
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_reasons(name):
    text, tag, words = REASONS[name]
    contraction = prepare(half(text, "fwd", tag)).contraction
    strides = element_strides(contraction.c.view)
    m, n = (by_stride(contraction.of_kind(kind), strides) for kind in (AxisKind.M, AxisKind.N))
    reasons: set[str] = set()
    for order in k_orders(contraction):
        k = merged_axis(contraction, "K", order.merged, 64)
        for operand, axes in ((contraction.a, ("M", m)), (contraction.b, ("N", n))):
            found = bulk_copy(contraction, operand, merged_axis(contraction, *axes, 64), k)
            reasons.add(found if isinstance(found, str) else "")
    assert any(words in reason for reason in reasons), reasons
