"""Definitions of the helper functions that generated C and CUDA C++ call, by kind and type."""

from __future__ import annotations

from collections.abc import Callable

# Conversions of one number, as a C expression over `x`; pairs that are absent go through f32.
# f32 -> bf16: round to nearest even on the bit pattern, NaN kept quiet.
# float -> integer: saturate, then round to nearest even by the 1.5 * 2**23 trick (exact below 2**22; above, floats are integers).


BODIES: dict[tuple[str, str], str] = {
    ("f32", "bf16"): "union { unsigned u; f32 f; } bits; bits.u = (unsigned)BF16_BITS(x) << 16; return bits.f;",
    ("bf16", "f32"): (
        "union { f32 f; unsigned u; } bits; bits.f = x;"
        " unsigned rounded = (bits.u + 0x7fffu + ((bits.u >> 16) & 1u)) >> 16;"
        " unsigned quiet = (bits.u >> 16) | 0x40u;"
        " return MAKE_BF16((bits.u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);"
    ),
    ("s8", "f32"): (
        "f32 c = x < -128.0f ? -128.0f : (x > 127.0f ? 127.0f : x); return x == x ? (s8)((c + 12582912.0f) - 12582912.0f) : (s8)0;"
    ),
    ("u8", "f32"): (
        "f32 c = x < 0.0f ? 0.0f : (x > 255.0f ? 255.0f : x); return x == x ? (u8)((c + 12582912.0f) - 12582912.0f) : (u8)0;"
    ),
    ("s32", "f32"): (
        "if (!(x == x)) return 0; if (x >= 2147483648.0f) return 2147483647; if (x <= -2147483648.0f) return -2147483647 - 1;"
        " return (x < 4194304.0f && x > -4194304.0f) ? (s32)((x + 12582912.0f) - 12582912.0f) : (s32)x;"
    ),
    ("s8", "s32"): "return (s8)(x < -128 ? -128 : (x > 127 ? 127 : x));",
    ("u8", "s32"): "return (u8)(x < 0 ? 0 : (x > 255 ? 255 : x));",
}

PLAIN_CASTS = {
    ("f32", "f64"),
    ("f64", "f32"),
    ("f32", "s32"),
    ("f32", "s8"),
    ("f32", "u8"),
    ("s32", "s8"),
    ("s32", "u8"),
    ("f64", "s32"),
}


def conversion_steps(to: str, source: str, direct: Callable[[str, str], bool]) -> tuple[tuple[str, str], ...]:
    """The direct conversions (to, from) that lead from one type to another, in the order they are applied."""
    if direct(to, source):
        return ((to, source),)
    return (("f32", source), (to, "f32"))
