"""Arrays of pyopencl: recognised without importing it. They must live in the context of convloom's device."""

from __future__ import annotations

import sys
from typing import Any

from convloom.dtypes import DType, dtype_of_numpy
from convloom.errors import IllegalProblem, IllegalType
from convloom.frontend.tensor import Tensor, whole_strides


def adapt(name: str, array: Any) -> Tensor:
    """See `arrays.adapt`; an offset into a buffer must be one at which a sub-buffer may begin."""
    try:
        dtype = dtype_of_numpy(array.dtype)
    except IllegalType as error:
        raise IllegalType(f"{name}: {error}") from None
    strides = whole_strides(name, array.strides, dtype.nbytes)
    return Tensor(_begin(name, array), array.shape, strides, dtype, "opencl", array.context)


def _begin(name: str, array: Any) -> Any:
    if array.offset == 0:
        return array.base_data
    step = array.base_data.context.devices[0].mem_base_addr_align // 8
    if array.offset % step or min(array.strides, default=0) < 0:
        raise IllegalProblem(
            f"{name} must begin at a multiple of {step} bytes in its buffer, with strides >= 0; got offset "
            f"{array.offset} and strides {array.strides}; copy it first"
        )
    return array.base_data.get_sub_region(array.offset, array.base_data.size - array.offset)


def allocate(shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: str) -> Any:
    """IllegalProblem: an allocation needs a queue of the caller."""
    raise IllegalProblem("results on an OpenCL device have a queue that the caller chooses; got no out; pass out=")


def current_stream(array: Any) -> Any:
    """The queue that the array works in."""
    return array.queue if "pyopencl" in sys.modules else None


def check_writable(name: str, array: Any) -> None:
    """Arrays of pyopencl are never read-only."""
