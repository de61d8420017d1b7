"""What frameworks ask beside numbers: the strides of a result before it is there, and export to ONNX."""

import numpy as np
import pytest

import convloom
from convloom import conv_problem
from convloom.frontend.device_run import run_on_device
from convloom.problem.layout import plain
from tests.cases.convolution import assert_same_bits, integers
from tests.cases.memory import element_strides

# --- INT-03: predicted strides --------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["INT-03"])
def test_predicted_strides_of_a_permuted_input(case):
    """(10, 100, 1) permuted to (10, 1, 100): the channel's stride is 1, but one channel orders nothing."""
    base, w = integers((10, 100, 1)), integers((16, 1, 3), seed=1)
    x = base.transpose(0, 2, 1)
    assert element_strides(x) == (100, 1, 1)
    y = convloom.conv(x, w, padding=1)
    assert np.array_equal(y, convloom.conv(x.copy(), w, padding=1))
    padded = np.pad(base[:, :, 0], ((0, 0), (1, 1)))
    assert np.array_equal(y, sum(w[:, 0, tap][:, None] * padded[:, None, tap : tap + 100] for tap in range(3)))
    assert predicted(x, w, padding=1) == element_strides(y) == (1600, 100, 1)


@pytest.mark.parametrize("case", ["INT-03-two-channels"])
def test_predicted_strides_of_channels_last(case):
    x, w = integers((10, 100, 2)).transpose(0, 2, 1), integers((16, 2, 3), seed=1)
    y = convloom.conv(x, w, padding=1)
    assert np.array_equal(y, convloom.conv(x.copy(), w, padding=1))
    assert predicted(x, w, padding=1) == element_strides(y) == (1600, 1, 16)


def predicted(x, w, **window):
    """Strides of the result from shapes and strides alone."""
    problem = conv_problem(
        batch=x.shape[0], in_channels=x.shape[1], out_channels=w.shape[0], in_spatial=x.shape[2:], kernel=w.shape[2:],
        layouts=(plain(element_strides(x)), plain(element_strides(w)), None), **window,
    )  # fmt: skip
    return tuple(stride.value for stride in problem.dst.layout.strides)


# --- INT-04: padding='same' through ONNX ----------------------------------------------------------------------------

WINDOWS = {
    "INT-04": ((3, 3), 1),
    "INT-04-even": ((2, 4), 1),
    "INT-04-dilated": ((3, 5), (2, 3)),
    "INT-04-even-dilated": ((4, 2), 3),
}


@pytest.mark.parametrize("case", WINDOWS)
@pytest.mark.parametrize("spelling", ["auto_pad", "pads"])
def test_same_padding_survives_a_round_trip_through_onnx(case, spelling):
    """As exporters write it: SAME_UPPER, or pads in numbers. Our path through ONNX and ONNX Runtime agree.

    ONNX Runtime refuses SAME_UPPER with a dilation, which the specification allows.
    """
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    from convloom.frontend.onnx_network import network_of
    from convloom.frontend.onnx_nodes import node_call

    kernel, dilation = WINDOWS[case]
    x, w = integers((1, 2, 64, 64)), integers((32, 2, *kernel), seed=1)
    y = convloom.conv(x, w, padding="same", dilation=dilation)
    assert y.shape == (1, 32, 64, 64)
    model = exported(w, spelling, dilation, y.shape)
    (node,) = network_of(model).nodes
    call = node_call(node, (x, w))
    assert_same_bits(run_on_device(convloom.compile(call.problem), call.operands).result, y)
    if spelling == "auto_pad" and dilation != 1:
        return
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert np.array_equal(session.run(None, {"x": x})[0], y)


def exported(w, spelling, dilation, shape):
    """A model of one convolution with padding='same'."""
    from onnx import TensorProto, helper, numpy_helper

    steps = (dilation, dilation) if isinstance(dilation, int) else dilation
    totals = [step * (extent - 1) for step, extent in zip(steps, w.shape[2:], strict=True)]
    pads = [total // 2 for total in totals] + [total - total // 2 for total in totals]
    padding = {"auto_pad": "SAME_UPPER"} if spelling == "auto_pad" else {"pads": pads}
    node = helper.make_node("Conv", ["x", "w"], ["y"], dilations=steps, **padding)
    graph = helper.make_graph(
        [node],
        "same",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 64, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(w, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
