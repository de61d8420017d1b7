"""NumPy as the anchor: the same product, and for a convolution the product of its sizes without gathering anything."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from convloom import settings
from convloom.dtypes import F32, F64, DType
from convloom.frontend.anchor import FLUSH_BYTES, Anchor, Peaks, Placed, operand_dtypes, plain_refusal, refuse_device
from convloom.frontend.operand_terms import Terms, problem_terms
from convloom.problem.conv import Conv, Direction, constant
from convloom.problem.layout_memory import Array, buffer_origin, buffer_size, pack, unpack
from convloom.problem.reference import Operands, Problem, Reference, reference
from convloom.runtime.interface import as_bytes
from convloom.runtime.pair_timing import Call

_PEAK_SIZE = 1536
_PEAK_REPEATS = 5
_POISON = 0xFF  # NaN in every float type


class HostTimer:
    """Wall clock; caches are cooled by reading."""

    def __init__(self) -> None:
        self._flush = np.ones(FLUSH_BYTES // 8)

    def cool(self) -> None:
        """See `Timer`."""
        self._flush.sum()

    def seconds(self, call: Call) -> float:
        """See `Timer`."""
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin


class NumpyAnchor(Anchor):
    """NumPy's matmul on the processor."""

    name = "numpy"

    def __init__(self, device: str) -> None:
        if device != "cpu":
            raise refuse_device("NumPy", device, "cpu")
        self.timer = HostTimer()
        self._peaks: dict[DType, Peaks] = {}

    def environment(self) -> Mapping[str, str]:
        """See `Anchor`."""
        return {
            "anchor": f"NumPy {np.__version__} (a convolution: the bare product of its sizes)",
            "device": f"{platform.machine()}, {os.cpu_count()} processors, {settings.current().threads} of our threads",
        }

    def refusal(self, problem: Problem) -> str:
        """See `Anchor`."""
        first, second, result = operand_dtypes(problem)
        if not (first is second is result and first in (F32, F64)):
            return "NumPy multiplies fast in f32 and f64 alone"
        return plain_refusal(problem)

    def place(self, problem: Problem, operands: Operands) -> Placed:
        """See `Anchor`."""
        terms = problem_terms(problem)
        return Placed(_placed(terms.first, operands.a), _placed(terms.second, operands.b), _placed(terms.result, None))

    def call(self, problem: Problem, placed: Placed) -> Call:
        """See `Anchor`."""
        if not isinstance(problem, Conv):
            result = np.empty_like(placed.result)
            return lambda: np.matmul(placed.first, placed.second, out=result)
        groups, m, n, k = product_sizes(problem)
        random, dtype = np.random.default_rng(0), operand_dtypes(problem)[0].numpy
        a = random.random((groups, m, k)).astype(dtype)
        b = random.random((groups, k, n)).astype(dtype)
        c = np.empty((groups, m, n), dtype)
        return lambda: np.matmul(a, b, out=c)

    def logical(self, problem: Problem, result: Any) -> Array:
        """See `Anchor`."""
        terms = problem_terms(problem).result
        return (unpack(result, terms.layout, _shape(terms)) if terms.flat else result).astype(np.float64)

    def poison(self, result: Any) -> None:
        """See `Anchor`."""
        result.fill(np.nan)

    def reference(self, problem: Problem, operands: Operands) -> Reference:
        """See `Anchor`."""
        return reference(problem, operands, magnitude=True)

    def peaks(self, problem: Problem) -> Peaks:
        """See `Anchor`."""
        dtype = operand_dtypes(problem)[0]
        if dtype not in self._peaks:
            a, b = (np.random.default_rng(seed).random((_PEAK_SIZE, _PEAK_SIZE)).astype(dtype.numpy) for seed in (0, 1))
            c = np.empty_like(a)
            source = np.ones(FLUSH_BYTES // 8)
            target = np.zeros_like(source)
            product = best_seconds(self.timer.seconds, lambda: np.matmul(a, b, out=c))
            copy = best_seconds(self.timer.seconds, lambda: np.copyto(target, source))
            self._peaks[dtype] = Peaks(2 * _PEAK_SIZE**3 / product, 2 * source.nbytes / copy, dtype)
        return self._peaks[dtype]


def best_seconds(seconds: Callable[[Call], float], call: Call) -> float:
    """The shortest of some timed calls, after one that is not timed."""
    call()
    return min(seconds(call) for _ in range(_PEAK_REPEATS))


def product_sizes(conv: Conv) -> tuple[int, int, int, int]:
    """(groups, m, n, k) of a convolution's product, padded taps included; group by group."""
    sizes = (conv.groups, conv.batch, conv.channels_per_group, conv.outputs_per_group, *conv.out_spatial)
    groups, batch, inside, outside, *spatial = (constant(size, "a product") for size in sizes)
    places, taps = batch * math.prod(spatial), inside * math.prod(conv.kernel)
    if conv.direction is Direction.FWD:
        return groups, places, outside, taps
    return (groups, places, taps, outside) if conv.direction is Direction.BWD_D else (groups, outside, taps, places)


def _shape(terms: Terms) -> tuple[int, ...]:
    return tuple([constant(extent, "a benchmark") for extent in terms.shape])


def _placed(terms: Terms, array: Array | None) -> Array:
    """The tensor as a kernel takes it: strided, or its storage if the layout is blocked."""
    shape, layout = _shape(terms), terms.layout
    if array is None:
        buffer = np.empty(buffer_size(layout, shape), terms.dtype.numpy)
        as_bytes(buffer)[...] = _POISON
    else:
        buffer = pack(array, layout)
    if terms.flat:
        return buffer
    strides = [constant(stride, "a benchmark") * terms.dtype.nbytes for stride in layout.strides]
    return as_strided(buffer[buffer_origin(layout, shape) :], shape, strides)
