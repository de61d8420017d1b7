"""Building a node anew over other arguments, and substitution."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from convloom.expr.logic import all_of, any_of, equal, less, less_equal, maximum, minimum, negate, select, unequal
from convloom.expr.node import Expr, ExprLike, Op, as_expr, fold, unknown_op
from convloom.expr.quotients import fast_div, floordiv, modulo, multiplier_of, shift_of
from convloom.expr.sums import multiply, sum_of

Args = tuple[Expr, ...]


def _product(args: Args) -> Expr:
    result = args[0]
    for arg in args[1:]:
        result = multiply(result, arg)
    return result


_BUILD: dict[Op, Callable[[Args], Expr]] = {
    Op.ADD: sum_of,
    Op.MUL: _product,
    Op.FLOORDIV: lambda args: floordiv(args[0], args[1]),
    Op.MOD: lambda args: modulo(args[0], args[1]),
    Op.MIN: lambda args: minimum(*args),
    Op.MAX: lambda args: maximum(*args),
    Op.LT: lambda args: less(args[0], args[1]),
    Op.LE: lambda args: less_equal(args[0], args[1]),
    Op.EQ: lambda args: equal(args[0], args[1]),
    Op.NE: lambda args: unequal(args[0], args[1]),
    Op.AND: lambda args: all_of(*args),
    Op.OR: lambda args: any_of(*args),
    Op.NOT: lambda args: negate(args[0]),
    Op.SELECT: lambda args: select(*args),
    Op.FAST_DIV: lambda args: fast_div(*args),
    Op.MAGIC_MULTIPLIER: lambda args: multiplier_of(args[0]),
    Op.MAGIC_SHIFT: lambda args: shift_of(args[0]),
}


def build(op: Op, args: Args) -> Expr:
    """The canonical expression of an operator (not CONST or SYM) over any arguments."""
    return _BUILD[op](args)


def rebuild(node: Expr, args: Args) -> Expr:
    """The canonical expression of the same operator over other arguments; the node itself if they are the same."""
    if all(new is old for new, old in zip(args, node.args, strict=True)):
        return node
    constructor = _BUILD.get(node.op)
    if constructor is None:
        raise unknown_op(node)
    return constructor(args)


def substitute(e: ExprLike, replacements: Mapping[Expr, ExprLike]) -> Expr:
    """The expression with every occurrence of a key (a symbol or any node) replaced by its value, all at once."""
    memo = {old: as_expr(new) for old, new in replacements.items()}
    return fold(as_expr(e), memo, _substitute_step)


def _substitute_step(node: Expr, memo: Mapping[Expr, Expr]) -> Expr:
    return rebuild(node, tuple([memo[arg] for arg in node.args]))
