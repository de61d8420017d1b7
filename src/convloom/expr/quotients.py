"""Constructors of division: floor quotient, modulus, ceiling quotient, division by multiplication."""

from __future__ import annotations

from functools import lru_cache

from convloom.expr.bounds import bounds
from convloom.expr.node import BINARY, MINUS_ONE, ZERO, Expr, ExprLike, Op, as_expr, const, intern
from convloom.expr.sums import MEMO_SIZE, combine, linear_form
from convloom.magic import magic_multiplier, magic_shift


def split_constant(a: Expr, divisor: int) -> tuple[Expr, Expr]:
    """(q, r) with a == q * divisor + r: q takes the terms that the divisor divides, and of the constant what fits."""
    constant, terms = linear_form(a)
    if constant // divisor == 0 and all(coefficient % divisor for _, coefficient in terms):
        return ZERO, a
    whole = {atom: coefficient // divisor for atom, coefficient in terms if coefficient % divisor == 0}
    rest = {atom: coefficient for atom, coefficient in terms if coefficient % divisor != 0}
    return combine(constant // divisor, whole), combine(constant % divisor, rest)


@lru_cache(maxsize=MEMO_SIZE)
def floordiv(a: Expr, b: Expr) -> Expr:
    """Quotient a // b, rounded to minus infinity; never folded where b may be zero."""
    if b.op is not Op.CONST or b is ZERO:
        return intern(Op.FLOORDIV, (a, b))
    if b.value == 1:
        return a
    if b.value == -1:
        return a * MINUS_ONE
    whole, rest = split_constant(a, b.value)
    if rest.op is Op.CONST:
        return whole + rest.value // b.value
    return whole + intern(Op.FLOORDIV, (rest, b))


@lru_cache(maxsize=MEMO_SIZE)
def modulo(a: Expr, b: Expr) -> Expr:
    """Remainder a % b with the sign of b; never folded where b may be zero."""
    if b.op is not Op.CONST or b is ZERO:
        return intern(Op.MOD, (a, b))
    _, rest = split_constant(a, b.value)
    if rest.op is Op.CONST:
        return const(rest.value % b.value)
    return intern(Op.MOD, (rest, b))


def ceil_div(a: ExprLike, b: ExprLike) -> Expr:
    """The quotient rounded to plus infinity: (a + b - 1) // b where b is known to be positive, else -(-a // b)."""
    dividend, divisor = as_expr(a), as_expr(b)
    lo = bounds(divisor).lo
    if lo is not None and lo > 0:
        return floordiv(dividend + divisor - 1, divisor)
    return -floordiv(-dividend, divisor)


def fast_div(x: ExprLike, multiplier: ExprLike, shift: ExprLike) -> Expr:
    """(x * multiplier) >> shift in 64-bit arithmetic; equals x // d with `magic_numbers(d)` and 0 <= x < 2**31."""
    args = (as_expr(x), as_expr(multiplier), as_expr(shift))
    if all(arg.op is Op.CONST for arg in args):
        return const((args[0].value * args[1].value) >> args[2].value)
    return intern(Op.FAST_DIV, args)


def multiplier_of(divisor: ExprLike) -> Expr:
    """`magic_multiplier(divisor)` as an expression."""
    node = as_expr(divisor)
    return const(magic_multiplier(node.value)) if node.is_const else intern(Op.MAGIC_MULTIPLIER, (node,))


def shift_of(divisor: ExprLike) -> Expr:
    """`magic_shift(divisor)` as an expression."""
    node = as_expr(divisor)
    return const(magic_shift(node.value)) if node.is_const else intern(Op.MAGIC_SHIFT, (node,))


BINARY[Op.FLOORDIV] = floordiv
BINARY[Op.MOD] = modulo
