"""What every vendor compiler offers, and how its results are cached."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Protocol

from convloom import settings
from convloom.artifact import KernelSource, Language
from convloom.runtime.disk_cache import CacheKey, current_cache

_SUFFIXES = {Language.C: ".c", Language.OPENCL: ".cl", Language.CUDA: ".cu"}


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled kernel and what its compiler said."""

    payload: bytes
    log: str


class Compiler(Protocol):
    """One vendor compiler with fixed options."""

    def identity(self, source: KernelSource) -> str:
        """All that the result depends on besides the text: compiler, version, options, architecture, host features."""
        ...

    def compile(self, source: KernelSource) -> Binary:
        """The kernel compiled; BuildFailed carries the compiler's log."""
        ...

    def machine_code(self, source: KernelSource, binary: Binary) -> str:
        """The binary as assembly text for people, or a line that says what is needed to show it."""
        ...


def compile_cached(compiler: Compiler, source: KernelSource) -> Binary:
    """The kernel compiled, or from the disk cache if the very same text was compiled by the very same compiler.

    Prints and dumps what CONVLOOM_DEBUG (2 timing, 3 source, 6 machine code) and CONVLOOM_DUMP ask for.
    """
    key = CacheKey(source.name, f"{compiler.identity(source)}\n{source.text}".encode())
    name = f"{source.name}-{key.digest.hex()[:12]}"
    _show(3, name + _SUFFIXES[source.language], source.text)
    found = current_cache().get(key)
    binary = Binary(*found) if found is not None else _compile(compiler, source, key, name)
    if settings.current().debug >= 6 or settings.current().dump is not None:
        _show(6, name + ".s", compiler.machine_code(source, binary))
        settings.dump(name + ".bin", binary.payload)
        settings.dump(name + ".log", binary.log.encode())
    return binary


def _compile(compiler: Compiler, source: KernelSource, key: CacheKey, name: str) -> Binary:
    start = time.perf_counter()
    binary = compiler.compile(source)
    if settings.current().debug >= 2:
        print(f"convloom: compiled {name} in {time.perf_counter() - start:.3f} s", file=sys.stderr)
    current_cache().put(key, binary.payload, binary.log)
    return binary


def _show(level: int, name: str, text: str) -> None:
    if settings.current().debug >= level:
        print(f"convloom: {name}\n{text}", file=sys.stderr)
    settings.dump(name, text.encode())
