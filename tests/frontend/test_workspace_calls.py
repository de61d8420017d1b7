"""Calls whose kernels use scratch memory: its size, its limit, where it comes from, and what others see of it."""

import threading
from contextlib import contextmanager

import numpy as np
import pytest

import convloom
from convloom import Direction, conv_problem, dim
from convloom.dtypes import F16
from convloom.errors import IllegalProblem, IllegalType, Infeasible
from convloom.frontend.device_target import target_for
from convloom.frontend.interpret_device import InterpretDevice
from convloom.frontend.problem_check import check_problem
from convloom.plan.candidates import arrangements, candidates
from convloom.plan.policy import Policy
from convloom.plan.split import Reduction
from convloom.plan.tiled import plan_text
from convloom.problem.data import DataKind
from convloom.runtime.device import device_named
from convloom.settings import scoped
from convloom.target.arch import CPU, SM_90A
from tests.plan.dividing import contraction_of, divided


def gradient(**changes):
    sizes = {"batch": 4, "in_channels": 6, "out_channels": 10, "in_spatial": (9, 7), "kernel": (3, 3), "padding": 1}
    return conv_problem(direction=Direction.BWD_W, **{**sizes, **changes})


def divided_text(problem, device, parts=4, k_groups=1):
    return plan_text(divided(contraction_of(problem), target_for(device_named(device)), parts, k_groups))


def operands(seed=0, batch=4):
    random = np.random.default_rng(seed)
    return [random.integers(-3, 4, (batch, channels, 9, 7)).astype(np.float32) for channels in (6, 10)]


@contextmanager
def counting(device):
    """The sizes that calls ask the device for."""
    sizes, lend = [], device.lend

    def counted(nbytes, most=None, stream=None):
        sizes.append(nbytes)
        return lend(nbytes, most, stream)

    device.lend = counted
    try:
        yield sizes
    finally:
        del device.lend


@pytest.mark.parametrize("device", ["cpu", "interpret"])
def test_calls_take_what_the_kernel_says(device):
    problem = gradient()
    kernel = convloom.compile(problem, device, divided_text(problem, device))
    with counting(device_named(device)) as sizes:
        found = kernel(*operands())
    assert np.array_equal(found, convloom.compile(problem)(*operands()))
    assert sizes == [kernel.workspace_bytes()]
    assert kernel.workspace_bytes() >= 4 * 4 * 6 * 10 * 9


def test_one_byte_less_is_found_by_the_interpreter(monkeypatch):
    """The size is exact: every partial sum lies inside it, and the last byte is used."""
    problem = gradient()
    kernel = convloom.compile(problem, "interpret", divided_text(problem, "interpret"))
    lend = InterpretDevice.lend
    monkeypatch.setattr(InterpretDevice, "lend", lambda self, nbytes, *rest: lend(self, nbytes - 4, *rest))
    with pytest.raises(convloom.frontend.interpret_device.InterpretedFault, match="partial"):
        kernel(*operands())


@pytest.mark.parametrize("limit", [0, 1 << 20, 64 << 20])
def test_a_limit_always_leaves_a_kernel(limit):
    """pytorch/pytorch#49207: no way to keep an early layer from taking all memory."""
    problem = conv_problem(
        direction=Direction.FWD,
        batch=8,
        in_channels=64,
        out_channels=64,
        in_spatial=(112, 112),
        kernel=(3, 3),
        padding=1,
    )
    kernel = convloom.compile(problem, max_workspace=limit)
    assert kernel.workspace_bytes() <= limit
    x, w = np.ones((1, 4, 8, 8), np.float32), np.ones((4, 4, 3, 3), np.float32)
    assert np.array_equal(convloom.conv(x, w, max_workspace=limit, deterministic=True), convloom.conv(x, w))


@pytest.mark.parametrize("channels", range(1, 17))
def test_strided_pointwise_gradients_stay_in_their_scratch_memory(channels):
    """uxlfoundation/oneDNN#6035: fewer channels than a block wrote past a scratch buffer."""
    sizes = {
        "batch": 2,
        "in_channels": channels,
        "out_channels": 8,
        "in_spatial": (8, 8),
        "kernel": (1, 1),
        "padding": 0,
    }
    problem = gradient(**sizes, stride=2)
    for device in ("interpret", "cpu")[: 1 + (channels in (1, 4, 5))]:
        kernel = convloom.compile(problem, device, divided_text(problem, device, 3))
        assert check_problem(kernel, DataKind.INT).passed


def test_sizes_over_the_limit_take_a_kernel_without_workspace():
    sizes = {"batch": 8, "out_channels": 5, "in_spatial": (12, 12), "kernel": (1, 1), "padding": 0}
    problem = gradient(in_channels=dim("channels", hint=4), **sizes)
    free = convloom.compile(problem, "interpret")
    assert free.plan_record.split.parts > 1
    limit = free.workspace_bytes(channels=3)
    kernel = convloom.compile(problem, "interpret", max_workspace=limit)
    random = np.random.default_rng(0)
    dst = random.integers(-3, 4, (8, 5, 12, 12)).astype(np.float32)
    for channels, lent in ((3, 1), (300, 0)):
        src = random.integers(-3, 4, (8, channels, 12, 12)).astype(np.float32)
        with counting(device_named("interpret")) as asked:
            found = kernel(src, dst)
        assert np.array_equal(found[:, :, 0, 0], np.einsum("ncyx,nkyx->kc", src, dst))
        assert len(asked) == lent
        assert sum(asked) <= limit
    assert [variant.label for variant in kernel.variants] == ["preferred", "general"]


def test_a_given_plan_over_the_limit_is_an_error():
    problem = gradient()
    text = divided_text(problem, "cpu")
    with pytest.raises(Infeasible, match="a call may use 100 bytes of workspace"):
        convloom.compile(problem, "cpu", text, max_workspace=100)
    with pytest.raises(IllegalProblem, match="max_workspace"):
        convloom.compile(problem, max_workspace=-1)
    x, w = np.ones((1, 4, 8, 8), np.float32), np.ones((4, 4, 3, 3), np.float32)
    with pytest.raises(IllegalType, match="max_workspace"):
        convloom.conv(x, w, max_workspace=1.5)


def test_calls_of_many_threads_do_not_share_scratch_memory():
    problem = gradient()
    kernel = convloom.compile(problem, "cpu", divided_text(problem, "cpu"))
    inputs = [operands(seed) for seed in range(6)]
    expected = [kernel(*arrays) for arrays in inputs]
    wrong = []

    def repeat(place):
        for _ in range(30):
            if not np.array_equal(kernel(*inputs[place]), expected[place]):
                wrong.append(place)

    threads = [threading.Thread(target=repeat, args=(place,)) for place in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_kernels_of_other_wishes_are_other_kernels():
    problem = gradient()
    assert convloom.compile(problem) is convloom.compile(problem, deterministic=False)
    assert convloom.compile(problem, max_workspace=0) is not convloom.compile(problem)
    assert convloom.compile(problem, max_workspace=0).policy.max_workspace == 0


def test_deterministic_candidates_add_nothing_atomically_and_repeat_their_bits():
    """pytorch/pytorch#3614: a search under the deterministic flag gave algorithms without that property."""
    problem = conv_problem(
        direction=Direction.BWD_D,
        batch=4,
        in_channels=16,
        out_channels=16,
        in_spatial=(33, 35),
        kernel=(3, 3),
        padding=2,
        dilation=2,
        dtypes=(F16, F16, F16),
    )
    contraction, wish = contraction_of(problem), Policy(deterministic=True, max_workspace=1 << 16)
    for target in (SM_90A, CPU):
        options = candidates(contraction, target, arrangements(contraction, target), every=5, splits=wish)
        assert {plan.split.how for plan, _ in options} <= {Reduction.NONE, Reduction.PASSES}
    random = np.random.default_rng(0)
    dst, wei = (random.standard_normal(shape).astype(np.float16) for shape in ((4, 16, 33, 35), (16, 16, 3, 3)))
    kernel = convloom.compile(problem, deterministic=True)
    first = kernel(dst, wei)
    for threads in (1, 2, 3):
        with scoped(threads=threads):
            assert np.array_equal(first, kernel(dst, wei))
