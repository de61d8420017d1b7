"""OpenCL C 1.2: built-in vectors; 16-bit types are stored as bits and computed in f32, without any extension."""

from __future__ import annotations

from convloom.emit.c_family import Dialect, Helper, Printer, helper_name, parameter_text, table_text, vector_name
from convloom.emit.helpers_c import BODIES, PLAIN_CASTS, conversion_steps
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
_LANES = "0123456789abcdef"

# OpenCL C 1.2, 6.12.7: vload_half and vstore_half need no extension.
_HALF_BODIES = {
    ("f32", "f16"): "return vload_half(0, (const __private half *)&x);",
    ("f16", "f32"): "f16 r; vstore_half_rte(x, 0, (__private half *)&r); return r;",
}
_BODIES = {**BODIES, **_HALF_BODIES}

DIALECT = Dialect(
    barrier="barrier(CLK_LOCAL_MEM_FENCE);",
    shared_qualifier="__local ",
    spaces={Scope.GLOBAL: "_g", Scope.SHARED: "_l", Scope.CONSTANT: ""},
    unroll=lambda count: "#pragma unroll",
    element=lambda vector, lane: f"{vector}.s{_LANES[lane]}",
    vector=lambda name, scalars: f"(({name})({', '.join(scalars)}))",
)

_INDEX_HELPERS = """static inline index_t floor_div(index_t x, index_t d) {
  index_t q = x / d;
  return q - ((x % d != 0) && ((x < 0) != (d < 0)));
}
static inline index_t floor_mod(index_t x, index_t d) { return x - floor_div(x, d) * d; }
static inline index_t min_index(index_t a, index_t b) { return a < b ? a : b; }
static inline index_t max_index(index_t a, index_t b) { return a > b ? a : b; }
static inline index_t fast_div(index_t x, long multiplier, long shift) {
  return (index_t)(((ulong)(uint)x * (ulong)multiplier) >> shift);
}
"""
_SPACE_OF_SUFFIX = {"_g": "__global", "_l": "__local"}


def print_opencl(kernel: Kernel) -> str:
    """The OpenCL C text of a kernel; one entry point that takes the buffers, then the scalars."""
    printer = Printer(DIALECT, "index_t")
    body = printer.body(kernel.body)
    parameters = parameter_text(kernel, buffer="__global {const}{type} *restrict {name}", integer="long")
    head = f"__kernel __attribute__((reqd_work_group_size({kernel.threads}, 1, 1))) void {kernel.name}({parameters})"
    doubles = any(buffer.dtype is not None and buffer.dtype.name == "f64" for buffer in kernel.buffers)
    parts = [
        f"// {kernel.name}: {kernel.threads} work-items a group",
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable" if doubles else "",
        f"typedef {'int' if kernel.index_bits == 32 else 'long'} index_t;",
        _types(printer, doubles),
        _INDEX_HELPERS,
        _helpers(printer),
        table_text(kernel, "__constant index_t"),
        f"{head} {{\n  const index_t bid = get_group_id(0);\n  const index_t tid = get_local_id(0);\n{body}\n}}\n",
    ]
    return "\n".join(part for part in parts if part)


def _types(printer: Printer, doubles: bool) -> str:
    lines = [f"typedef {text} {name};" for name, text in _SCALARS.items() if doubles or name != "f64"]
    lines += [
        f"typedef {_SCALARS[dtype]}{lanes} {dtype}x{lanes};" for dtype, lanes in sorted(printer.types) if lanes > 1
    ]
    return "\n".join(lines)


def _helpers(printer: Printer) -> str:
    scalars: dict[tuple[str, str], None] = {}
    others: list[str] = []
    for helper in sorted(printer.helpers):
        if helper.kind != "convert":
            others.append(_memory_helper(helper))
            continue
        scalars.update((step, None) for step in conversion_steps(helper.to, helper.source, _is_direct))
        if helper.lanes > 1 or not _is_direct(helper.to, helper.source):
            others.append(_composed_conversion(helper))
    return "\n".join([_scalar_conversion(to, source) for to, source in scalars] + others) + "\n"


def _is_direct(to: str, source: str) -> bool:
    return (to, source) in PLAIN_CASTS or (to, source) in _BODIES


def _scalar_conversion(to: str, source: str) -> str:
    body = _BODIES.get((to, source), f"return ({to})x;")
    body = body.replace("BF16_BITS(x)", "x").replace("MAKE_BF16", "(bf16)")
    return f"static inline {to} {helper_name('convert', to, 1, source)}({source} x) {{ {body} }}"


def _composed_conversion(helper: Helper) -> str:
    to, source = vector_name(helper.to, helper.lanes), vector_name(helper.source, helper.lanes)
    head = f"static inline {to} {helper_name('convert', helper.to, helper.lanes, helper.source)}({source} x)"
    steps = conversion_steps(helper.to, helper.source, _is_direct)

    def converted(value: str) -> str:
        for step_to, step_from in steps:
            value = f"{helper_name('convert', step_to, 1, step_from)}({value})"
        return value

    if helper.lanes == 1:
        return f"{head} {{ return {converted('x')}; }}"
    lanes = ", ".join(converted(f"x.s{_LANES[lane]}") for lane in range(helper.lanes))
    return f"{head} {{ return ({to})({lanes}); }}"


def _memory_helper(helper: Helper) -> str:
    name = helper_name(helper.kind, helper.to, helper.lanes, space=helper.space)
    vector, space = vector_name(helper.to, helper.lanes), _SPACE_OF_SUFFIX.get(helper.space, "")
    match helper.kind:
        case "load":
            return (
                f"static inline {vector} {name}({space} const {helper.to} *p) {{ return vload{helper.lanes}(0, p); }}"
            )
        case "store":
            return f"static inline void {name}({space} {helper.to} *p, {vector} v) {{ vstore{helper.lanes}(v, 0, p); }}"
        case "splat":
            return f"static inline {vector} {name}({helper.to} x) {{ return ({vector})(x); }}"
        case _:
            return f"static inline {vector} {name}(void) {{ return ({vector})(0); }}"
