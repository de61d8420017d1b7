"""Loading and observing ONNX networks."""

import sys

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from convloom.errors import IllegalProblem, UnsupportedTarget
from convloom.frontend.onnx_network import load_network, network_of, observe, run_node
from tests.frontend.networks import tiny_network


@pytest.fixture(scope="module")
def feeds():
    return {"x": np.random.default_rng(0).standard_normal((1, 3, 12, 10)).astype(np.float32)}


@pytest.fixture(scope="module")
def network():
    return network_of(tiny_network())


def test_nodes_are_found_and_named(network):
    assert [node.operator for node in network.nodes] == ["Conv", "Conv", "ConvTranspose", "Gemm"]
    assert len({node.name for node in network.nodes}) == 4
    assert network.nodes[3].attributes == {"transB": 1, "alpha": 0.5, "beta": 2.0}
    assert network.inputs[0].sizes == (1, 3, None, None)


def test_every_tensor_around_a_node_is_observed(network, feeds):
    observation = observe(network, feeds)
    for node in network.nodes:
        assert set(filter(None, (*node.inputs, node.output))) <= set(observation.tensors)
        assert observation.seconds[node.name] > 0
    assert observation.tensors["c0"].shape == (1, 8, 6, 5)
    assert np.array_equal(np.maximum(observation.tensors["c0"], 0), observation.tensors["r0"])


def test_a_single_node_gives_what_the_network_gave(network, feeds):
    observation = observe(network, feeds)
    proto = next(node for node in network.model.graph.node if node.op_type == "ConvTranspose")
    inputs = {name: observation.tensors[name] for name in proto.input}
    assert np.allclose(
        run_node(proto, inputs, network.model.opset_import), observation.tensors["t0"], rtol=1e-5, atol=1e-5
    )


def test_nodes_in_control_flow_are_counted():
    from onnx import TensorProto, helper

    product = helper.make_node("MatMul", ["a", "a"], ["m"])
    branch = helper.make_graph([product], "branch", [], [helper.make_tensor_value_info("m", TensorProto.FLOAT, [2, 2])])
    choice = helper.make_node("If", ["flag"], ["y"], then_branch=branch, else_branch=branch)
    inputs = [
        helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
        helper.make_tensor_value_info("a", TensorProto.FLOAT, [2, 2]),
    ]
    graph = helper.make_graph([choice], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])])
    network = network_of(helper.make_model(graph))
    assert network.nodes == ()
    assert network.nested == 2


def test_a_file_that_is_no_network(tmp_path):
    path = tmp_path / "net.onnx"
    with pytest.raises(IllegalProblem, match="readable"):
        load_network(path)
    path.write_bytes(b"\xff" * 50)
    with pytest.raises(IllegalProblem, match="ONNX model"):
        load_network(path)


def test_a_missing_package_names_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UnsupportedTarget, match=r"convloom\[onnx\]"):
        load_network(tmp_path / "net.onnx")
