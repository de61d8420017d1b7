"""Functions of element values beyond + and *: how many values and constants each takes, and what it means."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Arity(NamedTuple):
    """How many values and how many constant parameters a function takes."""

    values: int
    numbers: int = 0


class Function(Enum):
    """A function, lane by lane; x, y, z are its values, a, b its constants. Comparisons give 1 or 0."""

    ABS = "abs"
    CLIP = "clip"  # x < a ? a : (x > b ? b : x)
    ELU = "elu"  # x > 0 ? x : a * expm1(x)
    EXP = "exp"
    GELU_ERF = "gelu_erf"
    GELU_TANH = "gelu_tanh"
    HARDSIGMOID = "hardsigmoid"  # clip(a * x + b, 0, 1)
    HARDSWISH = "hardswish"  # x * hardsigmoid(x)
    LINEAR = "linear"  # a * x + b
    LOG = "log"
    LOGISTIC = "logistic"  # 1 / (1 + exp(-x))
    MISH = "mish"  # x * tanh(log1p(exp(x)))
    POW = "pow"  # a * x**b
    RELU = "relu"  # x < 0 ? a * x : x
    ROUND = "round"  # ties to even
    SOFT_RELU = "soft_relu"  # log1p(exp(a * x)) / a
    SQRT = "sqrt"
    SQUARE = "square"
    SWISH = "swish"  # x / (1 + exp(-a * x))
    TANH = "tanh"
    SUB = "sub"
    DIV = "div"
    MAX = "max"  # NaN where one of them is
    MIN = "min"
    GE = "ge"
    GT = "gt"
    LE = "le"
    LT = "lt"
    EQ = "eq"
    NE = "ne"
    PRELU = "prelu"  # x < 0 ? x * y : x
    SELECT = "select"  # x != 0 ? y : z

    @property
    def arity(self) -> Arity:
        """What it takes."""
        return _ARITIES.get(self, Arity(1))


_TWO_NUMBERS = (Function.CLIP, Function.HARDSIGMOID, Function.HARDSWISH, Function.LINEAR, Function.POW)
_ONE_NUMBER = (Function.ELU, Function.RELU, Function.SOFT_RELU, Function.SWISH)
_TWO_VALUES = (
    *(Function.SUB, Function.DIV, Function.MAX, Function.MIN, Function.PRELU),
    *(Function.GE, Function.GT, Function.LE, Function.LT, Function.EQ, Function.NE),
)
_ARITIES: dict[Function, Arity] = {
    **dict.fromkeys(_TWO_NUMBERS, Arity(1, 2)),
    **dict.fromkeys(_ONE_NUMBER, Arity(1, 1)),
    **dict.fromkeys(_TWO_VALUES, Arity(2)),
    Function.SELECT: Arity(3),
}
