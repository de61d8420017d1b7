"""Where candidates of one problem meet: the same operands in memory of a device, one reference, one timer."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Protocol

import numpy as np

from convloom.frontend.anchor import FLUSH_BYTES
from convloom.frontend.anchor_numpy import HostTimer
from convloom.frontend.device_run import DeviceTensors
from convloom.frontend.device_target import target_for
from convloom.frontend.host_memory import check_fits_memory
from convloom.frontend.kernel import Kernel
from convloom.frontend.problem_check import Judge
from convloom.problem.data import DataKind, make_operands
from convloom.problem.gemm_arguments import gemm_problem
from convloom.problem.reference import Operands, Problem
from convloom.runtime.interface import Device
from convloom.runtime.pair_timing import Call, Timer
from convloom.target.arch import CPU

_FLUSH_COLUMNS = 4096
_FLUSH_ROWS = FLUSH_BYTES // 4 // _FLUSH_COLUMNS  # of f32


class Stand(Protocol):
    """Calls of a problem's kernels on the same tensors."""

    timer: Timer

    def fault(self, kernel: Kernel) -> str:
        """What is wrong with the kernel's result, in words; empty if it is right."""
        ...

    def call(self, kernel: Kernel) -> Call:
        """One call of the kernel."""
        ...


class DeviceTimer:
    """A device's own clock; caches are cooled by a product of ours that reads more than they hold."""

    def __init__(self, device: Device) -> None:
        self._device = device
        problem = gemm_problem(m=1, n=_FLUSH_COLUMNS, k=_FLUSH_ROWS)
        self._kernel = Kernel(problem, device, target_for(device))
        ones = np.ones((1, _FLUSH_ROWS), np.float32), np.ones((_FLUSH_ROWS, _FLUSH_COLUMNS), np.float32)
        self._tensors = DeviceTensors(problem, device, Operands(*ones))

    def __enter__(self) -> DeviceTimer:
        return self

    def __exit__(self, *_: object) -> None:
        self._tensors.__exit__()

    def cool(self) -> None:
        """See `Timer`."""
        self._tensors.run(self._kernel)

    def seconds(self, call: Call) -> float:
        """See `Timer`."""

        def enqueue() -> None:
            call()

        return self._device.time_once(enqueue)


class DeviceStand:
    """A stand on random reals in a device's memory, judged by the reference of this process; freed with its block.

    IllegalProblem for symbolic sizes, and for tensors that do not fit the machine's memory.
    """

    def __init__(self, problem: Problem, device: Device) -> None:
        check_fits_memory(problem)
        operands = make_operands(problem, DataKind.REAL)
        self._judge = Judge(problem, operands, DataKind.REAL)
        with ExitStack() as stack:
            self.timer: Timer = HostTimer() if device.name == CPU.name else stack.enter_context(DeviceTimer(device))
            self._tensors = stack.enter_context(DeviceTensors(problem, device, operands))
            self._stack = stack.pop_all()

    def __enter__(self) -> DeviceStand:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def fault(self, kernel: Kernel) -> str:
        """See `Stand`."""
        self._tensors.reset()
        self._tensors.run(kernel)
        kernel.device.synchronize()
        return self._judge(self._tensors.outcome()).reason

    def call(self, kernel: Kernel) -> Call:
        """See `Stand`."""
        return lambda: self._tensors.run(kernel)
