"""Congruences: the modulus and residue that every value of an expression is known to satisfy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from convloom.expr.node import Expr, ExprLike, Op, as_expr, fold


class Congruence(NamedTuple):
    """Every value is `residue` modulo `modulus`; modulus 0: the value is the residue; modulus 1: nothing is known."""

    modulus: int
    residue: int


def _reduced(modulus: int, residue: int) -> Congruence:
    return Congruence(modulus, residue % modulus if modulus else residue)


UNKNOWN = Congruence(1, 0)


def _add(node: Expr, memo: Mapping[Expr, Congruence]) -> Congruence:
    parts = [memo[arg] for arg in node.args]
    return _reduced(math.gcd(*[part.modulus for part in parts]), sum(part.residue for part in parts))


def _multiply(node: Expr, memo: Mapping[Expr, Congruence]) -> Congruence:
    modulus, residue = memo[node.args[0]]
    for arg in node.args[1:]:
        other, other_residue = memo[arg]
        modulus = math.gcd(modulus * other, modulus * other_residue, residue * other)
        residue *= other_residue
    return _reduced(modulus, residue)


def _floordiv(node: Expr, memo: Mapping[Expr, Congruence]) -> Congruence:
    modulus, residue = memo[node.args[0]]
    divisor = node.args[1]
    if divisor.op is not Op.CONST or not divisor.value or modulus % divisor.value:
        return UNKNOWN
    return _reduced(abs(modulus // divisor.value), residue // divisor.value)


def _mod(node: Expr, memo: Mapping[Expr, Congruence]) -> Congruence:
    modulus, residue = memo[node.args[0]]
    step = divisor_of(memo[node.args[1]])
    return _reduced(math.gcd(modulus, step), residue) if step else UNKNOWN


def _join(parts: list[Congruence]) -> Congruence:
    first = parts[0]
    spread = [part.residue - first.residue for part in parts[1:]]
    return _reduced(math.gcd(*[part.modulus for part in parts], *spread), first.residue)


def _any_argument(node: Expr, memo: Mapping[Expr, Congruence]) -> Congruence:
    return _join([memo[arg] for arg in node.args])


_STEPS: dict[Op, Callable[[Expr, Mapping[Expr, Congruence]], Congruence]] = {
    Op.CONST: lambda node, memo: Congruence(0, node.value),
    Op.SYM: lambda node, memo: Congruence(node.facts.divisor, 0),
    Op.ADD: _add,
    Op.MUL: _multiply,
    Op.FLOORDIV: _floordiv,
    Op.MOD: _mod,
    Op.MIN: _any_argument,
    Op.MAX: _any_argument,
    Op.SELECT: lambda node, memo: _join([memo[node.args[1]], memo[node.args[2]]]),
}
_MEMO: dict[Expr, Congruence] = {}


def _step(node: Expr, memo: Mapping[Expr, Congruence]) -> Congruence:
    step = _STEPS.get(node.op)
    return step(node, memo) if step is not None else UNKNOWN


def congruence(e: ExprLike) -> Congruence:
    """What is known of the value modulo something."""
    return fold(as_expr(e), _MEMO, _step)


def divisor_of(known: Congruence) -> int:
    """The largest number that divides every integer of the residue class."""
    return math.gcd(known.modulus, known.residue)


def divisor(e: ExprLike) -> int:
    """The largest known divisor of the value; 0 for the constant 0."""
    return divisor_of(congruence(e))
