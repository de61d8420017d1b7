"""Conv and Gemm records, and the convolutions that framework arguments describe."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convloom.dtypes import BF16, F16, F32, F64, S8, S32, U8
from convloom.errors import IllegalProblem, IllegalType
from convloom.expr import const, evaluate, sym
from convloom.problem.conv import Conv, Direction, Role, Scaling, TensorSpec
from convloom.problem.conv_arguments import conv_problem, conv_transpose_problem
from convloom.problem.gemm import BiasAxis, Gemm
from convloom.problem.geometry import Window, tap_outputs, valid_taps
from convloom.problem.layout import dense, plain
from convloom.problem.output_layout import output_strides

BASE = {"batch": 2, "in_channels": 8, "out_channels": 16, "in_spatial": (10, 9), "kernel": (3, 3)}


def values(extents):
    return tuple(extent.value for extent in extents)


def record(**change):
    shapes = {"src": (2, 8, 5, 5), "wei": (16, 4, 3, 3), "dst": (2, 16, 5, 5)}
    given = {
        "direction": Direction.FWD, "batch": 2, "in_channels": 8, "out_channels": 16, "groups": 2, "in_spatial": (5, 5),
        "out_spatial": (5, 5), "kernel": (3, 3), "stride": (1, 1), "dilation": (1, 1), "pad_begin": (1, 1),
        **{name: TensorSpec(F32, dense(shape)) for name, shape in shapes.items()},
    }  # fmt: skip
    return Conv(**given | change)


# -- the record -----------------------------------------------------------------------------------------------------


def test_shapes_and_derived_sizes():
    conv = record()
    assert values(conv.src_shape) == (2, 8, 5, 5)
    assert values(conv.wei_shape) == (16, 4, 3, 3)
    assert values(conv.dst_shape) == (2, 16, 5, 5)
    assert values((conv.channels_per_group, conv.outputs_per_group)) == (4, 8)
    assert values(conv.pad_end) == (1, 1)
    assert conv.acc is F32


def test_name_is_no_part_of_equality():
    assert record(name="a") == record(name="b")
    assert hash(record(name="a")) == hash(record(name="b"))
    assert record() != record(pad_begin=(1, 0))


def test_roles_by_direction():
    roles = {direction: record(direction=direction).roles for direction in Direction}
    assert roles[Direction.FWD] == (Role.SRC, Role.WEI, Role.DST)
    assert roles[Direction.BWD_D] == (Role.DST, Role.WEI, Role.SRC)
    assert roles[Direction.BWD_W] == (Role.SRC, Role.DST, Role.WEI)


@given(
    st.integers(1, 9), st.integers(1, 9), st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.integers(-4, 8)
)
@settings(derandomize=True)
def test_valid_taps_by_counting(extent, outputs, kernel, stride, dilation, pad):
    window = Window(kernel, stride, dilation, pad)
    pairs = [(o, k) for o in range(outputs) for k in range(kernel) if 0 <= o * stride - pad + k * dilation < extent]
    assert valid_taps(extent, outputs, window) == len(pairs)
    for tap in range(kernel):
        span = tap_outputs(tap, extent, outputs, window)
        assert list(range(span.begin, span.end)) == [o for o, k in pairs if k == tap]


def test_ops_count_valid_taps_only():
    conv = conv_problem(batch=3, in_channels=4, out_channels=6, groups=2, in_spatial=(4,), kernel=(3,), padding=1)
    assert conv.ops == 2 * 3 * 6 * 2 * (4 * 3 - 2)
    assert all(conv.replace_direction(direction).ops == conv.ops for direction in Direction)
    with pytest.raises(IllegalProblem, match="constant sizes"):
        _ = conv_problem(**BASE | {"batch": sym("n", lo=0)}).ops


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": 3}, "in_channels=8 is not divisible by groups=3"),
        ({"groups": 0}, "groups must be positive; got 0"),
        ({"groups": -(2**63)}, "groups must be positive; got -9223372036854775808"),
        ({"groups": 16}, "in_channels=8 is not divisible by groups=16"),
        ({"batch": -1}, "batch must not be negative; got -1"),
        ({"in_spatial": (5, -5)}, r"in_spatial\[1\] must not be negative; got -5"),
        ({"kernel": (0, 3)}, r"kernel must be at least 1 in every dimension; got \(0, 3\)"),
        ({"stride": (1, 0)}, "stride must be at least 1"),
        ({"dilation": (-1, 1)}, "dilation must be at least 1"),
        ({"stride": (1,)}, "stride needs one value per kernel dimension"),
        ({"kernel": (1, 1, 1, 1)}, "1 to 3 spatial dimensions"),
        ({"src": TensorSpec(F32, plain((1, 1)))}, "got 2 strides for rank 4"),
        ({"dst": TensorSpec(F32, plain((0, 25, 5, 1)))}, "dst has strides"),
        ({"dst": TensorSpec(F32, plain((400, 20, 5, 1)))}, "must not share memory"),
        ({"direction": Direction.BWD_W, "bias": F32}, "bias belongs to fwd and bwd_d"),
    ],
)
def test_record_errors_state_rule_value_and_remedy(change, message):
    with pytest.raises(IllegalProblem, match=message) as caught:
        record(**change)
    assert str(caught.value).count(";") >= 2


@pytest.mark.parametrize(
    ("types", "bias", "message"),
    [
        ((F32, S8, F32), None, "got f32 and s8"),
        ((S32, S32, S32), None, "got s32 and s32"),
        ((F64, F32, F64), None, "f64 goes with f64 alone"),
        ((F32, F32, S32), None, "got s32"),
        ((F16, F16, F16), S32, "bias of float operands"),
        ((S8, S8, S32), F64, "bias of 8-bit operands"),
    ],
)
def test_type_errors_are_also_type_errors_of_python(types, bias, message):
    with pytest.raises(TypeError, match=message):
        conv_problem(**BASE, dtypes=types, bias=bias)


@pytest.mark.parametrize("types", [(U8, S8, S8), (S8, S8, F32), (F16, BF16, F32), (F32, F32, U8), (F64, F64, F64)])
def test_legal_mixtures_of_types(types):
    conv = conv_problem(**BASE, dtypes=types)
    assert (conv.src.dtype, conv.wei.dtype, conv.dst.dtype) == types


def test_floats_are_no_sizes():
    with pytest.raises(IllegalType, match=r"kernel must be an integer; got 3\.0"):
        conv_problem(**BASE | {"kernel": (3.0, 3)})


def test_numpy_integers_are_sizes():
    numbers = {"batch": np.int64(2), "in_spatial": (np.int32(10), 9), "kernel": (np.int8(3), 3), "stride": np.int64(2)}
    assert conv_problem(**BASE | numbers) == conv_problem(**BASE, stride=2)


def test_strides_of_operands_are_free():
    conv = record(src=TensorSpec(F32, plain((0, 0, -5, 1))))
    assert values(conv.src.layout.strides) == (0, 0, -5, 1)


def test_direction_change_keeps_what_has_a_meaning():
    conv = record(bias=F32)
    assert conv.replace_direction(Direction.BWD_W).bias is None
    assert conv.replace_direction(Direction.BWD_D).bias is F32
    assert values((conv.bias_extent, conv.replace_direction(Direction.BWD_D).bias_extent)) == (16, 8)


# -- symbolic sizes -------------------------------------------------------------------------------------------------


def test_symbols_bind_to_the_static_problem():
    n, c, h = sym("n", lo=0), sym("c", divisor=4, lo=4), sym("h", lo=3)
    change = {"batch": n, "in_channels": c, "in_spatial": (h, 9), "groups": 4, "layouts": ("nhwc", None, None)}
    dynamic = conv_problem(**BASE | change)
    static = conv_problem(**BASE | change | {"batch": 2, "in_channels": 8, "in_spatial": (10, 9)})
    assert dynamic != static
    assert dynamic.bind({n: 2, c: 8, h: 10}) == static


def test_only_what_is_provably_wrong_is_refused():
    c, h = sym("c", lo=1), sym("h", lo=1)
    assert conv_problem(**BASE | {"in_channels": c, "groups": 2}).groups is const(2)
    assert conv_problem(**BASE | {"in_spatial": (h, 9)}).rank == 2
    with pytest.raises(IllegalProblem, match="larger than the padded input"):
        conv_problem(**BASE | {"in_spatial": (sym("s", lo=1, hi=2), 9)})
    with pytest.raises(IllegalProblem, match="batch must not be negative"):
        conv_problem(**BASE | {"batch": sym("m", hi=-1)})


# -- arguments of a convolution -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("padding", "begin", "end"),
    [
        (0, (0, 0), (0, 0)),
        (2, (2, 2), (2, 2)),
        ((1, 2), (1, 2), (1, 2)),
        (((1, 0), (0, 2)), (1, 0), (0, 2)),
        (((-1, 1), (0, -2)), (-1, 0), (1, -2)),
        ("valid", (0, 0), (0, 0)),
        ("same", (1, 1), (1, 1)),
        ([1], (1, 1), (1, 1)),
    ],
)
def test_padding_forms(padding, begin, end):
    conv = conv_problem(**BASE, padding=padding)
    assert conv.pad_begin == begin
    assert values(conv.pad_end) == end
    assert values(conv.out_spatial) == tuple(e + b + a - 2 for e, b, a in zip((10, 9), begin, end, strict=True))


def test_same_puts_the_odd_element_at_the_end_and_knows_dilation():
    conv = conv_problem(**BASE | {"kernel": (4, 2)}, padding="same", dilation=(1, 3))
    assert conv.pad_begin == (1, 1)
    assert values(conv.pad_end) == (2, 2)
    assert values(conv.out_spatial) == (10, 9)


@given(
    st.integers(1, 12), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(-2, 4), st.integers(-2, 4)
)
@settings(derandomize=True)
def test_output_extent_by_sliding(extent, kernel, stride, dilation, begin, end):
    reach = (kernel - 1) * dilation + 1
    starts = list(range(0, extent + begin + end - reach + 1, stride))
    arguments = {
        "batch": 1, "in_channels": 1, "out_channels": 1, "in_spatial": (extent,), "kernel": (kernel,), "stride": stride,
        "dilation": dilation, "padding": ((begin, end),),
    }  # fmt: skip
    if not starts:
        with pytest.raises(IllegalProblem, match=f"effective kernel {reach} is larger than the padded input"):
            conv_problem(**arguments)
        return
    conv = conv_problem(**arguments)
    assert conv.out_spatial[0].value == len(starts)
    assert 0 <= end - conv.pad_end[0].value < stride


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"dilation": 2147483000, "padding": 1, "in_spatial": (16, 16)},
            "4294966001 is larger than the padded input 18",
        ),
        ({"padding": "same", "stride": 2}, "'same' needs stride 1"),
        ({"padding": "reflect"}, "'reflect'"),
        ({"padding": (1, 2, 3)}, "padding must be one integer or one per spatial dimension"),
        ({"padding": ((1, 2), 3)}, "begin, end"),
        ({"padding": ((1, 2, 3), (1, 1))}, "begin, end"),
        ({"kernel": (3,)}, "as many spatial dimensions"),
        ({"kernel": ()}, "1 to 3 spatial dimensions"),
        ({"in_spatial": (2, 9), "padding": 0}, "dimension 0 .* 3 is larger than the padded input 2"),
        ({"out_spatial": (8, 8)}, "dimension 1 is 8, expected 7"),
        ({"out_spatial": (8,)}, "2 spatial dimensions; got 1"),
        ({"groups": 3}, "in_channels=8 is not divisible by groups=3"),
        ({"out_channels": 15, "groups": 4}, "out_channels=15 is not divisible by groups=4"),
        ({"layouts": ("ncx", None, None), "kernel": (3, 3, 3), "in_spatial": (4, 4)}, "as many spatial"),
        ({"layouts": ("hwio", None, None)}, "layout name"),
    ],
)
def test_argument_errors(change, message):
    with pytest.raises(IllegalProblem, match=message):
        conv_problem(**BASE | change)


def test_matching_output_extents_are_accepted():
    assert conv_problem(**BASE, out_spatial=(8, 7)) == conv_problem(**BASE)


@pytest.mark.parametrize("change", [{"batch": 0}, {"in_channels": 0}, {"out_channels": 0}])
def test_empty_sizes_are_legal(change):
    conv = conv_problem(**BASE | change)
    assert values(conv.dst_shape)[2:] == (8, 7)
    assert conv.ops == 0


# -- transposed convolutions ----------------------------------------------------------------------------------------


EXTENTS, PADS = st.integers(1, 6), st.integers(-1, 3)


@given(EXTENTS, st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), PADS, PADS, st.integers(0, 2))
@settings(derandomize=True)
def test_transposed_extent(extent, kernel, stride, dilation, begin, end, extra):
    arguments = {
        "batch": 2, "in_channels": 4, "out_channels": 6, "in_spatial": (extent,), "kernel": (kernel,), "stride": stride,
        "dilation": dilation, "padding": ((begin, end),), "output_padding": extra, "groups": 2,
    }  # fmt: skip
    produced = (extent - 1) * stride - begin - end + dilation * (kernel - 1) + extra + 1
    if extra >= max(stride, dilation):
        with pytest.raises(IllegalProblem, match="output_padding must be smaller"):
            conv_transpose_problem(**arguments)
    elif produced < 1:
        with pytest.raises(IllegalProblem, match=f"dimension 0 computes to {produced} "):
            conv_transpose_problem(**arguments)
    else:
        conv = conv_transpose_problem(**arguments)
        assert conv.direction is Direction.BWD_D
        assert values(conv.src_shape) == (2, 6, produced)
        assert values(conv.dst_shape) == (2, 4, extent)
        assert values(conv.wei_shape) == (4, 3, kernel)


def test_transposed_types_and_layouts_are_in_the_order_of_the_operation():
    conv = conv_transpose_problem(**BASE, dtypes=(F16, BF16, F32), layouts=("nhwc", None, None), bias=F32)
    assert (conv.dst.dtype, conv.wei.dtype, conv.src.dtype) == (F16, BF16, F32)
    assert values(conv.dst.layout.strides) == (720, 1, 72, 8)
    assert values(conv.src.layout.strides)[1] == 1
    assert conv.bias_extent.value == 16


def test_empty_transposed_output_names_the_dimension():
    sizes = {"batch": 128, "in_channels": 6, "out_channels": 4, "in_spatial": (4, 4), "kernel": (1, 1)}
    with pytest.raises(IllegalProblem, match=r"dimension 0 computes to 0 .*\(2, 2\)"):
        conv_transpose_problem(**sizes, padding=2)
    assert values(conv_transpose_problem(**sizes, padding=1).src_shape) == (128, 4, 2, 2)


# -- layout of the result -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "strides", "channels_last"),
    [
        ((2, 8, 10, 9), (720, 90, 9, 1), False),
        ((2, 8, 10, 9), (720, 1, 72, 8), True),
        ((2, 8, 10, 9), (1440, 2, 144, 16), True),
        ((1, 8, 10, 9), (7, 1, 72, 8), True),
        ((2, 1, 10, 9), (90, 1, 9, 1), False),
        ((2, 1, 10, 9), (90, 90, 9, 1), False),
        ((2, 8, 10, 9), (0, 90, 9, 1), False),
        ((2, 8, 10, 9), (-720, -1, -72, -8), True),
    ],
)
def test_result_follows_the_input(shape, strides, channels_last):
    conv = conv_problem(
        batch=shape[0], in_channels=shape[1], out_channels=4, in_spatial=shape[2:], kernel=(3, 3),
        layouts=(plain(strides), None, None),
    )  # fmt: skip
    expected = dense(conv.dst_shape, (0, 2, 3, 1) if channels_last else None)
    assert conv.dst.layout == expected
    assert output_strides(conv) == expected.strides


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_any_order_of_a_dense_input_is_kept(order):
    src = dense((2, 8, 10, 9), order)
    conv = conv_problem(**BASE, layouts=(src, None, None))
    assert conv.dst.layout == dense(conv.dst_shape, order)


def test_strides_of_unit_dimensions_say_nothing():
    shape, strides = (1, 2, 1, 1, 1), (2, 1, 2, 2, 2)
    conv = conv_problem(
        batch=1,
        in_channels=2,
        out_channels=3,
        in_spatial=shape[2:],
        kernel=(1, 1, 1),
        layouts=(plain(strides), None, None),
    )
    assert conv.dst.layout == dense(conv.dst_shape)


def test_each_direction_has_its_leader():
    nhwc = {"layouts": ("nhwc", None, None)}
    weights = conv_problem(direction=Direction.BWD_W, **BASE, **nhwc)
    assert weights.wei.layout == dense(weights.wei_shape, (0, 2, 3, 1))
    data = conv_problem(direction=Direction.BWD_D, **BASE, layouts=(None, None, "nhwc"))
    assert data.src.layout == dense(data.src_shape, (0, 2, 3, 1))


def test_symbolic_strides_are_ordered_at_typical_sizes():
    n, h = sym("n", lo=0), sym("h", lo=1)
    conv = conv_problem(**BASE | {"batch": n, "in_spatial": (h, h)}, layouts=("nhwc", None, None))
    assert conv.dst.layout == dense(conv.dst_shape, (0, 2, 3, 1))
    assert int(evaluate(output_strides(conv)[2], {"h": 12})) == 160


# -- products -------------------------------------------------------------------------------------------------------


def gemm(batch=(3,), m=2, n=4, k=5, **change):
    shapes = {"a": (*batch, m, k), "b": (*batch, k, n), "c": (*batch, m, n)}
    return Gemm(batch, m, n, k, **{name: TensorSpec(F32, dense(shape)) for name, shape in shapes.items()} | change)


def test_gemm_sizes():
    product = gemm(bias=F32, bias_axis=BiasAxis.M)
    assert product.ops == 2 * 3 * 2 * 4 * 5
    assert product.bias_extent.value == 2
    assert gemm().bias_extent.value == 4
    assert gemm(name="x") == gemm(name="y")
    assert gemm(m=0).ops == 0


def test_gemm_broadcasts_operands_but_not_results():
    assert gemm(b=TensorSpec(F32, plain((0, 4, 1)))) != gemm()
    with pytest.raises(IllegalProblem, match="c has strides"):
        gemm(c=TensorSpec(F32, plain((0, 4, 1))))
    assert gemm(batch=(1,), c=TensorSpec(F32, plain((0, 4, 1)))).batch == (const(1),)


def test_gemm_errors():
    with pytest.raises(IllegalProblem, match="k must not be negative"):
        gemm(k=-1)
    with pytest.raises(IllegalType, match="got f32 and s8"):
        gemm(b=TensorSpec(S8, dense((3, 5, 4))))
    with pytest.raises(IllegalProblem, match="rank 3"):
        gemm(a=TensorSpec(F32, dense((2, 5))))


def test_gemm_binds():
    m = sym("m", lo=0)
    shapes = ((m, 5), (5, 4), (m, 4))
    dynamic = Gemm((), m, 4, 5, *[TensorSpec(F32, dense(shape)) for shape in shapes], scaling=Scaling(alpha=True))
    assert dynamic.bind({m: 2}) == gemm(batch=(), scaling=Scaling(alpha=True))
