"""Index expressions as compiled Python over ints and NumPy arrays, with hooks where index math can go wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import CodeType
from typing import Any, cast

import numpy as np

from convloom.errors import InternalError
from convloom.expr import Expr, Op, bounds

INT32 = range(-(2**31), 2**31)

_INFIX = {Op.LT: "<", Op.LE: "<=", Op.EQ: "==", Op.NE: "!="}
_LOW32 = 0xFFFF_FFFF
_LOW64 = 0xFFFF_FFFF_FFFF_FFFF


class IndexMath:
    """Evaluates expressions; `watch` sees (and returns) sums and products that may leave 32 bits.

    One whose bounds follow from the facts of its names is not watched: whoever binds a name checks its facts.
    `check_divisor` sees every divisor that is not a constant.
    """

    def __init__(self, watch: Callable[[Any], Any] | None, check_divisor: Callable[[Any], Any]) -> None:
        self._watched = watch is not None
        self._globals: dict[str, Any] = {
            "_minimum": _minimum,
            "_maximum": _maximum,
            "_select": _select,
            "_fast_div": _fast_div,
            "_watch": watch,
            "_nonzero": check_divisor,
            "__builtins__": {},
        }

    def evaluate(self, expression: Expr, names: Mapping[str, Any]) -> Any:
        """The value: an int, or an array where a name of the expression stands for one."""
        if expression.op is Op.CONST:
            return expression.value
        if expression.op is Op.SYM:
            return names[expression.name]
        return eval(_code(expression, self._watched), self._globals, names)


def _minimum(one: Any, other: Any) -> Any:
    """Of ints an int: NumPy's own numbers have 64 bits and are no ints."""
    return min(one, other) if isinstance(one, int) and isinstance(other, int) else np.minimum(one, other)


def _maximum(one: Any, other: Any) -> Any:
    return max(one, other) if isinstance(one, int) and isinstance(other, int) else np.maximum(one, other)


def _select(condition: Any, yes: Any, no: Any) -> Any:
    if isinstance(condition, int):
        return yes if condition else no
    return cast("Any", np.where(np.asarray(condition), yes, no))


def _fast_div(x: Any, multiplier: int, shift: int) -> Any:
    """As the printed helper: x as 32 unsigned bits, the product in 64."""
    if isinstance(x, np.ndarray):
        low = (x & _LOW32).astype(np.uint64)
        return ((low * np.uint64(multiplier)) >> np.uint64(shift)).astype(np.int64)
    return (((x & _LOW32) * multiplier) & _LOW64) >> shift


@lru_cache(maxsize=1 << 16)
def _code(expression: Expr, watched: bool) -> CodeType:
    return compile(_text(expression, watched), "<index>", "eval")


def _text(expression: Expr, watched: bool) -> str:
    """Python text of an expression."""
    if expression.op is Op.CONST:
        return f"({expression.value})"
    if expression.op is Op.SYM:
        return expression.name
    args = [_text(argument, watched) for argument in expression.args]
    match expression.op:
        case Op.ADD | Op.MUL:
            text = f"({(' + ' if expression.op is Op.ADD else ' * ').join(args)})"
            return f"_watch{text}" if watched and not _fits(expression) else text
        case Op.AND | Op.OR:
            return "(" + (" & " if expression.op is Op.AND else " | ").join(f"({text} != 0)" for text in args) + ")"
        case Op.NOT:
            return f"({args[0]} == 0)"
        case Op.SELECT:
            return f"_select({', '.join(args)})"
        case Op.MIN | Op.MAX:
            return _extreme("_minimum" if expression.op is Op.MIN else "_maximum", args)
        case Op.FAST_DIV:
            return f"_fast_div({', '.join(args)})"
        case Op.FLOORDIV | Op.MOD:
            divisor = args[1] if expression.args[1].is_const else f"_nonzero({args[1]})"
            return f"({args[0]} {'//' if expression.op is Op.FLOORDIV else '%'} {divisor})"
        case _:
            return _compared(expression, args)


def _compared(expression: Expr, args: list[str]) -> str:
    symbol = _INFIX.get(expression.op)
    if symbol is None:
        raise InternalError(f"kernels hold no {expression.op.name}; in {expression!r}; report this")
    return f"({args[0]} {symbol} {args[1]})"


def _fits(expression: Expr) -> bool:
    limits = bounds(expression)
    low, high = limits.lo, limits.hi
    return low is not None and high is not None and low in INT32 and high in INT32


def _extreme(name: str, args: list[str]) -> str:
    text = args[-1]
    for argument in reversed(args[:-1]):
        text = f"{name}({argument}, {text})"
    return text
