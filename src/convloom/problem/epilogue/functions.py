"""Functions on traced values, for epilogues written in Python."""

from __future__ import annotations

from convloom.errors import IllegalProblem
from convloom.problem.epilogue.nodes import Binary, BinaryKind, Eltwise, EltwiseKind, Node, Operand, Select, as_node

_NAMES = {kind.value: kind for kind in EltwiseKind}


def apply(kind: str, x: Node, alpha: float = 0.0, beta: float = 0.0) -> Node:
    """Any eltwise kind by its name, with its parameters; IllegalProblem lists the kinds."""
    if kind not in _NAMES:
        raise IllegalProblem(f"an eltwise kind is one of {', '.join(_NAMES)}; got {kind!r}; use one of these")
    return Eltwise(_NAMES[kind], x, alpha, beta)


def relu(x: Node) -> Node:
    """max(x, 0); NaN stays NaN."""
    return Eltwise(EltwiseKind.RELU, x)


def leaky_relu(x: Node, slope: float = 0.01) -> Node:
    """X where it is not negative, else slope * x."""
    return Eltwise(EltwiseKind.RELU, x, slope)


def elu(x: Node, alpha: float = 1.0) -> Node:
    """X where it is positive, else alpha * (exp(x) - 1)."""
    return Eltwise(EltwiseKind.ELU, x, alpha)


def clip(x: Node, low: float, high: float) -> Node:
    """min(max(x, low), high); NaN stays NaN."""
    return Eltwise(EltwiseKind.CLIP, x, low, high)


def gelu(x: Node, approximate: bool = False) -> Node:
    """x/2 * (1 + erf(x / sqrt(2))), or its approximation by tanh."""
    return Eltwise(EltwiseKind.GELU_TANH if approximate else EltwiseKind.GELU_ERF, x)


def sigmoid(x: Node) -> Node:
    """1 / (1 + exp(-x))."""
    return Eltwise(EltwiseKind.LOGISTIC, x)


def swish(x: Node, beta: float = 1.0) -> Node:
    """X * sigmoid(beta * x)."""
    return Eltwise(EltwiseKind.SWISH, x, beta)


def hardswish(x: Node) -> Node:
    """X * min(max(x / 6 + 1/2, 0), 1)."""
    return Eltwise(EltwiseKind.HARDSWISH, x, 1 / 6, 0.5)


def mish(x: Node) -> Node:
    """X * tanh(log(1 + exp(x)))."""
    return Eltwise(EltwiseKind.MISH, x)


def tanh(x: Node) -> Node:
    """The hyperbolic tangent."""
    return Eltwise(EltwiseKind.TANH, x)


def exp(x: Node) -> Node:
    """The exponential."""
    return Eltwise(EltwiseKind.EXP, x)


def log(x: Node) -> Node:
    """The natural logarithm."""
    return Eltwise(EltwiseKind.LOG, x)


def sqrt(x: Node) -> Node:
    """The square root."""
    return Eltwise(EltwiseKind.SQRT, x)


def round_even(x: Node) -> Node:
    """The nearest integer, ties to even."""
    return Eltwise(EltwiseKind.ROUND, x)


def maximum(x: Operand, y: Operand) -> Node:
    """The larger one; NaN if one of them is."""
    return Binary(BinaryKind.MAX, as_node(x), as_node(y))


def minimum(x: Operand, y: Operand) -> Node:
    """The smaller one; NaN if one of them is."""
    return Binary(BinaryKind.MIN, as_node(x), as_node(y))


def prelu(x: Node, slope: Operand) -> Node:
    """X where it is not negative, else slope * x."""
    return Binary(BinaryKind.PRELU, x, as_node(slope))


def select(condition: Node, yes: Operand, no: Operand) -> Node:
    """`yes` where condition is not 0, else `no`."""
    return Select(condition, as_node(yes), as_node(no))
