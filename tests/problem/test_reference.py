"""The oracle against loops over single elements, hand values and adjointness."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convloom.dtypes import F64
from convloom.errors import IllegalProblem
from convloom.expr import sym
from convloom.problem.conv import Conv, Direction, TensorSpec
from convloom.problem.conv_arguments import conv_problem, conv_transpose_problem
from convloom.problem.gemm import BiasAxis, Gemm
from convloom.problem.layout import dense
from convloom.problem.reference import Arithmetic, Operands, operand_shapes, reference, result_shape

ALL_F64 = (F64, F64, F64)


def make(direction, batch, groups, inputs, outputs, dims):
    """A Conv with per-dimension (in, out, kernel, stride, dilation, pad_begin)."""
    in_spatial, out_spatial, kernel, stride, dilation, pad = (tuple(d[i] for d in dims) for i in range(6))
    src, wei = (batch, groups * inputs, *in_spatial), (groups * outputs, inputs, *kernel)
    dst = (batch, groups * outputs, *out_spatial)
    specs = [TensorSpec(F64, dense(shape)) for shape in (src, wei, dst)]
    return Conv(
        direction,
        batch,
        groups * inputs,
        groups * outputs,
        groups,
        in_spatial,
        out_spatial,
        kernel,
        stride,
        dilation,
        pad,
        *specs,
    )


def loops(conv, a, b):
    """All three directions from one loop nest over forward index tuples: the valid triples (src, wei, dst) index."""
    out = np.zeros(result_shape(conv), dtype=a.dtype)
    inputs, outputs = conv.channels_per_group.value, conv.outputs_per_group.value
    spatial = [range(e.value) for e in conv.out_spatial]
    taps = [range(k) for k in conv.kernel]
    for n, g, i, o in itertools.product(
        range(conv.batch.value), range(conv.groups.value), range(inputs), range(outputs)
    ):
        for y in itertools.product(*spatial):
            for k in itertools.product(*taps):
                x = tuple(
                    p * w.stride - w.pad_begin + t * w.dilation for p, t, w in zip(y, k, conv.windows, strict=True)
                )
                if not all(0 <= p < e.value for p, e in zip(x, conv.in_spatial, strict=True)):
                    continue
                src, wei, dst = (n, g * inputs + i, *x), (g * outputs + o, i, *k), (n, g * outputs + o, *y)
                if conv.direction is Direction.FWD:
                    out[dst] += a[src] * b[wei]
                elif conv.direction is Direction.BWD_D:
                    out[src] += a[dst] * b[wei]
                else:
                    out[wei] += a[src] * b[dst]
    return out


DIMENSION = st.tuples(
    st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(-2, 4)
)
CONVS = st.builds(
    make,
    st.sampled_from(Direction),
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(1, 2),
    st.lists(DIMENSION, min_size=1, max_size=2),
)


def integers(shape, rng, largest=9):
    return rng.integers(-largest, largest + 1, shape)


@given(CONVS, st.integers(0, 2**32 - 1))
@settings(derandomize=True, max_examples=150, deadline=None)
def test_conv_equals_loops(conv, seed):
    rng = np.random.default_rng(seed)
    a, b = (integers(shape, rng) for shape in operand_shapes(conv))
    expected = loops(conv, a, b)
    found = reference(conv, Operands(a, b), Arithmetic.EXACT)
    assert found.value.dtype == np.int64
    assert np.array_equal(found.value, expected)
    assert np.array_equal(reference(conv, Operands(a, b)).value, expected)
    bound = reference(conv, Operands(a, b), magnitude=True).magnitude
    assert np.array_equal(bound, loops(conv, abs(a), abs(b)))


def test_three_dimensions_equal_loops():
    dims = [(4, 3, 2, 1, 1, 0), (3, 2, 2, 2, 1, 1), (5, 3, 3, 1, 2, 2)]
    rng = np.random.default_rng(3)
    for direction in Direction:
        conv = make(direction, 2, 2, 2, 1, dims)
        a, b = (integers(shape, rng) for shape in operand_shapes(conv))
        assert np.array_equal(reference(conv, Operands(a, b), Arithmetic.EXACT).value, loops(conv, a, b))


@given(CONVS, st.integers(0, 2**32 - 1))
@settings(derandomize=True, max_examples=100, deadline=None)
def test_directions_are_adjoint(conv, seed):
    rng = np.random.default_rng(seed)
    fwd, bwd_d, bwd_w = (conv.replace_direction(direction) for direction in Direction)
    x, w = (integers(shape, rng) for shape in operand_shapes(fwd))
    y = integers(result_shape(fwd), rng)
    forward = reference(fwd, Operands(x, w), Arithmetic.EXACT).value
    by_data = reference(bwd_d, Operands(y, w), Arithmetic.EXACT).value
    by_weights = reference(bwd_w, Operands(x, y), Arithmetic.EXACT).value
    assert (y * forward).sum() == (by_data * x).sum() == (by_weights * w).sum()


def test_hand_values_1d():
    conv = conv_problem(batch=1, in_channels=1, out_channels=1, in_spatial=(4,), kernel=(3,), padding=1, dtypes=ALL_F64)
    x, w = np.array([[[1.0, 2, 3, 4]]]), np.array([[[1.0, 10, 100]]])
    assert reference(conv, Operands(x, w)).value.tolist() == [[[210, 321, 432, 43]]]


def test_stretched_weight_of_a_report():
    conv = conv_problem(batch=1, in_channels=1, out_channels=1, in_spatial=(3,), kernel=(2,), dtypes=ALL_F64)
    assert reference(conv, Operands(np.ones((1, 1, 3)), np.ones((1, 1, 2)))).value.tolist() == [[[2, 2]]]


def test_groups_read_their_own_channels():
    conv = conv_problem(batch=1, in_channels=4, out_channels=16, groups=2, in_spatial=(1, 1), kernel=(1, 1))
    x = np.zeros((1, 4, 1, 1))
    x[0, 3] = 1
    assert reference(conv, Operands(x, np.ones((16, 2, 1, 1)))).value.ravel().tolist() == [0] * 8 + [1] * 8


def test_epilogue_of_alpha_beta_bias():
    conv = conv_problem(batch=1, in_channels=1, out_channels=2, in_spatial=(2,), kernel=(1,))
    operands = Operands(
        np.array([[[1, 2]]]), np.array([[[3]], [[4]]]), np.array([100, 200]), np.full((1, 2, 2), 7), 2.0, -1.0
    )
    found = reference(conv, operands, Arithmetic.EXACT, magnitude=True)
    assert found.value.tolist() == [[[99, 105], [201, 209]]]
    assert found.magnitude is not None
    assert found.magnitude.tolist() == [[[113, 119], [215, 223]]]
    assert found.length == 3


def test_transposed_rows_without_tap_are_the_bias():
    conv = conv_transpose_problem(
        batch=1, in_channels=1, out_channels=1, in_spatial=(3,), kernel=(1,), stride=3, dtypes=ALL_F64, bias=F64
    )
    found = reference(conv, Operands(np.array([[[1.0, 2, 3]]]), np.array([[[5.0]]]), np.array([0.5])))
    assert found.value.tolist() == [[[5.5, 0.5, 0.5, 10.5, 0.5, 0.5, 15.5]]]


def test_old_result_is_not_read_without_beta():
    conv = conv_problem(batch=1, in_channels=1, out_channels=1, in_spatial=(2,), kernel=(1,))
    operands = Operands(np.ones((1, 1, 2)), np.ones((1, 1, 1)), old=np.full((1, 1, 2), np.nan))
    assert reference(conv, operands).value.tolist() == [[[1, 1]]]


def test_nan_weight_reaches_padded_positions():
    conv = conv_problem(batch=1, in_channels=1, out_channels=2, in_spatial=(3,), kernel=(3,), padding=1)
    w = np.ones((2, 1, 3))
    w[0, 0, 0] = np.inf
    y = reference(conv, Operands(np.ones((1, 1, 3)), w)).value
    assert np.isnan(y[0, 0, 0])
    assert np.isposinf(y[0, 0, 1:]).all()
    assert y[0, 1].tolist() == [2, 3, 2]


def test_nan_input_reaches_exactly_its_window():
    conv = conv_problem(batch=1, in_channels=2, out_channels=3, in_spatial=(8, 8), kernel=(3, 3), padding=1)
    x = np.ones((1, 2, 8, 8))
    x[0, 1, 4, 4] = np.nan
    bad = np.isnan(reference(conv, Operands(x, np.ones((3, 2, 3, 3)))).value)
    assert bad.sum() == 27
    assert bad[:, :, 3:6, 3:6].all()


def test_residue_holes_multiply_nothing_but_borders_do():
    conv = make(Direction.BWD_D, 1, 1, 1, 1, [(5, 2, 1, 2, 1, 0)])
    x = reference(conv, Operands(np.ones((1, 1, 2)), np.full((1, 1, 1), np.inf))).value[0, 0]
    assert np.isposinf(x[[0, 2]]).all()
    assert x[[1, 3]].tolist() == [0, 0]
    assert np.isnan(x[4])


def test_nonfinite_gradient_meets_padding_in_weights_gradient():
    conv = make(Direction.BWD_W, 1, 1, 1, 1, [(3, 3, 3, 1, 1, 1)])
    y = np.array([[[np.inf, 1, 1]]])
    w = reference(conv, Operands(np.ones((1, 1, 3)), y)).value[0, 0]
    assert np.isnan(w[0])
    assert np.isposinf(w[1:]).all()


@pytest.mark.parametrize("zero", ["batch", "in_channels", "out_channels"])
def test_empty_sizes(zero):
    sizes = {"batch": 2, "in_channels": 3, "out_channels": 4, zero: 0}
    conv = conv_problem(**sizes, in_spatial=(5,), kernel=(3,))
    a, b = (np.ones(shape) for shape in operand_shapes(conv))
    bias = np.arange(sizes["out_channels"], dtype=float)
    y = reference(conv, Operands(a, b, bias)).value
    assert y.shape == (sizes["batch"], sizes["out_channels"], 3)
    if zero == "in_channels":
        assert np.array_equal(y, np.broadcast_to(bias[:, None], y.shape))
    grad = conv.replace_direction(Direction.BWD_W)
    assert not reference(grad, Operands(a, np.ones(y.shape))).value.any()


def test_large_integers_stay_exact():
    big = 2**31 - 1
    conv = conv_problem(batch=1, in_channels=2, out_channels=1, in_spatial=(1,), kernel=(1,))
    operands = Operands(np.full((1, 2, 1), big), np.array([[[big], [-big + 1]]]))
    assert reference(conv, operands, Arithmetic.EXACT).value.item() == big
    with pytest.raises(IllegalProblem, match="64 bits"):
        reference(conv, Operands(np.full((1, 2, 1), 2**40), np.full((1, 2, 1), 2**40)), Arithmetic.EXACT)


def gemm(batch, m, n, k, **rest):
    specs = [TensorSpec(F64, dense((*batch, *tail))) for tail in ((m, k), (k, n), (m, n))]
    return Gemm(batch, m, n, k, *specs, **rest)


def test_gemm_with_biases():
    rng = np.random.default_rng(0)
    a, b = integers((3, 4, 5), rng), integers((3, 5, 6), rng)
    expected = np.einsum("bmk,bkn->bmn", a, b)
    assert np.array_equal(reference(gemm((3,), 4, 6, 5), Operands(a, b), Arithmetic.EXACT).value, expected)
    row = reference(gemm((3,), 4, 6, 5, bias=F64), Operands(a, b, np.arange(6)), Arithmetic.EXACT).value
    assert np.array_equal(row, expected + np.arange(6))
    column = gemm((3,), 4, 6, 5, bias=F64, bias_axis=BiasAxis.M)
    found = reference(column, Operands(a, b, np.arange(4)), Arithmetic.EXACT).value
    assert np.array_equal(found, expected + np.arange(4)[:, None])


def test_gemm_of_empty_reduction_scales_the_old_result():
    operands = Operands(np.ones((2, 0)), np.ones((0, 2)), old=np.ones((2, 2)), alpha=0.0, beta=2.0)
    assert reference(gemm((), 2, 2, 0), operands).value.tolist() == [[2, 2], [2, 2]]


def test_wrong_operands_are_named():
    conv = conv_problem(batch=1, in_channels=1, out_channels=1, in_spatial=(2,), kernel=(1,))
    with pytest.raises(IllegalProblem, match="operand b"):
        reference(conv, Operands(np.ones((1, 1, 2)), np.ones((1, 1, 2))))
    with pytest.raises(IllegalProblem, match="fractions"):
        reference(conv, Operands(np.full((1, 1, 2), 0.5), np.ones((1, 1, 1))), Arithmetic.EXACT)
    with pytest.raises(IllegalProblem, match="pass `old`"):
        reference(conv, Operands(np.ones((1, 1, 2)), np.ones((1, 1, 1)), beta=1.0))
    symbolic = conv_problem(batch=sym("n", lo=1), in_channels=1, out_channels=1, in_spatial=(2,), kernel=(1,))
    with pytest.raises(IllegalProblem, match="constant sizes"):
        reference(symbolic, Operands(np.ones((1, 1, 2)), np.ones((1, 1, 1))))
