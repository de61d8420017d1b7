"""Backward data with more residues than a family may have: every position solves for its own taps."""

import itertools

import numpy as np
import pytest

import convloom
from convloom.compiler import contract, prepare
from convloom.errors import IllegalProblem
from convloom.problem import taps
from convloom.problem.conv import Direction
from convloom.problem.conv_arguments import conv_problem, conv_transpose_problem
from convloom.problem.normal_form import normal_form
from convloom.problem.stride_key import key_text, parse_key

RANDOM = np.random.default_rng(7)


def integers(*shape):
    return RANDOM.integers(-3, 4, shape).astype(np.float32)


def scattered(dst, wei, geometry, length, pad):
    """The definition, one dimension: src[t * S + k * D - P] += dst[t] * wei[k]."""
    stride, dilation = geometry
    src = np.zeros((dst.shape[0], wei.shape[1], length), np.float32)
    for t, k in itertools.product(range(dst.shape[2]), range(wei.shape[2])):
        place = t * stride + k * dilation - pad
        if 0 <= place < length:
            src[:, :, place] += dst[:, :, t] @ wei[:, :, k]
    return src


def data_problem(length, dst, wei, geometry, pad):
    (stride, dilation), (outputs, taps_) = geometry, (dst.shape[2], wei.shape[2])
    end = (outputs - 1) * stride + dilation * (taps_ - 1) + 1 - pad - length
    return conv_problem(
        direction=Direction.BWD_D, batch=dst.shape[0], in_channels=wei.shape[1], out_channels=wei.shape[0],
        in_spatial=(length,), kernel=(taps_,), stride=stride, dilation=dilation, padding=[(pad, end)],
    )  # fmt: skip


@pytest.mark.parametrize("geometry", [(2, 1), (3, 2), (4, 6), (6, 4), (5, 5), (3, 9), (7, 3)])
@pytest.mark.parametrize("pad", [-2, 0, 3])
def test_small_windows(monkeypatch, geometry, pad):
    monkeypatch.setattr(taps, "MOST_PHASES", 1)
    dst, wei = integers(2, 3, 4), integers(3, 2, 5)
    problem = data_problem(11, dst, wei, geometry, pad)
    assert contract(problem).phases == ()
    form = prepare.__wrapped__(problem).contraction
    assert key_text(normal_form(form).contraction) == key_text(form)
    assert key_text(parse_key(key_text(form))) == key_text(form)
    result = convloom.compile(problem, plan=None)(dst, wei)
    assert np.array_equal(result, scattered(dst, wei, geometry, 11, pad))


@pytest.mark.parametrize(
    ("geometry", "pad"),
    [
        ((100003, 3), 5),
        ((100003, 77777), 5),
        ((2**31 - 1, 2**30), 2**31 - 4000),
        ((2**40, 1), 2**40 - 100),
        ((5000, 1), -3),
    ],
)
def test_large_windows(geometry, pad):
    """Positions leave 32 bits while offsets into the tensors do not."""
    dst, wei = integers(1, 2, 3), integers(2, 3, 4)
    result = convloom.compile(data_problem(9000, dst, wei, geometry, pad))(dst, wei)
    assert np.array_equal(result, scattered(dst, wei, geometry, 9000, pad))


def test_transposed_convolutions_of_large_stride():
    """Planning took time quadratic in the stride, and exponential in the dimensions."""
    x, w, bias = integers(1, 3, 6), integers(3, 2, 3), integers(2)
    result = convloom.conv_transpose(x, w, bias, stride=100000)
    assert np.array_equal(result - bias[:, None], scattered(x, w, (100000, 1), 500003, 0))
    x, w = integers(1, 3, 2, 2), integers(3, 2, 3, 3)
    result = convloom.conv_transpose(x, w, stride=(300, 257))
    expected = np.zeros_like(result)
    for t, u, k, v in itertools.product(range(2), range(2), range(3), range(3)):
        expected[:, :, t * 300 + k, u * 257 + v] += x[:, :, t, u] @ w[:, :, k, v]
    assert np.array_equal(result, expected)


def test_holes_multiply_nothing():
    """No NaN of dst or wei reaches a position without taps."""
    x, w = np.full((1, 2, 3), np.nan, np.float32), np.full((2, 2, 2), np.nan, np.float32)
    result = convloom.conv_transpose(x, w, stride=2000)
    reached = [t * 2000 + k for t in range(3) for k in range(2)]
    assert np.isnan(result[0, 0, reached]).all()
    assert np.count_nonzero(np.isnan(result[0, 0])) == len(reached)


def test_dims():
    length = convloom.dim("h", min=0)
    problem = conv_transpose_problem(
        batch=1, in_channels=3, out_channels=2, in_spatial=(length,), kernel=(3,), stride=3000, padding=1
    )
    x, w = integers(1, 3, 2), integers(3, 2, 3)
    assert np.array_equal(convloom.compile(problem)(x, w), scattered(x, w, (3000, 1), 3001, 1))


def test_families_stay_families():
    small = data_problem(40, integers(1, 1, 3), integers(1, 1, 3), (16, 1), 0)
    assert len(contract(small).phases[0].values) == 16
    short = data_problem(5, integers(1, 1, 2), integers(1, 1, 3), (2**40, 1), 2**40 - 2)
    assert len(contract(short).phases[0].values) == 5


def test_an_inverse_that_index_math_has_no_room_for():
    with pytest.raises(
        IllegalProblem, match=r"stride / gcd\(stride, dilation\) must not exceed 2\*\*31 .*stride 2147483659"
    ):
        contract(data_problem(9000, integers(1, 1, 2), integers(1, 1, 3), (2**31 + 11, 7), 0))
