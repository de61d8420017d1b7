"""The normal form: idempotent, and equal for equal access functions, whatever graph led to them."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convloom.compiler import contract, prepare
from convloom.dtypes import F16, F32
from convloom.expr import const, sym
from convloom.problem.contraction import AxisKind, Contraction, ContractionAxis, Operand, classify_axes, exchange
from convloom.problem.conv import NO_SCALING, Direction, Scaling, TensorSpec
from convloom.problem.conv_arguments import conv_problem
from convloom.problem.gemm import Gemm
from convloom.problem.layout import dense, plain
from convloom.problem.normal_form import normal_form
from convloom.problem.stride_key import key_text
from convloom.view import Axis, Join, Pass, Split, strided
from tests.problem.drawing import TYPES, draw


def form(problem):
    return prepare(problem).contraction


def key(problem):
    return key_text(form(problem))


def gemm(m, n, k, a=None, b=None, c=None, batch=(), **rest):
    """A product of f32 matrices; strides by logical dims, dense where None."""
    shapes = ((*batch, m, k), (*batch, k, n), (*batch, m, n))
    layouts = [
        dense(shape) if strides is None else plain(strides) for shape, strides in zip(shapes, (a, b, c), strict=True)
    ]
    return Gemm(batch, m, n, k, *(TensorSpec(F32, layout) for layout in layouts), **rest)


@pytest.mark.parametrize("seed", range(80))
def test_normalising_again_changes_nothing(seed):
    drawn = draw(seed, TYPES)
    for problem in (drawn.static, drawn.dynamic):
        once = form(problem)
        assert normal_form(once).contraction == once


@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
@settings(derandomize=True, max_examples=60, deadline=None)
def test_order_and_names_of_axes_do_not_matter(seed, rng):
    problem = draw(seed).static
    contraction = contract(problem)
    axes = list(contraction.axes)
    rng.shuffle(axes)
    names = {axis.name: f"x{place}" for place, axis in enumerate(axes)}

    def renamed(operand):
        own = list(operand.view.axes)
        rng.shuffle(own)
        view = operand.view.rename(names)
        order = {names[axis.name]: place for place, axis in enumerate(own)}
        shuffled = tuple(sorted(view.axes, key=lambda axis: order[axis.name]))
        return replace(operand, view=replace(view, axes=shuffled))

    other = replace(
        contraction,
        axes=tuple(replace(axis, name=names[axis.name]) for axis in axes),
        a=renamed(contraction.a),
        b=renamed(contraction.b),
        c=renamed(contraction.c),
        bias=None if contraction.bias is None else renamed(contraction.bias),
    )
    assert key_text(normal_form(other).contraction) == key(problem)


@pytest.mark.parametrize("seed", range(30))
def test_exchanged_factors_have_one_form(seed):
    contraction = contract(draw(seed).static)
    assert normal_form(exchange(contraction)).contraction == normal_form(contraction).contraction


# --- equal access functions -----------------------------------------------------------------------------------------


def test_convolution_of_single_taps_is_a_product():
    """A 1x1 convolution over channels-last tensors."""
    conv = conv_problem(
        batch=2, in_channels=16, out_channels=32, in_spatial=(5, 7), kernel=(1, 1), layouts=("nhwc", "axb", "nhwc")
    )
    product = gemm(2 * 5 * 7, 32, 16, b=(1, 16))
    assert key(conv) == key(product)
    assert form(conv) == form(product)


@pytest.mark.parametrize("direction", list(Direction))
def test_two_dimensions_of_which_one_is_a_unit(direction):
    flat = conv_problem(direction=direction, batch=2, in_channels=3, out_channels=4, in_spatial=(9,), kernel=(3,))
    for shape, kernel in (((9, 1), (3, 1)), ((1, 9), (1, 3))):
        square = conv_problem(
            direction=direction, batch=2, in_channels=3, out_channels=4, in_spatial=shape, kernel=kernel
        )
        assert form(square) == form(flat)


def test_one_group_is_no_group():
    """One group against none, and several groups of a depthwise convolution against a batched product's batch."""
    sizes = {"batch": 2, "in_channels": 4, "out_channels": 6, "in_spatial": (5,), "kernel": (3,)}
    assert not form(conv_problem(groups=1, **sizes)).of_kind(AxisKind.G)
    (groups,) = form(conv_problem(groups=2, **sizes)).of_kind(AxisKind.G)
    assert groups.extent is const(2)


def test_transposed_product_is_the_product_of_the_transposed():
    """C' = B' A': the same memory, read in another order."""
    assert key(gemm(5, 7, 3)) == key(gemm(7, 5, 3, a=(1, 7), b=(1, 3), c=(1, 7)))


def test_transposed_and_reshaped_operand_prints_strides():
    """A tensor 1 x 12 x 384 x 64, transposed to 1 x 384 x 12 x 64 and reshaped to 1 x 384 x 768, times its like."""
    k = Axis("k", const(768))
    split = Split("k", ("head", "lane"), (12, 64))
    base = strided((Axis("head", const(12)), Axis("row", const(384)), Axis("lane", const(64))), (24576, 64, 1))
    a = base.prepend((Axis("m", const(384)), k), (Pass("m", "row"), split))
    b = strided((k, Axis("n", const(768))), (768, 1))
    c = strided((Axis("m", const(384)), Axis("n", const(768))), (768, 1))
    assert "k=12:24576,64:1" in key_text(product_of(a, b, c))


def product_of(a, b, c):
    extents = {axis.name: axis.extent for view in (a, b, c) for axis in view.axes}
    axes = tuple(ContractionAxis(name, AxisKind.M, extent) for name, extent in extents.items())
    operands = [Operand(name, F32, view) for name, view in (("a", a), ("b", b), ("c", c))]
    contraction = Contraction(classify_axes(axes, a, b, c), *operands, F32, None, NO_SCALING)
    return normal_form(contraction).contraction


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_chains_of_reshapes_equal_their_strides(order):
    """M as three digits in any order, joined and split again, against the plain product of the same memory."""
    extents = (2, 3, 4)
    axes = tuple(Axis(f"m{place}", const(extents[place])) for place in order)
    k, n = Axis("k", const(5)), Axis("n", const(7))
    join = Join(("m0", "m1", "m2"), "m", extents)
    a = strided((Axis("m", const(24)), k), (5, 1)).prepend((*axes, k), (join,))
    c = strided((Axis("m", const(24)), n), (7, 1)).prepend((*axes, n), (join,))
    b = strided((k, n), (7, 1))
    assert key_text(product_of(a, b, c)) == key(gemm(24, 7, 5))


def lengths(problem):
    """Extents of the axes of M and of N; which of the two is which is a matter of the canonical order."""
    contraction = form(problem)
    return {tuple(axis.extent.value for axis in contraction.of_kind(kind)) for kind in (AxisKind.M, AxisKind.N)}


def test_merging_needs_every_operand():
    """Rows that continue each other in C but not in A stay two axes; with equal gaps they are one."""
    apart = gemm(4, 5, 3, a=(100, 3, 1), b=(0, 5, 1), c=(20, 5, 1), batch=(2,))
    joined = gemm(4, 5, 3, a=(12, 3, 1), b=(0, 5, 1), c=(20, 5, 1), batch=(2,))
    assert lengths(apart) == {(2, 4), (5,)}
    assert lengths(joined) == {(8,), (5,)}


def test_padding_separates_rows():
    sizes = {"batch": 1, "in_channels": 2, "out_channels": 2, "in_spatial": (6, 6), "kernel": (1, 1)}
    assert lengths(conv_problem(**sizes)) == {(36,), (2,)}
    assert lengths(conv_problem(padding=1, **sizes)) == {(8, 8), (2,)}


def test_dims_with_facts_merge_like_numbers():
    n, h = sym("n", lo=1), sym("h", lo=1)
    conv = conv_problem(
        batch=n, in_channels=16, out_channels=32, in_spatial=(h, h), kernel=(1, 1), layouts=("nhwc", "axb", "nhwc")
    )
    whole = [axis.extent for kind in (AxisKind.M, AxisKind.N) for axis in form(conv).of_kind(kind)]
    assert n * h * h in whole


# --- different problems ---------------------------------------------------------------------------------------------

BASE = {"batch": 2, "in_channels": 4, "out_channels": 6, "in_spatial": (9, 9), "kernel": (3, 3), "padding": 1}
HALF = (F16, F16, F16)
VARIANTS = {
    "base": {},
    "no padding": {"padding": 0},
    "left padding": {"padding": ((1, 0), (1, 0))},
    "right padding": {"padding": ((0, 1), (0, 1))},
    "cropped": {"padding": -1},
    "dilation": {"dilation": 2},
    "stride": {"stride": 2},
    "groups": {"groups": 2},
    "types": {"dtypes": HALF},
    "result type": {"dtypes": (F16, F16, F32)},
    "bias": {"bias": F32},
    "alpha": {"scaling": Scaling(alpha=True)},
    "beta": {"scaling": Scaling(beta=True)},
    "layout": {"layouts": ("nhwc", None, "nhwc")},
    "direction": {"direction": Direction.BWD_D},
    "gradient": {"direction": Direction.BWD_W},
}


def test_everything_that_the_generator_sees_is_in_the_key():
    keys = {name: key(conv_problem(**{**BASE, **changes})) for name, changes in VARIANTS.items()}
    for one, other in itertools.combinations(keys, 2):
        assert keys[one] != keys[other], f"{one} and {other} share a key"


def test_the_name_of_a_problem_is_not_in_the_key():
    assert key(conv_problem(name="first", **BASE)) == key(conv_problem(**BASE))


def test_equal_forms_give_equal_tensors_by_role():
    """The tensors behind the operands are told apart even where the factors are exchanged."""
    for seed in range(30):
        problem = draw(seed).static
        tensors = dict(prepare(problem).tensors)
        names = {operand.name for operand in contract(problem).operands}
        assert set(tensors.values()) == names
        assert tensors["c"] == contract(problem).c.name
