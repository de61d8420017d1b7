"""One adapter from any array to what a kernel needs: address, shape, strides, element type, device."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from convloom.dtypes import DType, dtype_of_numpy
from convloom.errors import IllegalProblem, IllegalType, OutOfMemory
from convloom.frontend import cupy_arrays, dlpack, opencl_arrays, torch_arrays
from convloom.frontend.tensor import Tensor, check_alignment, whole_strides


class Family(NamedTuple):
    """What convloom knows of one kind of arrays.

    `adapt(name, array)` describes an array; `allocator(shape, strides, dtype, device)` gives what makes one of
    non-negative element strides without gaps beyond them, as often as it is called; `stream(array)` is the queue in
    which the array's framework works at the moment. `signature(array)` is all that `adapt` and its callers look at but
    the address, None for arrays to be refused; `address(array)` is the place of its first element.
    """

    adapt: Callable[[str, Any], Tensor]
    allocator: Callable[[tuple[int, ...], tuple[int, ...], DType, str], Callable[[], Any]]
    stream: Callable[[Any], Any]
    check_writable: Callable[[str, Any], None]
    scratch: Callable[[int, str, Any], tuple[int, Any]] | None = None
    signature: Callable[[Any], Hashable] | None = None
    address: Callable[[Any], int] | None = None


# --- NumPy ----------------------------------------------------------------------------------------------------------


def _data_pointer() -> Callable[[Any], int]:
    """How to read the address of an array's first element.

    `array.ctypes.data` costs more than all else in a call. NumPy's binary interface fixes the place of the pointer:
    right behind the object's header (extension modules read it in the same way, PyArray_DATA is a macro). Where that is
    not so, the slow way is taken.
    """
    offset, read = object.__basicsize__, ctypes.c_void_p.from_address

    def fast(array: Any) -> int:
        return read(id(array) + offset).value or 0

    def slow(array: Any) -> int:
        return array.ctypes.data

    sample = np.arange(6).reshape(2, 3)[:, ::-1]
    return fast if sys.implementation.name == "cpython" and fast(sample) == slow(sample) else slow


_address = _data_pointer()
_MOST_KNOWN = 4096
_known: dict[tuple[np.dtype[Any], tuple[int, ...]], tuple[DType, int, tuple[int, ...]]] = {}


def _adapt_numpy(name: str, array: NDArray[Any]) -> Tensor:
    key = array.dtype, array.strides
    dtype, size, strides = _known.get(key) or _learn(name, key)
    address = _address(array)
    if address % size:
        check_alignment(name, address, dtype)
    return Tensor(address, array.shape, strides, dtype, "cpu")


def _learn(name: str, key: tuple[np.dtype[Any], tuple[int, ...]]) -> tuple[DType, int, tuple[int, ...]]:
    """Element type, element size and element strides of arrays not met before."""
    found, strides = key
    if not found.isnative:
        raise IllegalType(
            f"{name} must be in the byte order of this machine; got {found.str}; "
            f"convert it by {name}.astype({name}.dtype.newbyteorder('='))"
        )
    try:
        dtype = dtype_of_numpy(found)
    except IllegalType as error:
        raise IllegalType(f"{name}: {error}") from None
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    known = _known[key] = dtype, dtype.nbytes, whole_strides(name, strides, dtype.nbytes)
    return known


def _allocate_numpy(shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: str) -> NDArray[Any]:
    extent = 1 + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    try:
        storage = np.empty(0 if 0 in shape else extent, dtype.numpy)
    except (MemoryError, ValueError):  # ValueError: more bytes than NumPy counts
        raise OutOfMemory(
            f"a result must fit the memory; got shape {shape} of {dtype}, {extent * dtype.nbytes} bytes; "
            "compute smaller parts, or pass out="
        ) from None
    return np.ndarray(shape, dtype.numpy, storage, 0, [stride * dtype.nbytes for stride in strides])


def _check_numpy_writable(name: str, array: NDArray[Any]) -> None:
    if not array.flags.writeable:
        raise IllegalProblem(f"{name} must be writable; got a read-only array; pass a copy of it")


def _no_stream(array: Any) -> None:
    return None


def _numpy_signature(array: NDArray[Any]) -> Hashable:
    return array.dtype, array.shape, array.strides


NUMPY = Family(
    _adapt_numpy,
    partial(partial, _allocate_numpy),
    _no_stream,
    _check_numpy_writable,
    signature=_numpy_signature,
    address=_address,
)


# --- anything that speaks DLPack ------------------------------------------------------------------------------------


def _adapt_dlpack(name: str, array: Any) -> Tensor:
    found = dlpack.describe(name, array)
    check_alignment(name, found.address, found.dtype)
    return Tensor(found.address, found.shape, found.strides, found.dtype, found.device, found.capsule)


def _allocate_dlpack(shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: str) -> Any:
    if device == "cpu":
        return _allocate_numpy(shape, strides, dtype, device)
    raise IllegalProblem(
        f"convloom allocates results for NumPy, PyTorch and CuPy; the operands lie on {device} and are of another "
        "kind; pass out="
    )


def _dlpack_stream(array: Any) -> Any:
    """The stream that the producer declares; None (the legacy default stream) if it declares none or is on the host."""
    interface = getattr(array, "__cuda_array_interface__", None)
    return None if interface is None else interface.get("stream")


def _check_dlpack_writable(name: str, array: Any) -> None:
    if dlpack.describe(name, array).read_only:
        raise IllegalProblem(f"{name} must be writable; its producer exports it read-only; pass a copy of it")


DLPACK = Family(_adapt_dlpack, partial(partial, _allocate_dlpack), _dlpack_stream, _check_dlpack_writable)

TORCH = Family(
    torch_arrays.adapt,
    torch_arrays.allocator,
    torch_arrays.current_stream,
    torch_arrays.check_writable,
    torch_arrays.scratch,
    torch_arrays.signature,
    torch_arrays.address,
)
CUPY = Family(
    cupy_arrays.adapt,
    partial(partial, cupy_arrays.allocate),
    cupy_arrays.current_stream,
    cupy_arrays.check_writable,
    cupy_arrays.scratch,
)
OPENCL = Family(
    opencl_arrays.adapt,
    partial(partial, opencl_arrays.allocate),
    opencl_arrays.current_stream,
    opencl_arrays.check_writable,
)

# Frameworks are recognised only if somebody else has imported them: no import costs, no dependency.
_FRAMEWORKS = (("torch", "Tensor", TORCH), ("cupy", "ndarray", CUPY), ("pyopencl.array", "Array", OPENCL))
families: dict[type, Family] = {np.ndarray: NUMPY}
"""By the types of arrays met so far."""


def family_of(name: str, array: Any) -> Family:
    """How to deal with arrays of this type; IllegalType for what is no array."""
    kind = type(array)  # pyright: ignore[reportUnknownVariableType]
    found = families.get(kind)  # pyright: ignore[reportUnknownArgumentType]
    if found is None:
        found = families[kind] = _recognised(name, array)
    return found


def _recognised(name: str, array: Any) -> Family:
    if isinstance(array, np.ma.MaskedArray):
        raise IllegalType(f"{name} must be an array without a mask; got a masked array; fill it first")
    if isinstance(array, np.ndarray):
        return NUMPY
    for module, kind, family in _FRAMEWORKS:
        owner = sys.modules.get(module)
        if owner is not None and isinstance(array, getattr(owner, kind)):
            return family
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return DLPACK
    raise IllegalType(
        f"{name} must be a NumPy array, a PyTorch tensor or another DLPack array; got {type(array).__name__}; "
        "convert it, for example with numpy.asarray"
    )


def adapt(name: str, array: Any) -> Tensor:
    """The array as a kernel sees it; nothing is copied, nothing waits.

    IllegalType for what is no array or has elements that convloom does not know; IllegalProblem for misaligned memory.
    """
    return family_of(name, array).adapt(name, array)
