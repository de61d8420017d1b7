"""The small functions that generated text calls: vector loads, conversions, index arithmetic; one table per dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from convloom.dtypes import F32, dtype_named
from convloom.emit.functions import MathName, function_body
from convloom.errors import InternalError
from convloom.ir.functions import Function

Conversion = tuple[str, str]  # (to, from), names of types


class HelperKind(Enum):
    """What a helper function does."""

    LOAD = "load"  # `lanes` numbers from memory
    STORE = "store"
    PACK = "pack"  # the bits of a vector as one 32-bit word
    SPLAT = "splat"  # one number into every lane
    ZERO = "zero"
    CONVERT = "convert"
    ADD = "add"  # one number to memory, atomically
    FUNCTION = "function"


@dataclass(frozen=True, slots=True)
class Helper:
    """One function: `to` and `source` are names of types, `space` the suffix of an address space.

    A FUNCTION's `source` names the `ir.functions.Function`.
    """

    kind: HelperKind
    to: str
    lanes: int
    source: str = ""
    space: str = ""

    @property
    def name(self) -> str:
        """load_f32x4_g, zero_f16, f32x4_from_f16 .."""
        vector = vector_name(self.to, self.lanes)
        if self.kind is HelperKind.CONVERT:
            return f"{vector}_from_{self.source}"
        if self.kind is HelperKind.FUNCTION:
            return f"{self.source}_of_{vector}"
        return f"{self.kind.value}_{vector}{self.space}"


def vector_name(dtype: str, lanes: int) -> str:
    """The name of a type in every dialect: f32, f16x8 .."""
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


@dataclass(frozen=True, slots=True)
class HelperSyntax:
    """How a dialect writes helper functions.

    `bodies`: text of a function's body by kind, over {vector} {dtype} {lanes}; its parameters are p (pointer), v, x.
    `conversions`: bodies over x of the conversions of one number that are more than a cast. `lanewise(vector, lanes,
    convert)` is the body that converts lane by lane; `math` names the functions of the dialect's library; `whole_cast`
    is the body of a vector cast (empty: there is none).
    """

    prefix: str
    wide: str  # 64-bit integers, signed and unsigned, and the unsigned 32-bit one
    unsigned_wide: str
    unsigned: str
    bodies: Mapping[HelperKind, str]
    conversions: Mapping[Conversion, str]
    casts: frozenset[Conversion]
    lanewise: Callable[[str, int, Callable[[str], str]], str]
    math: MathName
    whole_cast: str = ""
    no_parameters: str = ""
    spaces: Mapping[str, str] | None = None  # address space by suffix
    adds: Mapping[str, str] = field(default_factory=dict[str, str])  # bodies of atomic additions, by type

    def is_direct(self, conversion: Conversion) -> bool:
        """Whether one function does it; the others go through f32."""
        return conversion in self.casts or conversion in self.conversions


CASTS = frozenset(
    (
        ("f32", "f64"),
        ("f64", "f32"),
        ("f32", "s32"),
        ("f32", "s8"),
        ("f32", "u8"),
        ("s32", "s8"),
        ("s32", "u8"),
        ("f64", "s32"),
    )
)

# Adding and taking away 1.5 * 2**23 rounds |x| < 2**22 to the nearest integer, ties to even.
_ROUND_SMALL = "(({type})((clamped + 12582912.0f) - 12582912.0f))"


def _saturating(dtype: str, low: int, high: int) -> str:
    """Clamp, then round to nearest even; NaN becomes 0."""
    return (
        f"f32 clamped = x < {low}.0f ? {low}.0f : (x > {high}.0f ? {high}.0f : x);"
        f" return x == x ? {_ROUND_SMALL.format(type=dtype)} : ({dtype})0;"
    )


def _from_tiny(mantissa: int, bias: int, special: int) -> str:
    """An 8-bit float as f32. Magnitudes from `special` on are NaN, but infinity for it if its mantissa is 0."""
    infinity = f"magnitude == {special}u ? 0x7f800000u : " if special & ((1 << mantissa) - 1) == 0 else ""
    return (
        "union { unsigned u; f32 f; } bits; unsigned magnitude = x & 0x7fu;"
        " unsigned sign = (unsigned)(x & 0x80u) << 24;"
        f" if (magnitude < {1 << mantissa}u) bits.f = (f32)magnitude * {2.0 ** (1 - bias - mantissa)!r}f;"
        f" else bits.u = magnitude >= {special}u ? ({infinity}0x7fc00000u)"
        f" : (magnitude << {23 - mantissa}) + {127 - bias << 23}u;"
        " bits.u |= sign; return bits.f;"
    )


def _to_tiny(dtype: str, mantissa: int, bias: int, largest: int) -> str:
    """An f32 as an 8-bit float: to nearest even, saturating (infinity too), NaN stays NaN.

    Adding 2**23 rounds multiples of the least subnormal to integers, which are the bits.
    """
    drop = 23 - mantissa
    return (
        "union { f32 f; unsigned u; } bits; bits.f = x; unsigned sign = bits.u >> 24 & 0x80u; bits.u &= 0x7fffffffu;"
        f" unsigned code; if (bits.u > 0x7f800000u) code = 0x7fu;"
        f" else if (bits.f < {2.0 ** (1 - bias)!r}f)"
        f" {{ bits.f = bits.f * {2.0 ** (bias + mantissa - 1)!r}f + 8388608.0f; code = bits.u & 0xffu; }}"
        f" else {{ code = (bits.u + {(1 << drop - 1) - 1}u + (bits.u >> {drop} & 1u)) >> {drop};"
        f" code -= {127 - bias << mantissa}u; if (code > {largest}u) code = {largest}u; }}"
        f" return ({dtype})(code | sign);"
    )


CONVERSIONS: dict[Conversion, str] = {
    # Saturate, then round to nearest even by adding and taking away 1.5 * 2**52; NaN becomes 0.
    ("s32", "f64"): (
        "if (!(x == x)) return 0; if (x >= 2147483647.0) return 2147483647;"
        " if (x <= -2147483648.0) return -2147483647 - 1;"
        " return (s32)((x + 6755399441055744.0) - 6755399441055744.0);"
    ),
    ("f32", "bf16"): "union { unsigned u; f32 f; } bits; bits.u = (unsigned)x << 16; return bits.f;",
    # Round to nearest even on the bit pattern; NaN stays a (quiet) NaN.
    ("bf16", "f32"): (
        "union { f32 f; unsigned u; } bits; bits.f = x;"
        " unsigned rounded = (bits.u + 0x7fffu + ((bits.u >> 16) & 1u)) >> 16;"
        " unsigned quiet = (bits.u >> 16) | 0x40u;"
        " return (bf16)((bits.u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);"
    ),
    # 8-bit floats by their bits; subnormals are small multiples of the least one.
    ("f32", "e4m3"): _from_tiny(mantissa=3, bias=7, special=0x7F),
    ("f32", "e5m2"): _from_tiny(mantissa=2, bias=15, special=0x7C),
    ("e4m3", "f32"): _to_tiny("e4m3", mantissa=3, bias=7, largest=0x7E),
    ("e5m2", "f32"): _to_tiny("e5m2", mantissa=2, bias=15, largest=0x7B),
    ("s8", "f32"): _saturating("s8", -128, 127),
    ("u8", "f32"): _saturating("u8", 0, 255),
    # Adding and taking away 2**23 of x's sign rounds |x| < 2**23; larger floats are integers.
    ("s32", "f32"): (
        "if (!(x == x)) return 0; if (x >= 2147483648.0f) return 2147483647;"
        " if (x <= -2147483648.0f) return -2147483647 - 1;"
        " f32 shift = x < 0.0f ? -8388608.0f : 8388608.0f;"
        " return (x < 8388608.0f && x > -8388608.0f) ? (s32)((x + shift) - shift) : (s32)x;"
    ),
    ("s8", "s32"): "return (s8)(x < -128 ? -128 : (x > 127 ? 127 : x));",
    ("u8", "s32"): "return (u8)(x < 0 ? 0 : (x > 255 ? 255 : x));",
}

_INDEX_TEXT = """{prefix} index_t floor_div(index_t x, index_t d) {{
  index_t q = x / d;
  return q - ((x % d != 0) && ((x < 0) != (d < 0)));
}}
{prefix} index_t floor_mod(index_t x, index_t d) {{ return x - floor_div(x, d) * d; }}
{prefix} index_t min_index(index_t a, index_t b) {{ return a < b ? a : b; }}
{prefix} index_t max_index(index_t a, index_t b) {{ return a > b ? a : b; }}
{prefix} index_t fast_div(index_t x, {wide} multiplier, {wide} shift) {{
  return (index_t)((({unsigned_wide})({unsigned})x * ({unsigned_wide})multiplier) >> shift);
}}
"""


def index_helpers(syntax: HelperSyntax) -> str:
    """The functions that index expressions call."""
    return _INDEX_TEXT.format(
        prefix=syntax.prefix, wide=syntax.wide, unsigned_wide=syntax.unsigned_wide, unsigned=syntax.unsigned
    )


def helper_text(helpers: Iterable[Helper], syntax: HelperSyntax) -> str:
    """The definitions of helper functions, scalar conversions first."""
    ordered = sorted(
        helpers, key=lambda helper: (helper.kind.value, helper.to, helper.lanes, helper.source, helper.space)
    )
    steps: dict[Conversion, None] = {}
    others: list[str] = []
    functions: dict[Helper, str] = {}
    for helper in ordered:
        if helper.kind is HelperKind.FUNCTION:
            for needed in (replace(helper, lanes=1), helper):
                functions[needed] = _function_helper(needed, syntax)
            continue
        if helper.kind is not HelperKind.CONVERT:
            others.append(_memory_helper(helper, syntax))
            continue
        own = conversion_steps((helper.to, helper.source), syntax)
        steps.update(dict.fromkeys(own))
        if helper.lanes > 1 or len(own) > 1:
            others.append(_composed_conversion(helper, own, syntax))
    return "\n".join([_scalar_conversion(step, syntax) for step in steps] + others + list(functions.values())) + "\n"


def conversion_steps(conversion: Conversion, syntax: HelperSyntax) -> tuple[Conversion, ...]:
    """The direct conversions that lead from one type to another, in the order they are applied."""
    to, source = conversion
    if syntax.is_direct(conversion):
        return (conversion,)
    if min(dtype_named(name).digits for name in conversion) > F32.digits:
        raise InternalError(f"a conversion through f32 would lose digits; got {source} to {to}; add it to the table")
    return (("f32", source), (to, "f32"))


def _function(syntax: HelperSyntax, result: str, name: str, parameters: str, body: str) -> str:
    return f"{syntax.prefix} {result} {name}({parameters}) {{ {body} }}"


def _scalar_conversion(step: Conversion, syntax: HelperSyntax) -> str:
    to, source = step
    body = syntax.conversions.get(step, f"return ({to})x;")
    return _function(syntax, to, Helper(HelperKind.CONVERT, to, 1, source).name, f"{source} x", body)


def _composed_conversion(helper: Helper, steps: tuple[Conversion, ...], syntax: HelperSyntax) -> str:
    def converted(value: str) -> str:
        for to, source in steps:
            value = f"{Helper(HelperKind.CONVERT, to, 1, source).name}({value})"
        return value

    vector = vector_name(helper.to, helper.lanes)
    if helper.lanes == 1:
        body = f"return {converted('x')};"
    elif syntax.whole_cast and len(steps) == 1 and steps[0] in syntax.casts:
        body = syntax.whole_cast.format(vector=vector)
    else:
        body = syntax.lanewise(vector, helper.lanes, converted)
    return _function(syntax, vector, helper.name, f"{vector_name(helper.source, helper.lanes)} x", body)


def _function_helper(helper: Helper, syntax: HelperSyntax) -> str:
    """A function on one number by its formula, on a vector lane by lane."""
    function = Function(helper.source)
    values, numbers = "xyz"[: function.arity.values], "ab"[: function.arity.numbers]
    vector = vector_name(helper.to, helper.lanes)
    parameters = ", ".join([*(f"{vector} {name}" for name in values), *(f"{helper.to} {name}" for name in numbers)])
    if helper.lanes == 1:
        return _function(syntax, vector, helper.name, parameters, function_body(function, helper.to, syntax.math))
    scalar = replace(helper, lanes=1).name

    def called(lane: str) -> str:
        """`lane` is the text of a lane of x; those of y and z are written alike."""
        return f"{scalar}({', '.join([*(name + lane[1:] for name in values), *numbers])})"

    return _function(syntax, vector, helper.name, parameters, syntax.lanewise(vector, helper.lanes, called))


def _memory_helper(helper: Helper, syntax: HelperSyntax) -> str:
    vector = vector_name(helper.to, helper.lanes)
    space = (syntax.spaces or {}).get(helper.space, "")
    parameters = {
        HelperKind.LOAD: f"{space}const {helper.to} *p",
        HelperKind.STORE: f"{space}{helper.to} *p, {vector} v",
        HelperKind.ADD: f"{space}{helper.to} *p, {helper.to} v",
        HelperKind.SPLAT: f"{helper.to} x",
        HelperKind.PACK: f"{vector} x",
        HelperKind.ZERO: syntax.no_parameters,
    }[helper.kind]
    if helper.kind is HelperKind.ADD:
        return _function(syntax, "void", helper.name, parameters, _addition(helper, syntax))
    if helper.kind not in syntax.bodies:
        raise InternalError(f"the dialect has no {helper.kind.value}; plans must not ask for it; report this")
    result = {HelperKind.STORE: "void", HelperKind.PACK: "b32"}.get(helper.kind, vector)
    body = syntax.bodies[helper.kind].format(vector=vector, dtype=helper.to, lanes=helper.lanes)
    return _function(syntax, result, helper.name, parameters, body)


def _addition(helper: Helper, syntax: HelperSyntax) -> str:
    body = syntax.adds.get(helper.to)
    if body is None:
        raise InternalError(f"the dialect adds none of {helper.to} atomically; plans must not ask for it; report this")
    return body
