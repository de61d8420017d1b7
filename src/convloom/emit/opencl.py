"""OpenCL C 1.2: built-in vectors; 16-bit types are stored as bits and computed in f32, without any extension."""

from __future__ import annotations

from convloom.artifact import Language
from convloom.emit.c_family import Dialect, Printer, parameter_text, table_text
from convloom.emit.helpers import CASTS, CONVERSIONS, HelperKind, HelperSyntax, helper_text, index_helpers
from convloom.ir.ops import Kernel, Scope

_SCALARS = {
    "f64": "double",
    "f32": "float",
    "f16": "ushort",
    "bf16": "ushort",
    "s32": "int",
    "s8": "char",
    "u8": "uchar",
}
_TINY_FLOATS = {"e4m3": "uchar", "e5m2": "uchar"}  # declared where used
_LANES = "0123456789abcdef"

# OpenCL C 1.2, 6.12.7: vload_half and vstore_half need no extension.
_HALF_CONVERSIONS = {
    ("f32", "f16"): "return vload_half(0, (const __private half *)&x);",
    ("f16", "f32"): "f16 r; vstore_half_rte(x, 0, (__private half *)&r); return r;",
}

DIALECT = Dialect(
    barrier="barrier(CLK_LOCAL_MEM_FENCE);",
    shared_qualifier="__local ",
    spaces={Scope.GLOBAL: "_g", Scope.SHARED: "_l", Scope.CONSTANT: ""},
    unroll=lambda count: "#pragma unroll",
    element=lambda vector, lane: f"{vector}.s{_LANES[lane]}",
    vector=lambda name, scalars: f"(({name})({', '.join(scalars)}))",
    language=Language.OPENCL,
)

SYNTAX = HelperSyntax(
    prefix="static inline",
    wide="long",
    unsigned_wide="ulong",
    unsigned="uint",
    bodies={
        HelperKind.LOAD: "return vload{lanes}(0, p);",
        HelperKind.STORE: "vstore{lanes}(v, 0, p);",
        HelperKind.SPLAT: "return ({vector})(x);",
        HelperKind.ZERO: "return ({vector})(0);",
    },
    conversions={**CONVERSIONS, **_HALF_CONVERSIONS},
    casts=CASTS,
    lanewise=lambda vector, lanes, convert: (
        f"return ({vector})({', '.join(convert(f'x.s{_LANES[lane]}') for lane in range(lanes))});"
    ),
    math=lambda name, dtype: name,
    no_parameters="void",
    spaces={"_g": "__global ", "_l": "__local "},
    # 64-bit atomics are an extension; 32-bit ones know integers only.
    adds={
        "f32": (
            "volatile __global uint *bits = (volatile __global uint *)p; uint old = *bits, seen;"
            " while ((seen = atomic_cmpxchg(bits, old, as_uint(as_float(old) + v))) != old) old = seen;"
        ),
        "s32": "atomic_add((volatile __global int *)p, v);",
    },
)


def print_opencl(kernel: Kernel) -> str:
    """The OpenCL C text of a kernel; one entry point that takes the buffers, then the scalars."""
    printer = Printer(DIALECT, "index_t")
    body = printer.body(kernel.body)
    parameters = parameter_text(kernel, buffer="__global {const}{type} *restrict {name}", integer="long")
    head = f"__kernel __attribute__((reqd_work_group_size({kernel.threads}, 1, 1))) void {kernel.name}({parameters})"
    used = {dtype for dtype, _ in printer.types} | {str(item.dtype) for item in (*kernel.buffers, *kernel.scalars)}
    doubles = "f64" in used
    parts = [
        f"// {kernel.name}: {kernel.threads} work-items a group",
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable" if doubles else "",
        f"typedef {'int' if kernel.index_bits == 32 else 'long'} index_t;",
        _types(printer, used, doubles),
        index_helpers(SYNTAX),
        helper_text(printer.helpers, SYNTAX),
        table_text(kernel, "__constant index_t"),
        f"{head} {{\n  const index_t bid = get_group_id(0);\n  const index_t tid = get_local_id(0);\n{body}\n}}\n",
    ]
    return "\n".join(part for part in parts if part)


def _types(printer: Printer, used: set[str], doubles: bool) -> str:
    lines = [f"typedef {text} {name};" for name, text in _SCALARS.items() if doubles or name != "f64"]
    lines += [f"typedef {text} {name};" for name, text in _TINY_FLOATS.items() if name in used]
    scalars = _SCALARS | _TINY_FLOATS
    lines += [
        f"typedef {scalars[dtype]}{lanes} {dtype}x{lanes};" for dtype, lanes in sorted(printer.types) if lanes > 1
    ]
    return "\n".join(lines)
