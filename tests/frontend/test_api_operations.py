"""conv, conv_transpose, the gradients and gemm on NumPy arrays, against the reference, NumPy, and each other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import convloom
from convloom import Conv, Direction
from convloom.dtypes import BF16, F16, F32, F64, S8, S32, U8, dtype_of_numpy
from convloom.errors import IllegalProblem
from convloom.problem.conv_arguments import conv_problem, conv_transpose_problem
from convloom.problem.layout import plain
from convloom.problem.numerics import compare
from convloom.problem.output_layout import output_strides
from convloom.problem.reference import Arithmetic, Operands, reference

N, C, K, GROUPS = 2, 4, 6, 2
SPATIAL = {1: (9,), 2: (7, 6), 3: (5, 4, 6)}
KERNEL = {1: (3,), 2: (3, 2), 3: (2, 3, 1)}
WINDOW = {
    "plain": {},
    "strided": {"stride": 2, "padding": 1},
    "mixed": {"stride": 2, "padding": 2, "dilation": 2, "groups": GROUPS},
}


def integers(shape, dtype=np.float32, seed=0):
    low = 0 if np.dtype(dtype).kind == "u" else -3
    return np.random.default_rng(seed).integers(low, 4, shape).astype(dtype)


def problem_of(direction, rank, bias=None, **window) -> Conv:
    return conv_problem(
        direction=direction,
        batch=N,
        in_channels=C,
        out_channels=K,
        in_spatial=SPATIAL[rank],
        kernel=KERNEL[rank],
        bias=bias,
        **window,
    )


def exact(problem, *arrays, **more):
    return reference(problem, Operands(*arrays, **more), Arithmetic.EXACT).value


def weights(rank, window, seed=1):
    return integers((K, C // window.get("groups", 1), *KERNEL[rank]), seed=seed)


@pytest.mark.parametrize("window", WINDOW.values(), ids=WINDOW)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_three_directions(rank, window):
    x, w, bias = integers((N, C, *SPATIAL[rank])), weights(rank, window), integers((K,), seed=2)
    y = convloom.conv(x, w, bias, **window)
    assert np.array_equal(y, exact(problem_of(Direction.FWD, rank, F32, **window), x, w, bias))
    grad = integers(y.shape, seed=3)
    by_input = convloom.conv_input_grad(x.shape, w, grad, **window)
    assert np.array_equal(by_input, exact(problem_of(Direction.BWD_D, rank, **window), grad, w))
    assert np.array_equal(convloom.conv_input_grad(SPATIAL[rank], w, grad, **window), by_input)
    by_weights = convloom.conv_weight_grad(x, w.shape, grad, **window)
    assert np.array_equal(by_weights, exact(problem_of(Direction.BWD_W, rank, **window), x, grad))


@pytest.mark.parametrize(
    ("stride", "padding", "output_padding", "groups", "dilation"), [(1, 0, 0, 1, 1), (3, 1, 2, 2, 2)]
)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_transposed(rank, stride, padding, output_padding, groups, dilation):
    x, w = integers((N, C, *SPATIAL[rank])), integers((C, K // groups, *KERNEL[rank]), seed=1)
    bias = integers((K,), seed=2)
    problem = conv_transpose_problem(
        batch=N,
        in_channels=C,
        out_channels=K,
        in_spatial=SPATIAL[rank],
        kernel=KERNEL[rank],
        stride=stride,
        padding=padding,
        output_padding=output_padding,
        groups=groups,
        dilation=dilation,
        bias=F32,
    )
    result = convloom.conv_transpose(x, w, bias, stride, padding, output_padding, groups, dilation)
    assert np.array_equal(result, exact(problem, x, w, bias))


@pytest.mark.parametrize("padding", [0, (1, 2), [(0, 3), (2, 1)], "same", "valid", -1, ((-1, 2), (1, -1))])
def test_paddings(padding):
    x, w = integers((N, C, 7, 6)), integers((K, C, 3, 2), seed=1)
    expected = exact(problem_of(Direction.FWD, 2, padding=padding), x, w)
    assert np.array_equal(convloom.conv(x, w, padding=padding), expected)


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("kernel", [(3, 3), (2, 4)])
def test_same_keeps_the_size(kernel, dilation):
    """pytorch/pytorch#68880: even kernels and dilation included, an odd pad goes to the end."""
    x, w = integers((1, 2, 16, 16)), integers((3, 2, *kernel), seed=1)
    totals = [dilation * (extent - 1) for extent in kernel]
    pads = [(total // 2, total - total // 2) for total in totals]
    result = convloom.conv(x, w, padding="same", dilation=dilation)
    assert result.shape == (1, 3, 16, 16)
    assert np.array_equal(result, convloom.conv(x, w, padding=pads, dilation=dilation))


def views_of(array):
    """The array's values in memory of other strides."""
    order = np.random.default_rng(4).permutation(array.ndim)
    permuted = np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))
    sparse = np.zeros([extent * 2 for extent in array.shape], array.dtype)[tuple([slice(1, None, 2)] * array.ndim)]
    sparse[...] = array
    flipped = np.ascontiguousarray(array[..., ::-1])[..., ::-1]
    return [permuted, sparse, flipped]


@pytest.mark.parametrize("place", range(3))
def test_any_strides_of_inputs(place):
    x, w = integers((N, C, 7, 6)), integers((K, C, 3, 2), seed=1)
    expected = convloom.conv(x, w)
    result = convloom.conv(views_of(x)[place], views_of(w)[place])
    assert np.array_equal(result, expected)


def test_zero_strides_of_inputs():
    x = np.broadcast_to(integers((1, C, 1, 6)), (N, C, 7, 6))
    w = np.broadcast_to(integers((1, C, 3, 2), seed=1), (K, C, 3, 2))
    assert np.array_equal(convloom.conv(x, w), convloom.conv(x.copy(), w.copy()))
    grad = np.broadcast_to(np.float32(2), (N, K, 5, 5))
    assert np.array_equal(
        convloom.conv_weight_grad(x, w.shape, grad), convloom.conv_weight_grad(x, w.shape, grad.copy())
    )


def test_read_only_inputs():
    x, w = integers((N, C, 7, 6)), integers((K, C, 3, 2), seed=1)
    expected = convloom.conv(x, w)
    x.flags.writeable = w.flags.writeable = False
    assert np.array_equal(convloom.conv(x, w), expected)


def test_the_result_s_layout_follows_the_input_s():
    x = np.ascontiguousarray(integers((N, 7, 6, C))).transpose(0, 3, 1, 2)
    result = convloom.conv(x, integers((K, C, 3, 2), seed=1))
    assert result.strides == (5 * 5 * K * 4, 4, 5 * K * 4, K * 4)


def test_predicted_strides_are_real():
    """pytorch/pytorch#128626: a permuted 1-D input whose unit dimension has a foreign stride."""
    x = integers((10, 100, 1)).transpose(0, 2, 1)
    w = integers((16, 1, 3), seed=1)
    result = convloom.conv(x, w, padding=1)
    assert result.strides == (1600 * 4, 100 * 4, 4)
    layouts = (plain((100, 1, 1)), None, None)
    problem = conv_problem(
        batch=10, in_channels=1, out_channels=16, in_spatial=(100,), kernel=(3,), padding=1, layouts=layouts
    )
    assert [stride.value * 4 for stride in output_strides(problem)] == list(result.strides)
    assert np.array_equal(result, exact(problem, x, w))


def test_out_decides_strides_and_type():
    x, w = integers((N, C, 7, 6)), integers((K, C, 3, 2), seed=1)
    expected = convloom.conv(x, w)
    storage = np.full((N, 5, 5, 2 * K), 77, np.float16)
    out = storage[..., ::2].transpose(0, 3, 1, 2)
    assert convloom.conv(x, w, out=out) is out
    assert np.array_equal(out, expected.astype(np.float16))
    assert (storage[..., 1::2] == 77).all()


@pytest.mark.parametrize("direction", Direction)
def test_factors_and_accumulation(direction):
    x, w, grad = integers((N, C, 7, 6)), integers((K, C, 3, 2), seed=1), integers((N, K, 5, 5), seed=2)
    operations = {
        Direction.FWD: lambda **more: convloom.conv(x, w, **more),
        Direction.BWD_D: lambda **more: convloom.conv_input_grad(x.shape, w, grad, **more),
        Direction.BWD_W: lambda **more: convloom.conv_weight_grad(x, w.shape, grad, **more),
    }
    run = operations[direction]
    product = run()
    old = integers(product.shape, seed=5)
    assert np.array_equal(run(out=old.copy(), alpha=2, beta=-1), 2 * product - old)
    assert np.array_equal(run(out=old.copy(), accumulate=True), product + old)
    assert np.array_equal(run(out=np.full(product.shape, np.nan, np.float32), beta=0), product)
    assert np.array_equal(run(alpha=-1), -product)


@pytest.mark.parametrize(
    ("operand", "result"), [(F64, F64), (F16, F16), (BF16, BF16), (S8, S32), (U8, S32)], ids=lambda dtype: dtype.name
)
def test_types(operand, result):
    x, w = integers((N, C, 7, 6), operand.numpy), integers((K, C, 3, 2), operand.numpy, seed=1)
    y = convloom.conv(x, w)
    assert dtype_of_numpy(y.dtype) is result
    expected = convloom.conv(x.astype(np.float64), w.astype(np.float64))
    assert np.array_equal(y.astype(np.float64), expected)


def test_real_numbers_within_the_bound():
    random = np.random.default_rng(0)
    x, w = random.standard_normal((N, C, 7, 6), np.float32), random.standard_normal((K, C, 3, 2), np.float32)
    problem = problem_of(Direction.FWD, 2)
    comparison = compare(problem, convloom.conv(x, w), reference(problem, Operands(x, w), magnitude=True))
    assert comparison.passed


def test_max_workspace_and_device_are_accepted():
    x, w = integers((N, C, 7, 6)), integers((K, C, 3, 2), seed=1)
    assert convloom.conv(x, w, max_workspace=0, device="cpu").shape == (N, K, 5, 5)


def test_a_plan_text_is_used():
    x, w = integers((N, C, 7, 6)), integers((K, C, 3, 2), seed=1)
    plan = convloom.compile(problem_of(Direction.FWD, 2)).plan.replace("unroll=0", "unroll=1")
    assert np.array_equal(convloom.conv(x, w, plan=plan), convloom.conv(x, w))


# --- products -------------------------------------------------------------------------------------------------------

SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((7, 3, 4), (4, 5)),
    ((7, 1, 3, 4), (2, 4, 5)),
    ((1, 3, 4), (6, 4, 5)),
    ((2, 7, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((1, 4), (4, 1)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_shapes_of_matmul(a, b):
    left, right = integers(a), integers(b, seed=1)
    result = convloom.gemm(left, right)
    assert np.array_equal(result, left @ right)
    assert result.shape == (left @ right).shape
    out = np.full(result.shape, 3, np.float32)
    assert convloom.gemm(left, right, out=out, accumulate=True) is out
    assert np.array_equal(out, left @ right + 3)


@given(
    sizes=st.tuples(*[st.integers(0, 9)] * 3),
    transposed=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    flipped=st.tuples(st.booleans(), st.booleans()),
)
@settings(derandomize=True, deadline=None, max_examples=25)
def test_strides_of_products(sizes, transposed, flipped):
    m, n, k = sizes
    a, b = (
        integers(shape[::-1], seed=seed).T if swap else integers(shape, seed=seed)
        for shape, swap, seed in (((m, k), transposed[0], 0), ((k, n), transposed[1], 1))
    )
    a, b = a[:, ::-1] if flipped[0] else a, b[::-1] if flipped[1] else b
    out = np.empty((n, m), np.float32).T if transposed[2] else np.empty((m, n), np.float32)
    assert np.array_equal(convloom.gemm(a, b, out=out), a @ b)


def test_bias_of_products():
    a, b = integers((3, 4)), integers((4, 5), seed=1)
    row, column = integers((5,), seed=2), integers((3, 1), seed=3)
    assert np.array_equal(convloom.gemm(a, b, row), a @ b + row)
    assert np.array_equal(convloom.gemm(a, b, row[None]), a @ b + row)
    assert np.array_equal(convloom.gemm(a, b, column, alpha=2), 2 * (a @ b) + column)
    with pytest.raises(IllegalProblem, match=r"shape \(5,\), or per row, shape \(3, 1\); got \(3,\)"):
        convloom.gemm(a, b, column[:, 0])


def test_eight_bit_products():
    a, b = integers((3, 40), np.int8), integers((40, 5), np.uint8, seed=1)
    result = convloom.gemm(a, b, np.arange(5, dtype=np.int32))
    assert result.dtype == np.int32
    assert np.array_equal(result, a.astype(np.int32) @ b.astype(np.int32) + np.arange(5))


def test_a_convolution_of_one_tap_is_a_product():
    x, w = integers((N, C, 7, 6)), integers((K, C, 1, 1), seed=1)
    product = convloom.gemm(w[:, :, 0, 0], x.reshape(N, C, 42))
    assert np.array_equal(convloom.conv(x, w), product.reshape(N, K, 7, 6))
