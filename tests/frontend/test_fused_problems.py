"""Post-ops, scales and zero points against the reference: 40 chains and 20 quantised problems, all interpreted, some
compiled for the cpu."""

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
from convloom.problem.notation import Defaults, direction_named, parse_problem, types_named, with_attributes
from convloom.problem.notation.choose import parse_line
from convloom.problem.stride_key import key_text, parse_key

SMALL = "mb2ic3ih5iw4oc6oh5ow4kh3kw3ph1pw1"
STRIDED = "g2mb1ic4ih7oc4oh3kh2sh3ph0"

ELTWISE = [
    *("abs", "clip:-1:2", "clip_v2:-3:1", "elu:0.5", "exp", "gelu_erf", "gelu_tanh", "hardsigmoid:0.25:0.5"),
    *("hardswish:0.25:0.5", "linear:2:1", "square+log", "logistic", "mish", "abs+pow:0.5:1.5", "relu", "relu:0.25"),
    *("round", "soft_relu:2", "abs+sqrt", "square", "swish:1.5", "tanh"),
]
CHAINS = [
    "sum",
    "sum:0.5",
    "relu+sum:0.25",
    "sum:0.25+relu",
    "add:f32:per_oc+relu",
    "relu+add:f32:per_oc",
    "sub:bf16:per_tensor",
    "mul:f16:per_tensor:axb",
    "div:f32:per_oc",
    "max:s8:1+min:u8:per_tensor",
    "ge:f32:per_tensor+gt:s32:per_oc+le:f32:common",
    "lt:f32:per_oc+eq:f32:common+ne:f32:8",
    "prelu:per_oc",
    "prelu:per_tensor:bf16+tanh",
    "linear:2:1+clip:0:6",
    "mul:f32:12+add:f32:3",
    "gelu_tanh+mul:f32:per_oc+sum:2+swish:1",
    "add:s32:per_oc+relu:0.5+sum:0.25+prelu:per_oc+mul:f32:per_tensor:axb",
]
QUANTISED = [  # types, post-ops, scales, zero points
    ("s8:s8:s32", "", "", "src:common:3"),
    ("u8:s8:s32", "", "", "src:common:131:u8+wei:per_oc"),
    ("u8:u8:f32", "", "", "src:per_dim_1+wei:common:2"),
    ("s8:s8:s8", "", "dst:common:2", ""),
    ("s8:s8:s8", "", "dst:per_oc", "dst:common:5"),
    ("s8:s8:s8", "sum", "", ""),
    ("s8:s8:u8", "sum:1:0:s8+relu", "", ""),
    ("u8:s8:s8", "sum:0.5:3:u8", "src:common:0.5", ""),
    ("u8:s8:u8", "relu", "src:common:0.5+wei:per_oc+dst:common:0.25", "dst:common:128"),
    ("s8:s8:f32", "gelu_erf", "src:common:0.25+wei:per_oc", ""),
    ("s8:s8:bf16", "add:bf16:per_tensor", "wei:per_oc", "src:common:-2"),
    ("s8:s8:f16", "swish:1", "src:common:0.125", "src:per_dim_1:*:s8"),
    (
        "s8:s8:s8",
        "sum:1:2+clip:-10:20",
        "src:common:0.25+wei:per_oc+dst:common:2",
        "src:common:3+wei:common:-1+dst:common:2",
    ),
    ("u8:s8:u8", "linear:0.5:1+round", "wei:common:0.5", "wei:per_oc"),
    ("u8:s8:s8", "prelu:per_oc", "dst:per_oc", "src:common:7"),
    ("f32:f32:s8", "linear:3:0.5", "", ""),
    ("f32:f32:u8", "relu", "", ""),
    ("f16:f16:s8", "tanh+linear:200:0", "", ""),
    ("s8:s8:s32", "relu+add:s32:per_oc", "", "src:common:1"),
    ("u8:s8:f32", "max:f32:per_tensor+sum:0.5", "src:common:0.25:bf16+wei:per_oc:*:f16", "src:common:8:u8"),
]


def problem(line, dtypes="f32", post_ops="", scales="", zero_points="", direction="fwd", stag="any", **more):
    defaults = Defaults(
        direction_named(direction),
        types_named(dtypes),
        src_tag=stag,
        dst_tag=stag,
        attributes=AttributeTexts(post_ops, scales, zero_points),
        **more,
    )
    return parse_line(line, defaults)


def check(fused, device="interpret", kind=DataKind.REAL, called=None):
    outcome = check_problem(convloom.compile(fused, device), kind, problem=called)
    assert outcome.passed, outcome.reason
    return outcome


@pytest.mark.parametrize("post_ops", [*ELTWISE, *CHAINS])
def test_post_ops_interpreted(post_ops):
    check(problem(SMALL, "f32", post_ops, stag="nhwc"))


@pytest.mark.parametrize("post_ops", [*ELTWISE[::6], *CHAINS[::5]])
def test_post_ops_on_cpu(post_ops):
    check(problem(SMALL, "f16", post_ops, stag="nhwc"), "cpu")


@pytest.mark.parametrize(("dtypes", "post_ops", "scales", "zero_points"), QUANTISED)
def test_quantised_interpreted(dtypes, post_ops, scales, zero_points):
    check(problem(SMALL, dtypes, post_ops, scales, zero_points, stag="nhwc"), kind=DataKind.INT)


@pytest.mark.parametrize(("dtypes", "post_ops", "scales", "zero_points"), QUANTISED[1::4])
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
    fused = problem("mb1ic64ih1oc4oh1kh1", "f32", "linear:2:1+sum:0.5", bias=F32)
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
