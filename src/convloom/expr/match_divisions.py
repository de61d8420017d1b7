"""Matchers of the rules about floor quotients and remainders. Each returns values of the rule's variables, or None."""

from __future__ import annotations

from convloom.expr.bounds import bounds, over
from convloom.expr.node import ONE, Expr, Op, const
from convloom.expr.splitting import (
    coarse_and_fine,
    common_factor,
    exact_division,
    granules,
    is_at_least,
    is_nonzero,
    is_remainder,
    split,
)
from convloom.expr.sums import linear_form, product_atoms

Binding = tuple[Expr, ...]


def remainder_itself(node: Expr) -> Binding | None:
    """(x, c) with 0 <= x < c."""
    x, c = node.args
    return (x, c) if is_remainder(x, c) else None


def multiple_and_rest(node: Expr) -> Binding | None:
    """(x, c, r) with the dividend x * c + r."""
    a, c = node.args
    if not is_nonzero(c):
        return None
    parts = split(a, c)
    if parts is None or parts[0] is node:  # n // 16 with 16 | n is its own quotient
        return None
    return parts[0], c, parts[1]


def fine_part(node: Expr) -> Binding | None:
    """(x, r, c, g) with the dividend x + r, x and c multiples of g, and 0 <= r < g."""
    a, c = node.args
    constant, terms = linear_form(a)
    if not is_at_least(c, 1):
        return None
    for granule in granules(terms, c):
        parts = coarse_and_fine(constant, terms, granule) if is_at_least(granule, 1) else None
        if parts is not None:
            return parts[0], parts[1], c, granule
    return None


def shared_factor(node: Expr) -> Binding | None:
    """(x, c, g) with the dividend g * x and the divisor g * c."""
    a, b = node.args
    factor = common_factor(a, b)
    if factor is ONE or not is_nonzero(b):
        return None
    x, c = exact_division(a, factor), exact_division(b, factor)
    return None if x is None or c is None else (x, c, factor)


def _constant_quotient(atom: Expr) -> bool:
    return atom.op is Op.FLOORDIV and atom.args[1].is_const


def quotient_of_quotient(node: Expr) -> Binding | None:
    """(x, c, d): only constant c and d, whose product needs no arithmetic in the kernel."""
    a, d = node.args
    if not d.is_const or not is_at_least(d, 1) or not _constant_quotient(a):
        return None
    return a.args[0], a.args[1], d


def quotient_of_shifted_quotient(node: Expr) -> Binding | None:
    """(x, c, y, d) with the dividend x // c + y, where y holds no further quotient."""
    a, d = node.args
    if a.op is not Op.ADD or not d.is_const or not is_at_least(d, 1):
        return None
    quotients = [atom for atom, coefficient in linear_form(a).terms if coefficient == 1 and _constant_quotient(atom)]
    if len(quotients) != 1:
        return None
    x, c = quotients[0].args
    return x, c, a - quotients[0], d


def quotient_of_remainder(node: Expr) -> Binding | None:
    """(x, c, d) with the dividend x % (c * d)."""
    a, c = node.args
    if a.op is not Op.MOD or not is_at_least(c, 1):
        return None
    d = exact_division(a.args[1], c)
    return (a.args[0], c, d) if d is not None and is_at_least(d, 1) else None


def known_quotient(node: Expr) -> Binding | None:
    """(x, c, k) where the interval of x lies between k * c and (k + 1) * c; the quotient 0 is `remainder_itself`."""
    x, c = node.args
    lo, hi = over(bounds(x), bounds(c))
    if lo is None or lo != hi or lo == 0 or not is_at_least(c, 1):
        return None
    return x, c, const(lo)


def inner_remainder(node: Expr) -> Binding | None:
    """(k, x, m, y, c) with the dividend k * (x % m) + y and c a divisor of k * m."""
    a, c = node.args
    if not is_nonzero(c):
        return None
    for atom, coefficient in linear_form(a).terms:
        for factor in product_atoms(atom):
            if factor.op is Op.MOD and is_nonzero(factor.args[1]):
                binding = _inner_remainder(a, atom, coefficient, factor, c)
                if binding is not None:
                    return binding
    return None


def _inner_remainder(a: Expr, atom: Expr, coefficient: int, remainder: Expr, c: Expr) -> Binding | None:
    x, m = remainder.args
    k = ONE * coefficient
    rest = list(product_atoms(atom))
    rest.remove(remainder)
    for factor in rest:
        k = k * factor
    if exact_division(k * m, c) is None:
        return None
    y = a - atom * coefficient
    return k, x, m, y, c
