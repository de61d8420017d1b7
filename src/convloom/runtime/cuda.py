"""The cuda device: CUDA C++ compiled by NVRTC, launched through the driver on the caller's stream."""

from __future__ import annotations

import ctypes
import re
import struct
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import Any

from numpy.typing import NDArray

from convloom.artifact import KernelSource, Language, ScalarKind
from convloom.errors import IllegalProblem, UnsupportedTarget
from convloom.runtime.compiler import compile_cached
from convloom.runtime.cuda_driver import DRIVER_REMEDY, CudaContext, device_count, load_bindings
from convloom.runtime.interface import Built, Description, Device, DeviceFailure, DeviceMemory, Launcher, as_bytes
from convloom.runtime.launch_expression import LaunchArguments
from convloom.runtime.nvrtc import REMEDY, current_nvrtc, resources_from_log
from convloom.runtime.tensor_map import EncodedMaps, TensorMaps

# One eight-byte slot per parameter, whatever its size.
_SLOTS = {ScalarKind.I32: "i4x", ScalarKind.I64: "q", ScalarKind.F32: "f4x", ScalarKind.F64: "d"}
_ARCH = re.compile(r"sm_(\d+)(\d)([af]?)")
_PER_THREAD = 2  # CU_STREAM_PER_THREAD
_MOST_READY = 256  # calls whose parameters a kernel remembers
_PLAIN_SHARED = 48 * 1024  # bytes of shared memory that a block may use unasked


class _Parameters:
    """The parameters of one call as the driver takes them: read only once made, so that threads may share them."""

    def __init__(self, packed: bytes, count: int, maps: EncodedMaps | None) -> None:
        self._values = ctypes.create_string_buffer(packed, max(len(packed), 1))
        self._maps = maps
        base = ctypes.addressof(self._values)
        pointers = [*range(base, base + 8 * count, 8), *(() if maps is None else maps.addresses)]
        self._pointers = (ctypes.c_void_p * max(len(pointers), 1))(*pointers)
        self.address = ctypes.addressof(self._pointers)


class CudaBuilt(Built):
    """A kernel loaded into one GPU's context."""

    def __init__(self, source: KernelSource, context: CudaContext, cubin: bytes, log: str) -> None:
        super().__init__(source, resources_from_log(log))
        self.context = context
        self._module, self.function = _load(source, context, cubin)
        kinds = [item.kind for item in source.scalars]
        self._format = struct.Struct("=" + "Q" * len(source.buffers) + "".join(_SLOTS[kind] for kind in kinds))
        self._order = _order(kinds)
        self._mapped = _buffer_places(source)
        self._limits = tuple(context.limits[f"grid_{axis}"] for axis in "xyz")

    def _multiprocessors(self) -> int:
        return self.context.limits["processors"]

    def _launcher(self, arguments: LaunchArguments) -> Launcher:
        grid, integers, floats, map_values = arguments
        if any(size > limit for size, limit in zip(grid, self._limits, strict=True)):
            raise IllegalProblem(
                f"a grid on {self.context.name} must fit {self._limits}; kernel {self.source.name} needs {grid}; "
                "use larger tiles or a kernel that packs the grid into x"
            )
        scalars = integers + floats
        geometry = (*grid, *self.source.block, self.source.shared_bytes)
        maps = TensorMaps(self.source, map_values, self.context) if self.source.maps else None
        return _CudaLauncher(self, geometry, tuple([scalars[place] for place in self._order]), maps)

    def parameters(self, buffers: Sequence[Any], values: tuple[float, ...], maps: TensorMaps | None) -> _Parameters:
        """The parameters of a launch with these buffers and scalars."""
        addresses = [self._address(buffer) for buffer in buffers]
        encoded = None if maps is None else maps.at([addresses[place] for place in self._mapped])
        return _Parameters(self._format.pack(*addresses, *values), len(addresses) + len(values), encoded)


class _CudaLauncher:
    """A kernel with one grid and one set of scalars; parameters are remembered by the addresses of the buffers."""

    __slots__ = ("_arguments", "_built", "_context", "_function", "_geometry", "_launch", "_ready")

    def __init__(
        self,
        built: CudaBuilt,
        geometry: tuple[int, ...],
        values: tuple[float, ...],
        maps: TensorMaps | None,
    ) -> None:
        self._built, self._arguments, self._geometry = built, (values, maps), geometry
        self._context, self._function = built.context, built.function
        self._launch = built.context.api.cuLaunchKernel
        self._ready: dict[tuple[int, ...], _Parameters] = {}

    def __call__(self, buffers: Sequence[Any], stream: Any) -> None:
        ready = self._ready.get(tuple(buffers)) or self._remembered(buffers)
        if self._context.is_current():
            (status,) = self._launch(self._function, *self._geometry, stream or 0, ready.address, 0)
        else:
            with self._context.current():
                (status,) = self._launch(self._function, *self._geometry, stream or 0, ready.address, 0)
        if status:
            name = self._built.source.name
            raise self._context.failure(f"launch of {name} with grid {self._geometry[:3]}", status)

    def _remembered(self, buffers: Sequence[Any]) -> _Parameters:
        ready = self._built.parameters(buffers, *self._arguments)
        if len(self._ready) >= _MOST_READY:
            self._ready.clear()
        self._ready[tuple(buffers)] = ready
        return ready


def _buffer_places(source: KernelSource) -> tuple[int, ...]:
    """Of each map the place of its buffer among the kernel's."""
    names = [buffer.name for buffer in source.buffers]
    return tuple(names.index(item.buffer) for item in source.maps)


def _order(kinds: list[ScalarKind]) -> list[int]:
    """Where each scalar, in the order of parameters, stands in `integers + floats`."""
    integral = [kind in (ScalarKind.I32, ScalarKind.I64) for kind in kinds]
    count = sum(integral)
    return [sum(integral[:n]) if integral[n] else count + n - sum(integral[:n]) for n in range(len(kinds))]


def _load(source: KernelSource, context: CudaContext, cubin: bytes) -> tuple[Any, Any]:
    limits = context.limits
    x, y, z = source.block
    if x * y * z > limits["threads"]:
        raise UnsupportedTarget(
            f"a block on {context.name} may have {limits['threads']} threads; {source.name} has {x * y * z}; "
            "use smaller tiles"
        )
    if source.shared_bytes > limits["shared"]:
        raise UnsupportedTarget(
            f"a block on {context.name} may use {limits['shared']} bytes of shared memory; {source.name} needs "
            f"{source.shared_bytes}; use smaller tiles or fewer stages"
        )
    with context.current():
        module = context.call("cuModuleLoadData", cubin)
        function = context.call("cuModuleGetFunction", module, source.name.encode())
        if source.shared_bytes > _PLAIN_SHARED:
            attribute = context.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            context.call("cuFuncSetAttribute", function, attribute, source.shared_bytes)
    return module, function


class CudaMemory(DeviceMemory):
    """Memory of one GPU."""

    def __init__(self, context: CudaContext, nbytes: int) -> None:
        self._context = context
        self.nbytes = nbytes
        self.handle = int(context.scoped("cuMemAlloc", max(nbytes, 1)))

    def write(self, array: NDArray[Any]) -> None:
        """See `DeviceMemory`."""
        self.check_fits(array)
        if array.nbytes:
            self._context.scoped("cuMemcpyHtoD", self.handle, as_bytes(array).ctypes.data, array.nbytes)

    def read(self, array: NDArray[Any]) -> None:
        """See `DeviceMemory`."""
        self.check_fits(array)
        self._context.scoped("cuCtxSynchronize")
        if array.nbytes:
            self._context.scoped("cuMemcpyDtoH", as_bytes(array).ctypes.data, self.handle, array.nbytes)

    def fill(self, byte: int) -> None:
        """See `DeviceMemory`."""
        if self.nbytes:
            self._context.scoped("cuMemsetD8", self.handle, byte, self.nbytes)

    def free(self) -> None:
        """See `DeviceMemory`."""
        handle, self.handle, self.nbytes = self.handle, 0, 0
        if handle:
            self._context.scoped("cuMemFree", handle)


class CudaDevice(Device):
    """One NVIDIA GPU."""

    language = Language.CUDA

    def __init__(self, ordinal: int) -> None:
        super().__init__()
        self.context = CudaContext(ordinal)
        self.name = f"cuda:{ordinal}"
        limits = self.context.limits
        suffix = "a" if limits["major"] >= 9 else ""
        self.arch = f"sm_{limits['major']}{limits['minor']}{suffix}"

    def _build(self, source: KernelSource) -> CudaBuilt:
        self._check_arch(source)
        binary = compile_cached(current_nvrtc(), source)
        return CudaBuilt(source, self.context, binary.payload, binary.log)

    def _check_arch(self, source: KernelSource) -> None:
        match = _ARCH.fullmatch(source.arch)
        here = (self.context.limits["major"], self.context.limits["minor"])
        if match is not None:
            major, minor = int(match[1]), int(match[2])
            if (major, minor) == here or (match[3] != "a" and major == here[0] and minor <= here[1]):
                return
        raise UnsupportedTarget(
            f"a kernel for {self.name} ({self.context.name}) must be made for {self.arch}; {source.name} is for "
            f"{source.arch}; choose the target of the device"
        )

    def allocate(self, nbytes: int) -> CudaMemory:
        """See `Device`."""
        return CudaMemory(self.context, nbytes)

    def stream_key(self, stream: Any) -> Hashable:
        """See `Device`; the handle of the per-thread default stream means another one in every thread."""
        return (stream, threading.get_ident()) if stream == _PER_THREAD else stream or 0

    def synchronize(self, stream: Any = None) -> None:
        """See `Device`."""
        self.context.scoped("cuStreamSynchronize", stream or 0)

    def time_once(self, call: Callable[[], None], stream: Any = None) -> float:
        """See `Device`; measured by events on the stream."""
        context = self.context
        with context.current():
            start, stop = context.call("cuEventCreate", 0), context.call("cuEventCreate", 0)
            try:
                context.call("cuEventRecord", start, stream or 0)
                call()
                context.call("cuEventRecord", stop, stream or 0)
                context.call("cuEventSynchronize", stop)
                return context.call("cuEventElapsedTime", start, stop) * 1e-3
            finally:
                with suppress(DeviceFailure):  # after a failure the events are lost with the context
                    context.call("cuEventDestroy", start)
                    context.call("cuEventDestroy", stop)

    def describe(self) -> Description:
        """See `Device`."""
        limits = self.context.limits
        free, total = self._memory()
        summary = f"{self.context.name} ({self.arch}), {limits['processors']} multiprocessors, {total / 2**30:.0f} GiB"
        version = self.context.call("cuDriverGetVersion")
        driver = f"driver for CUDA {version // 1000}.{version % 1000 // 10}, {free / 2**30:.0f} GiB free"
        try:
            nvrtc = current_nvrtc()
        except UnsupportedTarget as error:
            return Description(self.name, False, summary, (driver, str(error)), REMEDY)
        details = driver, f"compiled by NVRTC {nvrtc.version} ({nvrtc.path})"
        return Description(self.name, True, summary, details, hardware=summary, compiler=f"NVRTC {nvrtc.version}")

    def _memory(self) -> tuple[int, int]:
        with self.context.current():
            _, free, total = self.context.api.cuMemGetInfo()
        return free, total


def describe_all() -> list[Description]:
    """Every GPU here, or one line that says what is missing."""
    remedy = REMEDY
    try:
        load_bindings()
        remedy = DRIVER_REMEDY
        count = device_count()
        if count:
            return [CudaDevice(ordinal).describe() for ordinal in range(count)]
        missing = "the driver found no GPU"
    except UnsupportedTarget as error:
        missing = str(error).removesuffix(f"; {remedy}")
    return [Description("cuda", False, missing, (compile_only(),), remedy)]


def compile_only() -> str:
    """Whether kernels can at least be compiled here."""
    try:
        nvrtc = current_nvrtc()
    except UnsupportedTarget as error:
        return str(error)
    return f"NVRTC {nvrtc.version} compiles kernels here, nothing runs them"
