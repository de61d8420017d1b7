"""Attributes of benchdnn's form: what they mean, and the way there and back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convloom.dtypes import BF16, F32, S8, S32
from convloom.errors import IllegalProblem, NotYetSupported
from convloom.expr import const
from convloom.problem.epilogue import (
    ACCUMULATOR,
    EVERYWHERE,
    Binary,
    BinaryKind,
    Eltwise,
    EltwiseKind,
    Input,
    Old,
    expression_text,
    parse_expression,
)
from convloom.problem.epilogue.attributes import AttributeTexts, Surroundings, parse_attributes
from convloom.problem.epilogue.print_attributes import print_attributes

SHAPE = tuple(map(const, (2, 8, 5, 7)))
AROUND = Surroundings(SHAPE, 1, 0)


def parsed(post_ops="", scales="", zero_points=""):
    return parse_attributes(AttributeTexts(post_ops, scales, zero_points), AROUND)


def test_order_and_masks():
    found = parsed(
        "relu:0.5+add:bf16:per_oc+sum:0.25:1:s8+mul:f32:per_tensor:axb", "src:common:0.25+wei:per_oc+dst:common:2"
    )
    by_name = {operand.name: operand for operand in found.operands}
    assert list(by_name) == ["src_scale", "wei_scale", "post2", "post3", "dst_scale"]
    assert [operand.mask for operand in found.operands] == [0, 2, 2, EVERYWHERE, 0]
    assert by_name["post2"].dtype is BF16
    assert by_name["src_scale"].value == 0.25
    assert [stride.value for stride in by_name["post3"].layout.strides] == [280, 1, 56, 8]
    assert found.factors == (0, 1)
    x = Binary(BinaryKind.ADD, Eltwise(EltwiseKind.RELU, ACCUMULATOR, 0.5), Input(2))
    x = Binary(BinaryKind.ADD, x, Old(0.25, 1, S8))
    assert found.expression == Binary(BinaryKind.DIV, Binary(BinaryKind.MUL, x, Input(3)), Input(4))


def test_zero_points_go_along_the_factors():
    found = parsed("", "", "src:per_dim_1+wei:common:-1:s8+dst:common:3")
    assert (found.zero_a.mask, found.zero_a.dtype) == (2, S32)
    assert (found.zero_b.mask, found.zero_b.dtype, found.zero_b.value) == (0, S8, -1)
    assert found.expression == Binary(BinaryKind.ADD, ACCUMULATOR, Input(0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("relux", "a post-op is one of"),
        ("relu:a", "'a'"),
        ("relu:1:2:3:4", "KIND"),
        ("add:f32:per_dim_7", "per_dim_7"),
        ("add:f32:16", "below 16"),
        ("soft_relu:0", "divides by alpha"),
        ("clip:0:inf", "finite"),
        ("sum:1:2:s8:4", "a sum is written"),
    ],
)
def test_errors_quote_the_part(text, message):
    with pytest.raises(IllegalProblem, match=message):
        parsed(text)


def test_what_is_not_supported_says_so():
    with pytest.raises(NotYetSupported, match="groups"):
        parsed("", "wei:per_oc:1:f32:32x1")


NUMBERS = st.sampled_from([0.0, 0.5, 1.0, -2.0, 0.1, 1e-5, 6.0])
DTYPES = st.sampled_from(["f32", "bf16", "f16", "s8", "u8", "s32"])
MASKS = st.sampled_from(["common", "per_oc", "per_tensor", "1", "3", "8", "12"])
PARAMETERS = {"clip": 2, "linear": 2, "pow": 2, "hardswish": 2, "hardsigmoid": 2, "relu": 1, "elu": 1, "swish": 1}


@st.composite
def steps(draw):
    kind = draw(st.sampled_from(["eltwise", "binary", "sum", "prelu"]))
    if kind == "eltwise":
        name = draw(
            st.sampled_from(["clip", "linear", "pow", "hardswish", "relu", "elu", "swish", "tanh", "gelu_erf", "abs"])
        )
        return ":".join([name, *(repr(draw(NUMBERS)) for _ in range(PARAMETERS.get(name, 0)))])
    if kind == "binary":
        name = draw(st.sampled_from(["add", "sub", "mul", "div", "max", "min", "ge", "gt", "le", "lt", "eq", "ne"]))
        tag = draw(st.sampled_from(["", ":axb", ":abx"]))
        return f"{name}:{draw(DTYPES)}:{draw(MASKS)}{tag}"
    if kind == "sum":
        return f"sum:{draw(NUMBERS)!r}:{draw(st.integers(-8, 8))}" + draw(st.sampled_from(["", ":u8"]))
    return f"prelu:{draw(MASKS)}:{draw(DTYPES)}"


@given(
    st.lists(steps(), max_size=5),
    st.sampled_from(["", "src:common:0.25", "wei:per_oc", "src:common+wei:common:2.0+dst:per_oc:0.5:bf16"]),
    st.sampled_from(["", "src:common:1.0", "wei:per_oc+dst:common:3.0:s8", "src:per_oc:*:u8"]),
)
@settings(max_examples=150, deadline=None)
def test_round_trip(post_ops, scales, zero_points):
    first = parsed("+".join(post_ops), scales, zero_points)
    texts = print_attributes(first, AROUND)
    assert parse_attributes(texts, AROUND) == first
    assert print_attributes(parse_attributes(texts, AROUND), AROUND) == texts
    assert parse_expression(expression_text(first.expression)) == first.expression


def test_types_default_as_in_benchdnn():
    assert parsed("add").operands[0].dtype is F32
    assert parsed("add").operands[0].mask == 0
