"""Tensors on NVIDIA GPUs: streams, graphs, several devices, alignment, and the frameworks that own the memory."""

import threading

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs an NVIDIA GPU that PyTorch sees", allow_module_level=True)

import convloom
from convloom import TensorSpec, dim
from convloom.dtypes import F16, F32
from convloom.errors import IllegalProblem
from convloom.problem.layout import dense

pytestmark = [pytest.mark.cuda, pytest.mark.torch]
second_gpu = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
SLEEP = 200_000_000  # clock cycles, about a tenth of a second


def integers(*shape, dtype=torch.float32, seed=0, device="cuda:0"):
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def exact(operation, *tensors, **arguments):
    return operation(*[tensor.double() for tensor in tensors], **arguments)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last], ids=str)
def test_operations(dtype, order):
    x = integers(2, 16, 9, 8, dtype=dtype).to(memory_format=order)
    w = integers(8, 8, 3, 3, dtype=dtype, seed=1).to(memory_format=order)
    window = {"stride": 2, "padding": 1, "groups": 2}
    y = convloom.conv(x, w, **window)
    assert y.device == x.device
    assert y.is_contiguous(memory_format=order)
    assert torch.equal(y.double(), exact(torch.nn.functional.conv2d, x, w, **window))
    grad = integers(*y.shape, dtype=dtype, seed=2)
    by_input = torch.nn.grad.conv2d_input(x.shape, w.double(), grad.double(), **window)
    assert torch.equal(convloom.conv_input_grad(x.shape, w, grad, **window).double(), by_input)
    by_weight = torch.nn.grad.conv2d_weight(x.double(), w.shape, grad.double(), **window).to(dtype)
    assert torch.equal(convloom.conv_weight_grad(x, w.shape, grad, **window), by_weight)


def test_products_with_every_option():
    a, b = integers(3, 20, 40), integers(30, 40, seed=1).T
    bias, old = integers(30, seed=2), integers(3, 20, 30, seed=3)
    out = old.clone()
    assert convloom.gemm(a, b, bias, out=out, alpha=2, beta=-1) is out
    assert torch.equal(out.double(), 2 * (a.double() @ b.double()) - old + bias)


@pytest.mark.parametrize("offset", [0, 1, 2, 4])
def test_pointers_of_any_alignment(offset):
    """The preferred variant moves 16 bytes at a time; other pointers get the general one."""
    m, n, k = dim("m", divisible=8), dim("n", divisible=8), dim("k", divisible=8)
    specs = (TensorSpec(F16, dense(shape)) for shape in ((m, k), (k, n), (m, n)))
    kernel = convloom.compile(convloom.Gemm((), m, n, k, *specs), "cuda")
    a = integers(64 * 64 + offset, dtype=torch.float16)[offset:].view(64, 64)
    b = integers(64, 64, dtype=torch.float16, seed=1)
    assert torch.equal(kernel(a, b).double(), (a.double() @ b.double()).half().double())
    conditions = " ".join(item.condition for item in kernel.requirements)
    if "address" in conditions and offset:
        assert [variant.label for variant in kernel.variants] == ["preferred", "general"]
        given = convloom.compile(kernel.problem, "cuda", plan=kernel.plan)
        with pytest.raises(IllegalProblem, match="_address % "):
            given(a, b)


def test_the_current_stream_is_used():
    """pytorch/pytorch#2702, NVIDIA/cutlass#214: all work on a side stream while the default stream is busy."""
    w = integers(16, 16, 3, 3, seed=1)
    source = integers(4, 16, 32, 32)
    expected = torch.nn.functional.conv2d(source.double(), w.double(), padding=1).float() + 1
    convloom.conv(source, w, padding=1)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    for _ in range(20):
        torch.cuda._sleep(SLEEP // 20)  # on the default stream
        with torch.cuda.stream(stream):
            x = torch.zeros_like(source)
            torch.cuda._sleep(SLEEP // 20)
            x.copy_(source)
            y = convloom.conv(x, w, padding=1) + 1
        assert not stream.query(), "the call must return before its work is done"
        stream.synchronize()
        assert torch.equal(y, expected)
    torch.cuda.synchronize()


def test_a_stream_given_by_handle():
    stream = torch.cuda.Stream()
    a, b = integers(32, 32), integers(32, 32, seed=1)
    out = convloom.gemm(a, b)
    torch.cuda.synchronize()
    out.zero_()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(SLEEP)
    convloom.gemm(a, b, out=out, stream=stream.cuda_stream)
    assert not stream.query()
    stream.synchronize()
    assert torch.equal(out.double(), a.double() @ b.double())


def captured(device):
    with torch.cuda.device(device):
        x, w = integers(2, 4, 50, device=device), integers(6, 4, 3, seed=1, device=device)
        out = torch.zeros(2, 6, 48, device=device)
        convloom.conv(x, w, out=out)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.Stream(device)):  # the default one belongs to the first GPU
            convloom.conv(x, w, out=out)
        x.copy_(integers(2, 4, 50, seed=5, device=device))
        graph.replay()
        torch.cuda.synchronize(device)
        return torch.equal(out.double(), exact(torch.nn.functional.conv1d, x, w))


def test_capture_in_a_graph():
    assert captured("cuda:0")


@second_gpu
def test_capture_on_the_second_gpu():
    """mstar-project/mstar#55."""
    assert captured("cuda:1")


@second_gpu
def test_tensors_of_another_gpu_than_the_current_one():
    torch.cuda.set_device(0)
    x, w = integers(2, 4, 9, 9, device="cuda:1"), integers(6, 4, 3, 3, seed=1, device="cuda:1")
    y = convloom.conv(x, w)
    assert y.device == torch.device("cuda:1")
    assert torch.equal(y.double(), exact(torch.nn.functional.conv2d, x, w))
    assert torch.cuda.current_device() == 0
    with pytest.raises(IllegalProblem, match="x lies on cuda:1, w on cuda:0"):
        convloom.conv(x, w.to("cuda:0"))


def test_tensors_on_host_and_gpu():
    with pytest.raises(IllegalProblem, match="a lies on cuda:0, b on cpu"):
        convloom.gemm(integers(3, 4), integers(4, 5, device="cpu"))
    with pytest.raises(IllegalProblem, match="device='cpu' and a on cuda:0"):
        convloom.gemm(integers(3, 4), integers(4, 5), device="cpu")


def test_one_kernel_on_two_streams_from_two_threads():
    """uxlfoundation/oneDNN#199: made in one thread, executed in others, on their streams and tensors."""
    kernel = convloom.compile(convloom.Gemm((), 64, 64, 64, *[TensorSpec(F32, dense((64, 64)))] * 3), "cuda")
    wrong = []

    def work(seed):
        with torch.cuda.stream(torch.cuda.Stream()):
            a, b = integers(64, 64, seed=seed), integers(64, 64, seed=seed + 9)
            torch.cuda.current_stream().synchronize()
            for _ in range(200):
                result = kernel(a, b)
            torch.cuda.current_stream().synchronize()
            wrong.extend([] if torch.equal(result.double(), a.double() @ b.double()) else [seed])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_empty_results_launch_nothing():
    assert convloom.conv(torch.empty(0, 3, 5, 5, device="cuda"), torch.empty(2, 3, 3, 3, device="cuda")).shape[0] == 0
    a, b = torch.empty(2, 0, device="cuda"), torch.empty(0, 3, device="cuda")
    assert torch.equal(convloom.gemm(a, b), torch.zeros(2, 3, device="cuda"))


class Producer:
    """Nothing but the DLPack protocol over a tensor, with the stream that it works on."""

    def __init__(self, tensor, stream=None):
        self.tensor = tensor
        self.streams = []
        if stream is not None:
            self.__cuda_array_interface__ = {"stream": stream.cuda_stream}

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, stream=None, **more):
        self.streams.append(stream)
        return self.tensor.__dlpack__(stream=stream)


def test_other_producers_are_asked_not_to_wait():
    a, b, out = integers(16, 16), integers(16, 16, seed=1), torch.zeros(16, 16, device="cuda")
    stream = torch.cuda.Stream()
    producer = Producer(a, stream)
    convloom.gemm(producer, Producer(b), out=Producer(out))
    torch.cuda.synchronize()
    out.zero_()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(SLEEP)
    convloom.gemm(producer, Producer(b), out=Producer(out))
    assert not stream.query()
    torch.cuda.synchronize()
    assert torch.equal(out, a @ b)
    assert set(producer.streams) == {-1}
    with pytest.raises(IllegalProblem, match="pass out="):
        convloom.gemm(producer, Producer(b))


def test_cupy_arrays():
    cupy = pytest.importorskip("cupy")
    a, b = cupy.arange(1200, dtype=cupy.float32).reshape(30, 40) % 7, cupy.ones((40, 50), cupy.float32)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        a, b = a.copy(), b.copy()
        result = convloom.gemm(a[:, ::-1], b)
        stream.synchronize()
    assert isinstance(result, cupy.ndarray)
    assert bool((result == a[:, ::-1] @ b).all())
