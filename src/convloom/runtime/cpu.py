"""The cpu device: generated C, compiled to a shared object, its blocks run on a thread pool."""

from __future__ import annotations

import ctypes
import os
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convloom import settings
from convloom.artifact import KernelSource, Language
from convloom.errors import BuildFailed, IllegalProblem
from convloom.runtime import c_compiler
from convloom.runtime.compiler import compile_cached
from convloom.runtime.interface import Built, Description, Device, DeviceMemory, Launcher, as_bytes
from convloom.runtime.launch_expression import LaunchArguments
from convloom.runtime.thread_pool import CHUNKS_PER_THREAD, current_pool

_ALIGNMENT = 128
_INLINE_SECONDS = 60e-6  # waking the pool costs about as much
_INLINE, _SPREAD = -1, -2  # settled verdicts on a grid; others count the trials so far
_TRIALS = 3
_MOST_VERDICTS = 4096
_ENTRY = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
)  # a foreign call without the interpreter lock


class CpuBuilt(Built):
    """A loaded shared object."""

    def __init__(self, source: KernelSource, entry: Callable[..., None], library: ctypes.CDLL) -> None:
        super().__init__(source)
        self._entry = entry
        self._library = library
        self._buffers = ctypes.c_void_p * len(source.buffers)
        self._verdicts: dict[tuple[int, tuple[int, ...]], int] = {}

    def _launcher(self, arguments: LaunchArguments) -> Launcher:
        (x, y, z), integers, floats, _ = arguments
        entry, total = self._entry, x * y * z
        whole = (ctypes.c_int64 * len(integers))(*integers)
        real = (ctypes.c_double * len(floats))(*floats)

        def start(buffers: Sequence[Any], stream: Any) -> None:
            if stream is not None:
                raise IllegalProblem(f"the cpu device has no streams; got {stream!r}; leave it out")
            pointers = self._buffers(*map(self._address, buffers))

            def run(first: int, last: int) -> None:
                entry(pointers, whole, real, first, last)

            self._spread(run, total, integers)

        return start

    def _spread(self, run: Callable[[int, int], None], total: int, sizes: tuple[int, ...]) -> None:
        """Runs a grid on the pool, or inline if it is too short to be worth waking other threads."""
        pool = current_pool()
        verdict = self._verdicts.get((total, sizes)) if total > 1 and pool.threads > 1 else _INLINE
        if verdict == _INLINE:
            run(0, total)
        elif verdict == _SPREAD:
            pool.run(run, 0, total)
        else:
            self._judge(run, total, sizes, verdict or 0)

    def _judge(self, run: Callable[[int, int], None], total: int, sizes: tuple[int, ...], trials: int) -> None:
        """Times the first part of a grid alone to learn how to run the rest, and later calls with the same sizes."""
        pool = current_pool()
        part = -(-total // (pool.threads * CHUNKS_PER_THREAD))
        start = time.perf_counter()
        run(0, part)
        spread = (time.perf_counter() - start) / part * total > _INLINE_SECONDS
        if len(self._verdicts) >= _MOST_VERDICTS:
            self._verdicts.clear()
        # Early calls may be slow for want of warm caches and mapped pages: they settle nothing unless they are short.
        unsettled = spread and trials + 1 < _TRIALS
        self._verdicts[total, sizes] = trials + 1 if unsettled else _SPREAD if spread else _INLINE
        if spread:
            pool.run(run, part, total)
        else:
            run(part, total)


class CpuMemory(DeviceMemory):
    """Aligned host memory."""

    def __init__(self, nbytes: int) -> None:
        self._owner = np.empty(nbytes + _ALIGNMENT, np.uint8)
        start = -self._owner.ctypes.data % _ALIGNMENT
        self._bytes = self._owner[start : start + nbytes]
        self.nbytes = nbytes
        self.handle = self._bytes.ctypes.data

    def write(self, array: NDArray[Any]) -> None:
        """See `DeviceMemory`."""
        self.check_fits(array)
        self._bytes[: array.nbytes] = as_bytes(array)

    def read(self, array: NDArray[Any]) -> None:
        """See `DeviceMemory`."""
        self.check_fits(array)
        as_bytes(array)[:] = self._bytes[: array.nbytes]

    def fill(self, byte: int) -> None:
        """See `DeviceMemory`."""
        self._bytes.fill(byte)

    def free(self) -> None:
        """See `DeviceMemory`."""
        self._owner = self._bytes = np.empty(0, np.uint8)
        self.nbytes = 0


class CpuDevice(Device):
    """The processor of the machine at hand."""

    name = "cpu"
    language = Language.C
    arch = "native"

    def _build(self, source: KernelSource) -> CpuBuilt:
        binary = compile_cached(c_compiler.current_compiler(), source)
        library = load_library(binary.payload, source.name)
        try:
            address = ctypes.cast(getattr(library, source.name), ctypes.c_void_p).value
        except AttributeError:
            raise BuildFailed(
                f"generated text must define its entry point; kernel {source.name} does not; please report this"
            ) from None
        assert address is not None
        return CpuBuilt(source, _ENTRY(address), library)

    def allocate(self, nbytes: int) -> CpuMemory:
        """See `Device`."""
        return CpuMemory(nbytes)

    def synchronize(self, stream: Any = None) -> None:
        """Nothing: launches return when done."""

    def time_once(self, call: Callable[[], None], stream: Any = None) -> float:
        """See `Device`."""
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    def describe(self) -> Description:
        """See `Device`."""
        threads = f"{settings.current().threads} threads"
        compiler, passed = c_compiler.choose(c_compiler.candidates())
        if compiler is None:
            return Description(self.name, False, "no C compiler works", passed, c_compiler.remedy())
        version = compiler.version.splitlines()[0]
        summary = f"{platform.machine()}, {threads}, compiled by {compiler.label} ({version})"
        details = (
            f"command: {' '.join((*compiler.command, *compiler.options))}",
            *(f"passed over {line}" for line in passed),
        )
        hardware = f"{platform.machine()} {c_compiler.host_features()[:16]}, {threads}"
        compiled = f"{version} {' '.join((compiler.label, *compiler.options))}"
        return Description(self.name, True, summary, details, hardware=hardware, compiler=compiled)


@cache
def _load_mathematics() -> None:
    """Makes libm's functions visible to shared objects that were linked without it."""
    for name in ("libm.so.6", "libm.so"):
        try:
            ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
            return
        except OSError:
            continue


def load_library(payload: bytes, name: str) -> ctypes.CDLL:
    """The shared object with these bytes, loaded under a new file name (the loader tells libraries apart by name)."""
    _load_mathematics()
    failure: OSError | None = None
    for directory in (None, settings.current().cache_dir, Path.cwd()):  # a temporary directory may forbid execution
        try:
            return _load_from(directory, payload)
        except OSError as error:
            failure = error
    raise BuildFailed(
        f"a compiled kernel must load; {name} gave {failure}; set TMPDIR to a directory that allows execution"
    )


def _load_from(directory: Path | None, payload: bytes) -> ctypes.CDLL:
    handle, path = tempfile.mkstemp(prefix="convloom-", suffix=".so", dir=directory)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(payload)
        return ctypes.CDLL(path)
    finally:
        os.unlink(path)
