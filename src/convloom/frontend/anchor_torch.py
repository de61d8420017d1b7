"""PyTorch as the anchor: cuDNN and cuBLAS on an NVIDIA GPU, its own kernels on the processor.

Rules that keep the comparison fair: `cudnn.benchmark` is on before the first call of any shape (a plan chosen earlier
by the heuristic would stay); a gradient is one call of `aten.convolution_backward` with one output asked for; f32 is
f32 unless TF32 is asked for; sums of 16-bit types stay in f32; tensors have the problem's strides, so that channels
last is channels last for PyTorch too. What PyTorch converts inside a call counts as its time.
"""

from __future__ import annotations

import importlib
import os
import platform
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from convloom.dtypes import BF16, F16, F32, F64, S8, S32, U8, DType
from convloom.errors import UnsupportedTarget
from convloom.frontend.anchor import (
    FLUSH_BYTES,
    Anchor,
    Peaks,
    Placed,
    operand_dtypes,
    pads_alike,
    plain_refusal,
    refuse_device,
)
from convloom.frontend.anchor_numpy import HostTimer, best_seconds
from convloom.frontend.operand_terms import Terms, problem_terms
from convloom.problem.conv import Conv, Direction, Role, constant
from convloom.problem.layout_memory import Array, buffer_origin, buffer_size, pack
from convloom.problem.reference import Operands, Problem, Reference, reduction_length
from convloom.runtime.clocks import Clocks, open_clocks
from convloom.runtime.interface import as_bytes
from convloom.runtime.pair_timing import Call, Timer

_NAMES = {
    F64: "float64",
    F32: "float32",
    F16: "float16",
    BF16: "bfloat16",
    S32: "int32",
    S8: "int8",
    U8: "uint8",
}
_FLOATS = (F64, F32, F16, BF16)
_POISON = 0xFF  # NaN in every float type
_GPU_PEAK_SIZE, _HOST_PEAK_SIZE = 8192, 1024
_GPU_COPY_BYTES = 2**30
# Reads of the flush buffer in front of a timed call. One would empty the cache; the others keep the GPU busy for about
# a quarter of a millisecond, so that the call is enqueued before it begins and the host's own time is not measured.
_READS = 4


class EventTimer:
    """Events on PyTorch's current stream of a GPU."""

    def __init__(self, torch: Any, device: str) -> None:
        self._torch = torch
        self._flush = torch.ones(FLUSH_BYTES // 4, dtype=torch.float32, device=device)

    def cool(self) -> None:
        """See `Timer`; enqueues the reads and returns."""
        for _ in range(_READS):
            self._flush.sum()

    def seconds(self, call: Call) -> float:
        """See `Timer`."""
        start = self._torch.cuda.Event(enable_timing=True)
        stop = self._torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) * 1e-3


class TorchAnchor(Anchor):
    """PyTorch on the processor or one GPU. `dtype`: the element type that it computes in instead of the problem's."""

    name = "torch"

    def __init__(self, device: str, dtype: DType | None = None, *, tf32: bool = False) -> None:
        self._device = _checked_device(device)
        torch = self._torch = load_torch()
        self._dtype, self._tf32 = dtype, tf32
        self._peaks: dict[DType, Peaks] = {}
        self._on_gpu = device != "cpu"
        if self._on_gpu:
            if not torch.cuda.is_available():
                raise UnsupportedTarget(
                    f"--against torch --device {device} needs PyTorch with CUDA; PyTorch {torch.__version__} finds no "
                    "GPU; install a build with CUDA, or use --device cpu"
                )
            torch.cuda.set_device(torch.device(self._device))
            _set_flags(torch, tf32)
        self._clocks = open_clocks(int(self._device.partition(":")[2]), os.environ) if self._on_gpu else None
        self.timer: Timer = EventTimer(torch, self._device) if self._on_gpu else HostTimer()

    def environment(self) -> Mapping[str, str]:
        """See `Anchor`."""
        torch, computes = self._torch, "" if self._dtype is None else f", computing in {self._dtype}"
        found = {"anchor": f"PyTorch {torch.__version__}{computes}"}
        if not self._on_gpu:
            return {**found, "device": f"{platform.machine()}, {torch.get_num_threads()} threads of PyTorch"}
        return {
            **found,
            "cuda": f"{torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}",
            "device": torch.cuda.get_device_name(),
            "flags": f"cudnn.benchmark on, TF32 {'on' if self._tf32 else 'off'}, reduced-precision sums off",
        }

    def refusal(self, problem: Problem) -> str:
        """See `Anchor`."""
        terms = problem_terms(problem)
        dtypes = operand_dtypes(problem)
        if self._dtype is None and not (dtypes[0] is dtypes[1] is dtypes[2] and dtypes[0] in _FLOATS):
            return f"PyTorch computes in one float type, not {':'.join(map(str, dtypes))}; --anchor-dt names another"
        if any(item.flat for item in (*terms.inputs, terms.result)):
            return "PyTorch has no blocked layouts"
        if any(stride.value < 0 for item in (*terms.inputs, terms.result) for stride in item.layout.strides):
            return "PyTorch has no negative strides"
        if isinstance(problem, Conv) and not pads_alike(problem):
            return "PyTorch pads both sides alike"
        return plain_refusal(problem)

    def place(self, problem: Problem, operands: Operands) -> Placed:
        """See `Anchor`."""
        terms = problem_terms(problem)
        return Placed(
            self._placed(terms.first, operands.a),
            self._placed(terms.second, operands.b),
            self._placed(terms.result, None),
        )

    def call(self, problem: Problem, placed: Placed) -> Call:
        """See `Anchor`."""
        first, second = placed.first, placed.second
        if self._dtype is not None:
            first, second = (tensor.to(self._torch_dtype(self._dtype)) for tensor in (first, second))
        return self._computation(problem, first, second)

    def logical(self, problem: Problem, result: Any) -> Array:
        """See `Anchor`."""
        return result.to(self._torch.float64).cpu().numpy()

    @property
    def clocks(self) -> Clocks | None:
        """See `Anchor`."""
        return self._clocks

    def kernels(self, call: Call) -> tuple[str, ...]:
        """See `Anchor`; from PyTorch's profiler, on a GPU alone."""
        if not self._on_gpu:
            return ()
        torch = self._torch
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
            call()
            torch.cuda.synchronize()
        on_gpu = torch.autograd.DeviceType.CUDA
        return tuple([event.name for event in found.events() if event.device_type == on_gpu])

    def poison(self, result: Any) -> None:
        """See `Anchor`."""
        if result.is_floating_point():
            result.fill_(float("nan"))
        else:
            result.fill_(_POISON if result.dtype is self._torch.uint8 else -1)  # all bits set

    def reference(self, problem: Problem, operands: Operands) -> Reference:
        """See `Anchor`."""
        first, second = (
            self._torch.from_numpy(np.ascontiguousarray(array, dtype=np.float64)).to(self._device)
            for array in (operands.a, operands.b)
        )
        cudnn = self._torch.backends.cudnn
        searching, cudnn.benchmark = cudnn.benchmark, False  # fp64 is not what is timed; a search would take long
        try:
            value = self._computation(problem, first, second)()
            magnitude = self._computation(problem, first.abs(), second.abs())()
        finally:
            cudnn.benchmark = searching
        return Reference(value.cpu().numpy(), magnitude.cpu().numpy(), reduction_length(problem))

    def peaks(self, problem: Problem) -> Peaks:
        """See `Anchor`."""
        dtype = self._dtype or operand_dtypes(problem)[0]
        if dtype not in self._peaks:
            self._peaks[dtype] = self._measured_peaks(dtype)
        return self._peaks[dtype]

    # --- tensors ----------------------------------------------------------------------------------------------------

    def _torch_dtype(self, dtype: DType) -> Any:
        return getattr(self._torch, _NAMES[dtype])

    def _placed(self, terms: Terms, array: Array | None) -> Any:
        shape, layout = _shape(terms), terms.layout
        if array is None:
            image = np.full(buffer_size(layout, shape) * terms.dtype.nbytes, _POISON, np.uint8)
        else:
            image = as_bytes(pack(array, layout))
        memory = self._torch.from_numpy(image).to(self._device, copy=True).view(self._torch_dtype(terms.dtype))
        strides = tuple([constant(stride, "a benchmark") for stride in layout.strides])
        return self._torch.as_strided(memory, shape, strides, buffer_origin(layout, shape))

    def _computation(self, problem: Problem, first: Any, second: Any) -> Callable[[], Any]:
        if not isinstance(problem, Conv):
            return lambda: self._torch.matmul(first, second)
        geometry = [list(problem.stride), list(problem.pad_begin), list(problem.dilation), False, [0] * problem.rank]
        groups = constant(problem.groups, "a benchmark")
        aten = self._torch.ops.aten
        if problem.direction is Direction.FWD:
            return lambda: aten.convolution(first, second, None, *geometry, groups)
        if problem.direction is Direction.BWD_D:
            source = self._like(problem, Role.SRC, first.dtype)
            mask = [True, False, False]
            return lambda: aten.convolution_backward(first, source, second, None, *geometry, groups, mask)[0]
        weights, mask = self._like(problem, Role.WEI, first.dtype), [False, True, False]
        return lambda: aten.convolution_backward(second, first, weights, None, *geometry, groups, mask)[1]

    def _like(self, conv: Conv, role: Role, dtype: Any) -> Any:
        """A tensor whose shape and strides alone matter: PyTorch takes them from the forward form."""
        shape = tuple([constant(extent, "a benchmark") for extent in conv.shape(role)])
        strides = tuple([constant(stride, "a benchmark") for stride in conv.spec(role).layout.strides])
        return self._torch.empty_strided(shape, strides, dtype=dtype, device=self._device)

    # --- peaks ------------------------------------------------------------------------------------------------------

    def _measured_peaks(self, dtype: DType) -> Peaks:
        torch, size = self._torch, _GPU_PEAK_SIZE if self._on_gpu else _HOST_PEAK_SIZE
        a, b = (torch.rand(size, size, device=self._device).to(self._torch_dtype(dtype)) for _ in range(2))
        source = torch.ones((_GPU_COPY_BYTES if self._on_gpu else FLUSH_BYTES) // 4, device=self._device)
        target = torch.zeros_like(source)
        product = best_seconds(self.timer.seconds, lambda: torch.matmul(a, b))
        copy = best_seconds(self.timer.seconds, lambda: target.copy_(source))
        return Peaks(2 * size**3 / product, 2 * source.numel() * 4 / copy, dtype)


def load_torch() -> Any:
    """PyTorch; UnsupportedTarget says how to add it."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise UnsupportedTarget(
            f"--against torch needs PyTorch; it cannot be imported ({error}); run: pip install 'convloom[torch]'"
        ) from error


def _checked_device(device: str) -> str:
    """The device as PyTorch names it."""
    if device != "cpu" and device.partition(":")[0] != "cuda":
        raise refuse_device("PyTorch", device, "cpu and cuda")
    return "cuda:0" if device == "cuda" else device


def _set_flags(torch: Any, tf32: bool) -> None:
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def _shape(terms: Terms) -> tuple[int, ...]:
    return tuple([constant(extent, "a benchmark") for extent in terms.shape])
