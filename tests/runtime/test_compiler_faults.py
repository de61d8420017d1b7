"""Faults of vendor compilers that generated code has met; the options of the cpu device must avoid them."""

import numpy as np

from convloom.artifact import Access, BufferParam, KernelSource, Language
from convloom.runtime.device import device_named

# A loop over 48 lanes cut to 33 by its condition: clang 22 at -O1 and above stores element 0 behind element 32.
_CUT_LOOP = """#include <stdint.h>
typedef float f32x16 __attribute__((vector_size(64)));
static inline unsigned short to_bf16(float x) {
  union { float f; unsigned u; } bits; bits.f = x;
  unsigned rounded = (bits.u + 0x7fffu + ((bits.u >> 16) & 1u)) >> 16;
  unsigned quiet = (bits.u >> 16) | 0x40u;
  return (unsigned short)((bits.u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}
static void run_block(const int32_t bid, const float *restrict src, unsigned short *restrict dst) {
  f32x16 acc[3];
  for (int32_t i = 0; i < 3; ++i) __builtin_memcpy(&acc[i], src + i * 16, sizeof acc[i]);
  for (int32_t row = 0; row < 6; ++row) {
    for (int32_t j = 0; j < 48; ++j) {
      const int32_t at = row * 132 + j + bid * 33;
      if (j < 33) dst[at] = to_bf16(acc[j / 16][j % 16]);
    }
  }
}
void cut_loop(void *const *buffers, const int64_t *integers, const double *floats, int64_t first, int64_t last) {
  for (int64_t block = first; block < last; ++block)
    run_block((int32_t)block, (const float *)buffers[0], (unsigned short *)buffers[1]);
}
"""


def test_a_loop_cut_short_by_a_constant_condition_stores_where_it_should():
    source = KernelSource(
        "cut_loop",
        Language.C,
        "native",
        _CUT_LOOP,
        (BufferParam("src", "f32", Access.READ), BufferParam("dst", "bf16", Access.WRITE)),
        (),
        ("4", "1", "1"),
        (1, 1, 1),
        0,
        (),
    )
    device = device_named("cpu")
    values = np.arange(1, 49, dtype=np.float32)
    result = np.zeros(6 * 132 + 8, np.uint16)
    device.build(source).launch([values.ctypes.data, result.ctypes.data], {})
    expected = (values[:33].view(np.uint32) >> 16).astype(np.uint16)
    assert (result[: 6 * 132].reshape(6, 4, 33) == expected).all()
    assert (result[6 * 132 :] == 0).all()
