"""Weight gradients whose sums are divided among blocks, on a GPU: exact, repeatable, on any stream, in graphs."""

import pytest

import convloom
from convloom import Direction, conv_problem
from convloom.compiler import prepare
from convloom.dtypes import F16, dtype_named
from convloom.frontend.problem_check import check_problem
from convloom.plan.split import Reduction
from convloom.plan.tiled import plan_text
from convloom.problem.data import DataKind
from tests.device.gpu import needs_gpu
from tests.plan.dividing import divided

pytestmark = needs_gpu
SIZES = {"batch": 16, "in_channels": 32, "out_channels": 64, "in_spatial": (28, 28), "kernel": (3, 3), "padding": 1}


def gradient(dtypes="f16", **changes):
    return conv_problem(direction=Direction.BWD_W, dtypes=(dtype_named(dtypes),) * 3, **{**SIZES, **changes})


@pytest.mark.parametrize("dtypes", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("division", [(1, 2), (7, 1), (132, 2), (1000, 1)], ids=str)
@pytest.mark.parametrize("how", [Reduction.PASSES, Reduction.ATOMIC])
def test_every_division_is_exact(dtypes, division, how):
    problem = gradient(dtypes)
    kernel = convloom.compile(problem, "cuda")
    plan = divided(prepare(problem).contraction, kernel.target, *division, 1, how)
    assert check_problem(convloom.compile(problem, "cuda", plan_text(plan)), DataKind.INT).passed


@pytest.mark.parametrize("walk", [2, 8])
def test_walks_are_exact(walk):
    problem = conv_problem(**{**SIZES, "in_channels": 128, "out_channels": 520}, dtypes=(F16, F16, F16))
    kernel = convloom.compile(problem, "cuda")
    plan = divided(prepare(problem).contraction, kernel.target, walk=walk)
    assert check_problem(convloom.compile(problem, "cuda", plan_text(plan)), DataKind.INT).passed


# --- with PyTorch's memory ------------------------------------------------------------------------------------------


@pytest.fixture
def tensors():
    torch = pytest.importorskip("torch")
    generator = torch.Generator("cuda").manual_seed(0)
    src, dst = (
        torch.randn(shape, device="cuda", generator=generator).half() for shape in ((16, 32, 28, 28), (16, 64, 28, 28))
    )
    return torch, convloom.compile(gradient(), "cuda", deterministic=True), src, dst


@pytest.mark.torch
def test_bits_are_equal_from_call_to_call(tensors):
    torch, kernel, src, dst = tensors
    assert kernel.plan_record.split.how is Reduction.PASSES
    first = kernel(src, dst)
    assert all(torch.equal(first, kernel(src, dst)) for _ in range(20))


@pytest.mark.torch
def test_scratch_memory_comes_from_pytorch(tensors):
    torch, kernel, src, dst = tensors
    out = kernel(src, dst)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kernel(src, dst, out=out)
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() - before >= kernel.workspace_bytes() > 0


@pytest.mark.torch
def test_streams_do_not_share_scratch_memory(tensors):
    torch, kernel, src, dst = tensors
    expected = kernel(src, dst)
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    results = []
    for _ in range(10):
        results += [kernel(src, dst, out=torch.empty_like(expected), stream=stream.cuda_stream) for stream in streams]
        for stream in streams:
            with torch.cuda.stream(stream):
                results.append(kernel(src, dst, out=torch.empty_like(expected)))
    torch.cuda.synchronize()
    assert all(torch.equal(expected, found) for found in results)


@pytest.mark.torch
def test_both_launches_are_captured_in_a_graph(tensors):
    torch, kernel, src, dst = tensors
    out = kernel(src, dst)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(src, dst, out=out)
    for factor in (2, 3):
        scaled = src * factor
        expected = kernel(scaled, dst)
        src.copy_(scaled)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, expected)
