"""Runs a kernel of constant sizes on memory of its device, guarded against stray accesses."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convloom.frontend.arrays import NUMPY
from convloom.frontend.bias_gradient import NAME
from convloom.frontend.kernel import Kernel
from convloom.frontend.operand_terms import Terms, problem_terms
from convloom.frontend.tensor import Tensor
from convloom.problem.bias_gradient import bias_gradient_problem, old_gradient
from convloom.problem.conv import Conv, constant
from convloom.problem.layout_memory import buffer_origin, buffer_size, pack, unpack
from convloom.problem.reference import Operands, Problem
from convloom.runtime.interface import Device, as_bytes
from convloom.runtime.timing import measure

Array = NDArray[Any]

GUARD_BYTES = 256  # a multiple of every alignment that a plan may rely on
POISON = 0xFF  # NaN in each float type


@dataclass(frozen=True, slots=True)
class DeviceRun:
    """What a kernel wrote, the median seconds of a call (None: not timed), and the buffers written out of bounds.

    `bias_grad`: (oc, 1, ..), of kernels that give it.
    """

    result: Array
    seconds: float | None
    overrun: tuple[str, ...]
    bias_grad: Array | None = None


class _Buffer:
    """One tensor of a call in device memory, poison in front and behind, and in it if it has no content."""

    def __init__(self, device: Device, terms: Terms, array: Array | None) -> None:
        self.terms = terms
        self.shape = tuple([constant(extent, "a run") for extent in terms.shape])
        self.memory = device.allocate(self.nbytes + 2 * GUARD_BYTES)
        self.fill(array)

    def fill(self, array: Array | None) -> None:
        """Writes the content, or poison, and the guards."""
        terms = self.terms
        image = np.full(self.memory.nbytes, POISON, np.uint8)
        if array is not None:
            packed = pack(array.astype(terms.dtype.numpy, copy=False), terms.layout)
            image[GUARD_BYTES : GUARD_BYTES + self.nbytes] = as_bytes(packed)
        self.memory.write(image)
        self.memory.declare(GUARD_BYTES, GUARD_BYTES + self.nbytes, known=array is not None)

    def __enter__(self) -> _Buffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.memory.free()

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor's storage."""
        return buffer_size(self.terms.layout, self.shape) * self.terms.dtype.nbytes

    def tensor(self, device: str) -> Tensor:
        """The tensor as a kernel takes it: its storage where the layout is blocked."""
        origin = buffer_origin(self.terms.layout, self.shape) * self.terms.dtype.nbytes
        address = self._at(GUARD_BYTES + origin)
        if self.terms.flat:
            size = buffer_size(self.terms.layout, self.shape)
            return Tensor(address, (size,), (1,), self.terms.dtype, device, self._context)
        strides = tuple([constant(stride, "a run") for stride in self.terms.layout.strides])
        return Tensor(address, self.shape, strides, self.terms.dtype, device, self._context)

    def content(self) -> NDArray[np.uint8]:
        """All bytes, the guards included."""
        image = np.empty(self.memory.nbytes, np.uint8)
        self.memory.read(image)
        return image

    @property
    def _context(self) -> Any:
        """The context that OpenCL memory belongs to."""
        return None if isinstance(self.memory.handle, int) else self.memory.handle.context

    def _at(self, offset: int) -> Any:
        """What a launch takes for a place in the memory: an address, or (OpenCL) a part of the buffer."""
        if isinstance(self.memory.handle, int):
            return self.memory.handle + offset
        return self.memory.handle.get_sub_region(offset, self.memory.nbytes - offset)


def run_on_device(
    kernel: Kernel, operands: Operands, *, problem: Problem | None = None, measure_seconds: float = 0.0
) -> DeviceRun:
    """One call on fresh memory with poisoned result and surroundings; then timed calls for `measure_seconds`.

    Operands are logical arrays; they are laid out as the problem says: the kernel's own, or `problem` for a kernel
    whose sizes are dims. IllegalProblem for symbolic sizes.
    """
    called = kernel.problem if problem is None else problem
    with DeviceTensors(called, kernel.device, operands) as tensors:
        tensors.run(kernel)
        kernel.device.synchronize()
        found = tensors.outcome()
        if measure_seconds <= 0:
            return found
        timing = measure(kernel.device, lambda: tensors.run(kernel), budget=measure_seconds)
        return replace(found, seconds=timing.median)


class DeviceTensors:
    """Every tensor of a problem's call in memory of a device, guarded by poison; the result is poison or old content.

    Any kernel of the problem runs on them. Freed at the end of the `with` block.
    """

    def __init__(self, problem: Problem, device: Device, operands: Operands) -> None:
        terms = problem_terms(problem)
        self._factors = operands.alpha, operands.beta
        self._old = operands.old if problem.scaling.beta or problem.epilogue.steps.reads_old else None
        arrays = (operands.a, operands.b, *(() if operands.bias is None else (operands.bias,)), *operands.extras)
        with ExitStack() as stack:
            values = zip(terms.inputs, arrays, strict=True)
            inputs = [stack.enter_context(_Buffer(device, term, array)) for term, array in values]
            self._result = stack.enter_context(_Buffer(device, terms.result, self._old))
            self._buffers: tuple[_Buffer, ...] = (*inputs, self._result)
            self._tensors = [buffer.tensor(device.name) for buffer in self._buffers]
            self._names = tuple(buffer.terms.name for buffer in self._buffers)
            self._old_sums = old_gradient(problem) if problem.scaling.beta else None
            self._sums = _sums_buffer(problem, device, self._old_sums)
            self._gradient: Tensor | None = None
            if self._sums is not None:
                self._buffers = (*self._buffers, stack.enter_context(self._sums))
                self._gradient = self._sums.tensor(device.name)._replace(shape=self._sums.shape[:1], strides=(1,))
            self._stack = stack.pop_all()

    def __enter__(self) -> DeviceTensors:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, kernel: Kernel) -> None:
        """Enqueues one call."""
        tensors = self._tensors
        kernel.run(NUMPY, tensors[:-1], None, tensors[-1], self._factors, None, self._names)
        if kernel.bias_gradient is not None and self._gradient is not None:
            kernel.bias_gradient.launch(NUMPY, tensors[1], self._gradient, self._factors, None)

    def reset(self) -> None:
        """Makes the results what they were before the first call."""
        self._result.fill(self._old)
        if self._sums is not None:
            self._sums.fill(self._old_sums)

    def outcome(self) -> DeviceRun:
        """What the calls wrote; waits for the device."""
        contents = [buffer.content() for buffer in self._buffers]
        overrun = [
            buffer.terms.name
            for buffer, image in zip(self._buffers, contents, strict=True)
            if not _guarded(buffer, image)
        ]
        found = _logical(self._result, contents[len(self._names) - 1])
        sums = None if self._sums is None else _logical(self._sums, contents[-1])
        return DeviceRun(found, None, tuple(overrun), sums)


def _sums_buffer(problem: Problem, device: Device, old: Array | None) -> _Buffer | None:
    """Memory of the bias gradient, where the problem gives one."""
    if not isinstance(problem, Conv) or problem.bias_grad is None:
        return None
    return _Buffer(device, replace(problem_terms(bias_gradient_problem(problem)).result, name=NAME), old)


def _guarded(buffer: _Buffer, image: NDArray[np.uint8]) -> bool:
    """Whether the poison around a tensor is as it was."""
    before, after = image[:GUARD_BYTES], image[GUARD_BYTES + buffer.nbytes :]
    return bool((before == POISON).all() and (after == POISON).all())


def _logical(buffer: _Buffer, image: NDArray[np.uint8]) -> Array:
    flat = image[GUARD_BYTES : GUARD_BYTES + buffer.nbytes].view(buffer.terms.dtype.numpy)
    return unpack(flat, buffer.terms.layout, buffer.shape)
