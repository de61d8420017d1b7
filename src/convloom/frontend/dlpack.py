"""Reads the description of a DLPack capsule without copying, importing a framework or synchronising."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from convloom.dtypes import ALL_DTYPES, BF16, E4M3, E5M2, F16, F32, F64, DType, NumberClass
from convloom.errors import IllegalProblem, IllegalType

NO_SYNCHRONISATION = -1  # the stream that tells a producer not to wait: the kernel follows on the producer's stream
_READ_ONLY = 1  # flag of a versioned capsule


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("ordinal", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("rank", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_api = ctypes.pythonapi
_api.PyCapsule_IsValid.argtypes = (ctypes.py_object, ctypes.c_char_p)
_api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p

# Device kinds of dlpack.h whose memory a kernel of the named device can use.
_DEVICES = {1: "cpu", 2: "cuda", 3: "cpu", 13: "cuda"}
_CODES = {
    **{(2, dtype.bits): dtype for dtype in (F64, F32, F16)},
    **{(0, dtype.bits): dtype for dtype in ALL_DTYPES if dtype.number_class is NumberClass.SIGNED},
    **{(1, dtype.bits): dtype for dtype in ALL_DTYPES if dtype.number_class is NumberClass.UNSIGNED},
    (4, 16): BF16,
    (10, 8): E4M3,
    (12, 8): E5M2,
}


class Described(NamedTuple):
    """What a capsule says: address of element 0, shape, strides in elements, and the capsule that keeps it alive."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    device: str
    read_only: bool
    capsule: Any


def device_of(name: str, array: Any) -> str:
    """`cpu` or `cuda:N` of a DLPack producer; IllegalProblem for memory that no device here can use."""
    kind, ordinal = array.__dlpack_device__()
    found = _DEVICES.get(int(kind))
    if found is None:
        raise IllegalProblem(
            f"{name} must lie in host or CUDA memory; got DLPack device type {int(kind)}; move it to one of them"
        )
    return found if found == "cpu" else f"cuda:{ordinal}"


def describe(name: str, array: Any) -> Described:
    """The description of a DLPack producer's memory.

    IllegalProblem for foreign memory, IllegalType for element types that convloom does not have.
    """
    device = device_of(name, array)
    capsule = _capsule(name, array, device)
    tensor, read_only = _contents(name, capsule)
    dtype = _CODES.get((tensor.dtype.code, tensor.dtype.bits)) if tensor.dtype.lanes == 1 else None
    if dtype is None:
        raise IllegalType(
            f"elements of {name} must be one of {', '.join(map(str, ALL_DTYPES))}; got DLPack type code "
            f"{tensor.dtype.code}, {tensor.dtype.bits} bits, {tensor.dtype.lanes} lanes; convert the array first"
        )
    shape = tuple(tensor.shape[: tensor.rank])
    strides = tuple(tensor.strides[: tensor.rank]) if tensor.strides else _dense(shape)
    return Described((tensor.data or 0) + tensor.byte_offset, shape, strides, dtype, device, read_only, capsule)


def _capsule(name: str, array: Any, device: str) -> Any:
    stream = {} if device == "cpu" else {"stream": NO_SYNCHRONISATION}
    try:
        try:
            return array.__dlpack__(max_version=(1, 0), **stream)
        except TypeError:  # a producer from before DLPack 1.0
            return array.__dlpack__(**stream)
    except BufferError as error:
        raise IllegalProblem(
            f"{name} must be exportable by DLPack; its producer says: {error}; copy it first"
        ) from None


def _contents(name: str, capsule: Any) -> tuple[_Tensor, bool]:
    for label, kind in ((b"dltensor_versioned", _Versioned), (b"dltensor", _Tensor)):
        if _api.PyCapsule_IsValid(capsule, label):
            found = kind.from_address(_api.PyCapsule_GetPointer(capsule, label))
            if isinstance(found, _Tensor):
                return found, False
            return found.tensor, bool(found.flags & _READ_ONLY)
    raise IllegalType(f"{name} must give a DLPack capsule; got {capsule!r}; pass a NumPy array or a tensor")


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))
