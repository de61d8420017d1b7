"""Checks one kernel on one device: data, reference and comparison stay in the device's memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from convloom.dtypes import U8, DType
from convloom.errors import ConvloomError
from convloom.frontend.arrays import NUMPY
from convloom.frontend.kernel import Kernel
from convloom.frontend.operand_terms import Terms, problem_terms
from convloom.frontend.tensor import Tensor
from convloom.problem.data import Fill, reachable_outputs
from convloom.problem.layout import Layout, overlaps_itself
from convloom.problem.layout_memory import buffer_origin, buffer_size, element_offsets
from convloom.problem.reference import Problem, operand_shapes, result_shape
from convloom.runtime.interface import Device, DeviceMemory
from tests.device import data_kernels
from tests.device.portable_kernel import PortableKernel
from tests.device.reference_kernel import reference_launch, reference_symbols

GUARD_BYTES = 1 << 16  # in front of and behind each tensor; a multiple of every alignment that a plan may rely on
POISON = 0xFF  # NaN in each float type
LEAST_NONZERO_SHARE = 0.3
SEEDS = (1, 2)
COMPARING_THREADS = 1 << 20


class CannotCheck(ConvloomError):
    """The check has no way to treat this problem; it counts as failed, not as passed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one kernel: the reason of failure (empty: passed), non-zero share, seconds of the first call."""

    reason: str
    nonzero_share: float
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether everything was right."""
        return not self.reason


@lru_cache(maxsize=64)
def _built(kernel: PortableKernel, device: Device) -> Any:
    return device.build(kernel.source(device.language, device.arch))


def launch(device: Device, kernel: PortableKernel, buffers: Sequence[int], **integers: int) -> None:
    """Runs a hand-written kernel; `integers` include `threads`."""
    _built(kernel, device).launch(buffers, integers)


class CheckedProblem:
    """Integer operands and exact result of a problem in a device's memory, for kernels of any element types.

    The tensors are dense in logical order: operands as int8, the result as s64. An operand of u8 has no negative
    numbers, so that kernels of the same `signs` may share the data. A context: its end frees the memory.
    """

    def __init__(self, problem: Problem, fill: Fill, device: Device, seeds: tuple[int, int] = SEEDS) -> None:
        scaling = problem.scaling
        if problem.bias is not None or scaling.alpha or scaling.beta or not problem.epilogue.is_empty:
            raise CannotCheck(f"device checks know plain products only; got bias {problem.bias}, {scaling}")
        self.problem, self.fill, self.device = problem, fill, device
        self._stack = ExitStack()
        self.shape = result_shape(problem)
        shapes = operand_shapes(problem)
        try:
            self.operands = tuple(self._memory(math.prod(shape)) for shape in shapes)
            self.expected = self._memory(math.prod(self.shape) * 8)
            for memory, shape, limit, density, signed, seed in zip(
                self.operands, shapes, (fill.a, fill.b), (fill.density, 1.0), signs(problem), seeds, strict=True
            ):
                draw = {"low": -limit if signed else 0, "high": limit, "keep": math.ceil(density * (1 << 24))}
                launch(device, data_kernels.FILL, (memory.handle,), threads=math.prod(shape), seed=seed, **draw)
            self._reference()
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> CheckedProblem:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _memory(self, nbytes: int) -> DeviceMemory:
        return self._stack.enter_context(self.device.allocate(max(nbytes, 1)))

    def _reference(self) -> None:
        self.expected.fill(0)
        a, b = (memory.handle for memory in self.operands)
        kernel, buffers = reference_launch(self.problem, a, b, self.expected.handle)
        launch(self.device, kernel, buffers, **reference_symbols(self.problem))

    def check(self, kernel: Kernel) -> Outcome:
        """Runs a kernel of this problem (of any types and layouts) on poisoned memory and compares exactly."""
        terms = problem_terms(kernel.problem)
        with ExitStack() as stack:
            inputs = [stack.enter_context(GuardedTensor(self.device, item)) for item in terms.inputs]
            result = stack.enter_context(GuardedTensor(self.device, terms.result))
            for tensor, memory in zip(inputs, self.operands, strict=True):
                tensor.write(memory)
            tensors = [tensor.tensor() for tensor in (*inputs, result)]
            names = tuple(item.name for item in (*terms.inputs, terms.result))

            def call() -> None:
                kernel.run(NUMPY, tensors[:-1], None, tensors[-1], (1.0, 0.0), None, names)

            seconds = self.device.time_once(call)
            return self._judge(result, (*inputs, result), seconds)

    def _judge(self, result: GuardedTensor, tensors: Sequence[GuardedTensor], seconds: float) -> Outcome:
        wrong, nonzero, first = result.compare(self.expected, math.prod(self.shape))
        share = nonzero / max(reachable_outputs(self.problem), 1) if math.prod(self.shape) else 1.0
        overrun = [tensor.terms.name for tensor in tensors if tensor.stray_bytes()]
        reason = ""
        if wrong:
            given, expected = result.look(self.expected, first)
            place = tuple(int(digit) for digit in np.unravel_index(first, self.shape))
            reason = f"{wrong} elements wrong, the first at {place}: {given:.9g} instead of {expected:.9g}"
        elif overrun:
            reason = f"memory outside {', '.join(overrun)} was written"
        elif share < LEAST_NONZERO_SHARE and reachable_outputs(self.problem):
            reason = f"only {share:.1%} of the reachable outputs are non-zero"
        return Outcome(reason, share, seconds)


class GuardedTensor:
    """One tensor of a call in its own type and layout; poison in it, in front of it and behind it."""

    def __init__(self, device: Device, terms: Terms) -> None:
        self.device, self.terms = device, terms
        self.shape = tuple(extent.value for extent in terms.shape)
        if math.prod(self.shape) and overlaps_itself(terms.layout, self.shape):
            raise CannotCheck(f"device checks know tensors without overlap only; {terms.name} has {terms.layout}")
        self.nbytes = buffer_size(terms.layout, self.shape) * terms.dtype.nbytes
        self.extents = logical_extents(self.shape)
        self._stack = ExitStack()
        self.memory = self._stack.enter_context(device.allocate(self.nbytes + 2 * GUARD_BYTES))
        self.memory.fill(POISON)
        self.tables = self._stored(offset_columns(terms.layout, self.shape))

    def __enter__(self) -> GuardedTensor:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _stored(self, array: np.ndarray[Any, Any]) -> DeviceMemory:
        memory = self._stack.enter_context(self.device.allocate(max(array.nbytes, 1)))
        memory.write(np.ascontiguousarray(array))
        return memory

    @property
    def start(self) -> int:
        """Address of the storage."""
        return int(self.memory.handle) + GUARD_BYTES

    @property
    def origin(self) -> int:
        """Address of the element of index 0."""
        return self.start + buffer_origin(self.terms.layout, self.shape) * self.terms.dtype.nbytes

    def tensor(self) -> Tensor:
        """The tensor as a kernel takes it: its storage where the layout is blocked."""
        dtype, layout = self.terms.dtype, self.terms.layout
        if self.terms.flat:
            return Tensor(self.start, (self.nbytes // dtype.nbytes,), (1,), dtype, self.device.name)
        return Tensor(
            self.origin, self.shape, tuple(stride.value for stride in layout.strides), dtype, self.device.name
        )

    def write(self, values: DeviceMemory) -> None:
        """Lays out int8 values of the logical tensor."""
        codes = self._stored(codes_of(self.terms.dtype))
        buffers = (values.handle, codes.handle, self.tables.handle, self.origin)
        self._launch(data_kernels.PACK, buffers, math.prod(self.shape))

    def compare(self, expected: DeviceMemory, elements: int) -> tuple[int, int, int]:
        """Elements that differ from the rounded s64 values, non-zero values, index of the first difference."""
        counters = self._stored(np.array([0, 0, elements], np.int64))
        buffers = (self.origin, expected.handle, self.tables.handle, counters.handle)
        self._launch(
            data_kernels.COMPARE, buffers, min(elements, COMPARING_THREADS), elements=elements, **self._format()
        )
        wrong, nonzero, first = _read(counters, 3, np.int64)
        return int(wrong), int(nonzero), int(first)

    def look(self, expected: DeviceMemory, index: int) -> tuple[float, float]:
        """Given and expected value of one element."""
        numbers = self._stored(np.zeros(2))
        buffers = (self.origin, expected.handle, self.tables.handle, numbers.handle)
        self._launch(data_kernels.LOOK, buffers, 1, index=index, **self._format())
        given, right = _read(numbers, 2, np.float64)
        return float(given), float(right)

    def stray_bytes(self) -> int:
        """How many bytes of the guards were overwritten."""
        counter = self._stored(np.zeros(1, np.int64))
        for begin in (int(self.memory.handle), self.start + self.nbytes):
            launch(self.device, data_kernels.GUARD, (begin, counter.handle), threads=GUARD_BYTES, poison=POISON)
        return int(_read(counter, 1, np.int64)[0])

    def _format(self) -> dict[str, int]:
        dtype = self.terms.dtype
        if not dtype.is_float:
            return {"exponent_bits": 0, "digits": dtype.digits}
        if dtype.largest is not None:
            raise CannotCheck(f"device checks know no results that saturate below infinity; got {dtype}")
        return {"exponent_bits": dtype.bits - dtype.digits, "digits": dtype.digits}

    def _launch(self, kernel: PortableKernel, buffers: Sequence[int], threads: int, **integers: int) -> None:
        extents = dict(zip(data_kernels.EXTENTS, self.extents, strict=True))
        nbytes = self.terms.dtype.nbytes
        launch(self.device, kernel, buffers, threads=threads, nbytes=nbytes, **extents, **integers)


def signs(problem: Problem) -> tuple[bool, bool]:
    """Whether each operand may be negative."""
    terms = problem_terms(problem)
    return terms.first.dtype is not U8, terms.second.dtype is not U8


def _read(memory: DeviceMemory, count: int, dtype: type) -> np.ndarray[Any, Any]:
    array = np.empty(count, dtype)
    memory.read(array)
    return array


def logical_extents(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Five extents: absent spatial dimensions, between channels and the others, are 1."""
    return (*shape[:2], *(1,) * (data_kernels.RANK - len(shape)), *shape[2:])


def offset_columns(layout: Layout, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Per dimension of the five the offset of each index relative to index 0, end to end."""
    return np.concatenate(list(_columns(layout, shape)))


def _columns(layout: Layout, shape: tuple[int, ...]) -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
    for dim, extent in enumerate(shape):
        alone = tuple(extent if other == dim else 1 for other in range(len(shape)))
        column = element_offsets(layout, alone).reshape(-1)
        yield column - column[:1]
        if dim == 1:
            yield np.zeros(data_kernels.RANK - len(shape), np.int64)


def codes_of(dtype: DType) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """The bits of each of the 256 values of int8 in an element type."""
    values = np.arange(-128, 128).astype(dtype.numpy)  # the negative ones of u8 wrap, and are never used
    return values.view(f"u{dtype.nbytes}").astype(np.uint64)
