"""Arguments of a wrong type: convloom's own errors name parameter and value; arrays of integers are integers."""

import numpy as np
import pytest

import convloom
from convloom.errors import ConvloomError, IllegalProblem, IllegalType

X, W, B = np.ones((1, 4, 6), np.float32), np.ones((5, 4, 3), np.float32), np.ones(5, np.float32)
GRAD, TURNED = np.ones((1, 5, 4), np.float32), np.ones((4, 5, 3), np.float32)

CALLS = {
    "conv": lambda **more: convloom.conv(X, W, **more),
    "conv_transpose": lambda **more: convloom.conv_transpose(X, TURNED, **more),
    "conv_input_grad": lambda **more: convloom.conv_input_grad(X.shape, W, GRAD, **more),
    "conv_weight_grad": lambda **more: convloom.conv_weight_grad(X, W.shape, GRAD, **more),
    "gemm": lambda **more: convloom.gemm(X[0], X[0].T, **more),
}
JUNK = [None, "2", 1j, [], [[]], {}, set(), object(), float("nan"), 2.5, True, np.True_, b"2", np.array([1.5]), (None,)]


@pytest.mark.parametrize("call", [name for name in CALLS if name != "gemm"])
@pytest.mark.parametrize("parameter", ["stride", "padding", "dilation", "groups"])
@pytest.mark.parametrize("value", JUNK, ids=[f"{place}-{type(value).__name__}" for place, value in enumerate(JUNK)])
def test_numbers_of_a_window(call, parameter, value):
    with pytest.raises(IllegalProblem, match=f"{parameter} (must be|is)"):
        CALLS[call](**{parameter: value})


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("parameter", ["alpha", "beta"])
@pytest.mark.parametrize("value", [None, 1j, "2", [1.0], True, np.True_, np.array(2.0)], ids=repr)
def test_factors_are_real_numbers(call, parameter, value):
    """None and 1j were TypeErrors of Python's, '2' was taken as 2."""
    with pytest.raises(IllegalType, match=f"{parameter} must be a real number; got"):
        CALLS[call](**{parameter: value})
    kernel = convloom.compile(
        convloom.conv_problem(batch=1, in_channels=4, out_channels=5, in_spatial=(6,), kernel=(3,))
    )
    with pytest.raises(IllegalType, match=f"{parameter} must be a real number; got"):
        kernel(X, W, **{parameter: value})


def test_factors_of_numpy():
    for factor in (2, np.float32(2), np.int64(2)):
        assert (convloom.conv(X, W, alpha=factor) == 24).all()
    with pytest.raises(IllegalProblem, match="alpha must lie in the range of a float"):
        convloom.conv(X, W, alpha=10**400)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("value", [5, [], {}, b"tiled"], ids=repr)
def test_texts(call, value):
    with pytest.raises(IllegalType, match=r"plan must be None or a plan's text"):
        CALLS[call](plan=value)
    with pytest.raises(IllegalType, match="device must be None or the name of a device"):
        CALLS[call](device=value)
    with pytest.raises(IllegalType, match="accumulate must be True or False"):
        CALLS[call](accumulate=value)


def test_a_negative_workspace_is_refused_every_time():
    for _ in range(2):
        convloom.conv(X, W, max_workspace=0)
        with pytest.raises(IllegalProblem, match="max_workspace is a number of bytes"):
            convloom.conv(X, W, max_workspace=-1)


@pytest.mark.parametrize("value", [8, None, "abc", 2.5, {1}], ids=repr)
def test_shapes_are_sequences(value):
    with pytest.raises(IllegalType, match="input_size must be"):
        convloom.conv_input_grad(value, W, GRAD)
    with pytest.raises(IllegalType, match="weight_shape must be"):
        convloom.conv_weight_grad(X, value, GRAD)


def test_negative_sizes_are_named_by_their_parameter():
    for shape in ((-6,), (1, 4, -6), (-1, 4, 6)):
        with pytest.raises(IllegalProblem, match="input_size must hold no negative sizes; got"):
            convloom.conv_input_grad(shape, W, GRAD)
    with pytest.raises(IllegalProblem, match="weight_shape must hold no negative sizes; got"):
        convloom.conv_weight_grad(X, (5, 4, -3), GRAD)
    with pytest.raises(IllegalProblem, match=r"in_spatial\[0\] must not be negative; got -6"):
        convloom.conv_problem(batch=1, in_channels=1, out_channels=1, in_spatial=(-6,), kernel=(3,))


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint8])
def test_arrays_of_integers(kind):
    x, w = np.ones((2, 3, 7, 8), np.float32), np.ones((4, 3, 2, 3), np.float32)
    expected = convloom.conv(x, w, stride=(2, 1), padding=(1, 2), dilation=(1, 2))
    pair, pads, gaps = np.array([2, 1], kind), np.array([1, 2], kind), np.array([1, 2], kind)
    assert np.array_equal(convloom.conv(x, w, stride=pair, padding=pads, dilation=gaps), expected)
    assert np.array_equal(convloom.conv(x, w, stride=pair, padding=np.stack([pads, pads], 1), dilation=gaps), expected)
    assert convloom.conv(x, w, stride=kind(2)).shape == convloom.conv(x, w, stride=np.array(2, kind)).shape
    shape = np.array(x.shape, kind)
    assert convloom.conv_input_grad(shape, w, expected, stride=pair, padding=pads, dilation=gaps).shape == x.shape


@pytest.mark.parametrize(
    "name", ["batch", "in_channels", "in_spatial", "kernel", "dtypes", "layouts", "bias", "scaling", "direction"]
)
@pytest.mark.parametrize(
    "value", ["2", 1j, 2.5, True, {}, object(), (2.5,), ("x", 1, 2)], ids=lambda value: type(value).__name__
)
def test_problems(name, value):
    sizes = {"batch": 1, "in_channels": 4, "out_channels": 5, "in_spatial": (6,), "kernel": (3,)}
    with pytest.raises(ConvloomError):
        convloom.conv_problem(**{**sizes, name: value})


def test_records():
    with pytest.raises(IllegalType, match="dtype must be an element type"):
        convloom.TensorSpec("f32", None)
    with pytest.raises(IllegalType, match="alpha must be True or False"):
        convloom.Scaling(alpha=2.0)
    with pytest.raises(IllegalType, match="plan must be None or a plan's text"):
        convloom.compile(
            convloom.conv_problem(batch=1, in_channels=4, out_channels=5, in_spatial=(6,), kernel=(3,)), plan=5
        )
    with pytest.raises(IllegalType, match="device must be a device or its name"):
        convloom.compile(
            convloom.conv_problem(batch=1, in_channels=4, out_channels=5, in_spatial=(6,), kernel=(3,)), device=5
        )


def test_results_that_overlap_themselves():
    """The message said 'dst' and printed the strides as quoted texts."""
    memory = np.zeros(40, np.float32)
    shared = np.lib.stride_tricks.as_strided(memory, (1, 5, 4), (80, 8, 4))
    words = r"must not share memory; out has strides \(10, 2, 1\) for shape \(1, 5, 4\)"
    with pytest.raises(IllegalProblem, match=words):
        convloom.conv(X, W, out=shared)
    turned = np.lib.stride_tricks.as_strided(memory, (1, 5, 8), (160, 8, 4))
    with pytest.raises(IllegalProblem, match=r"out has strides \(10, 2, 1\)"):
        convloom.conv_transpose(X, TURNED, out=turned)
    with pytest.raises(IllegalProblem, match=r"out has strides \(2, 1\) for shape \(5, 4\)"):
        convloom.gemm(np.ones((5, 3), np.float32), np.ones((3, 4), np.float32), out=shared[0])
