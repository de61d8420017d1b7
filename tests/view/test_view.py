"""Views: rules of the chain, access, and the ways to build a view from views."""

from __future__ import annotations

import random

import numpy as np
import pytest

from convloom.errors import IllegalProblem
from convloom.expr import const, evaluate, sym
from convloom.view import (
    OFFSET,
    Affine,
    Axis,
    Broadcast,
    Join,
    Pad,
    PadTo,
    Pass,
    Split,
    View,
    checks,
    compose,
    strided,
)
from tests.view.chains import all_points, random_view
from tests.view.windows import window_view


def by_expressions(view: View, sizes: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """(offsets, validity) on all points through access on symbols."""
    shape = [int(evaluate(axis.extent, sizes)) for axis in view.axes]
    found = view.access({axis.name: sym(f"at_{axis.name}", lo=0) for axis in view.axes})
    names = [f"at_{axis.name}" for axis in view.axes]
    points = dict(zip(names, np.meshgrid(*map(np.arange, shape), indexing="ij"), strict=True))
    valid = np.ones(shape, dtype=np.int64)
    for condition in found.conditions:
        valid = valid & np.broadcast_to(evaluate(condition, {**points, **sizes}), shape)
    return np.broadcast_to(evaluate(found.offset, {**points, **sizes}), shape), valid


def test_access_on_expressions_is_access_on_arrays_where_valid():
    rng = random.Random(7)
    for _ in range(1500):
        view = random_view(rng, rng.choice((1, 2, 3, 4)))
        offsets, valid = all_points(view)
        found_offsets, found_valid = by_expressions(view, {})
        assert np.array_equal(found_valid, valid), view
        assert np.array_equal(found_offsets[valid != 0], offsets[valid != 0]), view


def test_access_of_numbers_is_a_number():
    view = window_view(batch=2, channels=3, width=8, out=8, kernel=3, stride=1, dilation=1, pad=1)
    access = view.access({"mb": 1, "ow": 4, "ic": 2, "kw": 0})
    assert access.offset is const(24 + 16 + 3)
    assert access.conditions == ()
    outside = view.access({"mb": 1, "ow": 0, "ic": 2, "kw": 0})
    assert outside.conditions == (const(0),)


def test_conditions_are_dropped_one_by_one():
    wide = window_view(batch=1, channels=1, width=8, out=8, kernel=3, stride=1, dilation=1, pad=1)
    assert [(check.lower, check.upper) for check in checks(wide)] == [(True, True)]
    left = window_view(batch=1, channels=1, width=8, out=7, kernel=3, stride=1, dilation=1, pad=1)
    assert [(check.lower, check.upper) for check in checks(left)] == [(True, False)]
    right = window_view(batch=1, channels=1, width=8, out=7, kernel=3, stride=1, dilation=1, pad=0)
    assert [(check.lower, check.upper) for check in checks(right)] == [(False, True)]
    inside = window_view(batch=1, channels=1, width=8, out=6, kernel=3, stride=1, dilation=1, pad=0)
    assert checks(inside) == ()
    middle = left.access({"mb": 0, "ic": 0, "ow": sym("x", lo=1, hi=6), "kw": sym("k", lo=0, hi=2)})
    assert middle.conditions == ()


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_symbolic_windows_without_padding_need_no_check(stride: int):
    width = sym("w", lo=5)
    out = (width - 3) // stride + 1
    view = window_view(sym("n", lo=1), sym("c", lo=1), width, out, kernel=3, stride=stride, dilation=1, pad=0)
    assert checks(view) == ()


def test_tails_are_checked_unless_divisible():
    tiles = (Join(("tile", "inner"), "padded", (1, 16)), PadTo("padded", "m", sym("n", lo=1)))
    view = strided((Axis("m", sym("n", lo=1)),), (1,))
    tiled = view.prepend((Axis("tile", (sym("n", lo=1) + 15) // 16), Axis("inner", 16)), tiles)
    assert len(checks(tiled)) == 1
    size = sym("n", divisor=16, lo=16)
    even = (Join(("tile", "inner"), "padded", (1, 16)), PadTo("padded", "m", size))
    view = strided((Axis("m", size),), (1,))
    assert checks(view.prepend((Axis("tile", (size + 15) // 16), Axis("inner", 16)), even)) == ()


def test_a_check_that_another_implies_is_dropped():
    chain = (Pad("a", "b", 0, 7), Pad("b", "c", 1, 5), Affine(("c",), OFFSET, (1,)))
    view = View((Axis("a", 9),), chain)
    assert [(check.coordinate, check.lower, check.upper) for check in checks(view)] == [("c", True, True)]
    assert all_points(view)[1].tolist() == [0, 1, 1, 1, 1, 1, 0, 0, 0]


def test_joined_and_split_again_is_free_with_symbolic_extents():
    rows, columns = sym("rows", lo=1), sym("columns", lo=1)
    view = View(
        (Axis("r", rows), Axis("c", columns)),
        (
            Join(("r", "c"), "flat", (rows, columns)),
            Split("flat", ("row", "column"), (rows, columns)),
            Affine(("row", "column"), OFFSET, (1, rows)),
        ),
    )
    r, c = sym("r", lo=0), sym("c", lo=0)
    assert view.access({"r": r, "c": c}).offset is r + c * rows


def test_prepend_puts_a_flat_axis_on_top():
    inner = strided((Axis("n", 2), Axis("oh", 3), Axis("ow", 4)), (100, 10, 1))
    flat = inner.prepend((Axis("m", 24),), (Split("m", ("n", "oh", "ow"), (2, 3, 4)),))
    offsets, _ = all_points(flat)
    assert offsets[13] == 100 * 1 + 10 * 0 + 1


def test_prepend_renames_inner_coordinates_that_clash():
    inner = View((Axis("a", 4),), (Affine(("a",), "b", (3,)), Affine(("b",), OFFSET, (1,), 5)))
    outer = inner.prepend((Axis("b", 8),), (Split("b", ("a", "b_"), (4, 2)), Broadcast("b_")))
    assert all_points(outer)[0].tolist() == [5, 5, 8, 8, 11, 11, 14, 14]


def test_prepend_passes_axes_of_the_same_name_through():
    inner = strided((Axis("m", 6), Axis("k", 4)), (4, 1))
    outer = inner.prepend((Axis("tile", 2), Axis("row", 3), Axis("k", 4)), (Join(("tile", "row"), "m", (2, 3)),))
    assert np.array_equal(all_points(outer)[0].reshape(-1), np.arange(24))


def test_rename_changes_axes_only():
    view = View((Axis("a", 4),), (Affine(("a",), "b", (3,)), Affine(("b",), OFFSET, (1,))))
    renamed = view.rename({"a": "b"})
    assert [axis.name for axis in renamed.axes] == ["b"]
    assert np.array_equal(all_points(renamed)[0], all_points(view)[0])


def test_substitute_makes_a_symbolic_view_static():
    n = sym("n", lo=1)
    view = strided((Axis("r", n), Axis("c", n)), (n, 1))
    static = view.substitute({n: 3})
    assert [axis.extent for axis in static.axes] == [const(3), const(3)]
    assert np.array_equal(all_points(static)[0].reshape(-1), np.arange(9))
    assert np.array_equal(all_points(view, {"n": 3})[0].reshape(-1), np.arange(9))


def test_compose_feeds_an_axis_from_another_view():
    table = View((Axis("i", 5),), (Pad("i", "p", 1, 3), Affine(("p",), OFFSET, (2,))))
    inner = strided((Axis("a", 5), Axis("b", 2)), (10, 1))
    both = compose(inner, "a", table)
    assert [axis.name for axis in both.axes] == ["i", "b"]
    offsets, valid = all_points(both)
    assert valid.tolist() == [[0, 0], [1, 1], [1, 1], [1, 1], [0, 0]]
    assert offsets[2].tolist() == [20, 21]
    with pytest.raises(IllegalProblem, match="axis of the inner view"):
        compose(inner, "c", table)


@pytest.mark.parametrize(
    ("transforms", "words"),
    [
        ((Affine(("b",), OFFSET, (1,)),), "defined before it"),
        ((Pass("a", "b"),), "must end in the one coordinate 'offset'"),
        ((Pass("a", "a"), Affine(("a",), OFFSET, (1,))), "must be unique"),
        ((Split("a", ("b", "c"), (2, 2)), Affine(("b",), OFFSET, (1,))), "unused c|unused offset, c|c, offset"),
    ],
)
def test_broken_chains_are_refused(transforms: tuple, words: str):
    with pytest.raises(IllegalProblem, match=words):
        View((Axis("a", 4),), transforms)


def test_access_wants_a_coordinate_for_every_axis():
    view = strided((Axis("a", 4), Axis("b", 4)), (4, 1))
    with pytest.raises(IllegalProblem, match="one coordinate for each axis"):
        view.access({"a": 1})
    with pytest.raises(IllegalProblem, match="one coordinate for each axis"):
        view.access({"a": 1, "b": 1, "c": 1})
