"""The text of functions of element values: one C expression each, over values x, y, z and constants a, b.

`@` marks a floating constant of the function's type; `exp`, `expm1`, `log`, `log1p`, `tanh`, `erf`, `pow`, `sqrt`,
`rint`, `fabs` in braces are the dialect's own functions, whose errors docs/epilogue.md bounds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from convloom.dtypes import DType, dtype_named
from convloom.ir.functions import Function

MathName = Callable[[str, str], str]  # (function, type name) -> the dialect's name

_CLIPPED = "({0} < 0.0@ ? 0.0@ : ({0} > 1.0@ ? 1.0@ : {0}))"
_PRIMITIVES = ("exp", "expm1", "log", "log1p", "tanh", "erf", "pow", "sqrt", "rint", "fabs")

# NaN passes through all comparisons unchanged: `x < a` is false for it.
_EXPRESSIONS: dict[Function, str] = {
    Function.ABS: "return {fabs}(x);",
    Function.CLIP: "return x < a ? a : (x > b ? b : x);",
    Function.ELU: "return x > 0.0@ ? x : a * {expm1}(x);",
    Function.EXP: "return {exp}(x);",
    Function.GELU_ERF: "return 0.5@ * x * (1.0@ + {erf}(x * 0.70710678118654752@));",
    Function.GELU_TANH: ("return 0.5@ * x * (1.0@ + {tanh}(0.79788456080286536@ * (x + 0.044715@ * x * x * x)));"),
    Function.HARDSIGMOID: "{T} v = a * x + b; return " + _CLIPPED.format("v") + ";",
    Function.HARDSWISH: "{T} v = a * x + b; return x * " + _CLIPPED.format("v") + ";",
    Function.LINEAR: "return a * x + b;",
    Function.LOG: "return {log}(x);",
    Function.LOGISTIC: "return 1.0@ / (1.0@ + {exp}(-x));",
    # log(1 + exp(x)) without overflow.
    Function.MISH: "return x * {tanh}((x < 0.0@ ? 0.0@ : x) + {log1p}({exp}(-{fabs}(x))));",
    Function.POW: "return a * {pow}(x, b);",
    Function.RELU: "return x < 0.0@ ? (a == 0.0@ ? 0.0@ : a * x) : x;",
    Function.ROUND: "return {rint}(x);",
    Function.SOFT_RELU: "{T} v = a * x; return ((v < 0.0@ ? 0.0@ : v) + {log1p}({exp}(-{fabs}(v)))) / a;",
    Function.SQRT: "return {sqrt}(x);",
    Function.SQUARE: "return x * x;",
    Function.SWISH: "return x / (1.0@ + {exp}(-a * x));",
    Function.TANH: "return {tanh}(x);",
    Function.SUB: "return x - y;",
    Function.DIV: "return x / y;",
    Function.MAX: "return x != x ? x : (x > y ? x : y);",
    Function.MIN: "return x != x ? x : (x < y ? x : y);",
    Function.GE: "return x >= y ? 1.0@ : 0.0@;",
    Function.GT: "return x > y ? 1.0@ : 0.0@;",
    Function.LE: "return x <= y ? 1.0@ : 0.0@;",
    Function.LT: "return x < y ? 1.0@ : 0.0@;",
    Function.EQ: "return x == y ? 1.0@ : 0.0@;",
    Function.NE: "return x != y ? 1.0@ : 0.0@;",
    Function.PRELU: "return x < 0.0@ ? x * y : x;",
    Function.SELECT: "return x != 0.0@ ? y : z;",
}


def function_body(function: Function, dtype: str, math_name: MathName) -> str:
    """The body of the function on one number of a type."""
    names = {name: math_name(name, dtype) for name in _PRIMITIVES}
    return _EXPRESSIONS[function].format(**names, T=dtype).replace("@", _suffix(dtype))


def literal(value: float, dtype: DType) -> str:
    """A floating constant of the type, exactly."""
    if not dtype.is_float:
        return str(int(value))
    digits = repr(float(np.float32(value)) if dtype.name == "f32" else float(value))
    text = digits + _suffix(dtype.name)
    return f"({text})" if text.startswith("-") else text


def _suffix(dtype: str) -> str:
    return "" if dtype == "f64" or not dtype_named(dtype).is_float else "f"
