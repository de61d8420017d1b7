"""Structure: known operands, and the walk through memory that the digits promise on random chains."""

from __future__ import annotations

import random
from math import prod

import numpy as np

from convloom.expr import ceil_div, const, sym
from convloom.view import OFFSET, Affine, Axis, Broadcast, Join, PadTo, Split, View, strided, structure
from convloom.view.structure import Digits
from tests.view.chains import all_points, random_view
from tests.view.windows import window_view


def numbers(digits: Digits | None) -> tuple[tuple[int, int], ...] | None:
    return None if digits is None else tuple((extent.value, stride.value) for extent, stride in digits)


def transposed_and_reshaped() -> View:
    """Tensor 1x12x384x64 -> transpose(0, 2, 1, 3) -> reshape 1x384x768, as axes b, m, k."""
    return View(
        (Axis("b", 1), Axis("m", 384), Axis("k", 768)),
        (
            Split("k", ("head", "inner"), (12, 64)),
            Affine(("b", "head", "m", "inner"), OFFSET, (12 * 384 * 64, 384 * 64, 64, 1)),
        ),
    )


def test_a_transposed_and_reshaped_operand_has_hierarchical_strides():
    found = structure(transposed_and_reshaped())
    assert numbers(found["k"]) == ((12, 24576), (64, 1))
    assert numbers(found["m"]) == ((384, 64),)
    assert numbers(found["b"]) == ((1, 0),)


def test_contiguous_parts_are_one_digit():
    view = strided((Axis("n", 2), Axis("h", 3), Axis("w", 4)), (12, 4, 1))
    flat = view.prepend((Axis("m", 24),), (Split("m", ("n", "h", "w"), (2, 3, 4)),))
    assert numbers(structure(flat)["m"]) == ((24, 1),)
    rows = sym("rows", lo=1)
    symbolic = strided((Axis("r", rows), Axis("c", 8)), (8, 1))
    flat = symbolic.prepend((Axis("m", rows * 8),), (Split("m", ("r", "c"), (rows, 8)),))
    assert structure(flat)["m"] == ((rows * 8, const(1)),)


def test_windows_keep_their_strides_under_checks():
    view = window_view(batch=2, channels=3, width=8, out=4, kernel=3, stride=2, dilation=2, pad=1)
    found = structure(view)
    assert {name: numbers(digits) for name, digits in found.items()} == {
        "mb": ((2, 24),),
        "ow": ((4, 2),),
        "ic": ((3, 8),),
        "kw": ((3, 2),),
    }


def test_broadcast_axes_have_stride_zero():
    view = View((Axis("a", 4), Axis("b", 3)), (Broadcast("a"), Affine(("b",), OFFSET, (1,))))
    assert numbers(structure(view)["a"]) == ((4, 0),)


def test_symbolic_axes_split_by_symbols():
    n, h, w, c = (sym(name, lo=1) for name in "nhwc")
    view = strided((Axis("n", n), Axis("c", c), Axis("h", h), Axis("w", w)), (c * h * w, h * w, w, 1))
    flat = view.prepend((Axis("m", n * h * w), Axis("c", c)), (Split("m", ("n", "h", "w"), (n, h, w)),))
    assert structure(flat) == {"m": ((n, c * h * w), (h * w, const(1))), "c": ((c, h * w),)}


def test_overlap_that_does_not_divide_has_no_structure():
    view = View(
        (Axis("a", 4), Axis("b", 6)),
        (
            Join(("a", "b"), "flat", (4, 6)),
            Split("flat", ("slow", "fast"), (6, 4)),
            Affine(("slow", "fast"), OFFSET, (1, 6)),
        ),
    )
    assert structure(view) == {"a": None, "b": None}


def test_tiles_of_a_tail_keep_a_structure_where_nothing_is_split():
    m = sym("m", lo=1)
    tail = (Join(("tile", "row"), "padded", (1, 16)), PadTo("padded", "m", m))
    tiled = strided((Axis("m", m),), (3,)).prepend((Axis("tile", ceil_div(m, 16)), Axis("row", 16)), tail)
    assert structure(tiled) == {"tile": ((ceil_div(m, 16), const(48)),), "row": ((const(16), const(3)),)}


def test_digits_give_the_offset_on_random_chains():
    rng = random.Random(11)
    known = 0
    for _ in range(1500):
        view = random_view(rng, rng.choice((1, 2, 3, 4)))
        found = {name: numbers(digits) for name, digits in structure(view).items()}
        for name, digits in found.items():
            assert digits is None or prod(extent for extent, _ in digits) == view.extents[name].value
        offsets, valid = all_points(view)
        if None in found.values() or not valid.any():
            continue
        known += 1
        rest = (offsets - walked(list(found.values()), offsets.shape))[valid != 0]
        assert np.all(rest == rest[0]), view
    assert known > 1000


def walked(axes: list[tuple[tuple[int, int], ...] | None], shape: tuple[int, ...]) -> np.ndarray:
    """The sum over axes of digits times strides, on all points."""
    total = np.zeros(shape, dtype=np.int64)
    for digits, index in zip(axes, np.meshgrid(*map(np.arange, shape), indexing="ij"), strict=True):
        for extent, stride in reversed(digits or ()):
            total = total + index % extent * stride
            index = index // extent
    return total
