"""Finds a C compiler for the cpu device, proves that it works, and turns C text into a shared object."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from convloom import settings
from convloom.artifact import KernelSource, Language
from convloom.errors import BuildFailed, UnsupportedTarget
from convloom.runtime.compiler import Binary, compile_cached

# IEEE semantics stay: no -ffast-math. Contraction to fma only drops a rounding. No automatic loop vectorisation:
# generated text says what is a vector, and clang 22 miscompiles loops whose constant condition cuts their range short
# (it stores element 0 behind the last one; tests/runtime/test_compiler_faults.py holds the loop). Clang knows gcc's
# name of the option.
_OPTIONS = (
    "-std=gnu11", "-O3", "-fPIC", "-shared", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math",
    "-fno-tree-vectorize",
    "-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-g0", "-w",
)  # fmt: skip
# Nothing is linked: the process has libc and libm loaded already, and so no development files are needed. Therefore the
# text may include freestanding headers (stdint.h) only, and reaches libm by __builtin_ names.
_LINK = {"Linux": ("-nostdlib",), "Darwin": ("-undefined", "dynamic_lookup")}
# Compilers hold back 512-bit registers by default, which halves the speed of a matrix product (docs/dependencies.md).
_WIDE = {"x86_64": ("-mprefer-vector-width=512",), "AMD64": ("-mprefer-vector-width=512",)}
_PROBE = KernelSource(
    "convloom_probe",
    Language.C,
    "cpu",
    "#include <stdint.h>\n"
    "typedef float v16 __attribute__((vector_size(64)));\n"
    "void convloom_probe(void *const *b, const int64_t *i, const double *f, int64_t first, int64_t last) {\n"
    "  for (int64_t n = first; n < last; ++n) ((v16 *)b[0])[n] = ((v16 *)b[0])[n] * (float)f[0] + (float)i[0];\n}\n",
    (), (), ("1", "1", "1"), (1, 1, 1), 0, (),
)  # fmt: skip
REMEDY = "pip install 'convloom[cpu]'"
"""Adds a C compiler by pip alone."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A compiler that may exist: how people call it, its command (None if not installed), and options of its own."""

    label: str
    command: tuple[str, ...] | None
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CCompiler:
    """A C compiler that is known to run."""

    label: str
    command: tuple[str, ...]
    options: tuple[str, ...]
    version: str

    def identity(self, source: KernelSource) -> str:
        """See `compiler.Compiler`."""
        return "\n".join([self.version, " ".join((*self.command, *self.options)), host_features(), source.arch])

    def compile(self, source: KernelSource) -> Binary:
        """See `compiler.Compiler`; the text goes in by standard input, nothing but the result touches the disk."""
        return self._run(source)

    def machine_code(self, source: KernelSource, binary: Binary) -> str:
        """See `compiler.Compiler`."""
        return self._run(source, "-S").payload.decode(errors="replace")

    def _run(self, source: KernelSource, *more: str) -> Binary:
        with tempfile.TemporaryDirectory(prefix="convloom-") as directory:
            output = Path(directory, "kernel.out")
            command = [*self.command, *self.options, *more, "-x", "c", "-", "-o", str(output)]
            log = run_compiler(command, source.text, source.name, directory)
            try:
                return Binary(output.read_bytes(), log)
            except FileNotFoundError:
                raise BuildFailed(
                    f"a C compiler must write the file that -o names; {command[0]} ended well and wrote none; "
                    f"correct CONVLOOM_CC"
                ) from None


def run_compiler(command: list[str], text: str, name: str, directory: str) -> str:
    """What the command printed, fed with the text of kernel `name`; `directory` is scratch space.

    Raises BuildFailed if the command does not start, fails, or takes longer than CONVLOOM_BUILD_TIMEOUT.
    """
    done = _run_command(command, text, name, directory)
    log = done.stdout + done.stderr
    if done.returncode:
        raise BuildFailed(
            f"generated text must compile; {command[0]} exited with {done.returncode} on kernel {name}; "
            f"set CONVLOOM_DUMP to keep the text and report this log:\n{log}"
        )
    return log


def _run_command(command: list[str], text: str, name: str, directory: str) -> subprocess.CompletedProcess[str]:
    limit = settings.current().build_timeout
    scratch = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": directory, "ZIG_LOCAL_CACHE_DIR": directory, "LC_ALL": "C"}
    try:
        return subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=limit, check=False, env=scratch
        )
    except subprocess.TimeoutExpired:
        raise BuildFailed(
            f"a kernel must compile within {limit} s; {name} did not with {command[0]}; raise CONVLOOM_BUILD_TIMEOUT"
        ) from None
    except OSError as error:
        raise BuildFailed(f"the compiler must start; {command[0]} gave {error}; correct CONVLOOM_CC") from None


@cache
def host_features() -> str:
    """A digest of what -march=native depends on."""
    keys = ("flags", "Features", "model name", "cpu family", "model\t", "CPU part", "CPU implementer")
    try:
        with open("/proc/cpuinfo") as file:
            block = file.read().split("\n\n", 1)[0]
        facts = "\n".join(line for line in block.splitlines() if line.startswith(keys))
    except OSError:
        facts = platform.processor()
    return hashlib.sha256(f"{platform.machine()}\n{facts}".encode()).hexdigest()


def ziglang_command() -> tuple[str, ...] | None:
    """The compiler inside the ziglang wheel, called without the detour over a second Python."""
    spec = find_spec("ziglang")
    if spec is None or not spec.submodule_search_locations:
        return None
    binary = Path(spec.submodule_search_locations[0], "zig.exe" if sys.platform == "win32" else "zig")
    return (str(binary), "cc") if binary.is_file() else None


def candidates() -> tuple[Candidate, ...]:
    """The compilers in order of preference: the one that CONVLOOM_CC names, else the wheel's, then the system's.

    The wheel's comes first: installed on purpose, the same everywhere, and several times faster to compile.
    """
    chosen = settings.current().cc
    wheel = Candidate("zig", ziglang_command(), _wheel_options())
    if chosen == ("zig",):
        return (wheel,)
    if chosen is not None:
        return (_on_path(*chosen),)
    return (wheel, *map(_on_path, ("cc", "gcc", "clang")))


def _on_path(name: str, *options: str) -> Candidate:
    path = shutil.which(name)
    return Candidate(name, (path, *options) if path else None, _system_options())


def _system_options() -> tuple[str, ...]:
    native = "-mcpu=native" if platform.machine() in ("ppc64le", "riscv64") else "-march=native"
    return (*_OPTIONS, native, *_WIDE.get(platform.machine(), ()), *_LINK.get(platform.system(), ()))


def _wheel_options() -> tuple[str, ...]:
    # Naming the target makes zig use its own headers whatever the machine has.
    target = ("-target", f"{platform.machine()}-linux-gnu") if platform.system() == "Linux" else ()
    wide = _WIDE.get(platform.machine(), ())
    return (*_OPTIONS, *target, "-mcpu=native", *wide, *_LINK.get(platform.system(), ()))


def examine(candidate: Candidate) -> CCompiler:
    """The candidate as a compiler that compiled a probe (once per cache); BuildFailed says why it cannot be used."""
    if candidate.command is None:
        raise BuildFailed("a C compiler must be installed; this one is not")
    compiler = CCompiler(candidate.label, candidate.command, candidate.options, _version(candidate.command))
    try:
        compile_cached(compiler, _PROBE)
    except BuildFailed as error:
        first, *log = str(error).splitlines()
        raise BuildFailed(f"a C compiler must compile a probe; {log[0] if log else first}") from error
    return compiler


def _version(command: tuple[str, ...]) -> str:
    with tempfile.TemporaryDirectory(prefix="convloom-") as directory:
        done = _run_command([*command, "--version"], "", "--version", directory)
    if done.returncode:
        raise BuildFailed(f"a C compiler must answer --version; {command[0]} exited with {done.returncode}")
    return (done.stdout + done.stderr).strip()


@cache
def choose(offered: tuple[Candidate, ...]) -> tuple[CCompiler | None, tuple[str, ...]]:
    """The first candidate that works, if any, and one line per candidate that was passed over."""
    passed: list[str] = []
    for candidate in offered:
        try:
            return examine(candidate), tuple(passed)
        except BuildFailed as error:
            passed.append(f"{candidate.label}: {str(error).splitlines()[0]}")
    return None, tuple(passed)


def current_compiler() -> CCompiler:
    """The compiler in use; UnsupportedTarget lists what was tried."""
    compiler, passed = choose(candidates())
    if compiler is None:
        raise UnsupportedTarget(f"the cpu device needs a C compiler; tried {'; '.join(passed)}; {remedy()}")
    return compiler


def remedy() -> str:
    """What adds a compiler, or mends the one that was asked for."""
    return REMEDY if settings.current().cc is None else f"correct or unset CONVLOOM_CC, or {REMEDY}"
