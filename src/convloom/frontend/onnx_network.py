"""A trained ONNX network: its convolutions and matrix products, and the tensors ONNX Runtime computes around them."""

from __future__ import annotations

import importlib
import json
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convloom.errors import IllegalProblem, UnsupportedTarget

MATRIX_OPERATORS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
PROFILED_RUNS = 3


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """One node: unique name, operator, attributes as Python values, and names of its tensors ('' = input left out)."""

    name: str
    operator: str
    attributes: Mapping[str, Any]
    inputs: tuple[str, ...]
    output: str


@dataclass(frozen=True, slots=True)
class NetworkInput:
    """One tensor the user feeds: name, sizes (None = free), and element type."""

    name: str
    sizes: tuple[int | None, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Network:
    """A loaded network.

    `nodes` are the matrix operators of the main graph in order, `nested` counts those inside control flow (they cannot
    be run one by one), `constants` are the stored tensors, `model` is the ONNX model itself.
    """

    nodes: tuple[OnnxNode, ...]
    inputs: tuple[NetworkInput, ...]
    nested: int
    constants: Mapping[str, NDArray[Any]]
    model: Any


@dataclass(frozen=True, slots=True)
class Observation:
    """What ONNX Runtime computed: each tensor in front of and behind a matrix operator, and seconds per node name."""

    tensors: Mapping[str, NDArray[Any]]
    seconds: Mapping[str, float]


def optional_package(name: str) -> Any:
    """A package of the `onnx` extra; UnsupportedTarget with the command that adds it where it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnsupportedTarget(
            f"networks need the package {name}; it cannot be imported ({error}); run: pip install 'convloom[onnx]'"
        ) from error


def load_network(path: Path) -> Network:
    """Reads an ONNX file (with its external data).

    Raises UnsupportedTarget where `onnx` is missing, IllegalProblem for a file that is not an ONNX model.
    """
    onnx = optional_package("onnx")
    try:
        model = onnx.load(str(path))
    except OSError as error:
        raise IllegalProblem(
            f"a network must be a readable file; got {path} ({error.strerror}); correct the path"
        ) from error
    except Exception as error:
        if type(error).__name__ != "DecodeError":  # protobuf's own; its module differs between versions
            raise
        raise IllegalProblem(f"a network must be an ONNX model; {path} is none ({error}); export it again") from error
    if not model.opset_import:  # also an empty file, which is a legal message without content
        raise IllegalProblem(
            f"a network must be an ONNX model; {path} names no operator set; download or export it again"
        )
    network = network_of(model)
    if not network.nodes:
        raise IllegalProblem(
            f"a network must have a node among {', '.join(MATRIX_OPERATORS)} outside control flow; {path} has none; "
            "give another network"
        )
    return network


def network_of(model: Any) -> Network:
    """The network of a loaded ONNX model."""
    onnx = optional_package("onnx")
    graph = model.graph
    _name_nodes(graph)
    constants = {item.name: onnx.numpy_helper.to_array(item) for item in graph.initializer}
    return Network(
        nodes=tuple(onnx_node(node) for node in graph.node if node.op_type in MATRIX_OPERATORS),
        inputs=tuple(_network_input(item) for item in graph.input if item.name not in constants),
        nested=sum(_count_nested(node) for node in graph.node),
        constants=constants,
        model=model,
    )


def onnx_node(node: Any) -> OnnxNode:
    """The plain record of an ONNX NodeProto."""
    onnx = optional_package("onnx")
    attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    return OnnxNode(node.name, node.op_type, attributes, tuple(node.input), node.output[0])


def observe(network: Network, feeds: Mapping[str, NDArray[Any]]) -> Observation:
    """Runs the network in ONNX Runtime on these inputs; without graph optimisations, so that nodes stay whole.

    IllegalProblem if ONNX Runtime refuses the network or the inputs.
    """
    runtime = optional_package("onnxruntime")
    names = _tensors_to_expose(network, feeds)
    try:
        found, seconds = _run_network(runtime, network, feeds, names)
    except Exception as error:
        if not type(error).__module__.startswith("onnxruntime"):  # its exceptions share no base class of their own
            raise
        raise IllegalProblem(
            f"ONNX Runtime must be able to run the network; it says: {error}; correct the network or its input"
        ) from error
    return Observation({**network.constants, **feeds, **dict(zip(names, found, strict=True))}, seconds)


def _run_network(
    runtime: Any, network: Network, feeds: Mapping[str, NDArray[Any]], names: list[str]
) -> tuple[list[NDArray[Any]], dict[str, float]]:
    """The named tensors, and median seconds per node."""
    with tempfile.TemporaryDirectory() as folder:
        options = runtime.SessionOptions()
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        options.log_severity_level = 3
        session = runtime.InferenceSession(
            _with_outputs(network.model, names).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        found = session.run(names, dict(feeds))
        for _ in range(PROFILED_RUNS):
            session.run([names[-1]] if names else None, dict(feeds))
        return found, _read_profile(Path(session.end_profiling()))


def run_node(node: Any, inputs: Mapping[str, NDArray[Any]], opset: Any) -> NDArray[Any]:
    """ONNX Runtime's output of a single NodeProto on these inputs; `opset` is the model's `opset_import`."""
    onnx, runtime = optional_package("onnx"), optional_package("onnxruntime")
    declared = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    graph = onnx.helper.make_graph([node], "node", declared, [onnx.ValueInfoProto(name=node.output[0])])
    model = onnx.helper.make_model(graph, opset_imports=list(opset), ir_version=8)
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(inputs))[0]


def _name_nodes(graph: Any) -> None:
    """Gives every node a unique name, so that times can be told apart."""
    taken: set[str] = set()
    for position, node in enumerate(graph.node):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}.{position}"
        taken.add(node.name)


def _network_input(item: Any) -> NetworkInput:
    onnx = optional_package("onnx")
    tensor = item.type.tensor_type
    sizes = tuple(
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None for dim in tensor.shape.dim
    )
    return NetworkInput(item.name, sizes, np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)))


def _count_nested(node: Any) -> int:
    graphs = [item.g for item in node.attribute if item.HasField("g")]
    inner = [child for graph in graphs for child in graph.node]
    return sum((child.op_type in MATRIX_OPERATORS) + _count_nested(child) for child in inner)


def _tensors_to_expose(network: Network, feeds: Mapping[str, NDArray[Any]]) -> list[str]:
    """Names of all computed tensors around the nodes, in the order of the graph, each once."""
    around = dict.fromkeys(name for node in network.nodes for name in (*node.inputs, node.output) if name)
    return [name for name in around if name not in network.constants and name not in feeds]


def _with_outputs(model: Any, names: list[str]) -> Any:
    onnx = optional_package("onnx")
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    present = {item.name for item in copy.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in present)
    return copy


def _read_profile(path: Path) -> dict[str, float]:
    """Median seconds per node over the runs of a profile, the first run (allocations) left out."""
    times: dict[str, list[float]] = {}
    suffix = "_kernel_time"
    for event in json.loads(path.read_text()):
        if event.get("cat") == "Node" and event["name"].endswith(suffix):
            times.setdefault(event["name"].removesuffix(suffix), []).append(event["dur"] * 1e-6)
    return {name: statistics.median(runs[1:] or runs) for name, runs in times.items()}
