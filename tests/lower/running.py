"""Runs generated source on a device in poisoned memory, without any help of the frontend."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from convloom.artifact import WORKSPACE, Access, KernelSource, Program
from convloom.problem.conv import Conv
from convloom.problem.layout import Layout, plain
from convloom.problem.layout_memory import buffer_origin, buffer_size, pack, unpack
from convloom.problem.reference import Arithmetic, Operands, reference, result_shape
from convloom.runtime.device import device_named
from convloom.runtime.interface import Device, DeviceMemory, as_bytes
from convloom.runtime.launch_expression import evaluate

GUARD = 256  # bytes in front of and behind a tensor; a multiple of every alignment that is relied on
POISON = 0xFF  # NaN in every float type


@dataclass
class Image:
    """A tensor's storage with poison around it; `array` None: the storage is poison too."""

    layout: Layout
    shape: tuple[int, ...]
    dtype: np.dtype
    memory: np.ndarray

    @staticmethod
    def of(layout: Layout, shape: tuple[int, ...], dtype: np.dtype, array: np.ndarray | None) -> Image:
        nbytes = buffer_size(layout, shape) * dtype.itemsize
        memory = np.full(nbytes + 2 * GUARD, POISON, np.uint8)
        if array is not None:
            memory[GUARD : GUARD + nbytes] = as_bytes(pack(array.astype(dtype, copy=False), layout))
        return Image(layout, shape, dtype, memory)

    @property
    def content(self) -> np.ndarray:
        return self.memory[GUARD : self.memory.size - GUARD].view(self.dtype)

    @property
    def start(self) -> int:
        """Byte of the element of index 0."""
        return GUARD + buffer_origin(self.layout, self.shape) * self.dtype.itemsize

    def guarded(self) -> bool:
        return bool((self.memory[:GUARD] == POISON).all() and (self.memory[-GUARD:] == POISON).all())


def images(problem, operands: Operands) -> dict[str, Image]:
    """The tensors of a call by name; the result is poison unless it is read."""
    if isinstance(problem, Conv):
        first, second, result = [(role.value, problem.spec(role)) for role in problem.roles]
    else:
        first, second, result = ("a", problem.a), ("b", problem.b), ("c", problem.c)
    found = {
        name: Image.of(spec.layout, array.shape, spec.dtype.numpy, array)
        for (name, spec), array in ((first, operands.a), (second, operands.b))
    }
    if operands.bias is not None:
        found["bias"] = Image.of(plain((1,)), operands.bias.shape, problem.bias.numpy, operands.bias)
    name, spec = result
    old = operands.old if operands.beta != 0 else None
    found[name] = Image.of(spec.layout, result_shape(problem), spec.dtype.numpy, old)
    return found


def run(
    program: Program,
    names: Mapping[str, str],
    problem,
    operands: Operands,
    sizes: Mapping[str, int],
    device: Device | None = None,
):
    """The result of one call, as a logical array; an AssertionError if a byte outside of a tensor changed.

    `names` gives the tensor behind each of the kernels' buffers, `sizes` the values of symbols.
    """
    tensors = images(problem, operands)
    nbytes = evaluate(program.workspace_bytes, sizes)
    tensors[WORKSPACE] = Image.of(plain((1,)), (nbytes,), np.dtype(np.uint8), None)
    device = device or device_named("cpu")
    before = {name: image.memory.copy() for name, image in tensors.items()}
    used = {buffer.name for source in program.launches for buffer in source.buffers}
    with ExitStack() as stack:
        memories = {name: stack.enter_context(device.allocate(image.memory.size)) for name, image in tensors.items()}
        for name, memory in memories.items():
            memory.write(tensors[name].memory)
        for source in program.launches:
            order = [names.get(buffer.name, buffer.name) for buffer in source.buffers]
            handles = [_at(memories[name], tensors[name].start) for name in order]
            device.build(source).launch(handles, sizes, {"alpha": operands.alpha, "beta": operands.beta})
        device.synchronize()
        for name, memory in memories.items():
            memory.read(tensors[name].memory)
    written = {name for source in program.launches for name in _written(source)}
    for buffer in used:
        name = names.get(buffer, buffer)
        assert tensors[name].guarded(), f"memory around {name} was written"
        assert buffer in written or np.array_equal(tensors[name].memory, before[name]), f"input {name} was written"
    (name,) = [names.get(buffer, buffer) for buffer in written if buffer != WORKSPACE]
    result, old = tensors[name], before[name][GUARD:-GUARD].view(tensors[name].dtype)
    gaps = pack(np.zeros(result.shape, bool), result.layout, fill=True)
    assert np.array_equal(as_bytes(result.content[gaps]), as_bytes(old[gaps])), "a gap of the result was written"
    return unpack(result.content, result.layout, result.shape)


def _written(source: KernelSource) -> list[str]:
    return [buffer.name for buffer in source.buffers if buffer.access is not Access.READ]


def _at(memory: DeviceMemory, offset: int):
    """What a launch takes for a place in the memory: an address, or (OpenCL) a part of the buffer."""
    if isinstance(memory.handle, int):
        return memory.handle + offset
    return memory.handle.get_sub_region(offset, memory.nbytes - offset)


def exact_reference(problem, operands: Operands):
    """The exact result before it is rounded to the output's type."""
    return reference(problem, operands, Arithmetic.EXACT)
