"""What every vendor compiler offers, and how its results are cached."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
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


def compile_cached(compiler: Compiler, source: KernelSource) -> Binary:
    """The kernel compiled, or from the disk cache if the very same text was compiled by the very same compiler."""
    key = CacheKey(source.name, f"{compiler.identity(source)}\n{source.text}".encode())
    cache = current_cache()
    found = cache.get(key)
    if found is not None:
        return Binary(*found)
    _dump(source, _SUFFIXES[source.language], source.text.encode())
    start = time.perf_counter()
    binary = compiler.compile(source)
    if settings.current().debug >= 2:
        print(f"convloom: compiled {source.name} in {time.perf_counter() - start:.3f} s", file=sys.stderr)
    _dump(source, ".bin", binary.payload)
    _dump(source, ".log", binary.log.encode())
    cache.put(key, binary.payload, binary.log)
    return binary


def _dump(source: KernelSource, suffix: str, content: bytes) -> None:
    directory = settings.current().dump
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        Path(directory, source.name + suffix).write_bytes(content)
