"""The opencl device: OpenCL C built by whatever platform is installed, through pyopencl."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convloom.artifact import KernelSource, Language, ScalarKind
from convloom.errors import BuildFailed, IllegalType, UnsupportedTarget
from convloom.runtime.compiler import Binary, compile_cached
from convloom.runtime.interface import Built, Description, Device, DeviceFailure, DeviceMemory, Launcher, as_bytes
from convloom.runtime.launch_expression import LaunchArguments

REMEDY = "pip install 'convloom[opencl]' 'pyopencl[pocl]'"
"""Adds pyopencl and a platform that runs on the processor."""

_OPTIONS = ("-cl-std=CL1.2",)
_SCALARS = {ScalarKind.I32: np.int32, ScalarKind.I64: np.int64, ScalarKind.F32: np.float32, ScalarKind.F64: np.float64}


class _Kernels(threading.local):
    """A kernel object per thread, since its arguments belong to it."""

    def __init__(self, api: Any, program: Any, name: str) -> None:
        self.kernel = api.Kernel(program, name)


class OpenClBuilt(Built):
    """A kernel of one context; launches go to the device's queue unless another is given."""

    def __init__(self, source: KernelSource, device: OpenClDevice, program: Any) -> None:
        super().__init__(source)
        self._device = device
        self._kernels = _Kernels(device.api, program, source.name)
        self._types = [_SCALARS[item.kind] for item in source.scalars]
        integral = [item.kind in (ScalarKind.I32, ScalarKind.I64) for item in source.scalars]
        self._integral = integral
        x, y, z = source.block
        limit = device.max_threads
        if x * y * z > limit:
            raise UnsupportedTarget(
                f"a work-group on {device.label} may have {limit} work-items; {source.name} has {x * y * z}; "
                "use smaller tiles"
            )

    def _launcher(self, arguments: LaunchArguments) -> Launcher:
        return partial(self._start, arguments)

    def _start(self, arguments: LaunchArguments, buffers: Sequence[Any], stream: Any) -> None:
        api, block = self._device.api, self.source.block
        integers, floats = iter(arguments.integers), iter(arguments.floats)
        kernel = self._kernels.kernel
        values = [
            make(next(integers if integral else floats))
            for make, integral in zip(self._types, self._integral, strict=True)
        ]
        kernel.set_args(*buffers, *values)
        whole = tuple(count * size for count, size in zip(arguments.grid, block, strict=True))
        try:
            api.enqueue_nd_range_kernel(stream or self._device.queue, kernel, whole, block)
        except api.Error as error:
            raise _failure(self._device.label, f"launch of {self.source.name}", error) from None

    def _address(self, buffer: Any) -> int:
        """Offset of a buffer within its allocation: platforms align allocations to 128 bytes at least."""
        if not isinstance(buffer, self._device.api.MemoryObjectHolder):
            raise IllegalType(
                f"a buffer must be a pyopencl buffer on {self._device.label}; got {type(buffer).__name__}; "
                "copy the data to the device"
            )
        return int(buffer.offset)


class OpenClMemory(DeviceMemory):
    """A buffer of one context."""

    def __init__(self, device: OpenClDevice, nbytes: int) -> None:
        self._device = device
        self.nbytes = nbytes
        self.handle = device.api.Buffer(device.context, device.api.mem_flags.READ_WRITE, max(nbytes, 1))

    def write(self, array: NDArray[Any]) -> None:
        """See `DeviceMemory`."""
        self.check_fits(array)
        if array.nbytes:
            self._device.api.enqueue_copy(self._device.queue, self.handle, as_bytes(array), is_blocking=True)

    def read(self, array: NDArray[Any]) -> None:
        """See `DeviceMemory`."""
        self.check_fits(array)
        if array.nbytes:
            self._device.api.enqueue_copy(self._device.queue, as_bytes(array), self.handle, is_blocking=True)

    def fill(self, byte: int) -> None:
        """See `DeviceMemory`."""
        if self.nbytes:
            self._device.api.enqueue_fill_buffer(self._device.queue, self.handle, np.uint8(byte), 0, self.nbytes)

    def free(self) -> None:
        """See `DeviceMemory`."""
        if self.handle is not None:
            self.handle.release()
            self.handle, self.nbytes = None, 0


class OpenClDevice(Device):
    """The first device of one OpenCL platform."""

    language = Language.OPENCL
    arch = ""

    def __init__(self, name: str, platform: Any) -> None:
        super().__init__()
        self.name = name
        self.api = load_pyopencl()
        self.handle = platform.get_devices()[0]
        self.label = f"{platform.name.strip()}: {self.handle.name.strip()}"
        self.max_threads: int = self.handle.max_work_group_size
        self.context = self.api.Context([self.handle])
        profiling = self.api.command_queue_properties.PROFILING_ENABLE
        self.queue = self.api.CommandQueue(self.context, properties=profiling)

    def identity(self, source: KernelSource) -> str:
        """See `compiler.Compiler`."""
        device = self.handle
        return "\n".join(
            [device.platform.version, device.vendor, device.name, device.version, device.driver_version, *_OPTIONS]
        )

    def compile(self, source: KernelSource) -> Binary:
        """See `compiler.Compiler`."""
        program = self._finished(self.api.Program(self.context, source.text), source)
        log = program.get_build_info(self.handle, self.api.program_build_info.LOG)
        return Binary(program.get_info(self.api.program_info.BINARIES)[0], log)

    def machine_code(self, source: KernelSource, binary: Binary) -> str:
        """See `compiler.Compiler`."""
        return f"(the binary of {self.label} has no common text form; CONVLOOM_DUMP keeps it)"

    def _finished(self, program: Any, source: KernelSource) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # pyopencl warns of every log that is not empty
                return program.build(list(_OPTIONS), devices=[self.handle], cache_dir=False)
        except self.api.Error as error:
            raise BuildFailed(
                f"generated text must compile; {self.label} refused kernel {source.name}; set CONVLOOM_DUMP to keep "
                f"the text and report this log:\n{error}"
            ) from None

    def _build(self, source: KernelSource) -> OpenClBuilt:
        binary = compile_cached(self, source)
        program = self.api.Program(self.context, [self.handle], [binary.payload])
        return OpenClBuilt(source, self, self._finished(program, source))

    def allocate(self, nbytes: int) -> OpenClMemory:
        """See `Device`."""
        return OpenClMemory(self, nbytes)

    def separate(self, stream: Any = None) -> None:
        """See `Device`; only queues of the caller may run out of order."""
        if stream is not None and stream.properties & self.api.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
            self.api.enqueue_barrier(stream)

    def synchronize(self, stream: Any = None) -> None:
        """See `Device`."""
        (stream or self.queue).finish()

    def time_once(self, call: Callable[[], None], stream: Any = None) -> float:
        """See `Device`; measured by markers on the queue, which must have profiling enabled."""
        queue = stream or self.queue
        first = self.api.enqueue_marker(queue)
        call()
        last = self.api.enqueue_marker(queue)
        last.wait()
        return (last.profile.end - first.profile.end) * 1e-9

    def describe(self) -> Description:
        """See `Device`."""
        details = (f"{self.handle.version.strip()}, driver {self.handle.driver_version}", self._half_precision())
        units = self.handle.max_compute_units
        summary = f"{self.label}, {units} compute units"
        compiler = f"{self.handle.version.strip()} {self.handle.driver_version}"
        return Description(self.name, True, summary, details, hardware=summary, compiler=compiler)

    def _half_precision(self) -> str:
        has = "cl_khr_fp16" in self.handle.extensions
        return "16-bit arithmetic" if has else "no 16-bit arithmetic: 16-bit types are stored, computed in 32 bits"


def _failure(label: str, what: str, error: Exception) -> DeviceFailure:
    return DeviceFailure(
        f"the OpenCL platform must accept every call; {what} on {label} gave {error}; check its limits"
    )


@cache
def load_pyopencl() -> Any:
    """The pyopencl module; UnsupportedTarget says how to add it."""
    try:
        return import_module("pyopencl")
    except ImportError as error:
        raise UnsupportedTarget(f"the opencl device needs pyopencl; {error}; {REMEDY}") from None


def platforms() -> list[Any]:
    """Every OpenCL platform that has a device; UnsupportedTarget if pyopencl is missing."""
    api = load_pyopencl()
    try:
        return [platform for platform in api.get_platforms() if _has_devices(api, platform)]
    except api.Error:  # the loader raises if it knows no platform at all
        return []


def _has_devices(api: Any, platform: Any) -> bool:
    try:
        return bool(platform.get_devices())
    except api.Error:
        return False


def open_device(name: str, part: str) -> OpenClDevice:
    """The device of the first platform whose name contains `part`, in any case, else UnsupportedTarget."""
    found = platforms()
    for platform in found:
        if part.lower() in platform.name.lower():
            return OpenClDevice(name, platform)
    names = ", ".join(platform.name.strip() for platform in found) or "none"
    raise UnsupportedTarget(f"device {name} needs a platform with {part!r} in its name; found {names}; {REMEDY}")


def describe_all() -> list[Description]:
    """Every OpenCL platform here, or one line that says what is missing."""
    try:
        found = platforms()
    except UnsupportedTarget as error:
        return [Description("opencl", False, str(error).removesuffix(f"; {REMEDY}"), (), REMEDY)]
    if not found:
        return [Description("opencl", False, "no OpenCL platform is installed", (), REMEDY)]
    return [OpenClDevice(f"opencl:{platform.name.strip()}", platform).describe() for platform in found]
