"""What every device offers: build, launch, memory, and a description of itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from convloom.artifact import MULTIPROCESSORS, KernelSource, Language
from convloom.errors import ConvloomError, IllegalProblem, IllegalType, InternalError, UnsupportedTarget
from convloom.runtime.build_once import BuildOnce
from convloom.runtime.launch_expression import Arithmetic, LaunchArguments, is_periodic
from convloom.runtime.workspace import WorkspacePool

BufferHandle = Any
"""An address (int) on cpu and cuda, a pyopencl buffer on opencl."""

Launcher: TypeAlias = Callable[[Sequence[BufferHandle], Any], None]
"""Enqueues a kernel whose launch arithmetic is done, with these buffers on this stream."""


class DeviceFailure(ConvloomError, RuntimeError):
    """A driver refused a call or lost its device; carries the driver's words."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What the vendor compiler reports: registers, bytes spilled and bytes of stack per thread; static shared bytes.

    `serialised`: asynchronous multiplies wait for each other, as the compiler could not keep them apart from the rest.
    """

    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int
    serialised: bool = False


@dataclass(frozen=True, slots=True)
class Description:
    """One device in words: found or not, what it is made of, and the command that would add what is missing.

    `hardware` and `compiler`: what the times of a kernel depend on beside its text; empty where nothing can be timed.
    """

    name: str
    found: bool
    summary: str
    details: tuple[str, ...] = ()
    remedy: str = ""
    hardware: str = ""
    compiler: str = ""


class DeviceMemory(ABC):
    """Bytes on a device, owned until `free` or the end of a `with` block. `handle` is what `launch` takes."""

    handle: BufferHandle
    nbytes: int

    @abstractmethod
    def write(self, array: NDArray[Any]) -> None:
        """Copies a contiguous array to the start of the memory and waits until done."""

    @abstractmethod
    def read(self, array: NDArray[Any]) -> None:
        """Waits for the device's work, then copies the start of the memory into a contiguous array."""

    @abstractmethod
    def fill(self, byte: int) -> None:
        """Sets every byte."""

    @abstractmethod
    def free(self) -> None:
        """Gives the memory back; allowed twice."""

    def declare(self, begin: int, end: int, *, known: bool) -> None:  # noqa: B027 - optional by design
        """Says that kernels may touch the bytes [begin, end) only, and whether these hold data already.

        Nothing by default: only a device that checks accesses can use it. A copy to the memory makes all bytes known.
        """

    def __enter__(self) -> DeviceMemory:
        """The memory itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Frees the memory."""
        self.free()

    def check_fits(self, array: NDArray[Any]) -> None:
        """IllegalProblem unless the array is C-contiguous and not larger than the memory."""
        if not array.flags.c_contiguous:
            raise IllegalProblem(f"a copied array must be contiguous; got strides {array.strides}; copy it first")
        if array.nbytes > self.nbytes:
            raise IllegalProblem(
                f"a copy must fit its memory of {self.nbytes} bytes; got {array.nbytes}; allocate more"
            )


class Built(ABC):
    """A kernel loaded on one device; may be launched from several threads at once."""

    def __init__(self, source: KernelSource, resources: Resources | None = None) -> None:
        self.source = source
        self.resources = resources
        self.arithmetic = Arithmetic(source)
        self.is_periodic = is_periodic(item.condition for item in source.requirements)
        self._addresses = [
            (f"{buffer.name}_address", place)
            for place, buffer in enumerate(source.buffers)
            if f"{buffer.name}_address" in self.arithmetic.symbols
        ]

    def launch(
        self,
        buffers: Sequence[BufferHandle],
        symbols: Mapping[str, int],
        floats: Mapping[str, float] | None = None,
        stream: Any = None,
    ) -> None:
        """Enqueues one call; an empty grid launches nothing.

        `buffers` in the order of `source.buffers`; `symbols` gives every size and stride by name (`<buffer>_address`
        is filled in); `floats` the floating scalars; `stream` a queue of the device (CUDA: the stream's handle as int,
        None = legacy default stream). The cpu device returns when the work is done, the others at once.
        Raises IllegalProblem for a violated requirement, naming the condition and its values.
        """
        launcher = self.launcher(buffers, symbols, floats or {})
        if launcher is not None:
            launcher(buffers, stream)

    def launcher(
        self, buffers: Sequence[BufferHandle], symbols: Mapping[str, int], floats: Mapping[str, float]
    ) -> Launcher | None:
        """What enqueues a call of these sizes, its arithmetic done and checked; None if the grid is empty.

        It may be kept, if the kernel `is_periodic`, for buffers whose addresses have the same remainders by
        ADDRESS_PERIOD. Raises as `launch`.
        """
        if len(buffers) != len(self.source.buffers):
            expected = ", ".join(buffer.name for buffer in self.source.buffers)
            raise IllegalProblem(
                f"kernel {self.source.name} takes {len(self.source.buffers)} buffers ({expected}); "
                f"got {len(buffers)}; pass one per name"
            )
        if self._addresses:
            symbols = {**symbols, **{name: self._address(buffers[place]) for name, place in self._addresses}}
        if MULTIPROCESSORS in self.arithmetic.symbols:
            symbols = {**symbols, MULTIPROCESSORS: self._multiprocessors()}
        arguments = self.arithmetic(symbols, floats)
        return None if arguments is None else self._launcher(arguments)

    def _multiprocessors(self) -> int:
        """How many blocks of a persistent kernel the device runs at a time."""
        raise InternalError(f"kernels that fill a device are made for those that tell their size; {self.source.name}")

    @abstractmethod
    def _launcher(self, arguments: LaunchArguments) -> Launcher:
        """What enqueues calls with checked arguments and a grid that is not empty, from any thread."""

    def _address(self, buffer: BufferHandle) -> int:
        """The byte address behind a buffer, for alignment requirements."""
        if type(buffer) is not int:
            raise IllegalType(
                f"a buffer must be an address (int) on this device; got {type(buffer).__name__}; pass its address"
            )
        return buffer


class Device(ABC):
    """Somewhere kernels run. One object per physical device; safe for several threads."""

    name: str
    language: Language
    arch: str

    def __init__(self) -> None:
        self._built: BuildOnce[KernelSource, Built] = BuildOnce()
        self._workspaces = WorkspacePool(self.allocate)

    def build(self, source: KernelSource) -> Built:
        """The kernel, compiled (or taken from the caches) and loaded; each kernel is built once, whoever asks.

        Raises BuildFailed with the vendor compiler's log, UnsupportedTarget for another device's language.
        """
        return self._built.get(source, self._checked_build)

    def _checked_build(self, source: KernelSource) -> Built:
        if source.language is not self.language:
            raise UnsupportedTarget(
                f"device {self.name} builds {self.language.value}; got {source.language.value} (kernel {source.name}); "
                "choose the target that matches the device"
            )
        return self._build(source)

    @abstractmethod
    def _build(self, source: KernelSource) -> Built: ...

    @abstractmethod
    def allocate(self, nbytes: int) -> DeviceMemory:
        """Uninitialised memory, aligned to at least 64 bytes."""

    def lend(self, nbytes: int, most: int | None = None, stream: Any = None) -> AbstractContextManager[BufferHandle]:
        """Scratch memory of `nbytes` or more, but not over `most`, for launches that the `with` block enqueues.

        Its content is undefined; it is aligned as `allocate`. The stream must be the one that the launches go to.
        """
        return self._workspaces.lend(nbytes, most, self.stream_key(stream))

    def stream_key(self, stream: Any) -> Hashable:
        """What tells queues apart in which work runs in order."""
        return stream

    def separate(self, stream: Any = None) -> None:  # noqa: B027 - optional by design
        """Makes launches enqueued later see what earlier ones wrote; nothing where queues run in order."""

    @abstractmethod
    def synchronize(self, stream: Any = None) -> None:
        """Waits for the work enqueued on the stream (None: on the default queue)."""

    @abstractmethod
    def time_once(self, call: Callable[[], None], stream: Any = None) -> float:
        """Seconds that the device takes for what `call` enqueues on the stream; waits for it."""

    @abstractmethod
    def describe(self) -> Description:
        """The device in words, for people."""


def as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """A contiguous array's memory as flat bytes, without a copy; also for types foreign to NumPy, such as bf16."""
    return array.reshape(-1).view(np.uint8)
