"""The reference of device checks: convolutions and products in s64, one thread per output and part of its sum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from convloom.problem.conv import Conv, Direction
from convloom.problem.gemm import Gemm
from convloom.problem.reference import Problem, result_shape
from tests.device.portable_kernel import PortableKernel

# Threads that fill a large GPU. A result of fewer elements has its sums cut into parts, which meet in atomic additions:
# integers commute.
ENOUGH_THREADS = 1 << 19

_AXES = ("D", "H", "W")
_ARGUMENTS = "src", "wei", "dst"
_POINTERS = (*((name, "i8") for name in _ARGUMENTS), ("result", "i64"))
_INTEGERS = ("parts", "N", "G", "IC", "OC", *(f"{kind}{axis}" for kind in "IOKSRP" for axis in _AXES))
"""Channels IC and OC are of one group; per axis I is input, O output, K kernel, S stride, R dilation, P pad."""

# All tensors are dense: src (n, g, ic, d, h, w), wei (g, oc, ic, kd, kh, kw), dst (n, g, oc, od, oh, ow).
_HELPERS = """
#define SRC(n, g, ic, d, h) ((((((n) * G + (g)) * IC + (ic)) * ID + (d)) * IH + (h)) * IW)
#define WEI(g, oc, ic, kd, kh) ((((((g) * OC + (oc)) * IC + (ic)) * KD + (kd)) * KH + (kh)) * KW)
#define DST(n, g, oc, od, oh) ((((((n) * G + (g)) * OC + (oc)) * OD + (od)) * OH + (oh)) * OW)
#define DIGIT(name, extent) int name = (int)(rest % (extent)); rest /= (extent)
/* outputs o with 0 <= x + pad - o * stride <= (kernel - 1) * dilation: first and last of them */
FUNCTION int first_output(int x, int pad, int kernel, int stride, int dilation) {
  int low = x + pad - (kernel - 1) * dilation;
  return low <= 0 ? 0 : (low + stride - 1) / stride;
}
FUNCTION int last_output(int x, int pad, int outputs, int stride) {
  int high = x + pad;
  return high < 0 ? -1 : high / stride < outputs ? high / stride : outputs - 1;
}
"""

_FWD = """
  i64 rest = thread, sum = 0;
  DIGIT(ow, OW); DIGIT(oh, OH); DIGIT(od, OD); DIGIT(oc, OC); DIGIT(g, G); DIGIT(n, N);
  for (int ic = (int)rest; ic < IC; ic += (int)parts)
    for (int kd = 0; kd < KD; ++kd) {
      int d = od * (int)SD - (int)PD + kd * (int)RD;
      if (d < 0 || d >= ID) continue;
      for (int kh = 0; kh < KH; ++kh) {
        int h = oh * (int)SH - (int)PH + kh * (int)RH;
        if (h < 0 || h >= IH) continue;
        const i8 *x = src + SRC(n, g, ic, d, h), *f = wei + WEI(g, oc, ic, kd, kh);
        for (int kw = 0; kw < (int)KW; ++kw) {
          int w = ow * (int)SW - (int)PW + kw * (int)RW;
          if (w >= 0 && w < (int)IW) sum += (i64)((int)x[w] * (int)f[kw]);
        }
      }
    }
  ADD64(result + DST(n, g, oc, od, oh) + ow, sum);
"""

_BWD_D = """
  i64 rest = thread, sum = 0;
  DIGIT(w, IW); DIGIT(h, IH); DIGIT(d, ID); DIGIT(ic, IC); DIGIT(g, G); DIGIT(n, N);
  int d0 = first_output(d, PD, KD, SD, RD), d1 = last_output(d, PD, OD, SD);
  int h0 = first_output(h, PH, KH, SH, RH), h1 = last_output(h, PH, OH, SH);
  int w0 = first_output(w, PW, KW, SW, RW), w1 = last_output(w, PW, OW, SW);
  for (int oc = (int)rest; oc < OC; oc += (int)parts)
    for (int od = d0; od <= d1; ++od) {
      int far = d + (int)PD - od * (int)SD, kd = far / (int)RD;
      if (kd * RD != far) continue;
      for (int oh = h0; oh <= h1; ++oh) {
        far = h + (int)PH - oh * (int)SH;
        int kh = far / (int)RH;
        if (kh * RH != far) continue;
        const i8 *y = dst + DST(n, g, oc, od, oh), *f = wei + WEI(g, oc, ic, kd, kh);
        for (int ow = w0; ow <= w1; ++ow) {
          far = w + (int)PW - ow * (int)SW;
          int kw = far / (int)RW;
          if (kw * (int)RW == far) sum += (i64)((int)y[ow] * (int)f[kw]);
        }
      }
    }
  ADD64(result + SRC(n, g, ic, d, h) + w, sum);
"""

_BWD_W = """
  i64 rest = thread, sum = 0;
  DIGIT(kw, KW); DIGIT(kh, KH); DIGIT(kd, KD); DIGIT(ic, IC); DIGIT(oc, OC); DIGIT(g, G);
  for (i64 row = rest; row < N * OD * OH; row += parts) {
    int oh = (int)(row % OH), od = (int)(row / OH % OD), n = (int)(row / OH / OD);
    int d = od * (int)SD - (int)PD + kd * (int)RD, h = oh * (int)SH - (int)PH + kh * (int)RH;
    if (d < 0 || d >= ID || h < 0 || h >= IH) continue;
    const i8 *x = src + SRC(n, g, ic, d, h), *y = dst + DST(n, g, oc, od, oh);
    for (int ow = 0; ow < (int)OW; ++ow) {
      int w = ow * (int)SW - (int)PW + kw * (int)RW;
      if (w >= 0 && w < (int)IW) sum += (i64)((int)x[w] * (int)y[ow]);
    }
  }
  ADD64(result + WEI(g, oc, ic, kd, kh) + kw, sum);
"""

REFERENCES: Mapping[Direction, PortableKernel] = MappingProxyType(
    {
        direction: PortableKernel(f"reference_{direction.value}", _POINTERS, _INTEGERS, body, _HELPERS)
        for direction, body in ((Direction.FWD, _FWD), (Direction.BWD_D, _BWD_D), (Direction.BWD_W, _BWD_W))
    }
)
"""Adds every product to `result`, which begins as zeros; the operand that the direction produces is not read."""

PRODUCT = PortableKernel(
    "reference_product",
    (("a", "i8"), ("b", "i8"), ("result", "i64")),
    ("parts", "M", "N", "K"),
    """
  i64 rest = thread, sum = 0;
  DIGIT(n, N); DIGIT(m, M);
  i64 matrix = rest / parts;
  const i8 *row = a + (matrix * M + m) * K, *column = b + matrix * K * N + n;
  for (i64 k = rest % parts; k < K; k += parts) sum += (i64)((int)row[k] * (int)column[k * N]);
  ADD64(result + (matrix * M + m) * N + n, sum);
""",
    _HELPERS,
)
"""The same of products of dense matrices: a (matrix, m, k), b (matrix, k, n), result (matrix, m, n)."""


def reference_launch(problem: Problem, a: int, b: int, result: int) -> tuple[PortableKernel, tuple[int, ...]]:
    """The kernel that sums up a problem's products, and its buffers."""
    if isinstance(problem, Gemm):
        return PRODUCT, (a, b, result)
    first, second, _ = (role.value for role in problem.roles)
    handles = {first: a, second: b}
    return REFERENCES[problem.direction], (*(handles.get(name, 0) for name in _ARGUMENTS), result)


def reference_symbols(problem: Problem) -> dict[str, int]:
    """The integers of a launch for a problem of constant sizes."""
    return _product_symbols(problem) if isinstance(problem, Gemm) else _conv_symbols(problem)


def _product_symbols(gemm: Gemm) -> dict[str, int]:
    total, depth = math.prod(result_shape(gemm)), gemm.k.value
    parts = max(min(-(-ENOUGH_THREADS // max(total, 1)), depth), 1)
    return {"M": gemm.m.value, "N": gemm.n.value, "K": depth, "parts": parts, "threads": total * parts}


def _conv_symbols(conv: Conv) -> dict[str, int]:
    groups = conv.groups.value
    symbols = {
        "N": conv.batch.value,
        "G": groups,
        "IC": conv.in_channels.value // groups,
        "OC": conv.out_channels.value // groups,
    }
    missing = 3 - conv.rank
    for kind, values, neutral in (
        ("I", [extent.value for extent in conv.in_spatial], 1),
        ("O", [extent.value for extent in conv.out_spatial], 1),
        ("K", conv.kernel, 1),
        ("S", conv.stride, 1),
        ("R", conv.dilation, 1),
        ("P", conv.pad_begin, 0),
    ):
        symbols |= {f"{kind}{axis}": value for axis, value in zip(_AXES, [neutral] * missing + [*values], strict=True)}
    total = math.prod(result_shape(conv))
    parts = min(-(-ENOUGH_THREADS // max(total, 1)), _rows(conv.direction, symbols))
    return {**symbols, "parts": max(parts, 1), "threads": total * max(parts, 1)}


def _rows(direction: Direction, symbols: Mapping[str, int]) -> int:
    """Into how many parts a sum can be cut."""
    if direction is Direction.BWD_W:
        return symbols["N"] * symbols["OD"] * symbols["OH"]
    return symbols["IC" if direction is Direction.FWD else "OC"]
