"""Faults that a review found by reading; each with the right answer."""

from dataclasses import replace

import numpy as np
import pytest

import convloom
from convloom import Gemm, TensorSpec
from convloom.compiler import generate, plan_for, prepare
from convloom.dtypes import F16, F32, S8, S32
from convloom.expr import local_sym, sym
from convloom.plan.check_plan import check_plan
from convloom.plan.tiled import Along, Transfer
from convloom.problem.conv import Direction, Scaling
from convloom.problem.layout import plain
from convloom.problem.notation import parse_problem
from convloom.target.arch import SM_80, SM_90A, target_named


def gemm(m, n, k, a_type=F32, c_type=F32, scaling=None):
    spec = TensorSpec(a_type, plain((k, 1))), TensorSpec(a_type, plain((n, 1))), TensorSpec(c_type, plain((n, 1)))
    return Gemm((), m, n, k, *spec, scaling=scaling or Scaling())


@pytest.mark.parametrize("name", ["bid", "tid", "k_tile", "tile_m", "step", "m0", "k0", "arg0", "a_i"])
@pytest.mark.parametrize("place", range(3))
def test_a_size_may_have_the_name_of_a_kernels_own_symbol(name, place):
    sizes = [sym("mm", lo=0), sym("nn", lo=0), sym("kk", lo=0)]
    sizes[place] = sym(name, lo=0)
    kernel = convloom.compile(gemm(*sizes))
    random = np.random.default_rng(0)
    a = random.integers(-3, 4, (37, 29)).astype(np.float32)
    b = random.integers(-3, 4, (29, 41)).astype(np.float32)
    assert (kernel(a, b) == a @ b).all()


def test_own_symbols_are_never_the_node_of_a_size():
    assert local_sym("n", lo=0) is not sym("n", lo=0)
    assert local_sym("n", lo=0) is local_sym("n", lo=0)


def test_integers_beyond_24_bits_survive_a_factor():
    a, b = np.zeros((1, 4), np.int8), np.zeros((4, 1), np.int8)
    out = np.full((1, 1), 2**24 + 1, np.int32)
    convloom.gemm(a, b, out=out, accumulate=True)
    assert out[0, 0] == 2**24 + 1
    kernel = convloom.compile(gemm(1, 1, 4, S8, S32, Scaling(alpha=True, beta=True)))
    full = np.full((1, 1), 2**31 - 1, np.int32)
    kernel(a + np.int8(1), b + np.int8(1), out=full, alpha=1.0, beta=1.0)
    assert full[0, 0] == 2**31 - 1  # saturates


@pytest.mark.parametrize("arch", ["sm_75", "sm_86", "sm_89", "sm_120"])
def test_plans_fit_the_shared_memory_of_smaller_machines(arch):
    target = target_named(arch)
    contraction = prepare(gemm(4096, 4096, 4096, F16, F16)).contraction
    source = generate(contraction, target, plan_for(contraction, target)).source
    assert source.shared_bytes <= target.max_shared_bytes <= 99 * 1024


def test_phase_tables_larger_than_constant_memory_lie_in_global_memory():
    problem = parse_problem(
        "mb1ic1id23ih23iw23oc1od2oh2ow2kd13kh13kw13sd10sh10sw10pd1ph1pw1", direction=Direction.BWD_D
    )
    few = parse_problem("mb1ic1ih9oc1oh4kh3sh2ph0", direction=Direction.BWD_D)
    for each, place in ((problem, "__device__ const index_t"), (few, "__constant__ index_t")):
        contraction = prepare(each).contraction
        assert place in generate(contraction, SM_90A, plan_for(contraction, SM_90A)).source.text


def test_matrix_rows_are_fed_by_what_their_fragments_allow():
    """Both once printed matrix loads that did not match the row's registers."""
    contraction = prepare(gemm(256, 256, 256, F16, F16)).contraction
    plan = plan_for(contraction, SM_80)
    assert plan.row == "mma.m16n8k16.f32.f16.f16"
    shallow = replace(plan, row="mma.m16n8k8.f32.f16.f16")
    assert check_plan(shallow, contraction, SM_80) is None
    assert "ldmatrix.sync.aligned.m8n8.x4" in generate(contraction, SM_80, shallow).source.text
    bytes_ = prepare(gemm(256, 256, 256, S8, S32)).contraction
    ways = {"a": Transfer(Along.ROW, 1, 16), "b": Transfer(Along.K, 1, 16)}
    turned = replace(plan, row="mma.m16n8k32.s32.s8.s8", k_groups=1, fragments=1, collect=0, **ways)
    assert check_plan(turned, bytes_, SM_80) is None
    text = generate(bytes_, SM_80, turned).source.text
    assert ".trans." not in text, "bytes are not transposed by matrix loads"
    assert "ld.shared.b32" in text
