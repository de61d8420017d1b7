"""Runs a built kernel of a problem with constant sizes on memory of its device, guarded against stray accesses."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convloom.compiler import prepare
from convloom.dtypes import DType
from convloom.problem.conv import Conv
from convloom.problem.layout import Layout, dense
from convloom.problem.layout_memory import buffer_origin, buffer_size, pack, unpack
from convloom.problem.reference import Operands, Problem, operand_shapes, result_shape
from convloom.runtime.interface import Built, Device, DeviceMemory, as_bytes
from convloom.runtime.timing import measure

Array = NDArray[Any]

GUARD_BYTES = 256  # a multiple of every alignment that a plan may rely on
POISON = 0xFF  # NaN in each float type


@dataclass(frozen=True, slots=True)
class DeviceRun:
    """What a kernel wrote, the median seconds of a call (None: not timed), and the buffers written out of bounds."""

    result: Array
    seconds: float | None
    overrun: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Tensor:
    """One buffer of a call: its flat content (None: nothing yet), place in memory, and extents."""

    content: Array | None
    dtype: DType
    layout: Layout
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return buffer_size(self.layout, self.shape) * self.dtype.nbytes

    @property
    def origin_bytes(self) -> int:
        return buffer_origin(self.layout, self.shape) * self.dtype.nbytes


def run_on_device(
    device: Device, built: Built, problem: Problem, operands: Operands, *, measure_seconds: float = 0.0
) -> DeviceRun:
    """One call on fresh memory with poisoned result and surroundings; then timed calls for `measure_seconds`.

    Operands are logical arrays; they are laid out as the problem says. IllegalProblem for symbolic sizes.
    """
    tensors = _tensors(problem, operands)
    parameters = built.source.buffers
    names = dict(prepare(problem).tensors)
    with ExitStack() as stack:
        memories = [stack.enter_context(_filled(device, tensors[names[parameter.name]])) for parameter in parameters]
        handles = [
            _element_zero(memory, tensors[names[parameter.name]])
            for memory, parameter in zip(memories, parameters, strict=True)
        ]
        factors = {"alpha": operands.alpha, "beta": operands.beta}

        def call() -> None:
            built.launch(handles, {}, factors)

        call()
        device.synchronize()
        contents = {names[parameter.name]: _read(memory) for memory, parameter in zip(memories, parameters, strict=True)}
        seconds = measure(device, call, budget=measure_seconds).median if measure_seconds > 0 else None
    result = _result_name(problem)
    overrun = tuple(name for name, content in contents.items() if not _guards_hold(content, tensors[name]))
    return DeviceRun(_logical(contents[result], tensors[result]), seconds, overrun)


def _tensors(problem: Problem, operands: Operands) -> Mapping[str, _Tensor]:
    """Every buffer by the name it has in a kernel."""
    if isinstance(problem, Conv):
        first, second, third = problem.roles
        specs = {role.value: problem.spec(role) for role in (first, second, third)}
    else:
        specs = {"a": problem.a, "b": problem.b, "c": problem.c}
    shapes = (*operand_shapes(problem), result_shape(problem))
    arrays = (operands.a, operands.b, operands.old if problem.scaling.beta else None)
    tensors = {
        name: _Tensor(_packed(array, spec.layout, spec.dtype), spec.dtype, spec.layout, shape)
        for (name, spec), array, shape in zip(specs.items(), arrays, shapes, strict=True)
    }
    if problem.bias is not None and operands.bias is not None:
        layout = dense(operands.bias.shape)
        tensors["bias"] = _Tensor(
            _packed(operands.bias, layout, problem.bias), problem.bias, layout, operands.bias.shape
        )
    return tensors


def _packed(array: Array | None, layout: Layout, dtype: DType) -> Array | None:
    return None if array is None else pack(array.astype(dtype.numpy, copy=False), layout)


def _result_name(problem: Problem) -> str:
    return problem.result.value if isinstance(problem, Conv) else "c"


def _filled(device: Device, tensor: _Tensor) -> DeviceMemory:
    """Memory with poison around the tensor, and in it where it has no content."""
    memory = device.allocate(tensor.nbytes + 2 * GUARD_BYTES)
    image = np.full(memory.nbytes, POISON, np.uint8)
    if tensor.content is not None:
        image[GUARD_BYTES : GUARD_BYTES + tensor.nbytes] = as_bytes(tensor.content)
    memory.write(image)
    return memory


def _element_zero(memory: DeviceMemory, tensor: _Tensor) -> Any:
    """What a launch takes for a tensor: an address, or (OpenCL) a part of the buffer."""
    offset = GUARD_BYTES + tensor.origin_bytes
    if isinstance(memory.handle, int):
        return memory.handle + offset
    return memory.handle.get_sub_region(offset, memory.nbytes - offset)


def _read(memory: DeviceMemory) -> NDArray[np.uint8]:
    content = np.empty(memory.nbytes, np.uint8)
    memory.read(content)
    return content


def _guards_hold(content: NDArray[np.uint8], tensor: _Tensor) -> bool:
    begin, end = GUARD_BYTES, GUARD_BYTES + tensor.nbytes
    return bool((content[:begin] == POISON).all() and (content[end:] == POISON).all())


def _logical(content: NDArray[np.uint8], tensor: _Tensor) -> Array:
    flat = content[GUARD_BYTES : GUARD_BYTES + tensor.nbytes].view(tensor.dtype.numpy)
    return unpack(flat, tensor.layout, tensor.shape)
