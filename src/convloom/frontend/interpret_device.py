"""The interpret device: kernels as IR text, executed by the interpreter on host memory, every access checked."""

from __future__ import annotations

import ctypes
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convloom import settings
from convloom.artifact import BufferParam, KernelSource, Language, ScalarKind
from convloom.dtypes import dtype_named
from convloom.errors import ConvloomError, IllegalProblem
from convloom.ir.interpret import FindingKind, Findings, GlobalMemory, Options, Outcome, interpret
from convloom.ir.interpret.machine import tensor_map
from convloom.ir.interpret.options import Landing
from convloom.ir.parse import parse_kernel
from convloom.runtime.device import add_device
from convloom.runtime.interface import Built, Description, Device, DeviceMemory, Launcher, as_bytes
from convloom.runtime.launch_expression import LaunchArguments

NAME = "interpret"
Bools = NDArray[np.bool_]

_ALIGNMENT = 256
_SHOWN = 4
SUBGROUP = 32
"""Threads that advance together where an order is asked for: those of the machines that the target is planned like."""


class InterpretedFault(ConvloomError, RuntimeError):
    """A kernel did what is undefined or wrong on a device; carries the findings, and the kernel's text to repeat it."""

    def __init__(self, kernel: str, findings: Findings, text: str) -> None:
        self.findings = findings
        self.text = text
        shown = "; ".join(str(finding) for finding, _ in zip(findings, range(_SHOWN), strict=False))
        more = f"; and {len(findings) - _SHOWN} more" if len(findings) > _SHOWN else ""
        super().__init__(f"a kernel must be free of faults; {kernel} has {len(findings)}: {shown}{more}; report this")


class InterpretMemory(DeviceMemory):
    """Host memory that knows which of its bytes a kernel may touch, and which hold data."""

    def __init__(self, device: InterpretDevice, content: NDArray[np.uint8], *, known: bool) -> None:
        self.device = device
        self.content = content
        self.nbytes = content.size
        self.known = np.full(content.size, known)
        self.allowed = range(content.size)
        self.handle = int(content.ctypes.data)

    def write(self, array: NDArray[Any]) -> None:
        """See `DeviceMemory`."""
        self.check_fits(array)
        self.content[: array.nbytes] = as_bytes(array)
        self.known[: array.nbytes] = True

    def read(self, array: NDArray[Any]) -> None:
        """See `DeviceMemory`."""
        self.check_fits(array)
        as_bytes(array)[:] = self.content[: array.nbytes]

    def fill(self, byte: int) -> None:
        """See `DeviceMemory`."""
        self.content.fill(byte)
        self.known.fill(True)

    def declare(self, begin: int, end: int, *, known: bool) -> None:
        """See `DeviceMemory`."""
        self.allowed = range(begin, end)
        self.known[begin:end] = known

    def free(self) -> None:
        """See `DeviceMemory`."""
        self.device.forget(self)
        self.content, self.known, self.nbytes = np.empty(0, np.uint8), np.empty(0, np.bool_), 0

    def view(self, buffer: BufferParam, address: int) -> tuple[GlobalMemory, int]:
        """The memory as a kernel's parameter that begins at an address, and the byte where the view begins."""
        dtype = dtype_named(buffer.dtype)
        offset = address - self.handle
        first = offset % dtype.nbytes
        count = (self.nbytes - first) // dtype.nbytes
        values = self.content[first : first + count * dtype.nbytes].view(dtype.numpy)
        known: Bools = np.all(self.known[first : first + count * dtype.nbytes].reshape(count, dtype.nbytes), axis=1)
        begin = -(-max(self.allowed.start - first, 0) // dtype.nbytes)
        end = max((self.allowed.stop - first) // dtype.nbytes, begin)
        return GlobalMemory(values, offset // dtype.nbytes, known, address, range(begin, end)), first

    def learn(self, memory: GlobalMemory, first: int) -> None:
        """Takes over what a launch has written."""
        assert memory.known is not None
        size = memory.values.itemsize
        self.known[first : first + memory.known.size * size] = np.repeat(memory.known, size)


class InterpretBuilt(Built):
    """A kernel read back from its IR text. `last` is the outcome of the latest launch (of any thread)."""

    def __init__(self, source: KernelSource, device: InterpretDevice) -> None:
        super().__init__(source)
        self.is_periodic = False  # the number of multiprocessors may change from call to call
        self._kernel = parse_kernel(source.text)
        self._device = device
        self.last: Outcome | None = None

    def _multiprocessors(self) -> int:
        return self._device.options().multiprocessors

    def _launcher(self, arguments: LaunchArguments) -> Launcher:
        return partial(self._start, arguments)

    def _start(self, arguments: LaunchArguments, buffers: Sequence[Any], stream: Any) -> None:
        if stream is not None:
            raise IllegalProblem(f"the interpret device has no streams; got {stream!r}; leave it out")
        integers, floats = iter(arguments.integers), iter(arguments.floats)
        whole: dict[str, int] = {}
        real: dict[str, float] = {}
        for item in self.source.scalars:
            if item.kind in (ScalarKind.I32, ScalarKind.I64):
                whole[item.name] = next(integers)
            else:
                real[item.name] = next(floats)
        owners = [self._device.owner(self._address(buffer)) for buffer in buffers]
        views = [
            owner.view(parameter, address)
            for owner, parameter, address in zip(owners, self.source.buffers, buffers, strict=True)
        ]
        memories = {item.name: memory for item, (memory, _) in zip(self.source.buffers, views, strict=True)}
        x, y, z = arguments.grid
        maps = {
            item.name: tensor_map(item, values) for item, values in zip(self._kernel.maps, arguments.maps, strict=True)
        }
        outcome = self.last = interpret(self._kernel, memories, whole, real, x * y * z, self._device.options(), maps)
        for owner, (memory, first) in zip(owners, views, strict=True):
            owner.learn(memory, first)
        if len(outcome.findings):
            settings.dump(f"{self.source.name}.faulty.ir", self.source.text.encode())
            raise InterpretedFault(self.source.name, outcome.findings, self.source.text)


class InterpretDevice(Device):
    """Runs kernels without any hardware but this machine's, slowly, and finds their faults."""

    name = NAME
    language = Language.IR
    arch = NAME

    def __init__(self, options: Options | None = None) -> None:
        super().__init__()
        self._options = options
        self._memories: dict[int, InterpretMemory] = {}
        self._lock = threading.Lock()

    def options(self) -> Options:
        """What is checked: as given to the device, else by the settings."""
        if self._options is not None:
            return self._options
        current = settings.current()
        checks, order = current.interpret_checks, current.interpret_order
        return Options(
            races="races" in checks,
            known="known" in checks,
            overflow="overflow" in checks,
            chunk_threads=current.interpret_threads,
            group_threads=0 if order is None else SUBGROUP,
            seed=order or 0,
            landing=Landing.LATEST if order is None else Landing.SEEDED,
            multiprocessors=current.interpret_multiprocessors,
        )

    def _build(self, source: KernelSource) -> InterpretBuilt:
        return InterpretBuilt(source, self)

    def allocate(self, nbytes: int) -> InterpretMemory:
        """See `Device`."""
        owner = np.empty(nbytes + _ALIGNMENT, np.uint8)
        start = -owner.ctypes.data % _ALIGNMENT
        return self._entered(InterpretMemory(self, owner[start : start + nbytes], known=False))

    @contextmanager
    def lend(self, nbytes: int, most: int | None = None, stream: Any = None) -> Generator[int]:
        """See `Device`; memory of exactly this size that holds nothing known."""
        with self.allocate(nbytes) as memory:
            yield memory.handle

    def adopt(self, address: int, nbytes: int) -> InterpretMemory:
        """Memory of the host, all of it known, that kernels may use until the `InterpretMemory` is freed."""
        content = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
        return self._entered(InterpretMemory(self, content, known=True))

    def _entered(self, memory: InterpretMemory) -> InterpretMemory:
        with self._lock:
            self._memories[memory.handle] = memory
        return memory

    def forget(self, memory: InterpretMemory) -> None:
        """Drops memory that is given back."""
        with self._lock:
            self._memories.pop(memory.handle, None)

    def owns(self, address: int) -> bool:
        """Whether an address lies in memory that this device allocated or adopted."""
        return self._find(address) is not None

    def _find(self, address: int) -> InterpretMemory | None:
        with self._lock:
            starts = sorted(self._memories)
            place = bisect_right(starts, address) - 1
            found = self._memories[starts[place]] if place >= 0 else None
        return found if found is not None and address <= found.handle + found.nbytes else None

    def owner(self, address: int) -> InterpretMemory:
        """The memory that an address lies in; IllegalProblem if this device did not allocate it."""
        found = self._find(address)
        if found is None:
            raise IllegalProblem(
                f"buffers on the interpret device are addresses in memory that it allocated; got {address:#x}; "
                "use Device.allocate"
            )
        return found

    def synchronize(self, stream: Any = None) -> None:
        """Nothing: launches return when done."""

    def time_once(self, call: Callable[[], None], stream: Any = None) -> float:
        """See `Device`."""
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    def describe(self) -> Description:
        """See `Device`."""
        kinds = ", ".join(kind.value for kind in FindingKind)
        return Description(self.name, True, "executes the IR with NumPy and checks every access", (f"finds: {kinds}",))


add_device(NAME, InterpretDevice)
