"""CUDA C++ without any header: vectors are small aligned structs, 16-bit types are bits that PTX converts."""

from __future__ import annotations

from convloom.artifact import Language
from convloom.dtypes import dtype_named
from convloom.emit.c_family import Dialect, Printer, parameter_text, table_text
from convloom.emit.helpers import (
    CASTS,
    CONVERSIONS,
    HelperKind,
    HelperSyntax,
    helper_text,
    index_helpers,
    vector_name,
)
from convloom.ir.ops import Instruct, Kernel, Scope
from convloom.ir.rewrite import statements_in
from convloom.ir.shared_space import shared_alignment, shared_offsets
from convloom.ir.tables import constant_tables
from convloom.target.instruction import Family

_SCALARS = {
    "f64": "double",
    "f32": "float",
    "b32": "unsigned",
    "b64": "unsigned long long",
    "s32": "int",
    "s8": "signed char",
    "u8": "unsigned char",
}
_TINY_FLOATS = {"e4m3": "unsigned char", "e5m2": "unsigned char"}  # declared where used
_CONSTANT_BYTES = 32 * 1024
_ARITHMETIC = ("f64", "f32", "s32")

# PTX ISA, "Data Movement and Conversion Instructions: cvt". bf16 needs sm_80 for cvt.rn.bf16.f32.
_PTX_CONVERSIONS = {
    ("f32", "f16"): 'f32 r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.bits)); return r;',
    ("f16", "f32"): 'f16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(x)); return r;',
    ("f32", "bf16"): "return __uint_as_float((unsigned)x.bits << 16);",
    ("bf16", "f32"): 'bf16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(x)); return r;',
}

DIALECT = Dialect(
    barrier="__syncthreads();",
    shared_qualifier="__shared__ ",
    spaces={Scope.GLOBAL: "", Scope.SHARED: "", Scope.CONSTANT: ""},
    unroll=lambda count: "#pragma unroll",
    element=lambda vector, lane: f"{vector}.v[{lane}]",
    vector=lambda name, scalars: f"{name}{{{{{', '.join(scalars)}}}}}",
    language=Language.CUDA,
    descriptor="(((unsigned)__cvta_generic_to_shared({place}) >> 4 & 0x3fffu) | {bits}ull)",
    map_address="(unsigned long long)&{name}",
    addresses={
        Scope.SHARED: "(unsigned)__cvta_generic_to_shared({})",
        Scope.GLOBAL: "(unsigned long long)__cvta_generic_to_global({})",
    },
)


def _each_lane(vector: str, lanes: int | str, value: str) -> str:
    """The body that sets every lane i of r to a value."""
    return f"{vector} r;\n#pragma unroll\n  for (int i = 0; i < {lanes}; ++i) r.v[i] = {value}; return r;"


SYNTAX = HelperSyntax(
    prefix="__device__ __forceinline__",
    wide="long long",
    unsigned_wide="unsigned long long",
    unsigned="unsigned",
    bodies={
        HelperKind.LOAD: "return *reinterpret_cast<const {vector} *>(p);",
        HelperKind.STORE: "*reinterpret_cast<{vector} *>(p) = v;",
        HelperKind.PACK: "return *reinterpret_cast<const b32 *>(&x);",
        HelperKind.SPLAT: _each_lane("{vector}", "{lanes}", "x"),
        HelperKind.ZERO: "return {vector}{{}};",
    },
    conversions={**CONVERSIONS, **_PTX_CONVERSIONS},
    casts=CASTS,
    lanewise=lambda vector, lanes, convert: _each_lane(vector, lanes, convert("x.v[i]")),
    adds=dict.fromkeys(("f32", "f64", "s32"), "atomicAdd(p, v);"),
    math=lambda name, dtype: name if dtype == "f64" else f"{name}f",
)


def print_cuda(kernel: Kernel) -> str:
    """The CUDA C++ text of a kernel; one extern "C" entry point that takes the buffers, then the scalars."""
    offsets = shared_offsets(kernel)
    printer = Printer(DIALECT, "index_t", shared_offsets=offsets)
    body = printer.body(kernel.body)
    parameters = parameter_text(kernel, buffer="{const}{type} *__restrict__ {name}", integer="long long")
    cluster = f"__cluster_dims__({kernel.cluster}, 1, 1) " if kernel.cluster > 1 else ""
    head = f'extern "C" __global__ void {cluster}__launch_bounds__({_bounds(kernel)}) {kernel.name}({parameters})'
    parts = [
        f"// {kernel.name}: {kernel.threads} threads a block",
        f"typedef {'int' if kernel.index_bits == 32 else 'long long'} index_t;",
        _types(printer, kernel),
        "struct __align__(64) tensor_map { unsigned long long words[16]; };" if kernel.maps else "",
        index_helpers(SYNTAX),
        helper_text(printer.helpers, SYNTAX),
        table_text(kernel, f"{_table_space(kernel)} index_t"),
        f"extern __shared__ __align__({shared_alignment(kernel)}) unsigned char shared_space[];" if offsets else "",
        f"{head} {{\n  const index_t bid = blockIdx.x;\n  const index_t tid = threadIdx.x;\n{body}\n}}\n",
    ]
    return "\n".join(part for part in parts if part)


def _bounds(kernel: Kernel) -> str:
    """Register budgets are moved between warpgroups only where the number at entry is known: of one block."""
    rows = (statement.row for statement in statements_in(kernel.body) if isinstance(statement, Instruct))
    moved = any(row.family is Family.REGISTER_BUDGET for row in rows)
    return f"{kernel.threads}, 1" if moved else str(kernel.threads)


def _table_space(kernel: Kernel) -> str:
    """Constant memory holds 64 KiB, of which the launch takes some; larger tables lie in global memory."""
    numbers = sum(len(table.values) for table in constant_tables(kernel))
    return "__constant__" if numbers * kernel.index_bits // 8 <= _CONSTANT_BYTES else "__device__ const"


def _types(printer: Printer, kernel: Kernel) -> str:
    used = {dtype for dtype, _ in printer.types}
    lines = [f"typedef {text} {name};" for name, text in _SCALARS.items() if name != "b64" or name in used]
    lines += [f"struct {name} {{ unsigned short bits; }};" for name in ("f16", "bf16")]
    used = {dtype for dtype, _ in printer.types} | {str(buffer.dtype) for buffer in kernel.buffers}
    lines += [f"typedef {text} {name};" for name, text in _TINY_FLOATS.items() if name in used]
    for dtype, lanes in sorted(printer.types):
        if lanes > 1:
            lines.append(_vector_type(dtype, lanes))
    return "\n".join(lines)


def _vector_type(dtype: str, lanes: int) -> str:
    name = vector_name(dtype, lanes)
    text = f"struct __align__({min(dtype_named(dtype).nbytes * lanes, 16)}) {name} {{ {dtype} v[{lanes}]; }};"
    if dtype not in _ARITHMETIC:
        return text
    for operator in "+*":
        text += (
            f"\n__device__ __forceinline__ {name} operator{operator}({name} a, {name} b) {{"
            f" {name} r;\n#pragma unroll\n  for (int i = 0; i < {lanes}; ++i) r.v[i] = a.v[i] {operator} b.v[i];"
            " return r; }"
        )
    return text
