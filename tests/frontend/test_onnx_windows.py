"""Sizes and padding of ONNX windows against the specification's examples and against brute force over taps."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convloom.errors import IllegalProblem
from convloom.frontend.onnx_windows import conv_transpose_windows, conv_windows


def only(windows):
    (window,) = windows
    return window


def test_same_padding_counts_dilated_taps():
    windows = conv_windows((22, 27), (3, 3), {"auto_pad": b"SAME_UPPER", "dilations": [2, 2]})
    assert [(w.size_out, w.pad_begin) for w in windows] == [(22, 2), (27, 2)]


@pytest.mark.parametrize(("mode", "begin"), [("SAME_UPPER", 0), ("SAME_LOWER", 1)])
def test_the_odd_element_of_same_padding(mode, begin):
    window = only(conv_windows((4,), (2,), {"auto_pad": mode}))
    assert (window.size_out, window.pad_begin) == (4, begin)


@pytest.mark.parametrize(("mode", "begin"), [("NOTSET", (1, 2)), ("SAME_LOWER", (1, 2)), ("SAME_UPPER", (1, 1))])
def test_output_shape_of_a_transposed_convolution(mode, begin):
    attributes = {"output_shape": [9, 12], "strides": [2, 2], "dilations": [1, 2], "auto_pad": mode}
    windows = conv_transpose_windows((5, 6), (3, 3), attributes)
    assert [w.size_out for w in windows] == [9, 12]
    assert tuple(w.pad_begin for w in windows) == begin


def test_output_longer_than_the_taps_reach_is_padded_at_the_end():
    window = only(conv_transpose_windows((4,), (2,), {"strides": [3], "output_shape": [13]}))
    assert (window.size_out, window.pad_begin) == (13, 0)


def test_automatic_padding_ignores_explicit_pads():
    window = only(conv_windows((8,), (3,), {"auto_pad": "VALID", "pads": [1, 1]}))
    assert (window.size_out, window.pad_begin) == (6, 0)


@pytest.mark.parametrize(
    ("attributes", "named"),
    [
        ({"auto_pad": "SAME"}, "auto_pad"),
        ({"strides": [1, 1]}, "strides"),
        ({"kernel_shape": [5]}, "kernel_shape"),
        ({"dilations": [9]}, "kernel"),
    ],
)
def test_faults_name_the_attribute(attributes, named):
    with pytest.raises(IllegalProblem, match=named):
        conv_windows((8,), (3,), attributes)


sizes = {
    "size": st.integers(1, 12),
    "kernel": st.integers(1, 4),
    "stride": st.integers(1, 4),
    "dilation": st.integers(1, 3),
}


@settings(derandomize=True, max_examples=200)
@given(**sizes, pads=st.tuples(st.integers(0, 3), st.integers(0, 3)))
def test_explicit_padding_counts_positions(size, kernel, stride, dilation, pads):
    attributes = {"strides": [stride], "dilations": [dilation], "pads": list(pads)}
    starts = range(0, size + sum(pads) - (kernel - 1) * dilation, stride)
    if not starts:
        with pytest.raises(IllegalProblem, match="fit"):
            conv_windows((size,), (kernel,), attributes)
    else:
        assert only(conv_windows((size,), (kernel,), attributes)).size_out == len(starts)


@settings(derandomize=True, max_examples=200)
@given(**sizes, mode=st.sampled_from(["SAME_UPPER", "SAME_LOWER"]))
def test_same_padding_is_the_least_that_gives_the_size(size, kernel, stride, dilation, mode):
    window = only(conv_windows((size,), (kernel,), {"strides": [stride], "dilations": [dilation], "auto_pad": mode}))
    assert window.size_out == -(-size // stride)
    span = (kernel - 1) * dilation + 1
    total = max((window.size_out - 1) * stride + span - size, 0)
    end = total - window.pad_begin
    assert end - window.pad_begin in ((0, 1) if mode == "SAME_UPPER" else (0, -1))
