"""Every index law: its post-condition on all points of small sizes; equal values from expressions and from arrays."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from convloom.errors import IllegalProblem
from convloom.expr import const, evaluate, sym
from convloom.view import (
    Affine,
    Broadcast,
    Const,
    Guard,
    Join,
    Modulo,
    Pad,
    PadTo,
    Pass,
    Slice,
    Split,
    Transform,
    Xor,
    invert,
)
from convloom.view.transform import rebuild

POINTS = np.arange(-9, 30)


def run(transform: Transform, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
    return transform.index(tuple(inputs), lambda value: np.asarray(value.value))


def grid(*sizes: int) -> list[np.ndarray]:
    return [np.asarray(values) for values in np.meshgrid(*map(np.arange, sizes), indexing="ij")]


def test_pass_keeps_the_index():
    (out,) = run(Pass("i", "o"), POINTS)
    assert np.array_equal(out, POINTS)


@pytest.mark.parametrize("coefficients", list(itertools.product((-2, 0, 1, 3), repeat=2)))
def test_affine_is_the_weighted_sum(coefficients: tuple[int, int]):
    i, j = grid(5, 4)
    (out,) = run(Affine(("i", "j"), "o", coefficients, -7), i, j)
    assert np.array_equal(out, coefficients[0] * i + coefficients[1] * j - 7)


@pytest.mark.parametrize("extents", [(4,), (2, 3), (1, 4, 2), (3, 1, 1, 2)])
def test_split_then_join_is_the_index_and_digits_are_in_range(extents: tuple[int, ...]):
    names = [f"o{place}" for place in range(len(extents))]
    digits = run(Split("i", names, extents), POINTS)
    (back,) = run(Join(names, "i", extents), *digits)
    assert np.array_equal(back, POINTS)
    for digit, extent in zip(digits[1:], extents[1:], strict=True):
        assert digit.min() >= 0
        assert digit.max() < extent


@pytest.mark.parametrize("extents", [(4,), (2, 3), (1, 4, 2), (3, 1, 1, 2)])
def test_join_then_split_gives_the_digits_back(extents: tuple[int, ...]):
    names = [f"i{place}" for place in range(len(extents))]
    digits = grid(*extents)
    (joined,) = run(Join(names, "o", extents), *digits)
    assert sorted(joined.reshape(-1)) == list(range(int(np.prod(extents))))
    for digit, back in zip(digits, run(Split("o", names, extents), joined), strict=True):
        assert np.array_equal(digit, back)


@pytest.mark.parametrize(("left", "size"), list(itertools.product((-2, 0, 3), (1, 5))))
def test_pad_shifts_and_guards_both_sides(left: int, size: int):
    transform = Pad("i", "o", left, size)
    (out,) = run(transform, POINTS)
    assert np.array_equal(out, POINTS - left)
    assert transform.guard == Guard("o", True, const(size))


def test_pad_to_keeps_the_index_and_guards_above():
    transform = PadTo("i", "o", 5)
    (out,) = run(transform, POINTS)
    assert np.array_equal(out, POINTS)
    assert transform.guard == Guard("o", False, const(5))


@pytest.mark.parametrize(("begin", "step"), list(itertools.product((-2, 0, 3), (1, 2, -1))))
def test_slice_starts_at_begin_and_steps(begin: int, step: int):
    (out,) = run(Slice("i", "o", begin, step), POINTS)
    assert np.array_equal(out, begin + step * POINTS)


@pytest.mark.parametrize("extent", [1, 3, 4])
def test_modulo_repeats_a_range(extent: int):
    (out,) = run(Modulo("i", "o", extent), POINTS)
    assert out.min() >= 0
    assert out.max() < extent
    assert not np.any((POINTS - out) % extent)


def test_broadcast_and_const():
    assert run(Broadcast("i"), POINTS) == ()
    (out,) = run(Const("o", 5))
    assert int(out) == 5


def test_xor_undoes_itself():
    i, j = grid(13, 8)
    transform = Xor(("i", "j"), "o")
    (out,) = run(transform, i, j)
    (back,) = run(transform, out, j)
    assert np.array_equal(back, i)
    assert np.array_equal(out, i ^ j)


LAWS = [
    Pass("i", "o"),
    Affine(("i", "j"), "o", (3, -2), 5),
    Split("i", ("o", "p", "q"), (2, 3, 2)),
    Join(("i", "j"), "o", (12, 8)),
    Pad("i", "o", 2, 8),
    PadTo("i", "o", 8),
    Slice("i", "o", 3, -2),
    Broadcast("i"),
    Modulo("i", "o", 5),
    Const("o", 4),
    Xor(("i", "j"), "o"),
]


@pytest.mark.parametrize("transform", LAWS, ids=lambda law: type(law).__name__)
def test_expressions_and_arrays_follow_the_same_law(transform: Transform):
    symbols = {"i": sym("i", lo=0, hi=11), "j": sym("j", lo=0, hi=7)}
    i, j = grid(12, 8)
    points = {"i": i, "j": j}
    by_expression = transform.index(tuple(symbols[name] for name in transform.inputs), lambda value: value)
    by_array = run(transform, *(points[name] for name in transform.inputs))
    assert len(by_expression) == len(by_array) == len(transform.outputs)
    for expression, array in zip(by_expression, by_array, strict=True):
        assert np.array_equal(np.broadcast_to(evaluate(expression, points), array.shape), array)


@pytest.mark.parametrize("transform", LAWS, ids=lambda law: type(law).__name__)
def test_rebuild_maps_names_and_parameters(transform: Transform):
    assert rebuild(transform, str, lambda value: value) == transform
    renamed = rebuild(transform, lambda name: name + "x", lambda value: value + 1)
    assert type(renamed) is type(transform)
    assert renamed.inputs == tuple(name + "x" for name in transform.inputs)
    assert renamed.outputs == tuple(name + "x" for name in transform.outputs)


INVERTIBLE = [
    Pass("i", "o"),
    Split("i", ("o", "p"), (3, 4)),
    Join(("i", "j"), "o", (3, 4)),
    Slice("i", "o", 7, 1),
    Affine(("i",), "o", (1,), 3),
    Affine(("i",), "o", (-1,), 11),
]


@pytest.mark.parametrize("transform", INVERTIBLE, ids=str)
def test_invert_leads_back(transform: Transform):
    inputs = grid(3, 4) if len(transform.inputs) == 2 else [np.arange(12)]
    back = invert(transform)
    assert back is not None
    assert (back.inputs, back.outputs) == (transform.outputs, transform.inputs)
    for given, found in zip(inputs, run(back, *run(transform, *inputs)), strict=True):
        assert np.array_equal(given, found)


@pytest.mark.parametrize(
    "transform",
    [
        Pad("i", "o", 1, 4),
        PadTo("i", "o", 4),
        Slice("i", "o", 0, 2),
        Broadcast("i"),
        Modulo("i", "o", 4),
        Const("o", 1),
    ],
    ids=str,
)
def test_what_loses_information_has_no_inverse(transform: Transform):
    assert invert(transform) is None


def test_wrong_parameters_are_refused():
    with pytest.raises(IllegalProblem, match="as many coefficients as inputs"):
        Affine(("i", "j"), "o", (1,))
    with pytest.raises(IllegalProblem, match="at least 1"):
        Split("i", ("o", "p"), (2, 0))
    with pytest.raises(IllegalProblem, match="two inputs"):
        Xor(("i",), "o")
    with pytest.raises(IllegalProblem, match="known bounds"):
        Xor(("i", "j"), "o").index((sym("i"), sym("j")), lambda value: value)
