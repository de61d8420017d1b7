import dataclasses

import pytest

from convloom import settings
from convloom.artifact import Language
from convloom.errors import BuildFailed, UnsupportedTarget
from convloom.runtime import disk_cache, nvrtc
from convloom.runtime.compiler import compile_cached


@pytest.fixture(scope="module")
def compiler():
    try:
        return nvrtc.current_nvrtc()
    except UnsupportedTarget as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_compiles_without_a_gpu(compiler, axpby, arch):
    binary = compiler.compile(axpby(Language.CUDA, arch=arch))
    assert binary.payload.startswith(b"\x7fELF")
    assert b"axpby" in binary.payload
    resources = nvrtc.resources_from_log(binary.log)
    assert 4 <= resources.registers <= 64
    assert resources.spill_bytes == 0


def test_spills_are_read_from_the_log(compiler, axpby):
    text = """
extern "C" __global__ void __launch_bounds__(1024)
NAME(const float *x, float *y, long long n, int s, float a, double b) {
  float sums[96];
  #pragma unroll
  for (int i = 0; i < 96; ++i) sums[i] = x[i * n];
  for (int k = 0; k < n; ++k)
    #pragma unroll
    for (int i = 0; i < 96; ++i) sums[i] = sums[i] * sums[(i + 1) % 96] + x[k];
  #pragma unroll
  for (int i = 0; i < 96; ++i) y[i * n] = sums[i];
}
"""
    resources = nvrtc.resources_from_log(compiler.compile(axpby(Language.CUDA, text=text)).log)
    assert resources.registers == 64
    assert resources.spill_bytes > 100
    assert resources.stack_bytes > 100


def test_refused_text_carries_the_log(compiler, axpby):
    with pytest.raises(BuildFailed, match=r"(?s)refused kernel axpby for sm_90a.*identifier \"nonsense\""):
        compiler.compile(axpby(Language.CUDA, text='extern "C" __global__ void NAME() { nonsense = 1; }'))
    with pytest.raises(BuildFailed, match="sm_10"):
        compiler.compile(axpby(Language.CUDA, arch="sm_10"))


def test_architectures_are_different_entries(compiler, axpby):
    for arch in ("sm_80", "sm_90a", "sm_80"):
        compile_cached(compiler, axpby(Language.CUDA, arch=arch))
    assert len(disk_cache.current_cache().entries()) == 2


def test_a_new_compiler_version_misses(compiler, axpby, monkeypatch):
    source = axpby(Language.CUDA)
    compile_cached(compiler, source)
    compile_cached(dataclasses.replace(compiler, version="99.9"), source)
    assert len(disk_cache.current_cache().entries()) == 2


def test_the_cached_log_still_tells_the_resources(compiler, axpby, monkeypatch):
    source = axpby(Language.CUDA)
    first = compile_cached(compiler, source)
    monkeypatch.setattr(nvrtc.Nvrtc, "compile", None)
    second = compile_cached(compiler, source)
    assert second == first
    assert nvrtc.resources_from_log(second.log).registers > 0


def test_architectures_are_listed(compiler):
    assert {"sm_80", "sm_90"} <= set(nvrtc.supported_archs(compiler))


def test_a_named_library_that_is_missing_is_an_error(tmp_path):
    with (
        settings.scoped(nvrtc=tmp_path / "libnvrtc.so"),
        pytest.raises(UnsupportedTarget, match=r"pip install 'convloom\[cuda\]'"),
    ):
        nvrtc.current_nvrtc()


def test_a_log_without_a_report():
    assert nvrtc.resources_from_log("nothing") is None


def test_serialised_multiplies_are_told():
    used = "ptxas info    : Used 168 registers, used 1 barriers"
    advice = (
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
        "insufficient register resources for the wgmma pipeline in the function 'k'"
    )
    assert not nvrtc.resources_from_log(used).serialised
    assert nvrtc.resources_from_log(f"{advice}\n{used}").serialised
