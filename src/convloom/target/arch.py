"""Facts about the machines that kernels are planned for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from convloom.artifact import Language
from convloom.dtypes import BF16, E4M3, E5M2, F16, F32, F64, S8, S32, U8, DType
from convloom.errors import UnsupportedTarget
from convloom.target.instruction import Family, Instruction
from convloom.target.number_format import TF32


@dataclass(frozen=True, slots=True)
class Target:
    """One machine as the planner sees it.

    Rates are per multiprocessor (a core on a CPU) and clock; they feed the cost model.
    """

    name: str
    language: Language
    arch: str
    processors: int  # multiprocessors or cores
    clock_ghz: float
    max_threads: int  # per block
    max_shared_bytes: int  # per block
    max_registers: int  # 32-bit registers a thread may hold (for vector machines: in one vector lane)
    resident_threads: int  # per multiprocessor
    access_bits: int  # widest load or store of one thread
    vector_bits: int  # width of one arithmetic register; 32 where each thread computes scalars
    multiply_adds: tuple[tuple[str, float], ...]  # per clock and multiprocessor, by accumulator type name
    matrix_multiply_adds: tuple[tuple[str, float], ...]  # the same for matrix instructions, by operand type name
    bandwidth_gbs: float  # device memory
    max_blocks: int  # in the first grid dimension
    cache_bytes: int  # of the last cache in front of device memory
    atomic_bits: tuple[int, ...] = (32, 64)  # widths of numbers that a thread can add to memory atomically
    group_multiply_adds: tuple[tuple[str, float], ...] = ()  # of asynchronous group multiplies, by operand type name
    dot_multiply_adds: float = 0.0  # per clock and multiprocessor, of short dot products in single threads

    def math_lanes(self, accumulator: DType) -> int:
        """Numbers that one arithmetic instruction of a thread handles."""
        return max(1, self.vector_bits // accumulator.bits) if self.vector_bits > 32 else 1

    def row_rate(self, row: Instruction) -> float:
        """Multiply-adds per clock and multiprocessor of a row that multiplies; 0: it is not known to be worth it."""
        if row.family is Family.DOT:
            return self.dot_multiply_adds
        return dict(self.matrix_multiply_adds).get(row.fragment("a").dtype.name, 0.0)

    def multiply_add_rate(self, accumulator: DType) -> float:
        """Multiply-adds per clock and multiprocessor."""
        return dict(self.multiply_adds)[accumulator.name]


CPU = Target(
    name="cpu",
    language=Language.C,
    arch="native",
    processors=2,
    clock_ghz=2.5,
    max_threads=1024,
    max_shared_bytes=128 * 1024,
    max_registers=32,
    resident_threads=1,
    access_bits=512,
    vector_bits=512,
    multiply_adds=((F32.name, 16.0), (F64.name, 8.0), (S32.name, 8.0)),
    matrix_multiply_adds=(),
    bandwidth_gbs=10.0,
    max_blocks=2**62,
    cache_bytes=32 * 2**20,
)

OPENCL = Target(
    name="opencl",
    language=Language.OPENCL,
    arch="",
    processors=16,
    clock_ghz=1.5,
    max_threads=256,
    max_shared_bytes=32 * 1024,
    max_registers=128,
    resident_threads=1024,
    access_bits=128,
    vector_bits=32,
    multiply_adds=((F32.name, 128.0), (F64.name, 4.0), (S32.name, 32.0)),
    matrix_multiply_adds=(),
    bandwidth_gbs=200.0,
    max_blocks=2**31 - 1,
    cache_bytes=4 * 2**20,
    atomic_bits=(32,),
)

SM_80 = Target(
    name="sm_80",
    language=Language.CUDA,
    arch="sm_80",
    processors=108,
    clock_ghz=1.41,
    max_threads=1024,
    max_shared_bytes=163 * 1024,
    max_registers=255,
    resident_threads=2048,
    access_bits=128,
    vector_bits=32,
    multiply_adds=((F32.name, 64.0), (F64.name, 32.0), (S32.name, 64.0)),
    matrix_multiply_adds=(
        (F16.name, 1024.0),
        (BF16.name, 1024.0),
        (TF32.name, 512.0),
        (S8.name, 2048.0),
        (U8.name, 2048.0),
        (E4M3.name, 1024.0),  # on later machines that are planned like this one
        (E5M2.name, 1024.0),
        (F64.name, 64.0),
    ),
    bandwidth_gbs=1500.0,
    max_blocks=2**31 - 1,
    cache_bytes=40 * 2**20,
    dot_multiply_adds=256.0,
)

SM_90A = replace(
    SM_80,
    name="sm_90a",
    arch="sm_90a",
    processors=132,
    clock_ghz=1.75,
    max_shared_bytes=227 * 1024,
    multiply_adds=((F32.name, 128.0), (F64.name, 64.0), (S32.name, 64.0)),
    matrix_multiply_adds=(
        (F16.name, 1024.0),
        (BF16.name, 1024.0),
        (TF32.name, 512.0),
        (S8.name, 2048.0),
        (U8.name, 2048.0),
        (E4M3.name, 1024.0),
        (E5M2.name, 1024.0),
        (F64.name, 128.0),
    ),
    bandwidth_gbs=4300.0,
    cache_bytes=50 * 2**20,
    group_multiply_adds=((F16.name, 1750.0), (BF16.name, 1750.0)),  # of 2048: power sets the clock
)

# Runs nowhere: kernels are executed by the IR's interpreter, planned as for an NVIDIA GPU.
INTERPRET = replace(SM_80, name="interpret", language=Language.IR, arch="interpret")

# KiB of shared memory that a block may ask for, by compute capability (CUDA programming guide, specifications).
_SHARED_KIB = {75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99}

TARGETS = {target.name: target for target in (CPU, OPENCL, SM_80, SM_90A, INTERPRET)}


def target_named(name: str) -> Target:
    """The target with this name; any other known sm_NN is planned like sm_80 with its own shared memory.

    UnsupportedTarget lists the known ones.
    """
    found = TARGETS.get(name)
    if found is not None:
        return found
    level = name[3:].rstrip("af") if name.startswith("sm_") else ""
    if level.isdigit() and int(level) in _SHARED_KIB:
        shared = _SHARED_KIB[int(level)] * 1024
        return replace(SM_80, name=name, arch=name, max_shared_bytes=shared)
    others = ", ".join(f"sm_{level}" for level in _SHARED_KIB if f"sm_{level}" not in TARGETS)
    raise UnsupportedTarget(
        f"a target must be one of {', '.join(TARGETS)}, {others}, or one of these with an `a` or `f` behind; "
        f"got {name!r}; choose one of these"
    )
