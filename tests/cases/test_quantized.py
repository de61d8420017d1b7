"""Cases QNT: zero points at padding, one saturation at the end, mixed signs."""

import numpy as np
import pytest

import convloom
from convloom.dtypes import dtype_named
from convloom.problem.conv_arguments import conv_problem
from convloom.problem.epilogue.attributes import AttributeTexts
from convloom.problem.notation import with_attributes


def problem(types, channels, out_channels, size, kernel, padding, groups=1, batch=1, **texts):
    bare = conv_problem(
        batch=batch, in_channels=channels, out_channels=out_channels, in_spatial=(size, size),
        kernel=(kernel, kernel), padding=padding, groups=groups, dtypes=tuple(map(dtype_named, types.split(":"))),
    )  # fmt: skip
    return with_attributes(bare, AttributeTexts(**texts))


def random(shape, low, high, dtype, seed=0):
    return np.random.default_rng(seed).integers(low, high + 1, shape).astype(dtype)


def test_qnt_02_padding_is_the_zero_point():
    """QNT-02: all pixels hold the zero point -3, so that every output is 0, at the border too."""
    kernel = convloom.compile(problem("s8:s8:s32", 2, 3, 5, 3, 1, zero_points="src:common:0:s8"))
    x, w = np.full((1, 2, 5, 5), -3, np.int8), random((3, 2, 3, 3), -128, 127, np.int8)
    zero = np.full((1, 1, 1, 1), -3, np.int8)
    assert not kernel(x, w, operands=(zero,)).any()
    assert kernel(x, w, operands=(zero + np.int8(1),)).any()


def test_qnt_03_the_old_result_is_added_before_saturation():
    """QNT-03: 150 - 26 is 124, and not 127 - 26; fewer pixels than in the report."""
    kernel = convloom.compile(problem("s8:s8:s8", 32, 32, 9, 3, 0, batch=2, post_ops="sum"))
    x, w = random((2, 32, 9, 9), -8, 8, np.int8), random((32, 32, 3, 3), -1, 1, np.int8, 1)
    old = random((2, 32, 7, 7), -128, 127, np.int8, 2)
    sums = convloom.conv(x, w).astype(np.int64)
    assert (np.abs(sums) > 127).any()
    out = old.copy()
    kernel(x, w, out=out)
    assert np.array_equal(out, np.clip(sums + old, -128, 127))


def test_qnt_04_the_scale_comes_before_saturation():
    """QNT-04: acc / 2 rounded to nearest even, then saturated."""
    kernel = convloom.compile(problem("s8:s8:s8", 20, 20, 5, 3, 1, groups=4, batch=2, scales="dst:common:2"))
    x, w = random((2, 20, 5, 5), -8, 8, np.int8), random((20, 5, 3, 3), -4, 4, np.int8, 1)
    sums = convloom.conv(x, w, padding=1, groups=4).astype(np.float64)
    scale = np.full((1, 1, 1, 1), 2, np.float32)
    assert np.array_equal(kernel(x, w, operands=(scale,)), np.clip(np.rint(sums / 2), -128, 127))
    assert (np.abs(sums) > 127).any()


@pytest.mark.parametrize("per_channel", [False, True])
def test_qnt_07_zero_points_on_both_sides(per_channel):
    """QNT-07: u8 by s8 with zero points 131 and [2, -1, 0, 7], bit for bit, padding counted as 0."""
    mask = "per_oc" if per_channel else "common"
    kernel = convloom.compile(problem("u8:s8:s32", 3, 4, 6, 3, 1, zero_points=f"src:common:131+wei:{mask}"))
    x, w = random((1, 3, 6, 6), 0, 255, np.uint8), random((4, 3, 3, 3), -128, 127, np.int8, 1)
    zeros = np.array([2, -1, 0, 7] if per_channel else [2], np.int32).reshape(-1, 1, 1, 1)
    expected = convloom.conv(x.astype(np.float64) - 131, w - zeros.astype(np.float64), padding=1)
    found = kernel(x, w, operands=(np.full((1, 1, 1, 1), 131, np.int32), zeros))
    assert np.array_equal(found, expected)
