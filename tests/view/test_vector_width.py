"""Vector width: never more than brute force allows, and nearly always as much."""

from __future__ import annotations

import random

import pytest

from convloom.errors import IllegalProblem
from convloom.expr import sym
from convloom.view import (
    OFFSET,
    Affine,
    Axis,
    Broadcast,
    Join,
    Modulo,
    Pad,
    PadTo,
    Slice,
    Split,
    View,
    Xor,
    strided,
    vector_width,
)
from tests.view.chains import all_points, brute_force_width, random_view
from tests.view.windows import window_view

CHAINS = 20_000
LIMIT = 8


def test_widths_of_random_chains_against_brute_force():
    """No width too large on any axis; at least 99% equal among the axes where more than 1 is possible.

    Views without any valid point are left out: there every width holds of nothing.
    """
    rng = random.Random(0)
    cases = equal = wide = equal_wide = 0
    for _ in range(CHAINS):
        view = random_view(rng, rng.choice((1, 2, 3)))
        points = all_points(view)
        if not points[1].any():
            continue
        for axis in view.axes:
            claimed = vector_width(view, axis.name, LIMIT)
            possible = brute_force_width(view, axis.name, LIMIT, points)
            assert claimed <= possible, (view, axis.name)
            cases += 1
            equal += claimed == possible
            wide += possible > 1
            equal_wide += possible > 1 and claimed == possible
    print(f"{equal} of {cases} widths equal brute force; {equal_wide} of the {wide} above 1")
    assert wide > 2000
    assert equal_wide >= 0.99 * wide


def line(*transforms: object, extent: int = 16) -> View:
    """A view of one axis a to offset."""
    return View((Axis("a", extent),), transforms)


@pytest.mark.parametrize(
    ("view", "width"),
    [
        (line(Affine(("a",), OFFSET, (1,))), 8),
        (line(Affine(("a",), OFFSET, (1,)), extent=12), 4),
        (line(Affine(("a",), OFFSET, (1,)), extent=7), 1),
        (line(Affine(("a",), OFFSET, (2,))), 1),
        (line(Affine(("a",), OFFSET, (-1,), 15)), 1),
        (line(Affine(("a",), "b", (-1,), 15), Affine(("b",), OFFSET, (-1,), 15)), 8),
        (line(Affine(("a",), OFFSET, (1,), 4)), 4),
        (line(Slice("a", "b", 2, 1), Affine(("b",), OFFSET, (1,))), 2),
        (line(Slice("a", "b", 1, 1), Modulo("b", "c", 8), Affine(("c",), OFFSET, (1,))), 1),
        (line(Slice("a", "b", 4, 1), Modulo("b", "c", 8), Affine(("c",), OFFSET, (1,))), 4),
        (line(Pad("a", "b", 4, 8), Affine(("b",), OFFSET, (1,))), 4),
        (line(Pad("a", "b", 1, 14), Affine(("b",), OFFSET, (1,), 1)), 1),
        (line(Pad("a", "b", 2, 12), Affine(("b",), OFFSET, (1,))), 2),
        (line(PadTo("a", "b", 12), Affine(("b",), OFFSET, (1,))), 4),
        (line(Split("a", ("b", "c"), (4, 4)), Affine(("b", "c"), OFFSET, (100, 1))), 4),
        (line(Split("a", ("b", "c"), (4, 4)), Affine(("b", "c"), OFFSET, (4, 1))), 8),
        (line(Split("a", ("b", "c"), (4, 4)), Affine(("b", "c"), OFFSET, (6, 1))), 2),
        (line(Split("a", ("b", "c"), (2, 8)), Affine(("b", "c"), OFFSET, (1, 2))), 1),
        (line(Broadcast("a"), Affine((), OFFSET, ())), 1),
        (line(Split("a", ("b", "c"), (3, 6)), Join(("b", "c"), "d", (3, 6)), Affine(("d",), OFFSET, (1,))), 8),
    ],
)
def test_known_widths(view: View, width: int):
    assert vector_width(view, "a", LIMIT) == width
    assert brute_force_width(view, "a", LIMIT, all_points(view)) == width


def test_limits_are_rounded_down_to_powers_of_two():
    view = strided((Axis("a", 64),), (1,))
    assert [vector_width(view, "a", limit) for limit in (0, 1, 3, 8, 15, 16)] == [1, 1, 2, 8, 8, 16]


def test_other_axes_must_keep_the_alignment():
    axes = (Axis("r", 3), Axis("c", 16))
    assert vector_width(strided(axes, (16, 1)), "c", 8) == 8
    assert vector_width(strided(axes, (20, 1)), "c", 8) == 4
    assert vector_width(strided(axes, (17, 1)), "c", 8) == 1
    assert vector_width(strided((Axis("r", 1), Axis("c", 16)), (17, 1)), "c", 8) == 8
    assert vector_width(strided(axes, (0, 1)), "c", 8) == 8


@pytest.mark.parametrize(("granule", "width"), [(8, 8), (4, 4), (2, 2), (1, 1)])
def test_swizzles_keep_vectors_within_their_granule(granule: int, width: int):
    view = View(
        (Axis("row", 8), Axis("column", 64)),
        (
            Affine(("row",), "mask", (granule,)),
            Xor(("column", "mask"), "swizzled"),
            Affine(("row", "swizzled"), OFFSET, (64, 1)),
        ),
    )
    assert vector_width(view, "column", 8) == width
    assert brute_force_width(view, "column", 8, all_points(view)) == width


def test_window_axes():
    view = window_view(batch=2, channels=8, width=16, out=16, kernel=1, stride=1, dilation=1, pad=0)
    assert vector_width(view, "ow", 8) == 8
    view = window_view(batch=2, channels=8, width=16, out=16, kernel=3, stride=1, dilation=1, pad=1)
    assert vector_width(view, "ow", 8) == 1


def matrix(rows: object, columns: object) -> View:
    return strided((Axis("r", rows), Axis("c", columns)), (columns, 1))


def test_divisor_facts_give_widths():
    plain, even = sym("n", lo=1), sym("k", divisor=4, lo=4)
    assert vector_width(matrix(plain, even), "c", 8) == 4
    assert vector_width(matrix(even, plain), "c", 8) == 1
    assert vector_width(matrix(plain, even * 2), "c", 8) == 8


def symbolic_cases() -> list[View]:
    """Views with symbols n (any), c (a multiple of 8), w (of 4), q (of 2)."""
    n, c, w, q = sym("n", lo=1), sym("c", divisor=8, lo=8), sym("w", divisor=4, lo=4), sym("q", divisor=2, lo=2)
    pixels = strided((Axis("n", n), Axis("w", w), Axis("c", c)), (w * c, c, 1))
    flat = pixels.prepend((Axis("m", n * w), Axis("c", c)), (Split("m", ("n", "w"), (n, w)),))
    taps = pixels.prepend(
        (Axis("n", n), Axis("w", w), Axis("k", 3 * c)), (Split("k", ("t", "c"), (3, c)), Broadcast("t"))
    )
    tail = (Join(("t", "i"), "p", (1, 16)), PadTo("p", "c", c))
    tiled = pixels.prepend((Axis("n", n), Axis("w", w), Axis("t", (c + 15) // 16), Axis("i", 16)), tail)
    rows = strided((Axis("n", n), Axis("w", w)), (w + q, 1), base=q)
    padded = View((Axis("a", w + 4),), (Pad("a", "b", 2, w), Affine(("b",), OFFSET, (1,), q)))
    joined = strided((Axis("m", n * w),), (1,)).prepend((Axis("n", n), Axis("w", w)), (Join(("n", "w"), "m", (n, w)),))
    halves = strided((Axis("h", 2), Axis("x", w)), (c, 1)).prepend(
        (Axis("m", 2 * w),), (Split("m", ("h", "x"), (2, w)),)
    )
    wrapped = View((Axis("a", 2 * w),), (Modulo("a", "b", w), Affine(("b",), OFFSET, (1,))))
    window = window_view(n, c, w, w, kernel=3, stride=1, dilation=2, pad=2)
    return [pixels, flat, taps, tiled, rows, padded, joined, halves, wrapped, window]


@pytest.mark.parametrize("view", symbolic_cases())
def test_symbolic_widths_hold_for_every_size(view: View):
    claimed = {axis.name: vector_width(view, axis.name, 16) for axis in view.axes}
    for n, c, w, q in [(1, 8, 4, 2), (2, 16, 8, 4), (3, 24, 12, 6), (5, 8, 20, 2), (2, 40, 4, 10)]:
        sizes = {"n": n, "c": c, "w": w, "q": q}
        points = all_points(view, sizes)
        for name, width in claimed.items():
            assert width <= brute_force_width(view, name, 16, points), (name, sizes)


def test_symbolic_widths_are_found():
    names = ("c", "c", "k", "i", "w", "a", "w", "m", "a", "ic")
    expected = (8, 8, 8, 8, 2, 2, 4, 4, 4, 1)
    found = tuple(vector_width(view, name, 16) for view, name in zip(symbolic_cases(), names, strict=True))
    assert found == expected


def test_unknown_axes_are_refused():
    with pytest.raises(IllegalProblem, match="needs an axis of the view"):
        vector_width(matrix(4, 4), "k", 8)
