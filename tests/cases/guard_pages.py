"""Runs a call in a process of its own, on arrays that touch pages which nobody may access."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

import convloom
from convloom import settings

Array = NDArray[Any]

PAGE = mmap.PAGESIZE
FORBIDDEN = 0  # PROT_NONE


def run_guarded(expression: str, **arrays: Array) -> tuple[Array, Array]:
    """The array `out` after an expression, with every array at the end of its memory, then at the begin.

    The surrounding pages are forbidden, so that a stray access ends the process: an AssertionError here.
    """
    with TemporaryDirectory() as folder:
        given, made = Path(folder) / "given.npz", Path(folder) / "made.npz"
        np.savez(given, **arrays)
        command = [sys.executable, "-c", f"from {__name__} import child; child(*{[expression, str(given), str(made)]})"]
        environment = {**os.environ, "CONVLOOM_CACHE_DIR": str(settings.current().cache_dir)}
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], env=environment)
        assert done.returncode == 0, f"exit {done.returncode}: {done.stderr}"
        results = np.load(made)
        return results["end"], results["begin"]


def child(expression: str, given: str, made: str) -> None:
    """What the process of its own does."""
    arrays = dict(np.load(given))
    results = {}
    for edge in ("end", "begin"):
        placed = {name: _at_edge(array, edge) for name, array in arrays.items()}
        eval(expression, {"convloom": convloom, **placed})
        results[edge] = placed["out"].copy()
    np.savez(made, **results)


def _at_edge(array: Array, edge: str) -> Array:
    """A copy of a C-contiguous array that begins or ends where a forbidden page ends or begins."""
    pages = -(-array.nbytes // PAGE)
    memory = mmap.mmap(-1, (pages + 2) * PAGE)
    offset = PAGE if edge == "begin" else PAGE + pages * PAGE - array.nbytes
    placed = np.ndarray(array.shape, array.dtype, memory, offset)
    placed[...] = array
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (start, start + (pages + 1) * PAGE):
        _forbid(page)
    return placed


def _forbid(address: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(PAGE), FORBIDDEN):
        raise OSError(ctypes.get_errno(), "mprotect")
