"""Index expressions as compiled Python over NumPy arrays, with or without a check of every intermediate value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import CodeType
from typing import Any

import numpy as np

from convloom.errors import InternalError
from convloom.expr import Expr, Op

_INFIX = {
    Op.FLOORDIV: "//",
    Op.MOD: "%",
    Op.LT: "<",
    Op.LE: "<=",
    Op.EQ: "==",
    Op.NE: "!=",
}


def _same(value: Any) -> Any:
    return value


def evaluate_index(expression: Expr, names: Mapping[str, Any], watch: Callable[[Any], Any] | None = None) -> Any:
    """The value over ints and int64 arrays; `watch` sees (and returns) every sum and product."""
    if expression.op is Op.CONST:
        return expression.value
    if expression.op is Op.SYM:
        return names[expression.name]
    table = _WATCHED if watch is not None else _PLAIN
    return eval(_code(expression), {**table, "_watch": watch or _same}, names)


def _select(condition: Any, yes: Any, no: Any) -> Any:
    if isinstance(condition, np.ndarray):
        return np.where(condition, yes, no)
    return yes if condition else no


_PLAIN: dict[str, Any] = {
    "_minimum": np.minimum,
    "_maximum": np.maximum,
    "_select": _select,
    "__builtins__": {},
}
_WATCHED = _PLAIN


@lru_cache(maxsize=1 << 16)
def _code(expression: Expr) -> CodeType:
    return compile(_text(expression), "<index>", "eval")


def _text(expression: Expr) -> str:
    """Python text; every sum and product passes through `_watch`."""
    if expression.op is Op.CONST:
        return f"({expression.value})"
    if expression.op is Op.SYM:
        return expression.name
    args = [_text(argument) for argument in expression.args]
    match expression.op:
        case Op.ADD | Op.MUL:
            return f"_watch({(' + ' if expression.op is Op.ADD else ' * ').join(args)})"
        case Op.AND | Op.OR:
            return "(" + (" & " if expression.op is Op.AND else " | ").join(f"({text} != 0)" for text in args) + ")"
        case Op.NOT:
            return f"({args[0]} == 0)"
        case Op.SELECT:
            return f"_select({', '.join(args)})"
        case Op.MIN | Op.MAX:
            name = "_minimum" if expression.op is Op.MIN else "_maximum"
            text = args[-1]
            for arg in reversed(args[:-1]):
                text = f"{name}({arg}, {text})"
            return text
        case Op.FAST_DIV:
            return f"(({args[0]} * {args[1]}) >> {args[2]})"
        case _:
            symbol = _INFIX.get(expression.op)
            if symbol is None:
                raise InternalError(f"kernels hold no {expression.op.name}; in {expression!r}; report this")
            return f"({args[0]} {symbol} {args[1]})"
