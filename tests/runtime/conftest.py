"""Hand-written kernels and a cache of its own for every test."""

import pytest

from convloom import settings
from convloom.artifact import Access, BufferParam, KernelSource, Language, Requirement, ScalarKind, ScalarParam

_C = """
#include <stdint.h>
void NAME(void *const *buffers, const int64_t *integers, const double *floats, int64_t first, int64_t last) {
  const float *x = buffers[0];
  float *y = buffers[1];
  for (int64_t block = first; block < last; ++block)
    for (int64_t i = block * 64; i < block * 64 + 64 && i < integers[0]; ++i)
      y[i] = (float)floats[0] * x[i] + (float)floats[1] * y[i] + (float)integers[1];
}
"""
_CUDA = """
extern "C" __global__ void NAME(const float *x, float *y, long long n, int shift, float alpha, double beta) {
  long long i = blockIdx.x * 64ll + threadIdx.x;
  if (i < n) y[i] = alpha * x[i] + (float)beta * y[i] + (float)shift;
}
"""
_OPENCL = """
__kernel void NAME(__global const float *x, __global float *y, long n, int shift, float alpha, float beta) {
  long i = get_global_id(0);
  if (i < n) y[i] = alpha * x[i] + beta * y[i] + (float)shift;
}
"""
_TEXTS = {Language.C: _C, Language.CUDA: _CUDA, Language.OPENCL: _OPENCL}
_ARCHS = {Language.C: "cpu", Language.CUDA: "sm_90a", Language.OPENCL: "opencl"}


def _axpby(language=Language.C, name="axpby", text=None, arch=None, requirements=None) -> KernelSource:
    """y = alpha * x + beta * y + n % 7, in blocks of 64 elements."""
    return KernelSource(
        name=name,
        language=language,
        arch=arch or _ARCHS[language],
        text=(text or _TEXTS[language]).replace("NAME", name),
        buffers=(BufferParam("x", "f32", Access.READ), BufferParam("y", "f32", Access.READ_WRITE)),
        scalars=(
            ScalarParam("n", "n", ScalarKind.I64),
            ScalarParam("shift", "n % 7", ScalarKind.I32),
            ScalarParam("alpha", "alpha", ScalarKind.F32),
            ScalarParam("beta", "beta", ScalarKind.F32 if language is Language.OPENCL else ScalarKind.F64),
        ),
        grid=("(n + 63) // 64", "1", "1"),
        block=(1, 1, 1) if language is Language.C else (64, 1, 1),
        shared_bytes=0,
        requirements=(
            requirements
            if requirements is not None
            else (Requirement("x_address % 16 == 0", "vector loads of x rely on it; align the data to 16 bytes"),)
        ),
    )


@pytest.fixture
def axpby():
    return _axpby


@pytest.fixture(autouse=True)
def own_cache(tmp_path):
    with settings.scoped(cache_dir=tmp_path / "cache", dump=None, debug=0) as scoped:
        yield scoped.cache_dir
