"""ONNX's own conformance cases for Conv, ConvTranspose, Gemm and MatMul, through generated kernels on the cpu."""

import importlib
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from convloom.frontend.compile import compile
from convloom.frontend.device_run import run_on_device
from convloom.frontend.onnx_layers import judge_node
from convloom.frontend.onnx_network import network_of, observe
from convloom.frontend.onnx_nodes import node_call

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
MODULES = ("conv", "convtranspose", "gemm", "matmul")
# Their Gemm nodes are of opset 6, which ONNX Runtime no longer runs.
ON_DISK = ("pytorch-converted/test_Conv*", "pytorch-operator/test_operator_*conv*")


def generated_cases():
    """(name, model, inputs, outputs). Importing a module of cases collects them; all modules together take 12 s."""
    cases = importlib.import_module("onnx.backend.test.case.node")
    for name in MODULES:
        importlib.import_module(f"onnx.backend.test.case.node.{name}")
    return [(case.name, case.model, *case.data_sets[0]) for case in cases._NodeTestCases]


def stored_cases():
    folders = sorted(folder for pattern in ON_DISK for folder in DATA.glob(pattern))
    return [
        (folder.name, onnx.load(folder / "model.onnx"), *_stored_data(folder / "test_data_set_0")) for folder in folders
    ]


def _stored_data(folder):
    def arrays(kind):
        files = sorted(folder.glob(f"{kind}_*.pb"))
        return [onnx.numpy_helper.to_array(onnx.load_tensor(file)) for file in files]

    return arrays("input"), arrays("output")


CASES = generated_cases() + stored_cases()


def test_the_suites_are_there():
    names = {name for name, *_ in CASES}
    assert {"test_basic_conv_with_padding", "test_convtranspose_output_shape", "test_gemm_all_attributes"} <= names
    assert {"test_matmul_4d_1d", "test_Conv3d_dilated_strided", "test_ConvTranspose2d", "test_operator_conv"} <= names
    assert len(names) >= 60


@pytest.mark.parametrize(("name", "model", "inputs", "outputs"), CASES, ids=[case[0] for case in CASES])
def test_node_case(name, model, inputs, outputs):
    network = network_of(model)
    feeds = dict(zip([item.name for item in network.inputs], inputs, strict=True))
    observation = observe(network, feeds)
    for node in network.nodes:
        operands = [observation.tensors[tensor] if tensor else None for tensor in node.inputs]
        call = node_call(node, operands)
        run = run_on_device(compile(call.problem), call.operands)
        _, reason = judge_node(call, run, observation.tensors[node.output])
        assert not reason
        if node.output == network.model.graph.output[0].name:
            assert np.allclose(run.result.reshape(call.shape), outputs[0], rtol=1e-3, atol=1e-5)
    assert network.nodes
