"""Post-ops, scales and zero points on a GPU: the 40 chains in every type, the 20 quantised problems in two layouts."""

import pytest

import convloom
from convloom.frontend.problem_check import check_problem
from convloom.problem.data import DataKind
from tests.device.gpu import needs_gpu
from tests.problem.epilogue.fused_cases import POST_OPS, QUANTISED, problem

pytestmark = needs_gpu
WIDE = "mb2ic32ih9iw7oc48oh9ow7kh3kw3ph1pw1"
LAYOUTS = ["axb", "abx"]


def check(fused, kind):
    outcome = check_problem(convloom.compile(fused, "cuda"), kind)
    assert outcome.passed, outcome.reason


@pytest.mark.parametrize("dtypes", ["f32", "tf32", "f16", "bf16"])
@pytest.mark.parametrize("post_ops", POST_OPS)
def test_post_ops(post_ops, dtypes):
    check(problem(WIDE, dtypes, post_ops, stag="axb"), DataKind.REAL)


@pytest.mark.parametrize("post_ops", POST_OPS[::4])
def test_post_ops_in_f64(post_ops):
    check(problem(WIDE, "f64", post_ops), DataKind.REAL)


@pytest.mark.parametrize("direction", ["bwd_d", "bwd_w"])
@pytest.mark.parametrize("dtypes", ["f32", "f16"])
@pytest.mark.parametrize("post_ops", ["add:f32:per_tensor+relu+sum:0.5", "mul:f16:per_tensor:axb+prelu:per_oc"])
def test_post_ops_of_gradients(post_ops, dtypes, direction):
    check(problem(WIDE, dtypes, post_ops, direction=direction, stag="axb"), DataKind.INT)


@pytest.mark.parametrize("stag", LAYOUTS)
@pytest.mark.parametrize(("dtypes", "post_ops", "scales", "zero_points"), QUANTISED)
def test_quantised(dtypes, post_ops, scales, zero_points, stag):
    check(problem(WIDE, dtypes, post_ops, scales, zero_points, stag=stag), DataKind.INT)
