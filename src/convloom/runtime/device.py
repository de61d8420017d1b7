"""Finds devices by name, and lists what is found and what is missing."""

from __future__ import annotations

from collections.abc import Callable

from convloom.errors import UnsupportedTarget
from convloom.runtime import cuda, opencl
from convloom.runtime.build_once import BuildOnce
from convloom.runtime.cpu import CpuDevice
from convloom.runtime.interface import Description, Device

_RULE = "a device must be cpu, cuda, cuda:N, opencl or opencl:PART_OF_A_PLATFORM_NAME"
_devices: BuildOnce[str, Device] = BuildOnce()
_added: dict[str, Callable[[], Device]] = {}


def add_device(name: str, make: Callable[[], Device]) -> None:
    """Makes a device of another layer known under a name."""
    _added[name] = make


def device_named(name: str) -> Device:
    """The device `cpu`, `cuda` (the same as `cuda:0`), `cuda:1`, `opencl` or `opencl:<part of a platform's name>`.

    Raises UnsupportedTarget, with the command that would add it, if there is none here. One name, one object.
    """
    return _devices.get("cuda:0" if name == "cuda" else name, _open)


def _open(name: str) -> Device:
    kind, separator, detail = name.partition(":")
    if name == "cpu":
        return CpuDevice()
    if kind == "cuda" and detail.isdecimal():
        return cuda.CudaDevice(int(detail))
    if kind == "opencl" and (detail or not separator):
        return opencl.open_device(name, detail)
    if name in _added:
        return _added[name]()
    rule = ", ".join((_RULE, *_added))
    raise UnsupportedTarget(f"{rule}; got {name!r}; use one of these")


def describe_devices() -> list[Description]:
    """Every device that convloom knows, found or missing; the remedy is the command that would add a missing one."""
    own = [device_named("cpu").describe(), *cuda.describe_all(), *opencl.describe_all()]
    return [*own, *(device_named(name).describe() for name in _added)]
