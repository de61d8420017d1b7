"""CUDA C++ without any header: vectors are small aligned structs, 16-bit types are bits that PTX converts."""

from __future__ import annotations

from convloom.emit.c_family import Dialect, Helper, Printer, helper_name, parameter_text, table_text, vector_name
from convloom.emit.helpers_c import BODIES, PLAIN_CASTS, conversion_steps
from convloom.ir.ops import Kernel, Scope

_SCALARS = {
    "f64": "double",
    "f32": "float",
    "s32": "int",
    "s8": "signed char",
    "u8": "unsigned char",
}
_BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "s32": 4, "s8": 1, "u8": 1}
_ARITHMETIC = ("f64", "f32", "s32")

# PTX ISA, "Data Movement and Conversion Instructions: cvt". bf16 needs sm_80 for cvt.rn.bf16.f32.
_PTX_BODIES = {
    ("f32", "f16"): 'f32 r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.bits)); return r;',
    ("f16", "f32"): 'f16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(x)); return r;',
    ("f32", "bf16"): "return __uint_as_float((unsigned)x.bits << 16);",
    ("bf16", "f32"): 'bf16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(x)); return r;',
}
_BODIES = {**BODIES, **_PTX_BODIES}

DIALECT = Dialect(
    barrier="__syncthreads();",
    shared_qualifier="__shared__ __align__(16) ",
    spaces={Scope.GLOBAL: "", Scope.SHARED: "", Scope.CONSTANT: ""},
    unroll=lambda count: "#pragma unroll",
    element=lambda vector, lane: f"{vector}.v[{lane}]",
    vector=lambda name, scalars: f"{name}{{{{{', '.join(scalars)}}}}}",
)

_INDEX_HELPERS = """__device__ __forceinline__ index_t floor_div(index_t x, index_t d) {
  index_t q = x / d;
  return q - ((x % d != 0) && ((x < 0) != (d < 0)));
}
__device__ __forceinline__ index_t floor_mod(index_t x, index_t d) { return x - floor_div(x, d) * d; }
__device__ __forceinline__ index_t min_index(index_t a, index_t b) { return a < b ? a : b; }
__device__ __forceinline__ index_t max_index(index_t a, index_t b) { return a > b ? a : b; }
__device__ __forceinline__ index_t fast_div(index_t x, long long multiplier, long long shift) {
  return (index_t)(((unsigned long long)(unsigned)x * (unsigned long long)multiplier) >> shift);
}
"""


def print_cuda(kernel: Kernel) -> str:
    """The CUDA C++ text of a kernel; one extern "C" entry point that takes the buffers, then the scalars."""
    printer = Printer(DIALECT, "index_t")
    body = printer.body(kernel.body)
    parameters = parameter_text(kernel, buffer="{const}{type} *__restrict__ {name}", integer="long long")
    head = f'extern "C" __global__ void __launch_bounds__({kernel.threads}) {kernel.name}({parameters})'
    parts = [
        f"// {kernel.name}: {kernel.threads} threads a block",
        f"typedef {'int' if kernel.index_bits == 32 else 'long long'} index_t;",
        _types(printer, kernel),
        _INDEX_HELPERS,
        _helpers(printer),
        table_text(kernel, "__constant__ index_t"),
        f"{head} {{\n  const index_t bid = blockIdx.x;\n  const index_t tid = threadIdx.x;\n{body}\n}}\n",
    ]
    return "\n".join(part for part in parts if part)


def _types(printer: Printer, kernel: Kernel) -> str:
    lines = [f"typedef {text} {name};" for name, text in _SCALARS.items()]
    lines += [f"struct {name} {{ unsigned short bits; }};" for name in ("f16", "bf16")]
    for dtype, lanes in sorted(printer.types):
        if lanes > 1:
            lines.append(_vector_type(dtype, lanes))
    return "\n".join(lines)


def _vector_type(dtype: str, lanes: int) -> str:
    name = vector_name(dtype, lanes)
    text = f"struct __align__({min(_BYTES[dtype] * lanes, 16)}) {name} {{ {dtype} v[{lanes}]; }};"
    if dtype not in _ARITHMETIC:
        return text
    for operator in "+*":
        text += (
            f"\n__device__ __forceinline__ {name} operator{operator}({name} a, {name} b) {{"
            f" {name} r;\n#pragma unroll\n  for (int i = 0; i < {lanes}; ++i) r.v[i] = a.v[i] {operator} b.v[i];"
            " return r; }"
        )
    return text


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
    return f"__device__ __forceinline__ {to} {helper_name('convert', to, 1, source)}({source} x) {{ {body} }}"


def _composed_conversion(helper: Helper) -> str:
    to, source = vector_name(helper.to, helper.lanes), vector_name(helper.source, helper.lanes)
    head = (
        f"__device__ __forceinline__ {to} {helper_name('convert', helper.to, helper.lanes, helper.source)}({source} x)"
    )
    value = "x" if helper.lanes == 1 else "x.v[i]"
    for step_to, step_from in conversion_steps(helper.to, helper.source, _is_direct):
        value = f"{helper_name('convert', step_to, 1, step_from)}({value})"
    if helper.lanes == 1:
        return f"{head} {{ return {value}; }}"
    return (
        f"{head} {{ {to} r;\n#pragma unroll\n  for (int i = 0; i < {helper.lanes}; ++i) r.v[i] = {value}; return r; }}"
    )


def _memory_helper(helper: Helper) -> str:
    name, vector = helper_name(helper.kind, helper.to, helper.lanes), vector_name(helper.to, helper.lanes)
    prefix = "__device__ __forceinline__"
    match helper.kind:
        case "load":
            return (
                f"{prefix} {vector} {name}(const {helper.to} *p) {{ return *reinterpret_cast<const {vector} *>(p); }}"
            )
        case "store":
            return f"{prefix} void {name}({helper.to} *p, {vector} v) {{ *reinterpret_cast<{vector} *>(p) = v; }}"
        case "splat":
            return (
                f"{prefix} {vector} {name}({helper.to} x) {{ {vector} r;\n#pragma unroll\n"
                f"  for (int i = 0; i < {helper.lanes}; ++i) r.v[i] = x; return r; }}"
            )
        case _:
            return f"{prefix} {vector} {name}() {{ return {vector}{{}}; }}"
