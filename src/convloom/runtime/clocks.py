"""The clock of a GPU's multiprocessors, where NVIDIA's management library is there to tell it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_LIBRARY = "libnvidia-ml.so.1"
_MULTIPROCESSORS = 1  # NVML_CLOCK_SM
_VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Clocks:
    """One GPU's clock in MHz: the highest it may have, and `now()` what it has (None: the library does not say)."""

    most: int
    now: Callable[[], int | None]


def open_clocks(
    ordinal: int, environment: Mapping[str, str], load: Callable[[str], Any] = ctypes.CDLL
) -> Clocks | None:
    """The clock of CUDA's device of this number; None where nothing tells it.

    The library numbers all GPUs of a machine, CUDA those of CUDA_VISIBLE_DEVICES: names other than numbers there are
    not followed. (NVML API reference: nvmlDeviceGetClockInfo, nvmlDeviceGetMaxClockInfo.)
    """
    number = _number(ordinal, environment.get(_VISIBLE))
    if number is None:
        return None
    try:
        library = load(_LIBRARY)
    except OSError:
        return None
    handle = ctypes.c_void_p()
    if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)):
        return None

    def clock(function: Any) -> int | None:
        value = ctypes.c_uint()
        return None if function(handle, _MULTIPROCESSORS, ctypes.byref(value)) else value.value

    most = clock(library.nvmlDeviceGetMaxClockInfo)
    return None if most is None else Clocks(most, lambda: clock(library.nvmlDeviceGetClockInfo))


def _number(ordinal: int, visible: str | None) -> int | None:
    """The machine's number of a GPU that CUDA knows by `ordinal`."""
    if visible is None:
        return ordinal
    names = visible.split(",")
    return int(names[ordinal]) if ordinal < len(names) and names[ordinal].strip().isdecimal() else None
