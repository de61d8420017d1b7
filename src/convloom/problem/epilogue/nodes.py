"""Expressions of an epilogue: frozen nodes over the sum, the old result, operands and numbers; Python operators.

Every node is a number of the epilogue's type (f32; f64 where the result is f64 or s32), one per element of the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from convloom.dtypes import DType
from convloom.errors import IllegalProblem


class EltwiseKind(Enum):
    """Functions of one number with parameters alpha (a) and beta (b); their names are oneDNN's."""

    ABS = "abs"  # |x|
    CLIP = "clip"  # min(max(x, a), b)
    CLIP_V2 = "clip_v2"  # the same forward
    ELU = "elu"  # x > 0 ? x : a * (exp(x) - 1)
    EXP = "exp"
    GELU_ERF = "gelu_erf"  # x / 2 * (1 + erf(x / sqrt(2)))
    GELU_TANH = "gelu_tanh"  # x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))
    HARDSIGMOID = "hardsigmoid"  # min(max(a * x + b, 0), 1)
    HARDSWISH = "hardswish"  # x * min(max(a * x + b, 0), 1)
    LINEAR = "linear"  # a * x + b
    LOG = "log"
    LOGISTIC = "logistic"  # 1 / (1 + exp(-x))
    MISH = "mish"  # x * tanh(log(1 + exp(x)))
    POW = "pow"  # a * x**b
    RELU = "relu"  # x < 0 ? a * x : x
    ROUND = "round"  # to the nearest integer, ties to even
    SOFT_RELU = "soft_relu"  # log(1 + exp(a * x)) / a
    SQRT = "sqrt"
    SQUARE = "square"
    SWISH = "swish"  # x / (1 + exp(-a * x))
    TANH = "tanh"


class BinaryKind(Enum):
    """Functions of two numbers; comparisons give 1 or 0."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    MAX = "max"  # NaN if one of them is
    MIN = "min"
    GE = "ge"
    GT = "gt"
    LE = "le"
    LT = "lt"
    EQ = "eq"
    NE = "ne"
    PRELU = "prelu"  # x < 0 ? x * y : x


class Node:
    """An expression. `+ - * / abs` and comparisons by `<`, `<=`, `>`, `>=` make larger ones; `==` compares records."""

    __slots__ = ()

    def __add__(self, other: Operand) -> Node:
        return _sum(self, other, 1.0)

    def __radd__(self, other: float) -> Node:
        return _sum(self, other, 1.0)

    def __sub__(self, other: Operand) -> Node:
        return Binary(BinaryKind.SUB, self, other) if isinstance(other, Node) else _sum(self, -number(other), 1.0)

    def __rsub__(self, other: float) -> Node:
        return _sum(self, other, -1.0)

    def __mul__(self, other: Operand) -> Node:
        if isinstance(other, Node):
            return Binary(BinaryKind.MUL, self, other)
        return Eltwise(EltwiseKind.LINEAR, self, number(other), 0.0)

    def __rmul__(self, other: float) -> Node:
        return self * other

    def __truediv__(self, other: Operand) -> Node:
        return Binary(BinaryKind.DIV, self, as_node(other))

    def __rtruediv__(self, other: float) -> Node:
        return Binary(BinaryKind.DIV, as_node(other), self)

    def __neg__(self) -> Node:
        return self * -1.0

    def __abs__(self) -> Node:
        return Eltwise(EltwiseKind.ABS, self)

    def __lt__(self, other: Operand) -> Node:
        return Binary(BinaryKind.LT, self, as_node(other))

    def __le__(self, other: Operand) -> Node:
        return Binary(BinaryKind.LE, self, as_node(other))

    def __gt__(self, other: Operand) -> Node:
        return Binary(BinaryKind.GT, self, as_node(other))

    def __ge__(self, other: Operand) -> Node:
        return Binary(BinaryKind.GE, self, as_node(other))

    def __bool__(self) -> bool:
        raise IllegalProblem(
            "an epilogue's value is not known while it is traced; got a Python condition on it; use convloom.select"
        )


Operand = Node | float


@dataclass(frozen=True, slots=True)
class Accumulator(Node):
    """The sum of products with scales, alpha, beta and bias applied."""


@dataclass(frozen=True, slots=True)
class Input(Node):
    """The number of the epilogue's operand `index` that belongs to the element."""

    index: int


@dataclass(frozen=True, slots=True)
class Old(Node):
    """scale * (old - zero_point), old being the result's former content, read as `dtype` where one is given."""

    scale: float = 1.0
    zero_point: int = 0
    dtype: DType | None = None


@dataclass(frozen=True, slots=True)
class Number(Node):
    """A constant."""

    value: float


@dataclass(frozen=True, slots=True)
class Eltwise(Node):
    """kind(x; alpha, beta). IllegalProblem for parameters that are not finite."""

    kind: EltwiseKind
    x: Node
    alpha: float = 0.0
    beta: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", number(self.alpha))
        object.__setattr__(self, "beta", number(self.beta))
        if self.kind is EltwiseKind.SOFT_RELU and self.alpha == 0:
            raise IllegalProblem("soft_relu divides by alpha; got alpha=0; write e.g. soft_relu:1")


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """kind(left, right)."""

    kind: BinaryKind
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Select(Node):
    """`yes` where condition is not 0, else `no`."""

    condition: Node
    yes: Node
    no: Node


ACCUMULATOR = Accumulator()


def number(value: float) -> float:
    """A finite number as float; IllegalProblem otherwise."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise IllegalProblem(
            f"an epilogue computes with numbers and traced values; got {value!r}; declare arrays as operands"
        ) from None
    if not math.isfinite(found):
        raise IllegalProblem(f"numbers of an epilogue are finite; got {value}; leave the step out or use max or min")
    return found


def as_node(value: Operand) -> Node:
    """The node itself, or the number as a node."""
    return value if isinstance(value, Node) else Number(number(value))


def _sum(left: Node, right: Operand, factor: float) -> Node:
    if isinstance(right, Node):
        return Binary(BinaryKind.ADD, left, right)
    return Eltwise(EltwiseKind.LINEAR, left, factor, number(right))


def children(node: Node) -> tuple[Node, ...]:
    """The direct parts of a node."""
    match node:
        case Eltwise():
            return (node.x,)
        case Binary():
            return (node.left, node.right)
        case Select():
            return (node.condition, node.yes, node.no)
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    """A node and all nodes inside it, a shared one as often as it is used."""
    yield node
    for child in children(node):
        yield from walk(child)
