"""Whether there is a GPU for tests, and the marks of tests that need one."""

from __future__ import annotations

from functools import cache

import pytest

from convloom.errors import UnsupportedTarget
from convloom.runtime.device import device_named


@cache
def reason_without_gpu() -> str:
    """Why no CUDA device can be used; empty if one can."""
    try:
        device_named("cuda")
    except UnsupportedTarget as error:
        return str(error)
    return ""


needs_gpu = [pytest.mark.cuda, pytest.mark.skipif(bool(reason_without_gpu()), reason=reason_without_gpu() or "no GPU")]
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]
