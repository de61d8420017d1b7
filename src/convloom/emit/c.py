"""C for the cpu device: GCC vector extensions, one function that runs a range of blocks."""

from __future__ import annotations

from convloom.artifact import Language
from convloom.dtypes import dtype_named
from convloom.emit.c_family import Dialect, Printer, buffer_dtype, parameter_text, table_text
from convloom.emit.helpers import CASTS, CONVERSIONS, HelperKind, HelperSyntax, helper_text, index_helpers
from convloom.ir.ops import Kernel, Scope

_SCALARS = {
    "f64": "double",
    "f32": "float",
    "f16": "_Float16",
    "bf16": "unsigned short",
    "e4m3": "unsigned char",
    "e5m2": "unsigned char",
    "s32": "int",
    "s8": "signed char",
    "u8": "unsigned char",
}

_UNROLL_LIMIT = 16  # longer loops gain nothing here and cost compile time

DIALECT = Dialect(
    barrier="",
    shared_qualifier="_Alignas(64) ",
    spaces={Scope.GLOBAL: "", Scope.SHARED: "", Scope.CONSTANT: ""},
    unroll=lambda count: f"#pragma GCC unroll {count}" if count <= _UNROLL_LIMIT else "",
    element=lambda vector, lane: f"{vector}[{lane}]",
    vector=lambda name, scalars: f"(({name}){{{', '.join(scalars)}}})",
    lane_of=lambda vector, lane: f"{vector}[{lane}]",
    language=Language.C,
)

# A failed exchange brings the present content; contents are compared bit by bit.
_ADD_FLOAT = (
    "__typeof__(v) old, sum; __atomic_load(p, &old, __ATOMIC_RELAXED);"
    " do sum = old + v; while (!__atomic_compare_exchange(p, &old, &sum, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));"
)

SYNTAX = HelperSyntax(
    prefix="static inline",
    wide="int64_t",
    unsigned_wide="uint64_t",
    unsigned="uint32_t",
    bodies={
        HelperKind.LOAD: "{vector} v; __builtin_memcpy(&v, p, sizeof v); return v;",
        HelperKind.STORE: "__builtin_memcpy(p, &v, sizeof v);",
        HelperKind.SPLAT: "return x - ({vector}){{0}};",
        HelperKind.ZERO: "{vector} v = {{0}}; return v;",
    },
    conversions=CONVERSIONS,
    casts=CASTS | {("f32", "f16"), ("f16", "f32")},
    lanewise=lambda vector, lanes, convert: (
        f"{vector} r; for (int i = 0; i < {lanes}; ++i) r[i] = {convert('x[i]')}; return r;"
    ),
    math=lambda name, dtype: f"__builtin_{name}" + ("" if dtype == "f64" else "f"),
    whole_cast="return __builtin_convertvector(x, {vector});",
    no_parameters="void",
    adds={
        **dict.fromkeys(("f32", "f64"), _ADD_FLOAT),
        "s32": "__atomic_fetch_add(p, v, __ATOMIC_RELAXED);",
    },
)


def print_c(kernel: Kernel) -> str:
    """The C text of a kernel without barriers; its entry point has the signature that artifact.KernelSource states."""
    index_type = "int32_t" if kernel.index_bits == 32 else "int64_t"
    printer = Printer(DIALECT, "index_t")
    body = printer.body(kernel.body)
    parameters = parameter_text(kernel, buffer="{const}{type} *restrict {name}", integer="int64_t")
    parts = [
        f"// {kernel.name}: {kernel.threads} work-items a block",
        "#include <stdint.h>",
        f"typedef {index_type} index_t;",
        _types(printer, kernel),
        index_helpers(SYNTAX),
        helper_text(printer.helpers, SYNTAX),
        table_text(kernel, "static const index_t"),
        f"static void run_block(const index_t bid, {parameters}) {{\n{body}\n}}\n",
        _entry(kernel),
    ]
    return "\n".join(part for part in parts if part)


def _entry(kernel: Kernel) -> str:
    arguments = ["(index_t)block"]
    for place, buffer in enumerate(kernel.buffers):
        arguments.append(f"({'' if buffer.written else 'const '}{buffer_dtype(buffer)} *)buffers[{place}]")
    integers = floats = 0
    for scalar in kernel.scalars:
        if scalar.dtype is None:
            arguments.append(f"integers[{integers}]")
            integers += 1
        else:
            arguments.append(f"({scalar.dtype.name})floats[{floats}]")
            floats += 1
    return (
        f"void {kernel.name}(void *const *buffers, const int64_t *integers, const double *floats,"
        " int64_t first_block, int64_t last_block) {\n"
        "  (void)buffers; (void)integers; (void)floats;\n"
        "  for (int64_t block = first_block; block < last_block; ++block)\n"
        f"    run_block({', '.join(arguments)});\n}}\n"
    )


def _types(printer: Printer, kernel: Kernel) -> str:
    names = {dtype for dtype, _ in printer.types} | {b.dtype.name for b in kernel.buffers if b.dtype is not None}
    names |= {scalar.dtype.name for scalar in kernel.scalars if scalar.dtype is not None} | {"f32"}
    lines = [f"typedef {_SCALARS[name]} {name};" for name in _SCALARS if name in names]
    lines += [
        f"typedef {dtype} {dtype}x{lanes} __attribute__((vector_size({dtype_named(dtype).nbytes * lanes})));"
        for dtype, lanes in sorted(printer.types)
        if lanes > 1
    ]
    return "\n".join(lines)
