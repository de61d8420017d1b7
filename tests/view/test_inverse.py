"""Inverse of a view: leads from every offset back to the coordinates."""

from __future__ import annotations

import random

import numpy as np
import pytest

from convloom.expr import evaluate, sym
from convloom.view import OFFSET, Axis, Split, View, inverse, strided
from tests.view.chains import all_points, random_view
from tests.view.windows import window_view


def assert_leads_back(view: View, sizes: dict[str, int]) -> None:
    transforms = inverse(view)
    assert transforms is not None
    offsets, _ = all_points(view, sizes)
    values = {OFFSET: offsets}
    for transform in transforms:
        inputs = tuple(values[name] for name in transform.inputs)
        outputs = transform.index(inputs, lambda value: np.asarray(evaluate(value, sizes)))
        values.update(zip(transform.outputs, outputs, strict=True))
    points = np.meshgrid(*map(np.arange, offsets.shape), indexing="ij")
    for axis, expected in zip(view.axes, points, strict=True):
        assert np.array_equal(np.broadcast_to(values[axis.name], offsets.shape), expected), view


def test_inverses_of_random_chains():
    rng = random.Random(13)
    found = 0
    for _ in range(1500):
        view = random_view(rng, rng.choice((1, 2, 3)))
        if inverse(view) is not None:
            found += 1
            assert_leads_back(view, {})
    assert found > 400


@pytest.mark.parametrize("strides", [(12, 4, 1), (1, 2, 6), (-12, 4, -1), (40, 10, 2)])
def test_strided_views_are_inverted(strides: tuple[int, int, int]):
    assert_leads_back(strided((Axis("a", 2), Axis("b", 3), Axis("c", 4)), strides, base=50), {})


def test_symbolic_strides_are_inverted():
    rows, columns = sym("rows", lo=1), sym("columns", lo=1)
    view = strided((Axis("n", 3), Axis("c", columns), Axis("r", rows)), (rows * columns, rows, 1))
    assert_leads_back(view, {"rows": 5, "columns": 4})


def test_split_axes_are_joined_again():
    view = strided((Axis("a", 4), Axis("b", 6)), (1, 4))
    assert_leads_back(view.prepend((Axis("m", 24),), (Split("m", ("a", "b"), (4, 6)),)), {})


@pytest.mark.parametrize(
    "view",
    [
        window_view(batch=1, channels=1, width=8, out=8, kernel=3, stride=1, dilation=1, pad=1),
        strided((Axis("a", 4), Axis("b", 4)), (1, 2)),
        strided((Axis("a", 4), Axis("b", 4)), (0, 1)),
    ],
)
def test_what_is_checked_overlaps_or_broadcasts_has_no_inverse(view: View):
    assert inverse(view) is None
