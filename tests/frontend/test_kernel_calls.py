"""A kernel's parts, the variants behind it, the rules of a call, threads, and what a call costs."""

import dataclasses
import statistics
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import convloom
from convloom import Direction, Gemm, Scaling, TensorSpec, conv_problem, dim
from convloom import compile as compile_kernel
from convloom.dtypes import BF16, F32, S8, S32
from convloom.errors import IllegalProblem, IllegalType, Infeasible
from convloom.expr import const, sym
from convloom.plan.tiled import plan_text
from convloom.problem.layout import dense, plain


def integers(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def gemm(m, n, k, dtype=F32, **changes):
    specs = (TensorSpec(dtype, dense(shape)) for shape in ((m, k), (k, n), (m, n)))
    return Gemm((), m, n, k, *specs, **changes)


def conv(**changes):
    arguments = {"batch": 2, "in_channels": 4, "out_channels": 6, "in_spatial": (5, 6), "kernel": (3, 3), "padding": 1}
    return conv_problem(**{**arguments, **changes})


# --- dims -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "2n", "a b", "_n", "for", "alpha", "beta", "src_address", "min", "größe"])
def test_bad_names_of_dims(name):
    with pytest.raises(IllegalProblem, match="name"):
        dim(name)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"divisible": 0}, "divisor"),
        ({"min": -1}, "not negative"),
        ({"min": 5, "max": 4}, "some value"),
        ({"divisible": 16, "min": 1, "max": 15}, "some value"),
        ({"min": 1.5}, "integer"),
    ],
)
def test_bad_facts_of_dims(arguments, words):
    with pytest.raises(IllegalProblem, match=words):
        dim("n", **arguments)


def test_a_dim_is_a_symbol_with_its_facts():
    assert dim("n", divisible=16).facts.lo == 16
    assert dim("n") is dim("n")
    assert dim("n", max=100).facts.hi == 100


@pytest.mark.parametrize("name", ["bid", "tid", "k_tile", "n", "oc", "tile_m", "arg0", "phase", "m0", "k0_k"])
def test_names_that_kernels_use_themselves(name):
    """A dim is no loop variable, thread number or axis, even if it has the name and facts of one."""
    size = dim(name, min=0)
    problem = conv(direction=Direction.FWD, batch=size, in_spatial=(7, 5))
    x, w = integers(3, 4, 7, 5), integers(6, 4, 3, 3)
    assert np.array_equal(compile_kernel(problem)(x, w), compile_kernel(conv(batch=3, in_spatial=(7, 5)))(x, w))


def test_one_name_for_two_dims():
    with pytest.raises(IllegalProblem, match="one name stands for one dim"):
        compile_kernel(gemm(dim("n"), dim("n", divisible=2), 4))


def test_symbols_of_other_sources_have_legal_names_too():
    with pytest.raises(IllegalProblem, match="alpha"):
        compile_kernel(gemm(sym("alpha", lo=1), 4, 4))


# --- what a kernel tells --------------------------------------------------------------------------------------------


def test_the_parts_of_a_kernel():
    problem = gemm(dim("m"), 16, dim("k", divisible=8, max=4096))
    kernel = compile_kernel(problem)
    assert kernel.problem == problem
    assert kernel.plan == plan_text(kernel.plan_record)
    assert kernel.kernel_source.name in kernel.source
    assert kernel.contraction.acc is F32
    conditions = [requirement.condition for requirement in kernel.requirements]
    assert {"m >= 1", "k % 8 == 0", "k >= 8", "k <= 4096"} <= set(conditions)
    relied = [r for r in kernel.requirements if "32 bits" in r.reason]
    assert any("m" in requirement.condition for requirement in relied)
    assert [variant.label for variant in kernel.variants] == ["preferred"]


def test_a_kernel_is_made_once():
    assert compile_kernel(conv()) is compile_kernel(conv())
    assert compile_kernel(conv()) is not compile_kernel(conv(padding=0))


def test_a_plan_given_as_text_is_used():
    kernel = compile_kernel(conv())
    other = kernel.plan.replace("unroll=0", "unroll=1")
    given = compile_kernel(conv(), plan=other)
    assert given.plan == other
    x, w = integers(2, 4, 5, 6), integers(6, 4, 3, 3)
    assert np.array_equal(given(x, w), kernel(x, w))
    with pytest.raises(Infeasible):
        compile_kernel(conv(), plan=other.replace("index=32", "index=16"))


def test_a_problem_is_needed():
    with pytest.raises(IllegalType, match="Conv or a Gemm"):
        compile_kernel("ic3ih5")


# --- requirements and variants --------------------------------------------------------------------------------------


def far_rows(rows_apart):
    """Two rows of bytes so far apart that 32 bits cannot hold the offset between them; few pages are ever touched."""
    storage = np.zeros(rows_apart + 64, np.int8)
    rows = np.lib.stride_tricks.as_strided(storage, (2, 8), (rows_apart, 1))
    rows[:] = integers(2, 8, dtype=np.int8)
    return rows


def strided_problem():
    lda = dim("lda")
    a = TensorSpec(S8, plain((lda, 1)))
    return Gemm((), dim("m"), 4, 8, a, TensorSpec(S8, dense((8, 4))), TensorSpec(S32, dense((dim("m"), 4))))


@pytest.fixture
def huge():
    try:
        return far_rows(2**31 + 64)
    except MemoryError:
        pytest.skip("2 GiB of address space")


def test_a_general_variant_takes_over(huge):
    kernel = compile_kernel(strided_problem())
    right = integers(8, 4, seed=1, dtype=np.int8)
    exact = huge.astype(np.int32) @ right.astype(np.int32)
    near = np.ascontiguousarray(huge)
    assert np.array_equal(kernel(near, right), exact)
    assert [variant.label for variant in kernel.variants] == ["preferred"]
    assert np.array_equal(kernel(huge, right), exact)
    assert [variant.label for variant in kernel.variants] == ["preferred", "general"]
    assert kernel.variants[1].requirements == ()
    assert np.array_equal(kernel(near, right), exact)


def test_a_given_plan_has_no_fallback(huge):
    plan = compile_kernel(strided_problem()).plan
    kernel = compile_kernel(strided_problem(), plan=plan)
    with pytest.raises(IllegalProblem, match=r"requires .*lda.*got lda = 2147483712.*32 bits"):
        kernel(huge, integers(8, 4, dtype=np.int8))


# --- the rules of a call --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dynamic():
    return compile_kernel(conv(batch=dim("n", max=8), in_channels=dim("c", divisible=4), in_spatial=(dim("h"), 6)))


@pytest.mark.parametrize(
    ("x", "w", "words"),
    [
        ((2, 3, 5, 6), (6, 3, 3, 3), r"c % 4 == 0; got c = 3 \(dimension 1 of src\)"),
        ((9, 4, 5, 6), (6, 4, 3, 3), r"n <= 8; got n = 9"),
        ((2, 4, 5, 6), (6, 8, 3, 3), r"wei must have shape \(6, c, 3, 3\).*dimension 1 is 8, expected c = 4"),
        ((2, 4, 5, 7), (6, 4, 3, 3), r"dimension 3 is 7, expected 6"),
        ((2, 4, 5), (6, 4, 3, 3), r"4 dimensions, \(n, c, h, 6\); got shape \(2, 4, 5\)"),
        ((2, 4, 0, 6), (6, 4, 3, 3), r"h >= 1; got h = 0"),
    ],
)
def test_sizes_that_break_a_rule(dynamic, x, w, words):
    with pytest.raises(IllegalProblem, match=words):
        dynamic(np.zeros(x, np.float32), np.zeros(w, np.float32))


def test_inner_sizes_and_batches_must_agree():
    m, n, k, b = dim("m"), dim("n"), dim("k"), dim("b")
    kernel = compile_kernel(gemm(m, n, k))
    with pytest.raises(IllegalProblem, match=r"b must have shape \(k, n\).*is 4, expected k = 5 .*dimension 1 of a"):
        kernel(integers(3, 5), integers(4, 2))
    specs = (TensorSpec(F32, dense(shape)) for shape in ((b, m, k), (b, k, n), (b, m, n)))
    batched = compile_kernel(Gemm((b,), m, n, k, *specs))
    with pytest.raises(IllegalProblem, match=r"dimension 0 is 7, expected b = 2"):
        batched(integers(2, 3, 5), integers(7, 5, 2))


def test_types_strides_and_results_must_agree(dynamic):
    x, w = integers(2, 4, 5, 6), integers(6, 4, 3, 3)
    with pytest.raises(IllegalType, match="src must have elements of type f32; got f64"):
        dynamic(x.astype(np.float64), w)
    with pytest.raises(IllegalProblem, match=r"wei must have the strides.*expected c \* 9 = 36"):
        dynamic(x, np.asfortranarray(w))
    with pytest.raises(IllegalProblem, match=r"dst must have shape \(n, 6, h, 6\); got \(2, 6, 5, 5\)"):
        dynamic(x, w, out=np.zeros((2, 6, 5, 5), np.float32))
    with pytest.raises(IllegalType, match="dst must have elements of type f32; got f16"):
        dynamic(x, w, out=np.zeros((2, 6, 5, 6), np.float16))
    with pytest.raises(IllegalProblem, match="has no bias"):
        dynamic(x, w, np.zeros(6, np.float32))


def test_a_missing_or_wrong_bias():
    kernel = compile_kernel(conv(bias=F32))
    x, w = integers(2, 4, 5, 6), integers(6, 4, 3, 3)
    with pytest.raises(IllegalProblem, match="has a bias"):
        kernel(x, w)
    with pytest.raises(IllegalProblem, match=r"bias must have shape \(6,\)"):
        kernel(x, w, np.zeros(5, np.float32))
    with pytest.raises(IllegalProblem, match="strides"):
        kernel(x, w, np.zeros(12, np.float32)[::2])


def test_factors_that_the_problem_lacks():
    kernel = compile_kernel(conv())
    x, w = integers(2, 4, 5, 6), integers(6, 4, 3, 3)
    with pytest.raises(IllegalProblem, match="alpha=2"):
        kernel(x, w, alpha=2)
    with pytest.raises(IllegalProblem, match="beta=1"):
        kernel(x, w, beta=1, out=kernel(x, w))


def test_factors():
    kernel = compile_kernel(conv(scaling=Scaling(alpha=True, beta=True)))
    x, w = integers(2, 4, 5, 6), integers(6, 4, 3, 3)
    product = compile_kernel(conv())(x, w)
    old = integers(*product.shape, seed=3)
    out = old.copy()
    assert kernel(x, w, out=out, alpha=2, beta=-3) is out
    assert np.array_equal(out, 2 * product - 3 * old)
    with pytest.raises(IllegalProblem, match="pass out="):
        kernel(x, w, beta=1)


def test_beta_zero_does_not_read_the_result():
    kernel = compile_kernel(conv(scaling=Scaling(alpha=True, beta=True)))
    x, w = integers(2, 4, 5, 6), integers(6, 4, 3, 3)
    out = np.full((2, 6, 5, 6), np.nan, np.float32)
    assert np.array_equal(kernel(x, w, out=out, alpha=2), 2 * compile_kernel(conv())(x, w))


def test_streams_do_not_exist_on_the_cpu():
    kernel = compile_kernel(conv())
    with pytest.raises(IllegalProblem, match="no streams"):
        kernel(integers(2, 4, 5, 6), integers(6, 4, 3, 3), stream=1)


def test_results_determined_by_out_only():
    """A strided gradient's input size does not follow from the gradient's: out decides."""
    h = dim("h")
    kernel = compile_kernel(conv(direction=Direction.BWD_D, in_spatial=(h, 6), kernel=(3, 3), padding=(1, 1)))
    grad, w = integers(2, 6, 5, 6), integers(6, 4, 3, 3)
    assert kernel(grad, w).shape == (2, 4, 5, 6)
    strided = conv(direction=Direction.BWD_D, in_spatial=(h, 6), stride=(2, 1))
    with pytest.raises(IllegalProblem, match="leave h open; pass out="):
        compile_kernel(strided)(integers(2, 6, 3, 6), w)


def test_blocked_layouts_are_passed_as_their_storage():
    problem = conv(in_channels=16, layouts=("aBcd16b", None, None))
    x, w = integers(2, 16, 5, 6), integers(6, 16, 3, 3)
    storage = np.ascontiguousarray(x.reshape(2, 1, 16, 5, 6).transpose(0, 1, 3, 4, 2))
    kernel = compile_kernel(problem)
    plain_kernel = compile_kernel(conv(in_channels=16))
    assert np.array_equal(kernel(storage, w), plain_kernel(x, w))
    with pytest.raises(IllegalProblem, match=r"contiguous storage of 960 elements"):
        kernel(storage[:1], w)


def test_results_of_other_layouts():
    problem = conv(layouts=(None, None, "axb"))
    x, w = integers(2, 4, 5, 6), integers(6, 4, 3, 3)
    result = compile_kernel(problem)(x, w)
    assert result.strides == (720, 4, 144, 24)
    assert np.array_equal(result, compile_kernel(conv())(x, w))


def test_sixteen_bit_types():
    problem = dataclasses.replace(gemm(5, 6, 7, BF16))
    a, b = integers(5, 7, dtype=BF16.numpy), integers(7, 6, dtype=BF16.numpy)
    result = compile_kernel(problem)(a, b)
    assert result.dtype == BF16.numpy
    assert np.array_equal(result.astype(np.float32), a.astype(np.float32) @ b.astype(np.float32))


def test_an_empty_result_needs_no_kernel():
    kernel = compile_kernel(conv(batch=0))
    assert kernel(np.zeros((0, 4, 5, 6), np.float32), integers(6, 4, 3, 3)).shape == (0, 6, 5, 6)
    assert kernel.variants == ()
    assert kernel.source == kernel.plan == ""
    assert "empty" in repr(kernel)


# --- threads and time -----------------------------------------------------------------------------------------------


_RACE = """
import sys, threading
import numpy as np
import convloom
from convloom.runtime.cpu import CpuDevice

builds = []
build = CpuDevice._build
CpuDevice._build = lambda self, source: (builds.append(source), build(self, source))[1]
barrier = threading.Barrier(16)
results = [[] for _ in range(16)]

def work(place):
    random = np.random.default_rng(0)
    barrier.wait()
    for channels in (3, 5):
        x, w = random.integers(-3, 4, (2, channels, 6, 6)), random.integers(-3, 4, (4, channels, 3, 3))
        results[place].append(convloom.conv(x.astype(np.float32), w.astype(np.float32), padding=1))

threads = [threading.Thread(target=work, args=(place,)) for place in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(builds) == 2, len(builds)
assert all(len(mine) == 2 for mine in results)
assert all(np.array_equal(a, b) for mine in results for a, b in zip(mine, results[0]))
"""


def test_sixteen_threads_meet_the_same_new_problems():
    """In a fresh process: every kernel is compiled once, every result is right."""
    subprocess.run([sys.executable, "-c", _RACE], check=True, timeout=120)


def test_one_kernel_in_several_threads_with_different_sizes():
    kernel = compile_kernel(gemm(dim("m"), dim("n"), dim("k")))
    wrong = []

    def work(place):
        random = np.random.default_rng(place)
        for _ in range(100):
            m, n, k = random.integers(1, 20, 3)
            a, b = integers(m, k, seed=place), integers(k, n, seed=place + 1)
            if not np.array_equal(kernel(a, b), a @ b):
                wrong.append((m, n, k))

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def seconds_per_call(call, count=300, rounds=7):
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, time.perf_counter() - start)
    return best / count


def test_what_a_call_costs():
    """Python's part of a call: 20 us are the aim, the limit here allows for slow and busy machines."""
    x, w = integers(1, 4, 1, 1), integers(6, 4, 1, 1)
    kernel = compile_kernel(conv(batch=1, in_spatial=(1, 1), kernel=(1, 1), padding=0))
    out = kernel(x, w)
    assert seconds_per_call(lambda: kernel(x, w, out=out)) < 100e-6
    assert seconds_per_call(lambda: convloom.conv(x, w, out=out)) < 150e-6


def test_what_new_sizes_cost():
    """Solving sizes is compiled: a call with sizes never met before costs microseconds, not a new plan."""
    kernel = compile_kernel(gemm(dim("m"), 4, dim("k")))
    pairs = [
        (np.zeros((1 + size % 14, 1 + size // 14), np.float32), integers(1 + size // 14, 4)) for size in range(196)
    ]
    times = []
    for a, b in pairs:
        start = time.perf_counter()
        kernel(a, b)
        times.append(time.perf_counter() - start)
    # The median: the first calls load variants of the kernel, and a busy machine takes a thread away now and then.
    assert statistics.median(times) < 2e-3


def test_constants_are_accepted_as_sizes():
    assert compile_kernel(gemm(const(3), 4, np.int64(5)))(integers(3, 5), integers(5, 4)).shape == (3, 4)
