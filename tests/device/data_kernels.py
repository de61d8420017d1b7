"""Kernels that make integer operands on a device, lay them out, and compare a result there: nothing large is copied."""

from __future__ import annotations

from tests.device.portable_kernel import PortableKernel

RANK = 5
"""Dimensions of every tensor here: (n, c, d, h, w), absent spatial ones 1."""

EXTENTS = tuple(f"E{dim}" for dim in range(RANK))

_OFFSET = """
/* where a dense logical index lies: `tables` holds one column of offsets per dimension, end to end */
FUNCTION i64 place(const i64 *tables, i64 index, i64 E0, i64 E1, i64 E2, i64 E3, i64 E4) {
  i64 offset = 0, start = E0 + E1 + E2 + E3, rest = index;
  offset += tables[start + rest % E4]; rest /= E4; start -= E3;
  offset += tables[start + rest % E3]; rest /= E3; start -= E2;
  offset += tables[start + rest % E2]; rest /= E2; start -= E1;
  offset += tables[start + rest % E1]; rest /= E1; start -= E0;
  return offset + tables[start + rest];
}
"""

FILL = PortableKernel(
    "fill_integers",
    (("values", "i8"),),
    ("seed", "low", "high", "keep"),
    """
  u64 z = (u64)seed * 0xD1342543DE82EF95ull + (u64)(thread + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  z ^= z >> 31;
  i64 value = (i64)((z >> 32) % (u64)(high - low + 1)) + low;
  values[thread] = (z & 0xFFFFFF) < (u64)keep ? (i8)value : 0;
""",
)
"""values[i] = even draw from [low, high], zero unless a 24-bit draw is below `keep` (splitmix64 of seed and i)."""

PACK = PortableKernel(
    "pack_integers",
    (("values", "i8"), ("codes", "u64"), ("tables", "i64"), ("storage", "u8")),
    ("nbytes", *EXTENTS),
    """
  i64 offset = place(tables, thread, E0, E1, E2, E3, E4);
  u64 code = codes[values[thread] + 128];
  if (nbytes == 1) storage[offset] = (u8)code;
  else if (nbytes == 2) ((u16 *)storage)[offset] = (u16)code;
  else if (nbytes == 4) ((u32 *)storage)[offset] = (u32)code;
  else ((u64 *)storage)[offset] = code;
""",
    _OFFSET,
)
"""storage[place of i] = codes[values[i] + 128]: the element type is in the table of the 256 codes."""

_NUMBERS = """
/* elements of no exponent bits are integers: signed where the number of digits is odd, as in s8 and s32 */
/* an IEEE-like element (sign, exponent, digits - 1 bits of fraction) as a double, exactly; NaN as NaN */
FUNCTION double decoded(u64 code, int exponent_bits, int digits) {
  if (!exponent_bits) return (double)((i64)code - (digits & 1 && code >> digits & 1 ? (i64)(2ull << digits) : 0));
  int fraction_bits = digits - 1, bias = (1 << (exponent_bits - 1)) - 1;
  u64 fraction = code & ((1ull << fraction_bits) - 1);
  int exponent = (int)(code >> fraction_bits) & ((1 << exponent_bits) - 1);
  union { u64 code; double value; } wide;
  if (exponent == (1 << exponent_bits) - 1) {
    wide.code = 0x7FF0000000000000ull | (fraction << (53 - digits));
  } else {
    u64 whole = exponent ? fraction | (1ull << fraction_bits) : fraction;
    int power = (exponent ? exponent : 1) - bias - fraction_bits;
    union { u64 code; double value; } scale;
    scale.code = (u64)(power + 1023) << 52;
    wide.value = (double)whole * scale.value;
  }
  return code >> (fraction_bits + exponent_bits) & 1 ? -wide.value : wide.value;
}
/* an integer rounded to nearest even in so many digits; infinity from 2^limit_exponent on; integers saturate */
FUNCTION double rounded(i64 value, int exponent_bits, int digits) {
  if (!exponent_bits) {
    i64 high = (i64)(1ull << digits) - 1, low = digits & 1 ? -high - 1 : 0;
    return (double)(value < low ? low : value > high ? high : value);
  }
  u64 magnitude = value < 0 ? (u64)-value : (u64)value;
  int shift = 0;
  while ((magnitude >> shift) >> digits) ++shift;
  if (shift) {
    u64 kept = magnitude >> shift, rest = magnitude & ((1ull << shift) - 1), half = 1ull << (shift - 1);
    kept += rest > half || (rest == half && (kept & 1));
    magnitude = kept << shift;
  }
  union { u64 code; double value; } result;
  int limit_exponent = 1 << (exponent_bits - 1);
  if (limit_exponent < 64 && magnitude >> limit_exponent) result.code = 0x7FF0000000000000ull;
  else result.value = (double)magnitude;
  return value < 0 ? -result.value : result.value;
}
FUNCTION double element(const u8 *storage, i64 offset, i64 nbytes, i64 exponent_bits, i64 digits) {
  u64 code = nbytes == 2 ? ((const u16 *)storage)[offset] : nbytes == 4 ? ((const u32 *)storage)[offset]
           : nbytes == 8 ? ((const u64 *)storage)[offset] : storage[offset];
  return decoded(code, (int)exponent_bits, (int)digits);
}
"""

COMPARE = PortableKernel(
    "compare_integers",
    (("storage", "u8"), ("expected", "i64"), ("tables", "i64"), ("counters", "i64")),
    ("elements", "nbytes", "exponent_bits", "digits", *EXTENTS),
    """
  i64 wrong = 0, nonzero = 0, first = elements;
  for (i64 index = thread; index < elements; index += threads) {
    i64 offset = place(tables, index, E0, E1, E2, E3, E4);
    double given = element(storage, offset, nbytes, exponent_bits, digits);
    int good = given == rounded(expected[index], (int)exponent_bits, (int)digits);
    wrong += !good;
    if (!good && index < first) first = index;
    nonzero += expected[index] != 0;
  }
  if (wrong) { ADD64(counters, wrong); MIN64(counters + 2, first); }
  if (nonzero) ADD64(counters + 1, nonzero);
""",
    _OFFSET + _NUMBERS,
)
"""counters: elements other than `expected` rounded to the type, non-zero elements of `expected`, first wrong index."""

LOOK = PortableKernel(
    "look_at_element",
    (("storage", "u8"), ("expected", "i64"), ("tables", "i64"), ("numbers", "double")),
    ("index", "nbytes", "exponent_bits", "digits", *EXTENTS),
    """
  i64 offset = place(tables, index, E0, E1, E2, E3, E4);
  numbers[0] = element(storage, offset, nbytes, exponent_bits, digits);
  numbers[1] = rounded(expected[index], (int)exponent_bits, (int)digits);
""",
    _OFFSET + _NUMBERS,
)
"""numbers: the given and the expected value of one element."""

GUARD = PortableKernel(
    "count_other_bytes",
    (("bytes", "u8"), ("counters", "i64")),
    ("poison",),
    """
  if (bytes[thread] != poison) ADD64(counters, 1);
""",
)
"""counters: how many of the bytes differ from the poison."""
