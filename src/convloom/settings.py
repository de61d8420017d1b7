"""Every environment knob of convloom, typed, in one place."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from convloom.errors import IllegalProblem

_SIZE_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", re.IGNORECASE)


INTERPRET_CHECKS = frozenset(("races", "known", "overflow"))


def _default_cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    if base and Path(base).is_absolute():  # the XDG specification ignores relative paths
        return Path(base) / "convloom"
    try:
        return Path.home() / ".cache" / "convloom"
    except RuntimeError as error:
        raise IllegalProblem(f"the kernel cache needs a home directory; {error}; set CONVLOOM_CACHE_DIR") from None


def _default_threads() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


def _no_path() -> Path | None:
    return None


def _no_command() -> tuple[str, ...] | None:
    return None


@dataclass(frozen=True, slots=True)
class Settings:
    """The values of all knobs. Sizes in bytes, times in seconds."""

    cache_dir: Path = field(default_factory=_default_cache_dir)
    cache_limit: int = 2**30
    tuning_db: Path | None = field(default_factory=_no_path)
    cc: tuple[str, ...] | None = field(default_factory=_no_command)
    build_timeout: int = 600
    debug: int = 0
    dump: Path | None = field(default_factory=_no_path)
    nvrtc: Path | None = field(default_factory=_no_path)
    verify: bool = False
    threads: int = field(default_factory=_default_threads)
    interpret_threads: int = 1 << 14
    interpret_checks: frozenset[str] = INTERPRET_CHECKS
    interpret_order: int | None = None
    interpret_multiprocessors: int = 2


@dataclass(frozen=True, slots=True)
class Knob:
    """One environment variable: the field it sets, how its text is read, and words for the documentation."""

    variable: str
    field: str
    parse: Callable[[str], Any]
    rule: str
    default: str
    meaning: str


def parse_size(text: str) -> int:
    """Bytes of a size such as `512`, `64 MiB` or `1.5GB`; ValueError for anything else."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return int(float(match[1]) * _SIZE_UNITS[(match[2] or "").lower()])


def _parse_path(text: str) -> Path:
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:  # ~name of nobody
        raise ValueError(text) from error


def _parse_command(text: str) -> tuple[str, ...]:
    words = tuple(shlex.split(text))
    if not words:
        raise ValueError(text)
    return words


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError(text)
    return text == "1"


def _checks(text: str) -> frozenset[str]:
    """The named checks; `none` stands for no check."""
    names = frozenset(() if text == "none" else text.split(","))
    if not names <= INTERPRET_CHECKS:
        raise ValueError(text)
    return names


def _order(text: str) -> int | None:
    """A seed; None for lock-step."""
    if text == "lockstep":
        return None
    if not text.isdecimal():
        raise ValueError(text)
    return int(text)


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return parse


KNOBS = (
    Knob("CONVLOOM_CACHE_DIR", "cache_dir", _parse_path, "a directory", "~/.cache/convloom",
        "where compiled kernels are"),
    Knob(
        "CONVLOOM_CACHE_LIMIT", "cache_limit", parse_size, "a size such as 512MiB or 2GB", "1GiB",
        "most bytes kept there, the least recently used are dropped first; 0 turns the disk cache off",
    ),
    Knob(
        "CONVLOOM_TUNING_DB", "tuning_db", _parse_path, "the path of a file", "tuning.sqlite in CONVLOOM_CACHE_DIR",
        "where measured plans are kept",
    ),
    Knob(
        "CONVLOOM_CC", "cc", _parse_command, "a compiler command, or zig for the ziglang wheel", "the first that works",
        "C compiler of the cpu device",
    ),
    Knob(
        "CONVLOOM_BUILD_TIMEOUT", "build_timeout", _integer(1, 10**6), "seconds, 1 or more", "600",
        "longest time that a C compiler may take over one kernel",
    ),
    Knob(
        "CONVLOOM_DEBUG", "debug", _integer(0, 6), "an integer from 0 to 6", "0",
        "what is printed to stderr: 1 plan, 2 timing, 3 source, 4 final IR, 5 IR after each pass, 6 machine code",
    ),
    Knob("CONVLOOM_DUMP", "dump", _parse_path, "a directory", "none", "where every text and binary is written"),
    Knob("CONVLOOM_NVRTC", "nvrtc", _parse_path, "the path of libnvrtc", "searched", "NVIDIA's run-time compiler"),
    Knob("CONVLOOM_VERIFY", "verify", _switch, "0 or 1", "0", "check the rules of the IR after every pass"),
    Knob("CONVLOOM_THREADS", "threads", _integer(1, 4096), "1 to 4096", "CPUs", "threads of the cpu device"),
    Knob(
        "CONVLOOM_INTERPRET_THREADS", "interpret_threads", _integer(1, 1 << 24), "1 to 16777216", "16384",
        "GPU threads that the interpret device advances together",
    ),
    Knob(
        "CONVLOOM_INTERPRET_CHECKS", "interpret_checks", _checks, "some of races,known,overflow, or none", "all",
        "what the interpret device checks beside bounds",
    ),
    Knob(
        "CONVLOOM_INTERPRET_ORDER", "interpret_order", _order, "lockstep, or a seed >= 0", "lockstep",
        "order of subgroups and landing of copies on the interpret device",
    ),
    Knob(
        "CONVLOOM_INTERPRET_MULTIPROCESSORS", "interpret_multiprocessors", _integer(1, 1024), "1 to 1024", "2",
        "blocks present at a time on the interpret device, in kernels of roles",
    ),
)  # fmt: skip


def from_environment(environment: Mapping[str, str]) -> Settings:
    """The settings that these variables ask for; an unset or empty variable leaves the default.

    Raises IllegalProblem for a value that breaks its knob's rule, and for an unknown variable starting with CONVLOOM_.
    """
    known = {knob.variable for knob in KNOBS}
    for variable in environment:
        if variable.startswith("CONVLOOM_") and variable not in known:
            raise IllegalProblem(
                f"variables starting with CONVLOOM_ must be one of {', '.join(sorted(known))}; "
                f"got {variable}; correct its name or unset it"
            )
    return Settings(
        **{knob.field: _read(knob, environment[knob.variable]) for knob in KNOBS if environment.get(knob.variable)}
    )


def _read(knob: Knob, text: str) -> Any:
    try:
        return knob.parse(text)
    except ValueError:
        raise IllegalProblem(f"{knob.variable} must be {knob.rule}; got {text!r}; correct it or unset it") from None


_active: list[Settings] = []


def current() -> Settings:
    """The settings in force: of the innermost `scoped`, else of the environment as it was at the first use."""
    if not _active:
        _active.append(from_environment(os.environ))
    return _active[-1]


def dump(name: str, content: bytes) -> None:
    """Writes a file into the directory of CONVLOOM_DUMP, where one is set; IllegalProblem if that is impossible."""
    directory = current().dump
    if directory is None:
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
        Path(directory, name).write_bytes(content)
    except OSError as error:
        raise IllegalProblem(
            f"CONVLOOM_DUMP must be a directory that can be written; {directory} gave {error}; correct it or unset it"
        ) from error


@contextmanager
def scoped(**changes: Any) -> Generator[Settings]:
    """Changes some settings, by field name, for the whole process while the block runs (meant for tests)."""
    names = {item.name for item in fields(Settings)}
    if unknown := set(changes) - names:
        raise IllegalProblem(f"a setting must be one of {sorted(names)}; got {sorted(unknown)}; correct the name")
    changed = replace(current(), **changes)
    _active.append(changed)
    try:
        yield changed
    finally:
        _active.remove(changed)


def table() -> list[tuple[str, str, str]]:
    """One row per knob: variable, default, meaning."""
    return [(knob.variable, knob.default, f"{knob.meaning} ({knob.rule})") for knob in KNOBS]
