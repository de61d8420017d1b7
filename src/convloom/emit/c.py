"""C for the cpu device: GCC vector extensions, one function that runs a range of blocks."""

from __future__ import annotations

from convloom.emit.c_family import Dialect, Helper, Printer, helper_name, parameter_text, table_text, vector_name
from convloom.emit.helpers_c import BODIES, PLAIN_CASTS, conversion_steps
from convloom.ir.ops import Kernel, Scope

_SCALARS = {
    "f64": "double",
    "f32": "float",
    "f16": "_Float16",
    "bf16": "unsigned short",
    "s32": "int",
    "s8": "signed char",
    "u8": "unsigned char",
}
_BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "s32": 4, "s8": 1, "u8": 1}
_EXTRA_CASTS = {("f32", "f16"), ("f16", "f32")}

_UNROLL_LIMIT = 16  # longer loops gain nothing here and cost compile time

DIALECT = Dialect(
    barrier="",
    shared_qualifier="_Alignas(64) ",
    spaces={Scope.GLOBAL: "", Scope.SHARED: "", Scope.CONSTANT: ""},
    unroll=lambda count: f"#pragma GCC unroll {count}" if count <= _UNROLL_LIMIT else "",
    element=lambda vector, lane: f"{vector}[{lane}]",
    vector=lambda name, scalars: f"(({name}){{{', '.join(scalars)}}})",
    lane_of=lambda vector, lane: f"{vector}[{lane}]",
)

_INDEX_HELPERS = """static inline index_t floor_div(index_t x, index_t d) {
  index_t q = x / d;
  return q - ((x % d != 0) && ((x < 0) != (d < 0)));
}
static inline index_t floor_mod(index_t x, index_t d) { return x - floor_div(x, d) * d; }
static inline index_t min_index(index_t a, index_t b) { return a < b ? a : b; }
static inline index_t max_index(index_t a, index_t b) { return a > b ? a : b; }
static inline index_t fast_div(index_t x, int64_t multiplier, int64_t shift) {
  return (index_t)(((uint64_t)(uint32_t)x * (uint64_t)multiplier) >> shift);
}
"""


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
        _INDEX_HELPERS,
        _helpers(printer),
        table_text(kernel, "static const index_t"),
        f"static void run_block(const index_t bid, {parameters}) {{\n{body}\n}}\n",
        _entry(kernel),
    ]
    return "\n".join(part for part in parts if part)


def _entry(kernel: Kernel) -> str:
    arguments = ["(index_t)block"]
    for place, buffer in enumerate(kernel.buffers):
        assert buffer.dtype is not None
        arguments.append(f"({'' if buffer.written else 'const '}{buffer.dtype.name} *)buffers[{place}]")
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
        f"typedef {dtype} {dtype}x{lanes} __attribute__((vector_size({_BYTES[dtype] * lanes})));"
        for dtype, lanes in sorted(printer.types)
        if lanes > 1
    ]
    return "\n".join(lines)


def _helpers(printer: Printer) -> str:
    scalars: dict[tuple[str, str], None] = {}
    vectors: list[str] = []
    for helper in sorted(printer.helpers):
        if helper.kind == "convert":
            scalars.update((step, None) for step in conversion_steps(helper.to, helper.source, _is_direct))
            if helper.lanes > 1 or not _is_direct(helper.to, helper.source):
                vectors.append(_vector_conversion(helper))
        else:
            vectors.append(_memory_helper(helper))
    return "\n".join([_scalar_conversion(to, source) for to, source in scalars] + vectors) + "\n"


def _is_direct(to: str, source: str) -> bool:
    return (to, source) in PLAIN_CASTS or (to, source) in _EXTRA_CASTS or (to, source) in BODIES


def _scalar_conversion(to: str, source: str) -> str:
    body = BODIES.get((to, source), f"return ({to})x;")
    body = body.replace("BF16_BITS(x)", "x").replace("MAKE_BF16", "(bf16)")
    return f"static inline {to} {helper_name('convert', to, 1, source)}({source} x) {{ {body} }}"


def _vector_conversion(helper: Helper) -> str:
    """Lane by lane; plain casts as one operation, which compilers turn into vector instructions."""
    to, source = vector_name(helper.to, helper.lanes), vector_name(helper.source, helper.lanes)
    head = f"static inline {to} {helper_name('convert', helper.to, helper.lanes, helper.source)}({source} x)"
    steps = conversion_steps(helper.to, helper.source, _is_direct)
    if len(steps) == 1 and steps[0] not in BODIES:
        return f"{head} {{ return __builtin_convertvector(x, {to}); }}"
    value = "x" if helper.lanes == 1 else "x[i]"
    for step_to, step_from in steps:
        value = f"{helper_name('convert', step_to, 1, step_from)}({value})"
    if helper.lanes == 1:
        return f"{head} {{ return {value}; }}"
    return f"{head} {{ {to} r; for (int i = 0; i < {helper.lanes}; ++i) r[i] = {value}; return r; }}"


def _memory_helper(helper: Helper) -> str:
    name, vector = helper_name(helper.kind, helper.to, helper.lanes), vector_name(helper.to, helper.lanes)
    match helper.kind:
        case "load":
            return (
                f"static inline {vector} {name}(const {helper.to} *p)"
                f" {{ {vector} v; __builtin_memcpy(&v, p, sizeof v); return v; }}"
            )
        case "store":
            return f"static inline void {name}({helper.to} *p, {vector} v) {{ __builtin_memcpy(p, &v, sizeof v); }}"
        case "splat":
            return f"static inline {vector} {name}({helper.to} x) {{ return x - ({vector}){{0}}; }}"
        case _:
            return f"static inline {vector} {name}(void) {{ {vector} v = {'0' if helper.lanes == 1 else '{0}'}; return v; }}"
