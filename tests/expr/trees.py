"""Random expressions as plain trees, with their meaning given independently of the library."""

from __future__ import annotations

import random
from collections.abc import Mapping

from hypothesis import strategies as st

from convloom.expr import (
    Expr,
    all_of,
    any_of,
    const,
    fast_div,
    maximum,
    minimum,
    negate,
    select,
    sym,
)

SYMBOLS = {
    "a": sym("a"),
    "b": sym("b"),
    "i": sym("i", lo=0, hi=7),
    "j": sym("j", lo=-3, hi=5),
    "n": sym("n", lo=1),
    "m": sym("m", lo=0),
    "f": sym("f", divisor=4),
    "g": sym("g", divisor=6, lo=6, hi=24),
}

Tree = int | str | tuple


class Undefined(Exception):
    """A divisor is zero."""


def _floordiv(a, b):
    if b == 0:
        raise Undefined
    return a // b


OPERATORS = {
    "+": (lambda a, b: a + b, lambda a, b: a + b),
    "-": (lambda a, b: a - b, lambda a, b: a - b),
    "*": (lambda a, b: a * b, lambda a, b: a * b),
    "//": (lambda a, b: a // b, _floordiv),
    "%": (lambda a, b: a % b, lambda a, b: a - b * _floordiv(a, b)),
    "min": (minimum, min),
    "max": (maximum, max),
    "<": (lambda a, b: a.lt(b), lambda a, b: int(a < b)),
    "<=": (lambda a, b: a.le(b), lambda a, b: int(a <= b)),
    ">": (lambda a, b: a.gt(b), lambda a, b: int(a > b)),
    ">=": (lambda a, b: a.ge(b), lambda a, b: int(a >= b)),
    "==": (lambda a, b: a.eq(b), lambda a, b: int(a == b)),
    "!=": (lambda a, b: a.ne(b), lambda a, b: int(a != b)),
    "and": (all_of, lambda a, b: int(a != 0 and b != 0)),
    "or": (any_of, lambda a, b: int(a != 0 or b != 0)),
    "not": (negate, lambda a: int(a == 0)),
    "select": (select, lambda c, a, b: a if c else b),
    "fast_div": (lambda a: fast_div(a, 5, 3), lambda a: (a * 5) >> 3),
}
_ARITY = {"not": 1, "fast_div": 1, "select": 3}
_WEIGHTS = {"+": 6, "-": 4, "*": 4, "//": 5, "%": 5, "min": 2, "max": 2, "select": 1}


def build(tree: Tree) -> Expr:
    """The tree through the library's constructors."""
    if isinstance(tree, int):
        return const(tree)
    if isinstance(tree, str):
        return SYMBOLS[tree]
    return OPERATORS[tree[0]][0](*[build(part) for part in tree[1:]])


def value(tree: Tree, values: Mapping[str, int]) -> int:
    """The tree by Python's integers; Undefined if any divisor in it is zero."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return values[tree]
    return OPERATORS[tree[0]][1](*[value(part, values) for part in tree[1:]])


def _leaf(rng: random.Random) -> Tree:
    if rng.random() < 0.35:
        return rng.choice([-8, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 8, 12, 16])
    return rng.choice(list(SYMBOLS))


def _divisor(rng: random.Random, depth: int) -> Tree:
    if rng.random() < 0.7:
        return rng.choice([-4, -2, -1, 1, 2, 3, 4, 4, 6, 8, 8, 12, 16, "n", "n", ("*", "n", 4), ("+", "n", 2), "g"])
    return random_tree(rng, depth)


def random_tree(rng: random.Random, depth: int) -> Tree:
    """A tree of at most this depth, divisions by constants and sizes more frequent than others."""
    if depth == 0 or rng.random() < 0.1:
        return _leaf(rng)
    names = list(OPERATORS)
    name = rng.choices(names, [_WEIGHTS.get(each, 1) for each in names])[0]
    parts = [random_tree(rng, depth - 1) for _ in range(_ARITY.get(name, 2))]
    if name in ("//", "%"):
        parts[1] = _divisor(rng, depth - 2) if depth > 1 else rng.choice([2, 3, 4, "n"])
        if parts[1] == 0:
            parts[1] = 1
    return (name, *parts)


def trees(depth: int = 4) -> st.SearchStrategy[Tree]:
    """Trees from a drawn seed: cheaper to draw than node by node."""
    return st.integers(0, 2**48).map(lambda seed: random_tree(random.Random(seed), depth))


def sample_values(seed: int, spread: int = 12) -> dict[str, int]:
    """Values that satisfy the facts of SYMBOLS."""
    rng = random.Random(seed)
    values = {}
    for name, symbol in SYMBOLS.items():
        facts = symbol.facts
        lo = -spread if facts.lo is None else facts.lo
        hi = max(lo, spread) if facts.hi is None else facts.hi
        step = facts.divisor
        values[name] = rng.randint(-(-lo // step), hi // step) * step
    return values
