"""Empty extents in every position: empty results launch nothing, empty sums leave bias, zeros or the old result."""

import itertools

import numpy as np
import pytest

import convloom
from convloom.errors import IllegalProblem


def zeros(*shape):
    return np.zeros(shape, np.float32)


def test_empty_batch():
    """pytorch/pytorch#19599."""
    result = convloom.conv(zeros(0, 3, 3, 3), zeros(3, 3, 3, 3))
    assert result.shape == (0, 3, 1, 1)
    assert result.dtype == np.float32


def test_gradients_of_an_empty_batch():
    """FluxML/NNlib.jl#763: the loop over the batch never runs, the result is due all the same."""
    x, grad = zeros(0, 4, 5, 5), zeros(0, 6, 5, 5)
    for out in (None, np.full((6, 4, 3, 3), np.nan, np.float32)):
        result = convloom.conv_weight_grad(x, (6, 4, 3, 3), grad, padding=1, out=out)
        assert np.array_equal(result, zeros(6, 4, 3, 3))
    old = np.full((6, 4, 3, 3), 7, np.float32)
    assert np.array_equal(convloom.conv_weight_grad(x, (6, 4, 3, 3), grad, padding=1, out=old, accumulate=True), old)
    assert (old == 7).all()
    assert convloom.conv_input_grad((0, 4, 5, 5), zeros(6, 4, 3, 3), grad, padding=1).shape == (0, 4, 5, 5)


def test_no_input_channels():
    """pytorch/pytorch#101356: an empty sum, so the bias alone."""
    bias = np.arange(8, dtype=np.float32)
    result = convloom.conv(zeros(3, 0, 16, 16), zeros(8, 0, 3, 3), bias, stride=(2, 1))
    assert np.array_equal(result, np.broadcast_to(bias[:, None, None], (3, 8, 7, 14)))
    assert np.array_equal(convloom.conv(zeros(3, 0, 16, 16), zeros(8, 0, 3, 3), stride=(2, 1)), zeros(3, 8, 7, 14))


def test_no_output_channels():
    assert convloom.conv(zeros(2, 4, 5, 5), zeros(0, 4, 3, 3)).shape == (2, 0, 3, 3)
    by_input = convloom.conv_input_grad((2, 4, 5, 5), zeros(0, 4, 3, 3), zeros(2, 0, 3, 3))
    assert np.array_equal(by_input, zeros(2, 4, 5, 5))
    assert convloom.conv_weight_grad(zeros(2, 4, 5, 5), (0, 4, 3, 3), zeros(2, 0, 3, 3)).shape == (0, 4, 3, 3)


def test_empty_sum_scales_the_old_result():
    """ml-explore/mlx#2698."""
    out = np.ones((2, 2), np.float32)
    assert np.array_equal(convloom.gemm(zeros(2, 0), zeros(0, 2), out=out, alpha=0, beta=2), np.full((2, 2), 2))
    out = np.full((2, 2), np.nan, np.float32)
    assert np.array_equal(convloom.gemm(zeros(2, 0), zeros(0, 2), out=out), zeros(2, 2))


def test_empty_rows_with_bias():
    """triton-lang/triton#7919."""
    assert convloom.gemm(zeros(5, 0, 7), zeros(5, 7, 9), zeros(9)).shape == (5, 0, 9)


@pytest.mark.parametrize("sizes", list(itertools.product((0, 2), repeat=4)))
def test_products_with_any_empty_extent(sizes):
    b, m, n, k = sizes
    left, right, bias = np.ones((b, m, k), np.float32), np.ones((b, k, n), np.float32), np.arange(n, dtype=np.float32)
    assert np.array_equal(convloom.gemm(left, right, bias), left @ right + bias)


@pytest.mark.parametrize("extent", [0, 1])
def test_empty_spatial_extents(extent):
    """Only padding is convolved: zeros; without padding the kernel does not fit."""
    x, w = zeros(2, 3, extent, 4), np.ones((5, 3, 2, 1), np.float32)
    with pytest.raises(IllegalProblem, match="effective kernel 2 is larger than the padded input"):
        convloom.conv(x, w)
    result = convloom.conv(x, w, padding=(1, 0))
    assert np.array_equal(result, zeros(2, 5, extent + 1, 4))
    back = convloom.conv_input_grad(x.shape, w, np.ones_like(result), padding=(1, 0))
    assert back.shape == x.shape


def test_transposed_results_that_compute_to_nothing():
    """ROCm/MIOpen#55: extent 0 is an error that names the dimension; the neighbour is a centre crop."""
    with pytest.raises(IllegalProblem, match="spatial dimension 0 computes to 0"):
        convloom.conv_transpose(zeros(128, 6, 4, 4), zeros(6, 4, 1, 1), padding=2)
    x, w = np.random.default_rng(0).integers(-3, 4, (2, 6, 4, 4)).astype(np.float32), np.ones((6, 4, 1, 1), np.float32)
    cropped = convloom.conv_transpose(x, w, padding=1)
    assert np.array_equal(cropped, convloom.conv_transpose(x, w)[:, :, 1:-1, 1:-1])


def test_transposed_with_an_empty_batch_or_no_channels():
    assert convloom.conv_transpose(zeros(0, 6, 4, 4), zeros(6, 4, 3, 3)).shape == (0, 4, 6, 6)
    bias = np.arange(4, dtype=np.float32)
    result = convloom.conv_transpose(zeros(2, 0, 4, 4), zeros(0, 4, 3, 3), bias, stride=2)
    assert np.array_equal(result, np.broadcast_to(bias[:, None, None], (2, 4, 9, 9)))


@pytest.mark.parametrize(
    "geometry", [{"stride": 2, "dilation": 3, "padding": 3}, {"padding": 3}, {"dilation": 2, "padding": 4}]
)
def test_no_input_channels_beside_padded_taps(geometry):
    """An empty axis must not be a digit of a flat index: 'an extent of Split must be at least 1; got 0'."""
    x, w, bias = zeros(1, 0, 2), zeros(2, 0, 2), np.array([3, 5], np.float32)
    outputs = convloom.conv(zeros(1, 1, 2), zeros(1, 1, 2), **geometry).shape[2]
    result = convloom.conv(x, w, bias, **geometry)
    assert np.array_equal(result, np.broadcast_to(bias[None, :, None], (1, 2, outputs)))
    old = np.ones((1, 2, outputs), np.float32)
    assert np.array_equal(convloom.conv(x, w, out=old, beta=2, **geometry), np.full((1, 2, outputs), 2))
