"""Finds a C compiler for the cpu device, proves that it works, and turns C text into a shared object."""

from __future__ import annotations

import hashlib
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

# IEEE semantics stay: no -ffast-math. Contraction to fma only drops a rounding.
_OPTIONS = (
    "-std=gnu11", "-O3", "-fPIC", "-shared", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math",
    "-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-fno-ident", "-w",
)  # fmt: skip
# Nothing is linked but compiler helpers: the process has libc and libm loaded already, and no development files are needed.
_LINK = {"Linux": ("-nostdlib",), "Darwin": ("-undefined", "dynamic_lookup")}
_PROBE = KernelSource(
    "convloom_probe",
    Language.C,
    "cpu",
    "typedef float v16 __attribute__((vector_size(64)));\n"
    "void convloom_probe(void *const *b, const long long *i, const double *f, long long first, long long last) {\n"
    "  for (long long n = first; n < last; ++n) ((v16 *)b[0])[n] = ((v16 *)b[0])[n] * (float)f[0] + (float)i[0];\n}\n",
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
        with tempfile.TemporaryDirectory(prefix="convloom-") as directory:
            output = Path(directory, "kernel.so")
            command = [*self.command, *self.options, "-x", "c", "-", "-o", str(output)]
            log = run_compiler(command, source.text, source.name)
            return Binary(output.read_bytes(), log)


def run_compiler(command: list[str], text: str, name: str) -> str:
    """What the command printed, fed with the text; BuildFailed if it fails or takes longer than CONVLOOM_BUILD_TIMEOUT."""
    limit = settings.current().build_timeout
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        raise BuildFailed(
            f"a kernel must compile within {limit} s; {name} did not with {command[0]}; raise CONVLOOM_BUILD_TIMEOUT"
        ) from None
    except OSError as error:
        raise BuildFailed(f"the compiler must start; {command[0]} gave {error}; correct CONVLOOM_CC") from None
    log = done.stdout + done.stderr
    if done.returncode:
        raise BuildFailed(
            f"generated text must compile; {command[0]} exited with {done.returncode} on kernel {name}; set CONVLOOM_DUMP to "
            f"keep the text and report this log:\n{log}"
        )
    return log


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


def candidates() -> list[Candidate]:
    """The compilers in order of preference: the one that CONVLOOM_CC names alone, else the system's, else the wheel's."""
    chosen = settings.current().cc
    zig = Candidate("zig", ziglang_command(), _zig_options())
    if chosen == ("zig",):
        return [zig]
    if chosen is not None:
        path = shutil.which(chosen[0])
        return [Candidate(" ".join(chosen), (path, *chosen[1:]) if path else None, _system_options())]
    found = [
        Candidate(name, (path,) if (path := shutil.which(name)) else None, _system_options())
        for name in ("cc", "gcc", "clang")
    ]
    return [*found, zig]


def _system_options() -> tuple[str, ...]:
    native = "-mcpu=native" if platform.machine() in ("ppc64le", "riscv64") else "-march=native"
    return (*_OPTIONS, native, *_LINK.get(platform.system(), ()))


def _zig_options() -> tuple[str, ...]:
    return (*_OPTIONS, "-mcpu=native", *_LINK.get(platform.system(), ()))


def examine(candidate: Candidate) -> CCompiler:
    """The candidate as a compiler that compiled a probe (once per cache); BuildFailed says why it cannot be used."""
    if candidate.command is None:
        raise BuildFailed(f"the compiler must be installed; {candidate.label} is not; {REMEDY}")
    version = run_compiler([*candidate.command, "--version"], "", "--version").strip()
    compiler = CCompiler(candidate.label, candidate.command, candidate.options, version)
    compile_cached(compiler, _PROBE)
    return compiler


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
    compiler, passed = choose(tuple(candidates()))
    if compiler is None:
        raise UnsupportedTarget(f"the cpu device needs a C compiler; tried {'; '.join(passed)}; {REMEDY}")
    return compiler
