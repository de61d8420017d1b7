"""The CUDA driver: contexts, modules, memory and events, with errors as exceptions."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from convloom.errors import UnsupportedTarget
from convloom.runtime.interface import DeviceFailure
from convloom.runtime.nvrtc import REMEDY

DRIVER_REMEDY = "apt-get install nvidia-driver"
"""Adds NVIDIA's driver on Debian; elsewhere the package has another name. It needs an NVIDIA GPU."""

_LIMITS = {
    "grid_x": "CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X",
    "grid_y": "CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y",
    "grid_z": "CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z",
    "threads": "CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK",
    "shared": "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "major": "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR",
    "minor": "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR",
    "processors": "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT",
}


class CudaContext:
    """The primary context of one GPU, shared with every other user of the CUDA runtime in the process."""

    def __init__(self, ordinal: int) -> None:
        self.api = load_driver()
        self.ordinal = ordinal
        count = self.call("cuDeviceGetCount")
        if not 0 <= ordinal < count:
            raise UnsupportedTarget(
                f"a CUDA device must be one of the {count} here; got cuda:{ordinal}; use a lower number"
            )
        self.device = self.call("cuDeviceGet", ordinal)
        attributes = self.api.CUdevice_attribute
        self.limits: dict[str, int] = {
            name: self.call("cuDeviceGetAttribute", getattr(attributes, attribute), self.device)
            for name, attribute in _LIMITS.items()
        }
        self.name: str = self.call("cuDeviceGetName", 256, self.device).split(b"\0")[0].decode()
        self.handle = self.call("cuDevicePrimaryCtxRetain", self.device)
        self._number = int(self.handle)
        self._get_current = self.api.cuCtxGetCurrent

    def call(self, function: str, *arguments: Any) -> Any:
        """The result of a driver function; DeviceFailure for an error code."""
        status, *results = getattr(self.api, function)(*arguments)
        if status:
            raise self.failure(function, status)
        return results[0] if len(results) == 1 else None

    def failure(self, function: str, status: Any) -> DeviceFailure:
        """The exception for an error code."""
        _, text = self.api.cuGetErrorString(status)
        words = text.decode() if text else "unknown error"
        return DeviceFailure(
            f"the CUDA driver must accept every call; {function} on cuda:{self.ordinal} gave {int(status)} ({words}); "
            "an earlier kernel may be at fault"
        )

    def is_current(self) -> bool:
        """Whether the context is the one that driver calls of this thread refer to."""
        _, found = self._get_current()
        return int(found) == self._number

    @contextmanager
    def current(self) -> Generator[None]:
        """Makes the context current for this thread while the block runs, and the former one again after it."""
        self.call("cuCtxPushCurrent", self.handle)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent")

    def scoped(self, function: str, *arguments: Any) -> Any:
        """`call` with the context current."""
        with self.current():
            return self.call(function, *arguments)


def load_bindings() -> Any:
    """NVIDIA's bindings of the driver; UnsupportedTarget if they are not installed."""
    try:
        return import_module("cuda.bindings.driver")
    except ImportError as error:
        raise UnsupportedTarget(f"the cuda device needs NVIDIA's bindings; {error}; {REMEDY}") from None


@cache
def load_driver() -> Any:
    """NVIDIA's bindings with an initialised driver; UnsupportedTarget says what is missing."""
    api = load_bindings()
    try:
        (status,) = api.cuInit(0)
    except RuntimeError as error:
        why = str(error).splitlines()[0].rstrip(".")
        raise UnsupportedTarget(f"the cuda device needs NVIDIA's driver; {why}; {DRIVER_REMEDY}") from None
    if status:
        raise UnsupportedTarget(f"the cuda device needs a GPU; cuInit gave {status!r}; check nvidia-smi")
    return api


def device_count() -> int:
    """GPUs here; UnsupportedTarget if there is no driver."""
    _, count = load_driver().cuDeviceGetCount()
    return count
