"""PyTorch tensors on a GPU through the operations: results, layouts, streams, threads, graphs, foreign arrays."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import convloom
from convloom.errors import IllegalProblem
from tests.device.gpu import needs_gpu

pytestmark = [*needs_gpu, pytest.mark.torch]
torch = pytest.importorskip("torch")
functional = torch.nn.functional

UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
TINY = {torch.float64: 0.0, torch.float32: 2.0**-150, torch.float16: 2.0**-25, torch.bfloat16: 2.0**-134}
TYPES = list(UNIT)
SLEEP_CYCLES = 100_000_000  # some 50 ms of the GPU's clock


def real(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator("cuda").manual_seed(seed)
    return (2 * torch.rand(shape, device="cuda", generator=generator) - 1).to(dtype)


def whole(*shape, dtype=torch.float32, seed=0):
    """Small integers: sums of their products are exact."""
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randint(-4, 5, shape, device="cuda", generator=generator).to(dtype)


def assert_within_bound(y, operation, first, second, length):
    """Every element within u*|ref| + eta + 2*n*u_acc*sum|x*w| of the result in double precision."""
    expected = operation(first.double(), second.double())
    sums = operation(first.double().abs(), second.double().abs())
    accumulator = UNIT[torch.float64 if y.dtype is torch.float64 else torch.float32]
    bound = UNIT[y.dtype] * expected.abs() + TINY[y.dtype] + 2 * length * accumulator * sums
    assert y.shape == expected.shape
    assert bool(((y.double() - expected).abs() <= bound).all())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("last", [False, True])
def test_convolution(dtype, last):
    x, w = real(2, 12, 19, 17, dtype=dtype), real(10, 6, 3, 3, dtype=dtype, seed=1)
    if last:
        x, w = x.to(memory_format=torch.channels_last), w.to(memory_format=torch.channels_last)
    y = convloom.conv(x, w, stride=2, padding=1, groups=2)
    assert y.dtype is dtype
    assert y.device == x.device
    assert y.is_contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
    assert_within_bound(y, lambda a, b: functional.conv2d(a, b, None, 2, 1, 1, 2), x, w, 54)


@pytest.mark.parametrize("dtype", TYPES)
def test_transposed_convolution(dtype):
    x, w = real(2, 6, 9, 8, dtype=dtype), real(6, 5, 3, 3, dtype=dtype, seed=1)
    y = convloom.conv_transpose(x, w, stride=2, padding=1, output_padding=1)
    assert_within_bound(y, lambda a, b: functional.conv_transpose2d(a, b, None, 2, 1, 1), x, w, 54)


@pytest.mark.parametrize("dtype", TYPES)
def test_gradients(dtype):
    x, w = real(2, 6, 9, 8, dtype=dtype), real(5, 6, 3, 3, dtype=dtype, seed=1)
    grad = real(2, 5, 5, 4, dtype=dtype, seed=2)
    by_input = convloom.conv_input_grad(x.shape, w, grad, stride=2, padding=1)
    assert_within_bound(
        by_input, lambda g, k: torch.nn.grad.conv2d_input(x.shape, k, g, stride=2, padding=1), grad, w, 45
    )
    by_weights = convloom.conv_weight_grad(x, w.shape, grad, stride=2, padding=1)
    assert_within_bound(
        by_weights, lambda a, g: torch.nn.grad.conv2d_weight(a, w.shape, g, stride=2, padding=1), x, grad, 40
    )


@pytest.mark.parametrize("dtype", TYPES)
def test_products(dtype):
    a, b = real(3, 65, 33, dtype=dtype), real(47, 33, dtype=dtype, seed=1).T
    assert_within_bound(convloom.gemm(a, b), torch.matmul, a, b, 33)


def test_strides_of_any_kind_and_given_results():
    big = whole(2, 16, 30, 40)
    x = big[:, ::2, 3:25, 5:38:3].expand(2, 8, 22, 11)
    w = whole(4, 8, 3, 3, seed=1).permute(0, 1, 3, 2)
    surface = torch.full((2, 4, 2, 22, 22), 7.0, device="cuda")
    out = surface[:, :, 1, :, ::2]
    assert convloom.conv(x, w, padding=1, out=out) is out
    assert torch.equal(out, functional.conv2d(x.double(), w.double(), padding=1).float())
    assert bool((surface[:, :, 0] == 7).all() and (surface[:, :, 1, :, 1::2] == 7).all())
    image = whole(1, 8, 12, 12)[:, :, :, :1].expand(1, 8, 12, 12)
    assert torch.equal(convloom.conv(image, w), functional.conv2d(image.double().contiguous(), w.double()).float())


def test_bias_alpha_and_beta():
    x, w, bias = whole(2, 8, 9, 9), whole(4, 8, 3, 3, seed=1), whole(4, seed=2)
    old = whole(2, 4, 7, 7, seed=3)
    out = old.clone()
    convloom.conv(x, w, bias, out=out, alpha=2.0, beta=-1.0)
    expected = 2 * functional.conv2d(x.double(), w.double()) - old.double() + bias.double().view(-1, 1, 1)
    assert torch.equal(out, expected.float())


def test_misaligned_tensors():
    """Views that begin at an odd element: vector accesses that the preferred plan relies on are impossible."""
    for skip in (1, 2, 3):
        flat = whole(8 * 16 * 16 + skip, dtype=torch.float16)
        x, w = flat[skip:].view(1, 8, 16, 16), whole(8, 8, 3, 3, dtype=torch.float16, seed=1)
        assert torch.equal(convloom.conv(x, w, padding=1), functional.conv2d(x.double(), w.double(), padding=1).half())


def test_one_kernel_for_many_sizes():
    n, c, h = convloom.dim("n"), convloom.dim("c"), convloom.dim("h")
    problem = convloom.conv_problem(
        batch=n, in_channels=c, out_channels=24, in_spatial=(h, 20), kernel=(3, 3), stride=2, padding=1
    )
    kernel = convloom.compile(problem, "cuda")
    for size in ((1, 1, 1), (2, 3, 5), (3, 17, 31), (1, 64, 56)):
        x, w = whole(*size, 20), whole(24, size[1], 3, 3, seed=1)
        expected = functional.conv2d(x.double(), w.double(), stride=2, padding=1).float()
        assert torch.equal(kernel(x, w), expected)


def test_tensors_on_two_devices_are_refused():
    with pytest.raises(IllegalProblem, match="device"):
        convloom.conv(whole(1, 4, 8, 8), torch.ones(4, 4, 3, 3))


def test_tensors_that_record_gradients_are_refused():
    w = whole(4, 4, 3, 3).requires_grad_()
    with pytest.raises(IllegalProblem, match=r"detach\(\)"):
        convloom.conv(whole(1, 4, 8, 8), w)
    with torch.no_grad():
        convloom.conv(whole(1, 4, 8, 8), w)


# --- streams --------------------------------------------------------------------------------------------------------


def test_the_current_stream_is_taken_at_the_call():
    """DEV-04: the input comes from a slow kernel on a side stream, the output is used on it; nothing waits."""
    w = whole(8, 8, 3, 3, seed=1)
    source = whole(2, 8, 32, 32)
    expected = functional.conv2d(source.double(), w.double(), padding=1).float()
    convloom.conv(source, w, padding=1)  # built before anything is timed
    side = torch.cuda.Stream()
    for _ in range(20):
        x = torch.zeros_like(source)
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(SLEEP_CYCLES // 10)
            x.copy_(source)
            y = convloom.conv(x, w, padding=1)
            total = y.clone()
        side.synchronize()
        assert torch.equal(total, expected)


def test_a_call_returns_at_once():
    x, w = whole(2, 8, 32, 32), whole(8, 8, 3, 3, seed=1)
    out = convloom.conv(x, w, padding=1)
    torch.cuda.synchronize()
    torch.cuda._sleep(10 * SLEEP_CYCLES)
    start = time.perf_counter()
    for _ in range(10):
        convloom.conv(x, w, padding=1, out=out)
    enqueued = time.perf_counter() - start
    torch.cuda.synchronize()
    assert enqueued < (time.perf_counter() - start) / 4


def test_a_blocked_default_stream_does_not_matter():
    """DEV-03: work on a side stream neither waits for the default stream nor uses it."""
    x, w, grad = whole(2, 8, 32, 32), whole(8, 8, 3, 3, seed=1), whole(2, 8, 30, 30, seed=2)
    expected = convloom.conv_weight_grad(x, w.shape, grad)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    torch.cuda._sleep(20 * SLEEP_CYCLES)
    with torch.cuda.stream(side):
        results = [convloom.conv_weight_grad(x, w.shape, grad) for _ in range(100)]
    side.synchronize()
    assert not torch.cuda.default_stream().query()  # still at the long kernel
    torch.cuda.synchronize()
    assert all(torch.equal(result, expected) for result in results)


def test_two_streams_back_to_back():
    """DEV-05: memory from the stream-ordered allocator, two convolutions on two streams."""
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    w = whole(8, 8, 3, 3, seed=1)
    for turn in range(20):
        results = []
        for number, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                x = whole(2, 8, 40, 40, seed=10 * turn + number)
                results.append((x, convloom.conv(x, w)))
        torch.cuda.synchronize()
        for x, y in results:
            assert torch.equal(y, functional.conv2d(x.double(), w.double()).float())


def test_an_explicit_stream():
    x, w = whole(1, 8, 16, 16), whole(8, 8, 3, 3, seed=1)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    y = convloom.conv(x, w, stream=side.cuda_stream)
    side.synchronize()
    assert torch.equal(y, functional.conv2d(x.double(), w.double()).float())


def test_a_call_can_be_captured_in_a_graph():
    """DEV-09: replays compute from the new content of the same tensors."""
    x, w = whole(1, 8, 16, 16), whole(8, 8, 3, 3, seed=1)
    out = torch.empty(1, 8, 14, 14, device="cuda")
    convloom.conv(x, w, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        convloom.conv(x, w, out=out)
    for seed in (5, 6):
        x.copy_(whole(1, 8, 16, 16, seed=seed))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, functional.conv2d(x.double(), w.double()).float())


# --- threads --------------------------------------------------------------------------------------------------------

FIRST_CALLS = """
import threading, torch, convloom
barrier, failures = threading.Barrier(16), []
def work(number):
    try:
        stream = torch.cuda.Stream()
        barrier.wait()
        with torch.cuda.stream(stream):
            for channels in (3, 4, 5, 6):
                x = torch.full((1, channels, 12, 12), float(number + 1), device="cuda")
                w = torch.ones((channels, channels, 3, 3), device="cuda")
                y = convloom.conv(x, w)
                stream.synchronize()
                assert bool((y == 9 * channels * (number + 1)).all())
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
[t.start() for t in threads]; [t.join() for t in threads]
assert not failures, failures
"""


def test_first_calls_of_many_threads(tmp_path, monkeypatch):
    """DEV-10: a fresh process without cached kernels, 16 threads, the same four new problems at once."""
    monkeypatch.setenv("CONVLOOM_CACHE_DIR", str(tmp_path))
    for _ in range(2):
        subprocess.run([sys.executable, "-c", FIRST_CALLS], check=True, timeout=120)


def test_a_kernel_made_in_one_thread_runs_in_others():
    """DEV-11: one kernel, several threads, each with its own stream and tensors."""
    w = whole(16, 16, 3, 3, seed=1)
    problem = convloom.conv_problem(batch=2, in_channels=16, out_channels=16, in_spatial=(24, 24), kernel=(3, 3))
    kernel, failures = convloom.compile(problem, "cuda"), []

    def work(number):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for turn in range(20):
                    x = whole(2, 16, 24, 24, seed=100 * number + turn)
                    y = kernel(x, w)
                    torch.cuda.current_stream().synchronize()
                    assert torch.equal(y, functional.conv2d(x.double(), w.double()).float())
        except BaseException as error:  # noqa: BLE001 - reported by the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# --- foreign arrays -------------------------------------------------------------------------------------------------


class Foreign:
    """An array of which only the DLPack protocol is known."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def test_any_dlpack_array():
    x, w = whole(1, 8, 16, 16), whole(8, 8, 3, 3, seed=1)
    out = torch.empty(1, 8, 14, 14, device="cuda")
    torch.cuda.synchronize()
    convloom.conv(Foreign(x), Foreign(w), out=Foreign(out))
    torch.cuda.synchronize()
    assert torch.equal(out, functional.conv2d(x.double(), w.double()).float())


def test_cupy_arrays():
    cupy = pytest.importorskip("cupy")
    random = np.random.default_rng(1)
    x, w = (random.integers(-4, 5, shape).astype(np.float32) for shape in ((1, 8, 16, 16), (8, 8, 3, 3)))
    y = convloom.conv(cupy.asarray(x), cupy.asarray(w))
    assert isinstance(y, cupy.ndarray)
    expected = functional.conv2d(torch.from_numpy(x).double(), torch.from_numpy(w).double()).float()
    assert np.array_equal(cupy.asnumpy(y), expected.numpy())
