"""The target that fits a device: what the planner may assume of the machine at hand."""

from __future__ import annotations

import platform
from dataclasses import replace
from functools import cache

from convloom import settings
from convloom.errors import UnsupportedTarget
from convloom.frontend.interpret_device import InterpretDevice
from convloom.runtime.cpu import CpuDevice
from convloom.runtime.cuda import CudaDevice
from convloom.runtime.interface import Device
from convloom.runtime.opencl import OpenClDevice
from convloom.target.arch import CPU, INTERPRET, OPENCL, Target, target_named

# Vector width in bits by the flag that /proc/cpuinfo shows; the first that is there counts.
_WIDTHS = (("avx512f", 512), ("avx2", 256), ("avx", 256))
_LEAST_WIDTH = 128


def target_for(device: Device) -> Target:
    """What kernels for this device are planned for. UnsupportedTarget for a device of an unknown kind."""
    if isinstance(device, CpuDevice):
        return _cpu_target(settings.current().threads)
    if isinstance(device, CudaDevice):
        return _cuda_target(device)
    if isinstance(device, OpenClDevice):
        return _opencl_target(device)
    if isinstance(device, InterpretDevice):
        return INTERPRET
    raise UnsupportedTarget(
        f"a device must be cpu, cuda, opencl or interpret; got {device.name} ({type(device).__name__}); "
        "use device_named(..)"
    )


@cache
def _cpu_target(threads: int) -> Target:
    width = _vector_bits()
    return replace(CPU, processors=threads, access_bits=width, vector_bits=width)


def _vector_bits() -> int:
    """Width of the arithmetic registers of this processor; 128 bits where nothing says more."""
    try:
        with open("/proc/cpuinfo") as file:
            flags = next((line for line in file if line.startswith("flags")), "").split()
    except OSError:
        flags = list[str]()
    if not flags and platform.machine() in ("x86_64", "AMD64"):
        return _LEAST_WIDTH
    return next((width for flag, width in _WIDTHS if flag in flags), _LEAST_WIDTH)


def _cuda_target(device: CudaDevice) -> Target:
    return replace(target_named(device.arch), processors=device.context.limits["processors"])


def _opencl_target(device: OpenClDevice) -> Target:
    handle = device.handle
    return replace(
        OPENCL,
        processors=max(handle.max_compute_units, 1),
        max_threads=min(OPENCL.max_threads, device.max_threads),
        max_shared_bytes=min(OPENCL.max_shared_bytes, handle.local_mem_size),
    )
