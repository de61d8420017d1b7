"""PyTorch tensors on the host: values against torch itself, layouts, refusals; runs where PyTorch is installed."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import convloom
from convloom.dtypes import BF16
from convloom.errors import IllegalProblem, IllegalType, UnsupportedTarget
from convloom.frontend.arrays import adapt

pytestmark = pytest.mark.torch


def integers(*shape, dtype=torch.float32, seed=0):
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


FUNCTIONS = {
    1: (torch.nn.functional.conv1d, torch.nn.functional.conv_transpose1d),
    2: (torch.nn.functional.conv2d, torch.nn.functional.conv_transpose2d),
    3: (torch.nn.functional.conv3d, torch.nn.functional.conv_transpose3d),
}


@pytest.mark.parametrize("rank", FUNCTIONS)
def test_the_same_arguments_as_torch(rank):
    x, w = integers(2, 4, *(6,) * rank), integers(6, 2, *(3,) * rank, seed=1)
    bias = integers(6, seed=2)
    arguments = (bias, 2, 1, 1, 2)
    result = convloom.conv(x, w, *arguments)
    assert isinstance(result, torch.Tensor)
    assert torch.equal(result, FUNCTIONS[rank][0](x, w, *arguments))
    x, w = integers(2, 6, *(6,) * rank), integers(6, 2, *(3,) * rank, seed=1)
    arguments = (integers(4, seed=2), 3, 1, 2, 2, 2)
    assert torch.equal(convloom.conv_transpose(x, w, *arguments), FUNCTIONS[rank][1](x, w, *arguments))


def test_gradients():
    x, w = integers(2, 4, 7, 6), integers(6, 2, 3, 2, seed=1)
    window = {"stride": 2, "padding": 1, "groups": 2}
    grad = integers(*convloom.conv(x, w, **window).shape, seed=2)
    by_input = torch.nn.grad.conv2d_input(x.shape, w, grad, **window)
    assert torch.equal(convloom.conv_input_grad(x.shape, w, grad, **window), by_input)
    by_weight = torch.nn.grad.conv2d_weight(x, w.shape, grad, **window)
    assert torch.equal(convloom.conv_weight_grad(x, w.shape, grad, **window), by_weight)


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_named_paddings(padding):
    x, w = integers(1, 2, 9, 9), integers(3, 2, 2, 4, seed=1)
    ours = convloom.conv(x, w, padding=padding, dilation=2)
    assert torch.equal(ours, torch.nn.functional.conv2d(x, w, padding=padding, dilation=2))


def test_products():
    a, b = integers(3, 1, 4, 5), integers(2, 6, 5, seed=1).mT
    assert torch.equal(convloom.gemm(a, b), a @ b)


def test_channels_last_stays_channels_last():
    x = integers(2, 4, 7, 6).to(memory_format=torch.channels_last)
    result = convloom.conv(x, integers(6, 4, 3, 3, seed=1))
    assert result.is_contiguous(memory_format=torch.channels_last)


def test_out_and_types():
    x, w = integers(2, 4, 7, 6, dtype=torch.bfloat16), integers(6, 4, 3, 3, dtype=torch.bfloat16, seed=1)
    assert adapt("x", x).dtype is BF16
    out = torch.empty(2, 6, 5, 4)
    assert convloom.conv(x, w, out=out) is out
    assert torch.equal(out, torch.nn.functional.conv2d(x.float(), w.float()))
    assert convloom.conv(x, w).dtype is torch.bfloat16
    with pytest.raises(IllegalType, match="int64"):
        convloom.conv(x.long(), w)


def test_tensors_and_arrays_together():
    x, w = integers(2, 4, 7, 6), integers(6, 4, 3, 3, seed=1)
    assert torch.equal(convloom.conv(x, w.numpy()), torch.nn.functional.conv2d(x, w))
    assert isinstance(convloom.conv(x.numpy(), w), np.ndarray)


def test_tensors_that_need_gradients():
    x, w = integers(2, 4, 7, 6), integers(6, 4, 3, 3, seed=1).requires_grad_()
    with pytest.raises(
        IllegalProblem, match=r"w has requires_grad=True; pass w.detach\(\) or call under torch.no_grad"
    ):
        convloom.conv(x, w)
    expected = torch.nn.functional.conv2d(x, w.detach())
    assert torch.equal(convloom.conv(x, w.detach()), expected)
    with torch.no_grad():
        assert torch.equal(convloom.conv(x, torch.nn.Parameter(w)), expected)


def test_lazy_and_sparse_tensors():
    a = integers(3, 3)
    negated = torch.complex(torch.zeros(3, 3), a).conj().imag
    assert negated.is_neg()
    with pytest.raises(IllegalProblem, match="resolve_neg"):
        convloom.gemm(negated, a)
    with pytest.raises(IllegalType, match="to_dense"):
        convloom.gemm(a.to_sparse(), a)


def test_devices_without_memory():
    with pytest.raises(IllegalProblem, match="a lies on meta, b on cpu"):
        convloom.gemm(torch.empty(3, 4, device="meta"), integers(4, 5))
    with pytest.raises(UnsupportedTarget, match="meta"):
        convloom.gemm(torch.empty(3, 4, device="meta"), torch.empty(4, 5, device="meta"))


def test_empty_tensors():
    assert convloom.conv(torch.empty(0, 3, 5, 5), torch.empty(2, 3, 3, 3)).shape == (0, 2, 3, 3)
    assert torch.equal(convloom.gemm(torch.empty(2, 0), torch.empty(0, 3)), torch.zeros(2, 3))
