"""Groups: every group is computed, from its own channels, in every direction and layout."""

import numpy as np
import pytest

import convloom
from convloom import conv_problem
from convloom.problem.layout import dense
from convloom.problem.reference import Operands
from tests.cases.convolution import ConvCase, Op, call_guarded, check, integers, strides_of
from tests.cases.memory import channels_last, dense_strides, guarded

HALVES = ("f16", "f16", "f16")

GRP_08 = ConvCase("GRP-08", Op.CONV, 2, 64, 64, (32, 32), (3, 3), (32, 32), padding=1, groups=4, types=HALVES)
GRP_12 = ConvCase("GRP-12", Op.CONV, 1, 16, 2, (3, 3), (3, 3), (1, 1), groups=2, types=("s8", "s8", "s32"))
GRADIENTS = [
    ConvCase(f"GRP-03-{groups}-groups-{k}", Op.WEIGHT_GRAD, 3, 6, k, (8, 9), (3, 3), (8, 9), padding=1, groups=groups)
    for groups, k in ((1, 4), (2, 4), (6, 6), (6, 12))
]

TABLE = [
    ConvCase("GRP-01", Op.CONV, 1, 4, 16, (1, 1), (1, 1), (1, 1), groups=2),
    *GRADIENTS,
    ConvCase("GRP-05", Op.INPUT_GRAD, 2, 32, 32, (28, 30), (7, 7), (14, 15), 2, 3, groups=32, last=True),
    ConvCase("GRP-05-3x3", Op.INPUT_GRAD, 2, 32, 32, (28, 30), (3, 3), (14, 15), 2, 1, groups=32, last=True),
    ConvCase("GRP-05-1x1", Op.INPUT_GRAD, 2, 32, 32, (28, 30), (1, 1), (14, 15), 2, groups=4, last=True),
    GRP_08,
    ConvCase("GRP-09", Op.CONV, 4, 48, 48, (56, 56), (3, 3), (56, 56), padding=1, groups=48, types=HALVES),
    GRP_12,
    ConvCase(
        "GRP-13", Op.CONV, 1, 32, 32, (64, 128), (5, 5), (64, 128), padding=4, dilation=2, groups=32, last=True
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", TABLE, ids=str)
def test_table(case, device):
    check(case, device)


@pytest.mark.parametrize("case", [GRADIENTS[2]], ids=str)
def test_a_depthwise_weight_gradient_has_fewer_elements_than_a_thread_group(case, any_device):
    check(case, any_device)


@pytest.mark.parametrize("case", ["GRP-01"])
def test_one_channel_reaches_its_own_group_alone(case):
    x = np.zeros((1, 4, 1, 1), np.float32)
    x[0, 3] = 1
    y = convloom.conv(x, np.ones((16, 2, 1, 1), np.float32), groups=2)
    assert y.ravel().tolist() == [0] * 8 + [1] * 8


@pytest.mark.parametrize("case", GRADIENTS, ids=str)
def test_a_grouped_weight_gradient_is_those_of_the_groups(case):
    x, dy = integers((3, 6, 8, 9)), integers((3, case.k, 8, 9), seed=1)
    inputs, outputs = 6 // case.groups, case.k // case.groups
    parts = [
        convloom.conv_weight_grad(
            x[:, group * inputs : (group + 1) * inputs],
            (outputs, inputs, 3, 3),
            dy[:, group * outputs : (group + 1) * outputs],
            padding=1,
        )
        for group in range(case.groups)
    ]
    assert np.array_equal(call_guarded(case, Operands(x, dy)), np.concatenate(parts))


@pytest.mark.parametrize("case", [GRP_08], ids=str)
def test_every_group_is_the_convolution_of_its_slice(case):
    x, w = integers((2, 64, 32, 32), np.float16, 2), integers((64, 16, 3, 3), np.float16, 2, seed=1)
    y = call_guarded(case, Operands(x, w))
    assert not np.isnan(y).any()
    for group in range(4):
        own = slice(16 * group, 16 * (group + 1))
        assert np.array_equal(y[:, own], convloom.conv(x[:, own], w[own], padding=1))


@pytest.mark.parametrize("case", ["GRP-09"])
def test_depthwise_halves_differ_by_one_unit_from_single_groups(case):
    random = np.random.default_rng(9)
    x = (random.random((32, 48, 56, 56), np.float32) - 0.5).astype(np.float16)
    w = (random.random((48, 1, 3, 3), np.float32) - 0.5).astype(np.float16)
    y = convloom.conv(x, w, padding=1, groups=48)
    for channel in range(48):
        own = slice(channel, channel + 1)
        alone = convloom.conv(x[:, own], w[own], padding=1)
        unit = np.spacing(np.maximum(np.abs(y[:, own]), np.abs(alone)))
        assert np.all(np.abs(y[:, own].astype(np.float32) - alone.astype(np.float32)) <= unit)


@pytest.mark.parametrize("case", [GRP_12], ids=str)
def test_sums_of_bytes_over_a_whole_window(case):
    w = np.broadcast_to(np.array([1, 2, 1], np.int8), (2, 8, 3, 3))
    y = call_guarded(case, Operands(np.ones((1, 16, 3, 3), np.int8), w.copy()))
    assert y.dtype == np.int32
    assert y.ravel().tolist() == [96, 96]


@pytest.mark.parametrize("case", ["GRP-13"])
@pytest.mark.parametrize("spatial", [(256, 512), (64, 128)], ids=["predicted", "allocated"])
def test_the_result_has_the_order_of_the_input(case, spatial):
    shape = (8, 32, *spatial)
    layout = dense(shape, channels_last(4))
    problem = conv_problem(
        batch=8, in_channels=32, out_channels=32, in_spatial=spatial, kernel=(5, 5), padding=4, dilation=2, groups=32,
        layouts=(layout, None, None),
    )  # fmt: skip
    assert problem.dst.layout == layout
    if spatial == (64, 128):
        x = guarded(np.ones(shape, np.float32), dense_strides(shape, channels_last(4)))
        y = convloom.conv(x.array, np.ones((32, 1, 5, 5), np.float32), padding=4, dilation=2, groups=32)
        assert strides_of(y) == tuple(stride.value for stride in layout.strides)
        assert y[3, 7, 30, 40] == 25
