"""Symbolic views: what is derived once for all sizes holds at every size; and it is derived quickly."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from convloom.expr import Expr, ceil_div, evaluate, sym
from convloom.view import (
    OFFSET,
    Affine,
    Axis,
    Join,
    Pad,
    PadTo,
    Split,
    View,
    inverse,
    normal_form,
    strided,
    structure,
    vector_width,
)
from tests.view.chains import all_points, brute_force_width
from tests.view.test_structure import walked
from tests.view.test_view import by_expressions

DIVISORS = {"n": 1, "h": 1, "w": 2, "c": 4}


def pixel_view(rng: random.Random, sizes: dict[str, Expr]) -> View:
    """A padded, strided 2-D window over n, h, w, c in a random memory order; axes n, oh, ow, kh, kw, c."""
    order = rng.sample("nhwc", 4)
    strides: dict[str, Expr | int] = {}
    stride: Expr | int = 1
    for name in order:
        strides[name] = stride
        stride = stride * sizes[name]
    step, dilation, pad = rng.choice((1, 2)), rng.choice((1, 2)), rng.choice((0, 1, 2))
    outs = {name: ceil_div(sizes[name], step) for name in "hw"}
    windows = [
        part
        for name in "hw"
        for part in (
            Affine((f"o{name}", f"k{name}"), f"{name}_padded", (step, dilation)),
            Pad(f"{name}_padded", name, pad, sizes[name]),
        )
    ]
    memory = Affine(order, OFFSET, [strides[name] for name in order])
    axes = (("n", sizes["n"]), ("oh", outs["h"]), ("ow", outs["w"]), ("kh", 2), ("kw", 3), ("c", sizes["c"]))
    return View(tuple(Axis(*axis) for axis in axes), (*windows, memory))


def flat_view(rng: random.Random, view: View) -> View:
    """Flat m and k on top, in random order of their parts, perhaps tiled with a tail."""
    extents = view.extents
    chain: list = []
    axes: list[Axis] = []
    for flat, names in (("m", ["n", "oh", "ow"]), ("k", ["kh", "kw", "c"])):
        rng.shuffle(names)
        parts = [extents[name] for name in names]
        total = parts[0] * parts[1] * parts[2]
        if rng.random() < 0.5:
            tile = rng.choice((4, 16))
            axes += [Axis(f"{flat}_tile", ceil_div(total, tile)), Axis(f"{flat}_in", tile)]
            chain.append(Join((f"{flat}_tile", f"{flat}_in"), f"{flat}_up", (ceil_div(total, tile), tile)))
            chain.append(PadTo(f"{flat}_up", flat, total))
        else:
            axes.append(Axis(flat, total))
        chain.append(Split(flat, names, parts))
    return view.prepend(tuple(axes), tuple(chain))


def cases() -> list[View]:
    rng = random.Random(17)
    found: list[View] = []
    for _ in range(24):
        known = rng.random() < 0.5
        sizes = {name: sym(name, divisor=own if known else 1, lo=1) for name, own in DIVISORS.items()}
        window = pixel_view(rng, sizes)
        found += [window, flat_view(rng, window)]
    return found


SIZES = [
    {"n": 1, "h": 1, "w": 2, "c": 4},
    {"n": 2, "h": 3, "w": 4, "c": 4},
    {"n": 1, "h": 5, "w": 2, "c": 8},
    {"n": 2, "h": 2, "w": 6, "c": 12},
]


@pytest.mark.parametrize("view", cases())
def test_everything_derived_holds_at_every_size(view: View):
    digits = structure(view)
    widths = {axis.name: vector_width(view, axis.name, 8) for axis in view.axes}
    normal = normal_form(view)
    for sizes in SIZES:
        offsets, valid = all_points(view, sizes)
        inside = valid != 0
        for found_offsets, found_valid in (all_points(normal, sizes), by_expressions(view, sizes)):
            assert np.array_equal(valid, found_valid)
            assert np.array_equal(offsets[inside], found_offsets[inside])
        for name, width in widths.items():
            assert width <= brute_force_width(view, name, 8, (offsets, valid))
        if None not in digits.values() and inside.any():
            numbers = [tuple((evaluate(e, sizes), evaluate(s, sizes)) for e, s in own or ()) for own in digits.values()]
            rest = (offsets - walked(numbers, offsets.shape))[inside]
            assert np.all(rest == rest[0])


def test_dense_symbolic_views_have_inverses():
    sizes = {name: sym(name, lo=1) for name in DIVISORS}
    _, h, w, c = sizes.values()
    view = strided([Axis(name, size) for name, size in sizes.items()], (h * w * c, w * c, c, 1))
    assert inverse(view) is not None


def test_the_way_from_view_to_code_is_short():
    """Analyses and one access of a tiled symbolic operand; about 3 ms on the machine this was written on."""
    rng = random.Random(2)
    samples: list[float] = []
    for number in range(6):
        sizes = {name: sym(f"{name}{number}", lo=1) for name in DIVISORS}
        start = time.perf_counter()
        view = flat_view(rng, pixel_view(rng, sizes))
        structure(view)
        for axis in view.axes:
            vector_width(view, axis.name, 4)
        view.access({axis.name: sym(f"{axis.name}{number}", lo=0) for axis in view.axes})
        samples.append(time.perf_counter() - start)
    assert min(samples) < 0.015
    assert sorted(samples)[3] < 0.03
