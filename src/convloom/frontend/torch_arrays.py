"""PyTorch tensors: recognised without importing PyTorch, read through its own fast accessors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from functools import cache, partial
from operator import methodcaller
from typing import Any

from convloom.dtypes import BF16, E4M3, E5M2, F16, F32, F64, S8, S32, U8, DType
from convloom.errors import IllegalProblem, IllegalType
from convloom.frontend.tensor import Tensor, check_alignment

_NAMES = {
    F64: "float64",
    F32: "float32",
    F16: "float16",
    BF16: "bfloat16",
    E4M3: "float8_e4m3fn",
    E5M2: "float8_e5m2",
    S32: "int32",
    S8: "int8",
    U8: "uint8",
}


def _torch() -> Any:
    return sys.modules["torch"]


@cache
def _dtypes() -> dict[Any, DType]:
    """Types by PyTorch's own; versions before 2.1 lack the 8-bit floats."""
    torch = _torch()
    return {getattr(torch, name): dtype for dtype, name in _NAMES.items() if hasattr(torch, name)}


@cache
def _device_name(kind: str, index: int | None) -> str:
    return kind if index is None or kind == "cpu" else f"{kind}:{index}"


def adapt(name: str, tensor: Any) -> Tensor:
    """See `arrays.adapt`. Also refused: tensors that take part in automatic differentiation, lazy views."""
    if tensor.requires_grad:
        _check_gradient(name)
    dtype = _dtypes().get(tensor.dtype)
    if dtype is None:
        raise IllegalType(
            f"elements of {name} must be one of {', '.join(_NAMES.values())}; got {tensor.dtype}; convert the tensor"
        )
    _check_plain(name, tensor)
    device = tensor.device
    address = tensor.data_ptr()
    check_alignment(name, address, dtype)
    return Tensor(address, tuple(tensor.shape), tensor.stride(), dtype, _device_name(device.type, device.index))


def _check_gradient(name: str) -> None:
    if _torch().is_grad_enabled():
        raise IllegalProblem(
            f"convloom does not record gradients yet; {name} has requires_grad=True; "
            f"pass {name}.detach() or call under torch.no_grad()"
        )


def _check_plain(name: str, tensor: Any) -> None:
    if tensor.layout is not _torch().strided:
        raise IllegalType(f"{name} must be a dense tensor; got layout {tensor.layout}; call .to_dense() first")
    if tensor.is_neg() or tensor.is_conj():
        raise IllegalProblem(f"{name} must not be a lazily negated view; got one; call .resolve_neg() first")


def signature(tensor: Any) -> Hashable:
    """See `arrays.Family`; None for tensors without strides and for those that take part in differentiation."""
    if tensor.requires_grad and _torch().is_grad_enabled():
        return None
    try:
        return tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.layout, tensor.is_neg()
    except RuntimeError:  # a sparse layout has no strides
        return None


address: Callable[[Any], int] = methodcaller("data_ptr")
"""See `arrays.Family`."""


def allocator(shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: str) -> Callable[[], Any]:
    """See `arrays.Family`."""
    torch = _torch()
    own_type, place = getattr(torch, _NAMES[dtype]), torch.device(device)
    return partial(torch.empty_strided, shape, strides, dtype=own_type, device=place)


def scratch(nbytes: int, device: str, stream: Any) -> tuple[int, Any]:
    """See `arrays.Family`; the caching allocator gives the memory to later work on the same stream only."""
    torch = _torch()
    if (stream or 0) == _raw_stream()(int(device.partition(":")[2])):
        memory = torch.empty(nbytes, dtype=torch.uint8, device=device)
    else:
        with torch.cuda.stream(torch.cuda.ExternalStream(stream or 0, device)):
            memory = torch.empty(nbytes, dtype=torch.uint8, device=device)
    return memory.data_ptr(), memory


def current_stream(tensor: Any) -> int | None:
    """The handle of the stream that PyTorch uses on the tensor's GPU in this thread; None on the host."""
    return _raw_stream()(tensor.get_device()) if tensor.is_cuda else None


@cache
def _raw_stream() -> Callable[[int], int]:
    """The handle of the current stream of a GPU by its number; PyTorch's public way makes an object first."""
    torch = _torch()
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw or (lambda index: torch.cuda.current_stream(index).cuda_stream)


def check_writable(name: str, tensor: Any) -> None:
    """PyTorch has no read-only tensors."""
