"""Post-ops, scales and zero points against the reference: 40 chains and 20 quantised problems, interpreted and compiled
for the cpu."""

from dataclasses import replace

import numpy as np
import pytest

import convloom
from convloom.compiler import prepare
from convloom.dtypes import F32
from convloom.errors import IllegalProblem
from convloom.frontend.dynamic_twin import dynamic_twin
from convloom.frontend.problem_check import check_problem
from convloom.problem.data import DataKind
from convloom.problem.epilogue.attributes import AttributeTexts
from convloom.problem.notation import parse_problem, with_attributes
from convloom.problem.stride_key import key_text, parse_key
from tests.problem.epilogue.fused_cases import POST_OPS, QUANTISED, problem

SMALL = "mb2ic3ih5iw4oc6oh5ow4kh3kw3ph1pw1"
STRIDED = "g2mb1ic4ih7oc4oh3kh2sh3ph0"


def check(fused, device="interpret", kind=DataKind.REAL, called=None):
    outcome = check_problem(convloom.compile(fused, device), kind, problem=called)
    assert outcome.passed, outcome.reason
    return outcome


@pytest.mark.parametrize("post_ops", POST_OPS)
def test_post_ops_interpreted(post_ops):
    check(problem(SMALL, "f32", post_ops, stag="nhwc"))


@pytest.mark.parametrize("post_ops", POST_OPS[::8])
def test_factors_cut_to_tf32_stay_within_the_bound(post_ops):
    """Real numbers lose digits in tf32; a bound that forgets it fails on a GPU, and here where mma rows multiply."""
    fused = problem("mb2ic32ih5oc48oh5kh3ph1", "tf32", post_ops, stag="axb")
    assert "row=mma.m16n8k8.f32.tf32" in convloom.compile(fused, "interpret").plan
    check(fused)


@pytest.mark.parametrize("post_ops", POST_OPS)
def test_post_ops_on_cpu(post_ops):
    check(problem(SMALL, "f16", post_ops, stag="nhwc"), "cpu")


@pytest.mark.parametrize(("dtypes", "post_ops", "scales", "zero_points"), QUANTISED)
def test_quantised_interpreted(dtypes, post_ops, scales, zero_points):
    check(problem(SMALL, dtypes, post_ops, scales, zero_points, stag="nhwc"), kind=DataKind.INT)


@pytest.mark.parametrize(("dtypes", "post_ops", "scales", "zero_points"), QUANTISED)
def test_quantised_on_cpu(dtypes, post_ops, scales, zero_points):
    check(problem(SMALL, dtypes, post_ops, scales, zero_points), "cpu", DataKind.INT)


def test_integer_epilogues_are_compared_exactly():
    outcome = check(problem(SMALL, "f32", "relu:0.5+add:f32:per_oc+sum:0.25+prelu:per_oc"), kind=DataKind.INT)
    assert outcome.comparison.max_error == 0


@pytest.mark.parametrize("direction", ["bwd_d", "bwd_w"])
def test_every_direction(direction):
    check(problem(STRIDED, "f32", "add:f32:per_tensor+relu+sum:0.5", direction=direction), kind=DataKind.INT)


def test_transposed_convolution_with_zero_points():
    fused = problem("mb1ic4ih7oc4oh3kh2sh3ph0", "s8:s8:s8", "relu", "wei:per_oc", "src:per_dim_1+wei:per_oc", "bwd_d")
    check(fused, kind=DataKind.INT)


@pytest.mark.parametrize("post_ops", ["relu+add:f32:per_oc+mul:f32:per_tensor+sum:0.5"])
def test_dynamic_sizes(post_ops):
    twin = dynamic_twin(problem(SMALL, "f32", post_ops))
    check(twin.dynamic, kind=DataKind.INT, called=twin.static)


def test_split_sums_run_the_epilogue_once():
    fused = replace(problem("mb1ic64ih1oc4oh1kh1", "f32", "linear:2:1+sum:0.5"), bias=F32)
    kernel = convloom.compile(fused, "interpret")
    plan = kernel.plan
    split = convloom.compile(fused, "interpret", f"{plan} split=passes*4" if "split=" not in plan else plan)
    outcome = check_problem(split, DataKind.INT)
    assert outcome.passed, outcome.reason


def test_product_with_an_epilogue():
    gemm = parse_problem("gemm -t f32 -out_datatype f32 -transA false -transB false -g 2 -m 5 -n 7 -k 6")
    check(
        with_attributes(gemm, AttributeTexts("add:f32:per_oc+relu+mul:f32:per_tensor", "wei:per_oc")), kind=DataKind.INT
    )


# --- the call -------------------------------------------------------------------------------------------------------


def test_traced_epilogue_on_arrays():
    bare = problem("mb1ic2ih3oc3oh3kh1")
    kernel = convloom.compile(
        bare,
        epilogue=lambda acc, res, scale: convloom.relu(acc * scale + res),
        operands={"res": "f32", "scale": ("f32", 2)},
    )
    random = np.random.default_rng(1)
    x, w, res = (
        random.integers(-4, 5, shape).astype(np.float32) for shape in ((1, 2, 3, 3), (3, 2, 1, 1), (1, 3, 3, 3))
    )
    scale = np.array([1, 2, -1], np.float32).reshape(1, 3, 1, 1)
    y = kernel(x, w, operands={"scale": scale, "res": res})
    assert np.array_equal(y, np.maximum(np.einsum("nchw,kc->nkhw", x, w[:, :, 0, 0]) * scale + res, 0))
    assert np.array_equal(kernel(x, w, operands=(res, scale)), y)
    with pytest.raises(IllegalProblem, match="reads the operands"):
        kernel(x, w)
    with pytest.raises(IllegalProblem, match="reads the operands"):
        kernel(x, w, operands={"res": res, "skale": scale})


def test_a_sum_needs_the_old_result():
    kernel = convloom.compile(problem("mb1ic2ih3oc3oh3kh1", post_ops="sum"), "interpret")
    x, w = np.ones((1, 2, 3, 3), np.float32), np.ones((3, 2, 1, 1), np.float32)
    with pytest.raises(IllegalProblem, match="pass out="):
        kernel(x, w)
    out = np.full((1, 3, 3, 3), 5, np.float32)
    assert (kernel(x, w, out=out) == 7).all()


def test_keys_tell_epilogues_apart():
    plain = problem(SMALL, "s8:s8:s8")
    variants = [
        plain,
        *(
            problem(SMALL, "s8:s8:s8", post_ops)
            for post_ops in ("relu", "relu:0.5", "add:f32:per_oc", "add:f32:per_tensor")
        ),
        problem(SMALL, "s8:s8:s8", "", "dst:common"),
        problem(SMALL, "s8:s8:s8", "", "wei:per_oc"),
        problem(SMALL, "s8:s8:s8", "", "", "src:common"),
        problem(SMALL, "s8:s8:s8", "", "", "wei:common"),
    ]
    keys = [key_text(prepare(variant).contraction) for variant in variants]
    assert len(set(keys)) == len(keys)
    for variant, key in zip(variants, keys, strict=True):
        assert parse_key(key) == prepare(variant).contraction
        assert key_text(prepare(replace(variant, name="other")).contraction) == key
