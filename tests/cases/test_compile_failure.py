"""Cases CMP: what the planner may choose compiles; what cannot be built is refused with its reason."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import convloom
from convloom import conv_problem
from convloom.compiler import generate, prepare
from convloom.dtypes import F16
from convloom.errors import Infeasible, UnsupportedTarget
from convloom.frontend.problem_check import check_problem
from convloom.plan.choose import choose_plan, ranked_plans
from convloom.plan.families import plan_text
from convloom.plan.split import Reduction
from convloom.problem.data import DataKind
from convloom.runtime.nvrtc import current_nvrtc
from tests.cases.sources import GPU
from tests.plan.dividing import divided

FIRST_LAYER = {
    "batch": 1, "in_channels": 3, "out_channels": 64, "in_spatial": (224, 224), "kernel": (7, 7), "stride": 2,
    "padding": 3, "dtypes": (F16, F16, F16),
}  # fmt: skip


@pytest.fixture(scope="module")
def nvrtc():
    try:
        return current_nvrtc()
    except UnsupportedTarget as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("how", [Reduction.PASSES, Reduction.ATOMIC])
@pytest.mark.parametrize("parts", [2, 3])
def test_cmp_02_the_first_layer_with_k_in_parts(parts, how, nvrtc):
    """CMP-02: f16, 3 channels, kernel 7, K in parallel parts."""
    contraction = prepare(conv_problem(**FIRST_LAYER)).contraction
    plan = divided(contraction, GPU, parts, how=how)
    for launch in generate(contraction, GPU, plan).program.launches:
        assert nvrtc.compile(launch).payload


def test_cmp_05_a_plan_beyond_shared_memory():
    """CMP-05: refused with both numbers; the planner's own candidates all fit."""
    problem = conv_problem(**FIRST_LAYER)
    contraction = prepare(problem).contraction
    text = plan_text(choose_plan(contraction, GPU))
    assert "stages=" in text
    words = ["stages=64" if word.startswith("stages=") else word for word in text.split()]
    with pytest.raises(Infeasible, match=rf"{GPU.max_shared_bytes} bytes of shared memory.*needs \d{{6,}}"):
        convloom.compiler.plan_for(contraction, GPU, " ".join(words))
    for plan in ranked_plans(contraction, GPU, 8):
        assert convloom.compiler.plan_for(contraction, GPU, plan_text(plan)) == plan


def test_cmp_06_many_strides_at_once(device):
    """CMP-06: strides 1, 2 and (2, 1), compiled side by side and called in one process."""
    strides = (1, 2, (2, 1))

    def compiled(stride):
        sizes = {"batch": 2, "in_channels": 5, "out_channels": 6, "in_spatial": (12, 11), "kernel": (3, 3)}
        return convloom.compile(conv_problem(**sizes, stride=stride, padding=1), device)

    with ThreadPoolExecutor(3) as pool:
        kernels = list(pool.map(compiled, strides))
    assert len({kernel.source for kernel in kernels}) == 3
    assert all(check_problem(kernel, DataKind.INT).passed for kernel in kernels)
