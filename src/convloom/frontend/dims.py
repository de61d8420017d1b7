"""Sizes that are known only at the call: symbols with declared facts, and the rules for their names."""

from __future__ import annotations

from collections.abc import Iterable
from keyword import iskeyword

from convloom.errors import IllegalProblem, IllegalType
from convloom.expr import Expr, sym
from convloom.problem.given import integer

TYPICAL_SIZE = 64
"""The hint of a dim without one."""

# Names that launch arithmetic gives a meaning of its own.
_RESERVED = frozenset(
    {"alpha", "beta", "min", "max", "select", "fast_div", "magic_multiplier", "magic_shift", "True", "False", "None"}
)
_ADDRESS = "_address"


def dim(name: str, divisible: int = 1, min: int = 1, max: int | None = None, hint: int | None = None) -> Expr:
    """A size or stride that each call decides, in elements.

    The facts are promises: a call with a value that is no multiple of `divisible`, below `min` or above `max` is
    refused. `hint` is a typical value for the cost model, never a fact. Two dims are the same if name and facts are.
    IllegalProblem for a bad name, facts that no value satisfies, or a negative `min`; IllegalType for no integer.
    """
    check_symbol_name(name)
    low = integer("min", min)
    if low < 0:
        raise IllegalProblem(f"sizes are not negative; got min={low} for dim {name!r}; use min=0 or more")
    high = None if max is None else integer("max", max)
    if hint is not None and integer("hint", hint) < 0:
        raise IllegalProblem(f"sizes are not negative; got hint={hint} for dim {name!r}; use a typical size")
    typical = TYPICAL_SIZE if hint is None else integer("hint", hint)
    return sym(name, divisor=integer("divisible", divisible), lo=low, hi=high, hint=typical)


def check_symbol_name(name: str) -> None:
    """IllegalProblem unless the name can stand for a size in every kernel's launch arithmetic."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise IllegalType(f"a dim's name must be a string; got {name!r}; put it in quotes")
    if not (name.isidentifier() and name.isascii()) or iskeyword(name) or name.startswith("_"):
        raise IllegalProblem(
            f"a dim's name must be an identifier without a leading underscore and no Python keyword; got {name!r}; "
            "use letters, digits and _"
        )
    if name in _RESERVED or name.endswith(_ADDRESS):
        raise IllegalProblem(
            f"a dim's name must not be {', '.join(sorted(_RESERVED))} or end in {_ADDRESS}; got {name!r}; rename it"
        )


def check_symbols(symbols: Iterable[Expr]) -> None:
    """IllegalProblem if a symbol has a reserved name, or two symbols of one name differ in their facts."""
    seen: dict[str, Expr] = {}
    for symbol in symbols:
        check_symbol_name(symbol.name)
        other = seen.setdefault(symbol.name, symbol)
        if other is not symbol:
            raise IllegalProblem(
                f"one name stands for one dim; {symbol.name!r} has the facts {other.facts} and {symbol.facts}; "
                "make the dim once and use it everywhere"
            )


def fact_texts(symbol: Expr) -> tuple[str, ...]:
    """The declared facts of a symbol as conditions, in the language of `artifact`."""
    facts, name = symbol.facts, symbol.name
    texts = [f"{name} % {facts.divisor} == 0"] if facts.divisor > 1 else []
    if facts.lo is not None:
        texts.append(f"{name} >= {facts.lo}")
    if facts.hi is not None:
        texts.append(f"{name} <= {facts.hi}")
    return tuple(texts)
