"""Small ONNX networks that tests build in memory."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def constant(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def tiny_network(spatial=("h", "w"), opset=17):
    """Two unnamed convolutions, a transposed one, a global pool and a Gemm; 3 input channels, 5 outputs."""
    rng = np.random.default_rng(7)

    def weights(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], group=8, auto_pad="SAME_UPPER"),
        helper.make_node("ConvTranspose", ["c1", "w2", "b2"], ["t0"], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["t0"], ["p0"]),
        helper.make_node("Flatten", ["p0"], ["f0"]),
        helper.make_node("Gemm", ["f0", "w3", "b3"], ["y"], transB=1, alpha=0.5, beta=2.0),
    ]
    stored = [
        constant("w0", weights(8, 3, 3, 3)), constant("b0", weights(8)), constant("w1", weights(8, 1, 3, 3)),
        constant("w2", weights(8, 6, 2, 2)), constant("b2", weights(6)), constant("w3", weights(5, 6)),
        constant("b3", weights(5)),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, *spatial])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        stored,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
