"""Evaluation of expressions on Python integers and NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from convloom.errors import IllegalProblem
from convloom.expr.node import Expr, ExprLike, Op, as_expr
from convloom.magic import magic_multiplier, magic_shift

Value: TypeAlias = int | NDArray[np.int64]
Arguments: TypeAlias = list[Any]  # of Value: the operators of both kinds are the same


def _is_array(value: Any) -> TypeGuard[NDArray[Any]]:
    return isinstance(value, np.ndarray)


def _extreme(of_integers: Callable[..., int], of_arrays: Callable[..., Any], args: Arguments) -> Any:
    if any(map(_is_array, args)):
        return reduce(of_arrays, args)
    return of_integers(args)


def _truth(value: Any) -> Any:
    return value.astype(np.int64) if _is_array(value) else int(value)


def _nonzero(value: Any) -> Any:
    return _truth(value != 0)


def _each(function: Callable[[int], int], value: Any) -> Any:
    if _is_array(value):
        return np.array([function(int(item)) for item in value.flat], np.int64).reshape(value.shape)
    return function(value)


def _select(args: Arguments) -> Any:
    condition, if_true, if_false = args
    if _is_array(condition):
        return np.asarray(np.where(condition != 0, if_true, if_false), np.int64)
    return if_true if condition else if_false


_STEPS: dict[Op, Callable[[Arguments], Any]] = {
    Op.ADD: lambda args: reduce(lambda a, b: a + b, args),
    Op.MUL: lambda args: reduce(lambda a, b: a * b, args),
    Op.FLOORDIV: lambda args: args[0] // args[1],
    Op.MOD: lambda args: args[0] % args[1],
    Op.MIN: lambda args: _extreme(min, np.minimum, args),
    Op.MAX: lambda args: _extreme(max, np.maximum, args),
    Op.LT: lambda args: _truth(args[0] < args[1]),
    Op.LE: lambda args: _truth(args[0] <= args[1]),
    Op.EQ: lambda args: _truth(args[0] == args[1]),
    Op.NE: lambda args: _truth(args[0] != args[1]),
    Op.AND: lambda args: reduce(lambda a, b: a * b, [_nonzero(arg) for arg in args]),
    Op.OR: lambda args: _extreme(max, np.maximum, [_nonzero(arg) for arg in args]),
    Op.NOT: lambda args: _truth(args[0] == 0),
    Op.SELECT: _select,
    Op.FAST_DIV: lambda args: (args[0] * args[1]) >> args[2],
    Op.MAGIC_MULTIPLIER: lambda args: _each(magic_multiplier, args[0]),
    Op.MAGIC_SHIFT: lambda args: _each(magic_shift, args[0]),
}


def evaluate(e: ExprLike, values: Mapping[str, Any]) -> Any:
    """The value under {symbol name: integer or integer array}; arrays broadcast, the result is int or an int64 array.

    Only the chosen branch of a select with one condition for all elements is evaluated. IllegalProblem for a symbol
    without a value, ZeroDivisionError for a divisor that is zero (anywhere in an array).
    """
    memo: dict[Expr, Any] = {}
    root = as_expr(e)
    stack = [root]
    try:
        with np.errstate(divide="raise"):
            while stack:
                _advance(stack, memo, values)
    except FloatingPointError:
        raise ZeroDivisionError(f"a divisor must not be zero; some element is zero in {root!r}") from None
    return memo[root]


def _advance(stack: list[Expr], memo: dict[Expr, Any], values: Mapping[str, Any]) -> None:
    node = stack[-1]
    if node in memo:
        stack.pop()
        return
    needed = _chosen(node, memo) if node.op is Op.SELECT else node.args
    waiting = [arg for arg in needed if arg not in memo]
    if waiting:
        stack.extend(waiting)
        return
    stack.pop()
    memo[node] = _value(node, memo, values)


def _chosen(node: Expr, memo: dict[Expr, Any]) -> tuple[Expr, ...]:
    condition, if_true, if_false = node.args
    if condition not in memo:
        return (condition,)
    known = memo[condition]
    if _is_array(known):
        return (if_true, if_false)
    return (if_true,) if known else (if_false,)


def _value(node: Expr, memo: dict[Expr, Any], values: Mapping[str, Any]) -> Any:
    if node.op is Op.CONST:
        return node.value
    if node.op is Op.SYM:
        return _symbol_value(node.name, values)
    return _STEPS[node.op]([memo.get(arg, 0) for arg in node.args])  # 0: the branch not taken


def _symbol_value(name: str, values: Mapping[str, Any]) -> Value:
    if name not in values:
        raise IllegalProblem(f"every symbol needs a value; {name} has none; add it to the mapping")
    value: Any = values[name]
    return value.astype(np.int64, copy=False) if _is_array(value) else int(value)
