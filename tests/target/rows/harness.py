"""One-instruction CUDA kernels made from a row's text, and the same execution by the row's semantics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from convloom.artifact import Access, BufferParam, KernelSource, Language
from convloom.target.asm_text import statement
from convloom.target.catalogue import row_named
from convloom.target.instruction import Direction, Instruction, Operand, OperandKind, Register
from convloom.target.memory import FlatMemory, Space
from convloom.target.tensor_map import TensorMap

ALIGNMENT = 1024
BUFFERS = ("operands", "global_bytes", "maps", "shared_in", "shared_out", "results")
_READ = {
    Register.B32: "(unsigned)({})",
    Register.F32: "__uint_as_float((unsigned)({}))",
    Register.F64: "__longlong_as_double((long long)({}))",
    Register.B64: "(unsigned long long)({})",
}
_WRITE = {
    Register.B32: "{}",
    Register.F32: "__float_as_uint({})",
    Register.F64: "(unsigned long long)__double_as_longlong({})",
    Register.B64: "{}",
}
_TYPE = {Register.B32: "unsigned", Register.F32: "float", Register.F64: "double", Register.B64: "unsigned long long"}
PRELUDE = """
typedef unsigned long long u64;
__device__ __forceinline__ void wait_for(unsigned barrier, unsigned parity, u64 *failed) {
    for (int round = 0; round < 4000000; ++round) {
        unsigned done;
        WAIT
        if (done) return;
    }
    *failed = 1;
}
"""


@dataclass
class Case:
    """Operand words (blocks, lanes, registers) with addresses counted from the start of each space, and the memory."""

    row: Instruction
    values: dict[str, Any]
    shared: np.ndarray | None = None  # (blocks, bytes)
    global_bytes: np.ndarray | None = None
    before: str = ""
    after: str = ""
    cluster: int = 1
    ignored: tuple[int, int] = (0, 0)  # range of shared bytes whose encoding is the hardware's own
    tolerance: Any = None  # (blocks, lanes, registers) bound of |difference| of f32 results; None: to the bit
    label: str = ""
    active: np.ndarray | None = field(default=None)

    @property
    def name(self) -> str:
        return f"{self.row.name} {self.label}".strip()

    @property
    def lanes(self) -> int:
        return next(v.shape[-2] for v in self.values.values() if isinstance(v, np.ndarray))

    @property
    def blocks(self) -> int:
        return int(np.prod(next(v.shape[:-2] for v in self.values.values() if isinstance(v, np.ndarray))))

    @property
    def threads(self) -> int:
        return max(32, self.lanes)

    @property
    def shared_size(self) -> int:
        return 0 if self.shared is None else self.shared.shape[-1]

    def slots(self) -> list[tuple[Operand, int]]:
        """(operand, register) in the order of the operand buffer."""
        passed = [
            operand
            for operand in self.row.operands
            if operand.kind not in (OperandKind.IMMEDIATE, OperandKind.TENSOR_MAP)
            and operand.direction is not Direction.OUT
        ]
        return [(operand, register) for operand in passed for register in range(operand.registers)]

    def operand_words(self) -> np.ndarray:
        """The operand buffer (blocks, lanes, slots) of u64."""
        columns = [self.values[operand.name][..., register].astype(np.uint64) for operand, register in self.slots()]
        return np.ascontiguousarray(np.stack(columns, axis=-1).reshape(self.blocks, self.lanes, -1))

    def expected(self) -> tuple[dict[str, np.ndarray], FlatMemory]:
        """Results and memory after the semantics."""
        memory = FlatMemory(
            np.zeros(0, np.uint8) if self.global_bytes is None else self.global_bytes.copy(),
            np.zeros((self.blocks, 0), np.uint8) if self.shared is None else self.shared.copy(),
        )
        return self.row.execute(self.values, memory, self.active), memory


def written_slots(case: Case) -> list[tuple[Operand, int]]:
    """(operand, register) in the order of the result buffer."""
    written = [operand for operand in case.row.operands if operand.direction is not Direction.IN]
    return [(operand, register) for operand in written for register in range(operand.registers)]


def kernel_text(case: Case, name: str) -> str:
    """The kernel: shared image in, operands in, one instruction, results and shared image out."""
    width, results = len(case.slots()), len(written_slots(case))
    wait = statement(
        row_named("mbarrier.try_wait.parity"),
        Language.CUDA,
        {"d": ["done"], "barrier": ["barrier"], "parity": ["parity"]},
    )
    bound = f"__launch_bounds__({case.threads})"
    cluster = f" __cluster_dims__({case.cluster}, 1, 1)" if case.cluster > 1 else ""
    lines = [
        PRELUDE.replace("WAIT", wait),
        f'extern "C" __global__ void{cluster} {bound} {name}(const u64 *operands, unsigned char *global_bytes,',
        "        const unsigned char *maps, const unsigned char *shared_in, unsigned char *shared_out, u64 *results) {",
        "    extern __shared__ unsigned char raw[];",
        "    unsigned base = (unsigned)__cvta_generic_to_shared(raw);",
        f"    unsigned char *tile = raw + (({ALIGNMENT} - base % {ALIGNMENT}) % {ALIGNMENT});",
        "    base = (unsigned)__cvta_generic_to_shared(tile);",
        f"    const int lane = threadIdx.x, block = blockIdx.x, size = {case.shared_size};",
        f"    u64 *failed = results + (u64)gridDim.x * {case.lanes * results} + block;",
        "    for (int i = lane; i < size; i += blockDim.x) tile[i] = shared_in[(u64)block * size + i];",
        '    asm volatile("fence.proxy.async;" ::: "memory");',
        "    __syncthreads();",
        f"    const u64 *mine = operands + ((u64)block * {case.lanes} + lane) * {width};",
        f"    u64 *out = results + ((u64)block * {case.lanes} + lane) * {results};",
        f"    {case.before}",
        f"    if (lane < {case.lanes}) {{",
        *(f"        {line}" for line in _instruction(case)),
        "    }",
        "    __syncthreads();",
        "    for (int i = lane; i < size; i += blockDim.x) shared_out[(u64)block * size + i] = tile[i];",
        "}",
    ]
    return "\n".join(lines)


def _instruction(case: Case) -> list[str]:
    arguments: dict[str, list[str]] = {}
    lines: list[str] = []
    place = {(operand.name, register): slot for slot, (operand, register) in enumerate(case.slots())}
    for operand in case.row.operands:
        if operand.kind is OperandKind.IMMEDIATE:
            arguments[operand.name] = [str(case.values[operand.name])]
        elif operand.kind is OperandKind.TENSOR_MAP:
            arguments[operand.name] = ["(u64)maps"]
        else:
            arguments[operand.name] = [f"{operand.name}_{register}" for register in range(operand.registers)]
            for register in range(operand.registers):
                given = place.get((operand.name, register))
                value = "0" if given is None else _address(operand, f"mine[{given}]")
                lines.append(
                    f"{_TYPE[operand.register]} {operand.name}_{register} = {_READ[operand.register].format(value)};"
                )
    lines += [statement(case.row, Language.CUDA, arguments), case.after]
    for slot, (operand, register) in enumerate(written_slots(case)):
        lines.append(f"out[{slot}] = {_WRITE[operand.register].format(f'{operand.name}_{register}')};")
    return lines


def _address(operand: Operand, value: str) -> str:
    if operand.kind is OperandKind.DESCRIPTOR:
        return f"{value} + (base >> 4)"
    if operand.kind is not OperandKind.ADDRESS:
        return value
    return f"{value} + (u64)global_bytes" if operand.space is Space.GLOBAL else f"{value} + base"


def kernel_source(case: Case, arch: str) -> KernelSource:
    """The kernel as the runtime takes it."""
    name = "row_" + "".join(letter if letter.isalnum() else "_" for letter in case.name)
    return KernelSource(
        name=name,
        language=Language.CUDA,
        arch=arch,
        text=kernel_text(case, name),
        buffers=tuple(BufferParam(buffer, "u8", Access.READ_WRITE) for buffer in BUFFERS),
        scalars=(),
        grid=(str(case.blocks), "1", "1"),
        block=(case.threads, 1, 1),
        shared_bytes=case.shared_size + ALIGNMENT,
        requirements=(),
    )


def map_of(case: Case) -> TensorMap | None:
    """The tensor map operand, if there is one."""
    return next((value for value in case.values.values() if isinstance(value, TensorMap)), None)
