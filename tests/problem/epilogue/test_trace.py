"""Epilogues written in Python: operators record expressions, mistakes say what to do."""

import pytest

from convloom.dtypes import F16, F32
from convloom.errors import IllegalProblem
from convloom.problem.epilogue import (
    EVERYWHERE,
    expression_text,
    gelu,
    maximum,
    relu,
    select,
    sigmoid,
    trace,
)


def text(function, **operands):
    return expression_text(trace(function, operands).expression)


def test_operators():
    assert text(lambda acc: acc * 2 + 1) == "linear(linear(acc,2.0,0.0),1.0,1.0)"
    assert text(lambda acc: 1 - acc) == "linear(acc,-1.0,1.0)"
    assert text(lambda acc: 2 / acc) == "div(2.0,acc)"
    assert text(lambda acc, res: relu(acc + res), res=F32) == "relu(add(acc,in0),0.0,0.0)"
    assert text(lambda acc: select(acc > 0, gelu(acc), -acc)).startswith("select(gt(acc,0.0),gelu_erf")
    assert text(lambda acc, z: acc * sigmoid(z), z=F32) == "mul(acc,logistic(in0,0.0,0.0))"
    assert text(lambda acc: maximum(acc, 0)) == "max(acc,0.0)"


def test_operands_by_name():
    found = trace(lambda acc, q, p: acc + p - q, {"p": "f16", "q": ("f32", 2)})
    assert [(operand.name, operand.dtype, operand.mask) for operand in found.operands] == [
        ("p", F16, EVERYWHERE),
        ("q", F32, 2),
    ]
    assert expression_text(found.expression) == "sub(add(acc,in0),in1)"


@pytest.mark.parametrize(
    ("function", "operands", "message"),
    [
        (lambda acc: acc if acc else -acc, {}, "convloom.select"),
        (lambda acc, res: acc, {}, "declare each"),
        (lambda acc: acc, {"res": F32}, "declare each"),
        (lambda acc: acc + "x", {}, "numbers and traced values"),
        (lambda acc: acc * float("nan"), {}, "finite"),
        (lambda acc, wei: acc + wei, {"wei": F32}, "a word of its own"),
    ],
)
def test_mistakes(function, operands, message):
    with pytest.raises(IllegalProblem, match=message):
        trace(function, operands)
