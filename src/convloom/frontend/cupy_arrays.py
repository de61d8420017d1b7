"""CuPy arrays: recognised without importing CuPy."""

from __future__ import annotations

import sys
from typing import Any

from convloom.dtypes import DType, dtype_of_numpy
from convloom.errors import IllegalType
from convloom.frontend.tensor import Tensor, check_alignment, whole_strides


def _cupy() -> Any:
    return sys.modules["cupy"]


def adapt(name: str, array: Any) -> Tensor:
    """See `arrays.adapt`."""
    try:
        dtype = dtype_of_numpy(array.dtype)
    except IllegalType as error:
        raise IllegalType(f"{name}: {error}") from None
    address = int(array.data.ptr)
    check_alignment(name, address, dtype)
    strides = whole_strides(name, array.strides, dtype.nbytes)
    return Tensor(address, array.shape, strides, dtype, f"cuda:{array.device.id}")


def allocate(shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: str) -> Any:
    """See `arrays.Family`; from CuPy's own pool."""
    cupy = _cupy()
    extent = 1 + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    with cupy.cuda.Device(int(device.partition(":")[2])):
        memory = cupy.cuda.alloc((0 if 0 in shape else extent) * dtype.nbytes)
        return cupy.ndarray(shape, dtype.numpy, memory, [stride * dtype.nbytes for stride in strides])


def scratch(nbytes: int, device: str, stream: Any) -> tuple[int, Any]:
    """See `arrays.Family`; CuPy's pool keeps memory apart by stream."""
    cupy = _cupy()
    queue = cupy.cuda.ExternalStream(stream) if stream else cupy.cuda.Stream.null
    with cupy.cuda.Device(int(device.partition(":")[2])), queue:
        memory = cupy.cuda.alloc(nbytes)
    return int(memory.ptr), memory


def current_stream(array: Any) -> int | None:
    """The handle of the stream that CuPy uses on the array's GPU in this thread."""
    with array.device:
        return _cupy().cuda.get_current_stream().ptr


def check_writable(name: str, array: Any) -> None:
    """CuPy has no read-only arrays."""
