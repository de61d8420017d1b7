"""NVIDIA's run-time compiler: CUDA C++ text to a cubin; needs neither a GPU nor a driver."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from ctypes.util import find_library
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from convloom import settings
from convloom.artifact import KernelSource
from convloom.errors import BuildFailed, UnsupportedTarget
from convloom.runtime.compiler import Binary
from convloom.runtime.interface import Resources

REMEDY = "pip install 'convloom[cuda]'"
"""Adds NVRTC and the bindings of the driver; the driver itself belongs to the machine."""

_OPTIONS = ("--std=c++17", "--ptxas-options=-v")
_NO_CACHE = ((12, 9), "--no-cache")  # NVRTC's own cache gives the binary back without the assembler's report
# The wheels of CUDA 13 and 12, then a toolkit in its usual place.
_WHEEL_PATTERNS = (
    "nvidia/cu13/lib/libnvrtc.so.*",
    "nvidia/cuda_nvrtc/lib/libnvrtc.so.*",
    "nvidia/cu13/bin/*/nvrtc64*.dll",
)
_SYSTEM_PATTERN = "cuda*/lib64/libnvrtc.so"
_DISASSEMBLER = "nvdisasm"
_REGISTERS = re.compile(r"Used (\d+) registers")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_SERIALISED = re.compile(r"wgmma\S* instructions are serialized")  # ptxas C7510 and its kin
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True, slots=True)
class Nvrtc:
    """The loaded library."""

    library: ctypes.CDLL
    path: Path
    version: str

    def identity(self, source: KernelSource) -> str:
        """See `compiler.Compiler`."""
        return f"nvrtc {self.version} of {self.path.stat().st_size} bytes\n{' '.join(self._options(source))}"

    def compile(self, source: KernelSource) -> Binary:
        """See `compiler.Compiler`. Other threads run meanwhile."""
        with self._compiled(source) as (program, log):
            return Binary(self._fetch(program, "nvrtcGetCUBIN"), log)

    def ptx(self, source: KernelSource) -> str:
        """The virtual assembly that the machine code is made of. BuildFailed as for `compile`."""
        with self._compiled(source) as (program, _):
            return self._fetch(program, "nvrtcGetPTX").rstrip(b"\0").decode()

    def disassemble(self, binary: Binary) -> str:
        """Machine code as text; UnsupportedTarget if NVIDIA's disassembler is not there."""
        tool = _disassembler()
        if tool is None:
            raise UnsupportedTarget(
                f"machine code is shown by {_DISASSEMBLER}; found none in the wheels or on PATH; "
                "run: pip install nvidia-cuda-nvdisasm"
            )
        with tempfile.TemporaryDirectory(prefix="convloom-") as directory:
            cubin = Path(directory, "kernel.cubin")
            cubin.write_bytes(binary.payload)
            done = subprocess.run([tool, "-c", str(cubin)], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def machine_code(self, source: KernelSource, binary: Binary) -> str:
        """See `compiler.Compiler`; needs NVIDIA's disassembler."""
        try:
            return self.disassemble(binary)
        except UnsupportedTarget as error:
            return f"({error})"

    def _options(self, source: KernelSource) -> tuple[str, ...]:
        since, no_cache = _NO_CACHE
        known = tuple(map(int, self.version.split("."))) >= since
        return (f"--gpu-architecture={source.arch}", *_OPTIONS, *((no_cache,) if known else ()))

    @contextmanager
    def _compiled(self, source: KernelSource) -> Generator[tuple[ctypes.c_void_p, str]]:
        """A compiled program with its log, alive inside the block."""
        program = ctypes.c_void_p()
        text, name = source.text.encode(), f"{source.name}.cu".encode()
        self._call("nvrtcCreateProgram", ctypes.byref(program), text, name, 0, None, None)
        try:
            yield program, self._compile_program(program, source)
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _compile_program(self, program: ctypes.c_void_p, source: KernelSource) -> str:
        options = [option.encode() for option in self._options(source)]
        status = self.library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        log = self._fetch(program, "nvrtcGetProgramLog").rstrip(b"\0").decode(errors="replace")
        if status:
            raise BuildFailed(
                f"generated text must compile; NVRTC {self.version} refused kernel {source.name} for {source.arch} "
                f"({self._error(status)}); set CONVLOOM_DUMP to keep the text and report this log:\n{log}"
            )
        return log

    def _fetch(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"{what}Size", program, ctypes.byref(size))
        content = ctypes.create_string_buffer(size.value)
        self._call(what, program, content)
        return content.raw

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self.library, function)(*arguments)
        if status:
            raise BuildFailed(f"NVRTC must work; {function} of {self.path} gave {self._error(status)}; {REMEDY}")

    def _error(self, status: int) -> str:
        return self.library.nvrtcGetErrorString(status).decode()


def _disassembler() -> str | None:
    wheels = (
        str(found.parent) for entry in sys.path for found in Path(entry or ".").glob(f"nvidia/*/bin/{_DISASSEMBLER}")
    )
    return shutil.which(_DISASSEMBLER, path=os.pathsep.join([*wheels, os.environ.get("PATH", "")]))


def _by_pathfinder() -> Iterator[Path]:
    try:
        load = import_module("cuda.pathfinder").load_nvidia_dynamic_lib
        yield Path(load("nvrtc").abs_path)
    except (ImportError, RuntimeError):  # not installed, or it found nothing
        return


def _in_wheels() -> Iterator[Path]:
    for entry in sys.path:
        for pattern in _WHEEL_PATTERNS:
            yield from sorted(Path(entry or ".").glob(pattern))


def _in_system() -> Iterator[Path]:
    yield from sorted(Path("/usr/local").glob(_SYSTEM_PATTERN), reverse=True)
    name = find_library("nvrtc")
    if name is not None:
        yield Path(name)


_SEARCHES: tuple[Callable[[], Iterator[Path]], ...] = (_by_pathfinder, _in_wheels, _in_system)


def _paths() -> Iterator[Path]:
    named = settings.current().nvrtc
    if named is not None:
        yield named
        return
    for search in _SEARCHES:
        yield from search()


def current_nvrtc() -> Nvrtc:
    """The library that CONVLOOM_NVRTC names, else the first that is found; UnsupportedTarget says how to add it."""
    return _load(settings.current().nvrtc)


@cache
def _load(_named: Path | None) -> Nvrtc:
    failures: list[str] = []
    for path in _paths():
        if "builtins" in path.name or ".alt." in path.name:
            continue
        try:
            return _open(path)
        except OSError as error:
            failures.append(f"{path}: {error}")
    raise UnsupportedTarget(f"CUDA kernels need NVRTC; found none ({'; '.join(failures) or 'no file'}); {REMEDY}")


def _open(path: Path) -> Nvrtc:
    library = ctypes.CDLL(str(path))
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    major, minor = ctypes.c_int(), ctypes.c_int()
    if library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)):
        raise OSError("nvrtcVersion failed")
    return Nvrtc(library, path, f"{major.value}.{minor.value}")


def supported_archs(nvrtc: Nvrtc) -> tuple[str, ...]:
    """Architectures that the library compiles for, without the suffixes `a` and `f`, such as `sm_90`."""
    count = ctypes.c_int()
    nvrtc.library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    nvrtc.library.nvrtcGetSupportedArchs(numbers)
    return tuple(f"sm_{number}" for number in numbers)


def resources_from_log(log: str) -> Resources | None:
    """What the assembler reported of the one kernel in a text; None if the log has no such report."""
    registers = _REGISTERS.search(log)
    if registers is None:
        return None
    stack = _STACK.search(log)
    shared = _SHARED.search(log)
    return Resources(
        registers=int(registers[1]),
        spill_bytes=int(stack[2]) + int(stack[3]) if stack else 0,
        stack_bytes=int(stack[1]) if stack else 0,
        shared_bytes=int(shared[1]) if shared else 0,
        serialised=_SERIALISED.search(log) is not None,
    )
