"""`convloom explain` and `convloom emit` show each stage."""

import re

import pytest
from typer.testing import CliRunner

from convloom.cli import app

STRIDED = "mb2ic8ih14oc8oh7kh3sh2ph1"


def run(*arguments):
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_explain_tells_the_whole_way():
    text = run("explain", STRIDED)
    titles = [line.split()[0] for line in text.splitlines() if not line.startswith(" ")]
    assert titles == ["problem", "contraction", "normal", "plan", "sums", "requirements", "source"]
    assert "src f32: n 2:1568  ic 8:196  oh 7:28  kh 3:14  ow 7:2  kw 3:1" in text
    assert "valid where" in text


GRADIENT = ("mb32ic64ih28oc64oh28kh3ph1", "--dir", "bwd_w", "--target", "sm_90a")


def test_explain_tells_how_a_sum_is_divided():
    text = run("explain", *GRADIENT)
    assert "a second launch adds their partial sums, in order" in text
    assert "source        finish_" in text
    assert run("emit", *GRADIENT).count("__global__") == 2


def test_explain_tells_what_a_limit_changed():
    assert "add to the result atomically" in run("explain", *GRADIENT, "--max-workspace", "0")
    text = run("explain", *GRADIENT, "--max-workspace", "0", "--deterministic")
    assert "each block sums all of K" in text
    assert "workspace of a call: 0 bytes, at most 0 allowed" in text
    assert "without the caller's wishes the plan would be split=passes*" in text
    assert "without the caller's wishes" not in run("explain", *GRADIENT, "--max-workspace", "100000000")


def test_explain_lists_the_phases_of_a_family():
    text = run("explain", STRIDED, "--dir", "bwd_d")
    assert text.count("phases  ") == 8
    assert "taps_h" in text


@pytest.mark.parametrize("target", ["cpu", "opencl", "sm_80", "sm_90a"])
def test_source_is_in_the_language_of_the_target(target):
    mark = {"cpu": "int64_t first_block", "opencl": "__kernel", "sm_80": "__global__", "sm_90a": "__global__"}[target]
    assert mark in run("emit", STRIDED, "--target", target)


@pytest.mark.parametrize(
    ("stage", "mark"),
    [("contraction", "sums in f32"), ("plan", "block="), ("ir", "blocks "), ("source", "run_block")],
)
def test_each_stage_has_a_text(stage, mark):
    assert mark in run("emit", STRIDED, "--stage", stage)


@pytest.mark.parametrize("types", ["f64", "f16", "bf16:bf16:bf16", "s8"])
@pytest.mark.parametrize("direction", ["fwd", "bwd_d", "bwd_w"])
def test_the_ir_of_every_kind_of_kernel_has_a_text(types, direction):
    for target in ("cpu", "sm_90a"):
        text = run("emit", STRIDED, "--stage", "ir", "--dir", direction, "--dt", types, "--target", target)
        assert "acc" in text
        assert text.splitlines()[0].startswith("kernel ")


def test_explain_lists_what_the_epilogue_reads():
    attributes = ("--attr-post-ops=add:f16:per_oc+relu", "--attr-scales=wei:per_oc", "--attr-zero-points=src:common:3")
    text = run("explain", STRIDED, "--dt", "s8:s8:f32", *attributes)
    wanted = [
        r"A less  \S+ s32: one",
        r"fused   \S+ f32: ",
        r"fused   \S+ f16: ",
        r"times   ",
        r"stored  .*relu\(.*acc",
    ]
    assert all(re.search(line, text) for line in wanted), text


@pytest.mark.parametrize("target", ["sm_999", "sm_70", "sm_9x"])
def test_architectures_that_do_not_exist_are_refused(target):
    result = CliRunner().invoke(app, ["emit", STRIDED, "--target", target])
    assert result.exit_code == 2
    assert "sm_80, sm_90a" in result.stderr
    assert "sm_120" in result.stderr
    assert repr(target) in result.stderr


def test_an_unknown_target_is_refused():
    result = CliRunner().invoke(app, ["emit", STRIDED, "--target", "z80"])
    assert result.exit_code == 2
    assert "z80" in result.stderr


def test_the_key_names_no_layout():
    assert "k=8:196,3:14,3:1" in run("key", STRIDED)


def test_a_1x1_convolution_has_the_key_of_its_product():
    tags = ("--stag", "nhwc", "--wtag", "axb", "--dtag", "nhwc")
    convolution = run("key", "mb2ic64ih56oc64oh56kh1", *tags)
    assert convolution == run("key", "gemm -m 6272 -k 64 -n 64 -transB true")


def test_the_key_depends_on_the_direction():
    assert run("key", STRIDED) != run("key", STRIDED, "--dir", "bwd_w")


CUDA_GRADIENT = (*GRADIENT, "--dt", "f16")


def emitted(*arguments):
    return CliRunner().invoke(app, ["emit", *map(str, arguments)])


def test_ptx_is_compiled_without_a_gpu():
    text = run("emit", *CUDA_GRADIENT, "--stage", "ptx")
    assert ".target sm_90a" in text
    assert text.count(".visible .entry") == run("emit", *CUDA_GRADIENT).count("__global__")


def test_a_cubin_goes_to_a_file_and_each_further_launch_beside_it(tmp_path):
    launches = run("emit", *GRADIENT).count("__global__")
    assert launches == 2
    assert emitted(*GRADIENT, "--stage", "cubin", "--out", tmp_path / "new" / "k.cubin").exit_code == 0
    files = sorted((tmp_path / "new").iterdir())
    assert [file.name for file in files] == ["k.2.cubin", "k.cubin"]
    assert all(file.read_bytes().startswith(b"\x7fELF") for file in files)


def test_a_cubin_is_not_printed():
    result = emitted(*GRADIENT, "--stage", "cubin")
    assert result.exit_code == 2
    assert "--out FILE" in result.stderr


def test_machine_code_or_the_remedy():
    result = emitted(*CUDA_GRADIENT, "--stage", "sass")
    if result.exit_code == 0:
        assert "EXIT" in result.stdout
    else:
        assert result.exit_code == 2
        assert "run: pip install nvidia-cuda-nvdisasm" in result.stderr


def test_a_missing_disassembler_is_named_with_its_remedy(monkeypatch):
    from convloom.runtime import nvrtc

    monkeypatch.setattr(nvrtc, "_disassembler", lambda: None)
    result = emitted(*CUDA_GRADIENT, "--stage", "sass")
    assert result.exit_code == 2
    assert "run: pip install nvidia-cuda-nvdisasm" in result.stderr


@pytest.mark.parametrize("stage", ["ptx", "sass"])
def test_compiled_stages_are_of_cuda_targets(stage):
    result = emitted(STRIDED, "--stage", stage)
    assert result.exit_code == 2
    assert "--target sm_90a" in result.stderr


def test_a_text_goes_to_a_file(tmp_path):
    assert emitted(STRIDED, "--stage", "plan", "--out", tmp_path / "plan.txt").exit_code == 0
    assert (tmp_path / "plan.txt").read_text() == run("emit", STRIDED, "--stage", "plan").rstrip("\n")
