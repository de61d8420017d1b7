"""Streams, several devices, threads: every call keeps to the caller's stream, and first calls may come at once."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

import convloom
from convloom import Gemm, TensorSpec
from convloom.dtypes import F32
from convloom.problem.layout import dense
from tests.cases.convolution import ConvCase, Op, integers

SLEEP = 20_000_000  # clock cycles of a GPU, about a hundredth of a second


# --- DEV-10: the same new problems in many threads at once ----------------------------------------------------------

FIRST_CALLS = """
import threading, numpy as np, convloom
from convloom import conv_problem
random = np.random.default_rng(10)
x = random.integers(-4, 5, (2, 6, 9, 8)).astype(np.float32)
w = random.integers(-4, 5, (4, 6, 3, 3)).astype(np.float32)
windows = ({}, {"padding": 1}, {"stride": 2}, {"dilation": 2})
barrier = threading.Barrier(16)
results, kernels, errors = [[] for _ in windows], [set() for _ in windows], []

def problem(window):
    return conv_problem(batch=2, in_channels=6, out_channels=4, in_spatial=(9, 8), kernel=(3, 3), **window)

def work(turn):
    try:
        barrier.wait()
        for step in range(4):
            place = (turn + step) % 4
            results[place].append(convloom.conv(x, w, **windows[place]))
            kernels[place].add(convloom.compile(problem(windows[place])))
    except BaseException as error:
        errors.append(error)
        raise

threads = [threading.Thread(target=work, args=(turn,)) for turn in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert errors == []
for place, window in enumerate(windows):
    assert len(results[place]) == 16
    assert len(kernels[place]) == 1
    pad, step, gap = window.get("padding", 0), window.get("stride", 1), window.get("dilation", 1)
    wide = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    rows, columns = results[place][0].shape[2:]
    expected = sum(
        np.einsum("kc,nchw->nkhw", w[:, :, i, j],
                  wide[:, :, i * gap :: step, j * gap :: step][:, :, :rows, :columns])
        for i in range(3) for j in range(3)
    )
    assert all(np.array_equal(result, expected) for result in results[place])
"""


@pytest.mark.parametrize("case", ["DEV-10"])
def test_first_calls_of_many_threads_and_processes(case, tmp_path):
    """Two processes of 16 threads share an empty cache, then two more a full one."""
    environment = {**os.environ, "CONVLOOM_CACHE_DIR": str(tmp_path / "cache")}
    for _ in range(2):
        running = [
            subprocess.Popen(
                [sys.executable, "-c", FIRST_CALLS], env=environment, cwd=Path(__file__).parents[2],
                stderr=subprocess.PIPE, text=True,
            )
            for _ in range(2)
        ]  # fmt: skip
        for process in running:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors


# --- DEV-11: made in one thread, run in others ----------------------------------------------------------------------


@pytest.mark.parametrize("case", ["DEV-11"])
def test_a_kernel_made_in_one_thread_runs_in_others_at_once(case):
    made = ConvCase("DEV-11", Op.CONV, 2, 16, 24, (17, 19), (3, 3), (17, 19), padding=1)
    with ThreadPoolExecutor(1) as maker:
        kernel = maker.submit(lambda: convloom.compile(made.problem())).result()
    together = Barrier(3)

    def work(seed):
        x, w = integers((2, 16, 17, 19), seed=seed), integers((24, 16, 3, 3), seed=seed + 50)
        expected = convloom.conv(x, w, padding=1)
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        corner = np.einsum("ncij,kcij->nk", padded[:, :, :3, :3], w)
        assert np.array_equal(expected[:, :, 0, 0], corner)
        together.wait()
        return all(np.array_equal(kernel(x, w), expected) for _ in range(100))

    with ThreadPoolExecutor(3) as runners:
        assert list(runners.map(work, range(3))) == [True, True, True]


# --- streams of a GPU -----------------------------------------------------------------------------------------------


@pytest.fixture
def torch():
    """PyTorch with a GPU; tests/frontend has more of its streams."""
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU that PyTorch sees")
    return found


def on_gpu(torch, values):
    return torch.from_numpy(values).cuda()


@pytest.mark.cuda
@pytest.mark.torch
@pytest.mark.parametrize("case", ["DEV-03"])
def test_a_blocked_default_stream_does_not_matter(case, torch):
    """100 products and gradients on a side stream are right while the default stream still waits."""
    a, b = on_gpu(torch, integers((64, 4096))), on_gpu(torch, integers((4096, 32), seed=1))
    dy, w = on_gpu(torch, integers((2, 16, 8, 8))), on_gpu(torch, integers((16, 4, 3, 3), seed=1))
    convloom.gemm(a, b), convloom.conv_input_grad((2, 4, 17, 17), w, dy, stride=2)
    gradient = torch.nn.grad.conv2d_input((2, 4, 17, 17), w.double(), dy.double(), stride=2)
    product = a.double() @ b.double()
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    torch.cuda._sleep(100 * SLEEP)
    with torch.cuda.stream(side):
        results = [(convloom.gemm(a, b), convloom.conv_input_grad((2, 4, 17, 17), w, dy, stride=2)) for _ in range(100)]
    side.synchronize()
    assert not torch.cuda.default_stream().query(), "the side stream must not have waited"
    with torch.cuda.stream(side):
        right = [torch.equal(c.double(), product) and torch.equal(dx.double(), gradient) for c, dx in results]
    torch.cuda.synchronize()
    assert all(right)


@pytest.mark.cuda
@pytest.mark.torch
@pytest.mark.parametrize("case", ["DEV-04"])
def test_a_call_waits_for_the_producer_of_its_stream(case, torch):
    source, w = on_gpu(torch, integers((4, 16, 32, 32))), on_gpu(torch, integers((16, 16, 3, 3), seed=1))
    expected = convloom.conv(source, w, padding=1).clone() + 1
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        x = torch.zeros_like(source)
        torch.cuda._sleep(10 * SLEEP)
        x.copy_(source)
        y = convloom.conv(x, w, padding=1) + 1
    assert not side.query(), "the call must return before its work is done"
    side.synchronize()
    assert torch.equal(y, expected)


@pytest.mark.cuda
@pytest.mark.torch
@pytest.mark.parametrize("case", ["DEV-05"])
def test_two_streams_back_to_back_do_not_share_memory(case, torch):
    """Results are allocated in the order of their stream, freed ones too."""
    w = on_gpu(torch, integers((16, 16, 3, 3), seed=1))
    inputs = [on_gpu(torch, integers((4, 16, 64, 64), seed=seed)) for seed in (2, 3)]
    expected = [convloom.conv(x, w, padding=1).clone() for x in inputs]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    for _ in range(50):
        results = []
        for stream, x in zip(streams, inputs, strict=True):
            with torch.cuda.stream(stream):
                convloom.conv(x, w, padding=1)  # freed at once
                results.append(convloom.conv(x, w, padding=1))
        torch.cuda.synchronize()
        assert all(torch.equal(result, right) for result, right in zip(results, expected, strict=True))


@pytest.mark.cuda
@pytest.mark.torch
@pytest.mark.parametrize("case", ["DEV-09"])
def test_capture_on_another_device_than_the_current_one(case, torch):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    torch.cuda.set_device(0)
    x = torch.from_numpy(integers((2, 4, 50))).to("cuda:1")
    w = torch.from_numpy(integers((6, 4, 3), seed=1)).to("cuda:1")
    out = torch.zeros(2, 6, 48, device="cuda:1")
    convloom.conv(x, w, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream("cuda:1")):
        convloom.conv(x, w, out=out)
    x.copy_(torch.from_numpy(integers((2, 4, 50), seed=5)))
    graph.replay()
    torch.cuda.synchronize("cuda:1")
    assert torch.equal(out.double(), torch.nn.functional.conv1d(x.double(), w.double()))


@pytest.mark.parametrize("case", ["DEV-04-processor"])
def test_the_processor_has_no_streams(case):
    specs = [TensorSpec(F32, dense((4, 4)))] * 3
    with pytest.raises(ValueError, match="no streams"):
        convloom.compile(Gemm((), 4, 4, 4, *specs))(np.eye(4, dtype=F32.numpy), np.eye(4, dtype=F32.numpy), stream=7)
