"""Windows of unusual extents, strides and channel counts."""

import numpy as np
import pytest

import convloom
from convloom import conv_problem
from convloom.problem.layout import plain
from convloom.problem.reference import Operands, reference
from tests.cases.convolution import ConvCase, Op, assert_same_bits, call_guarded, check, integers, run
from tests.cases.memory import guarded
from tests.cases.plans import sampled_plans

HALVES = ("f16", "f16", "f16")

GEO_10 = ConvCase("GEO-10", Op.CONV, 128, 832, 128, (7, 7), (1, 1), (7, 7), dilation=2, types=HALVES)
GEO_14 = ConvCase("GEO-14", Op.CONV, 2, 33, 34, (34, 41), (3, 3), (20, 17), (2, 3), (4, 5), bias="f32")

TABLE = [
    ConvCase("GEO-02", Op.INPUT_GRAD, 1, 128, 512, (83, 11), (5, 1), (28, 11), (3, 1), (2, 0)),
    ConvCase("GEO-02-fwd", Op.CONV, 1, 128, 512, (83, 11), (5, 1), (28, 11), (3, 1), (2, 0)),
    ConvCase("GEO-06-fewer-outputs", Op.CONV, 1, 3, 40, (338, 341), (14, 14), (24, 24), 14),
    ConvCase("GEO-06-fewer-outputs-dw", Op.WEIGHT_GRAD, 1, 3, 40, (338, 341), (14, 14), (24, 24), 14),
    ConvCase("GEO-07", Op.WEIGHT_GRAD, 2, 2, 3, (100, 99), (7, 7), (100, 99), padding=3),
    *[
        ConvCase(f"GEO-11-{k}", Op.CONV, 4, 232, k, (20, 20), (1, 1), (20, 20), types=HALVES)
        for k in (1, 3, 7, 8, 15, 17, 31, 33, 63, 65, 127, 129, 336)
    ],
    *[
        ConvCase(f"GEO-13-{size}x{size}", Op.CONV, 1, 16, 16, (28, 28), (size, size), (28, 28), padding=size // 2)
        for size in (3, 5, 7)
    ],
    GEO_14,
    ConvCase("GEO-19", Op.CONV, 2, 3, 2, (5, 5), (40, 4), (44, 8), padding=(39, 3), types=HALVES),
    ConvCase("GEO-19-dx", Op.INPUT_GRAD, 2, 3, 2, (5, 5), (40, 4), (44, 8), padding=(39, 3), types=HALVES),
    ConvCase("GEO-19-dw", Op.WEIGHT_GRAD, 2, 3, 2, (5, 5), (40, 4), (44, 8), padding=(39, 3), types=HALVES),
]


@pytest.mark.parametrize("case", TABLE, ids=str)
def test_table(case, device):
    check(case, device)


@pytest.mark.parametrize("extents", [(1008, 1008), (1010, 1013)], ids=["GEO-06", "GEO-06-remainder"])
def test_patches_side_by_side_are_a_product(extents):
    """Kernel = stride = 14: the image is a matrix of patches; rows and columns beyond whole patches are not read."""
    x, w, dy = integers((1, 3, *extents)), integers((384, 3, 14, 14), seed=1), integers((1, 384, 72, 72), seed=2)
    x[:, :, 1008:] = x[:, :, :, 1008:] = np.nan
    patches = x[0, :, :1008, :1008].reshape(3, 72, 14, 72, 14).transpose(1, 3, 0, 2, 4).reshape(72 * 72, -1)
    product = (w.reshape(384, -1) @ patches.T).reshape(1, 384, 72, 72)
    assert np.array_equal(convloom.conv(x, w, stride=14), product)
    gradient = (dy.reshape(384, -1) @ patches).reshape(w.shape)
    assert np.array_equal(convloom.conv_weight_grad(x, w.shape, dy, stride=14), gradient)


@pytest.mark.parametrize("channels", [2, pytest.param(16, marks=pytest.mark.cuda)], ids=["GEO-09", "GEO-09-all"])
def test_sums_over_millions_of_pixels_are_exact(channels, device):
    """Zeros and ones: every partial sum of the 2044 * 2044 products is below 2**24."""
    if (device == "cpu") is not (channels == 2):
        pytest.skip("all 16 channels are for a GPU")
    random = np.random.default_rng(9)
    x = random.integers(0, 2, (1, channels, 2048, 2048)).astype(np.float32)
    dy = random.integers(0, 2, (1, 1, 2044, 2044)).astype(np.float32)
    case = ConvCase("GEO-09", Op.WEIGHT_GRAD, 1, channels, 1, (2048, 2048), (5, 5), (2044, 2044))
    dw = run(case.problem(), Operands(x, dy), device)
    for c in range(channels):
        for i, j in ((0, 0), (0, 4), (2, 3), (4, 0), (4, 4)):
            assert dw[0, c, i, j] == np.count_nonzero(x[0, c, i : i + 2044, j : j + 2044] * dy[0, 0])


@pytest.mark.parametrize("case", [GEO_10], ids=str)
def test_a_pointwise_kernel_does_not_feel_dilation(case):
    random = np.random.default_rng(10)
    x = (random.random((128, 832, 7, 7), np.float32) - 0.5).astype(np.float16)
    w = (random.random((128, 832, 1, 1), np.float32) - 0.5).astype(np.float16)
    y = call_guarded(case, Operands(x, w))
    assert_same_bits(y, convloom.conv(x, w))
    part = ConvCase("part", Op.CONV, 4, 832, 128, (7, 7), (1, 1), (7, 7), types=HALVES)
    expected = reference(part.problem(), Operands(x[:4], w), magnitude=True)
    bound = 2.0**-11 * np.abs(expected.value) + 2.0**-25 + 2 * 832 * 2.0**-24 * expected.magnitude
    assert np.all(np.abs(y[:4] - expected.value) <= bound)


@pytest.mark.parametrize("size", [3, 5, 7], ids=lambda size: f"GEO-13-{size}x{size}")
def test_every_kernel_extent_under_several_plans(size):
    case = next(case for case in TABLE if case.name == f"GEO-13-{size}x{size}")
    for plan in sampled_plans(case.problem(), 4):
        check(case, plan=plan)


@pytest.mark.parametrize("case", [GEO_14], ids=str)
def test_a_reduction_that_fills_no_tile_under_many_plans(case):
    for plan in sampled_plans(case.problem(), 8):
        check(case, plan=plan)


@pytest.mark.parametrize("case", ["GEO-18"])
def test_channels_last_and_weights_with_outputs_last(case):
    """x as (n, length, c), weights as (c, taps, k), y as (n, length, k)."""
    x, w = integers((1, 2, 3)), integers((2, 2, 2), seed=1)
    a, b, out = guarded(x, (6, 1, 2)), guarded(w, (1, 4, 2)), guarded(np.zeros((1, 2, 2), np.float32), (4, 1, 2))
    expected = [[sum(w[k, c, t] * x[0, c, o + t] for c in (0, 1) for t in (0, 1)) for o in (0, 1)] for k in (0, 1)]
    assert np.array_equal(convloom.conv(a.array, b.array, out=out.array)[0], expected)
    assert out.surroundings_unchanged
    y = convloom.conv(a.array, b.array)
    assert np.array_equal(y[0], expected)
    assert y.strides[1:] == (4, 8)
    layouts = plain((6, 1, 2)), plain((1, 4, 2)), None
    problem = conv_problem(
        batch=1, in_channels=2, out_channels=2, in_spatial=(3,), kernel=(2,), layouts=layouts
    )  # fmt: skip
    assert [stride.value for stride in problem.dst.layout.strides] == [4, 1, 2]
