"""Values of a problem's symbols from the arrays of a call: one Python function, written and compiled once per kernel.

The equations are `extent expression = actual extent` and `stride expression = actual stride`. A symbol that is an
extent by itself takes its value from there; else from an extent in which it is the only unknown and stands once, in a
linear term or a product with known sizes; else from a stride. Every equation that did not define a symbol is checked,
and before them the declared facts and the operation's rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

from convloom.errors import ConvloomError, IllegalProblem, InternalError
from convloom.expr import Expr, Op, const, free_symbols, linear_form, to_text
from convloom.frontend.dims import fact_texts
from convloom.frontend.operand_terms import Terms
from convloom.magic import magic_multiplier, magic_shift
from convloom.problem.size_rules import SizeRule

Shapes: TypeAlias = tuple[tuple[int, ...], ...]
Values: TypeAlias = dict[str, int]


def _select(condition: int, if_true: int, if_false: int) -> int:
    return if_true if condition else if_false


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True


def _fast_div(value: int, multiplier: int, shift: int) -> int:
    return (value * multiplier) >> shift


# What the text of an expression may call. Names of symbols never begin with an underscore, other names here do.
_SCOPE: dict[str, Any] = {
    "min": min,
    "max": max,
    "select": _select,
    "fast_div": _fast_div,
    "magic_multiplier": magic_multiplier,
    "magic_shift": magic_shift,
    "_len": len,
    "_prod": prod,
    "_is_contiguous": _is_contiguous,
}


def compile_values(expressions: Iterable[Expr]) -> Callable[[Mapping[str, int]], tuple[int, ...]]:
    """A function from the values of the symbols to those of the expressions."""
    wanted = tuple(expressions)
    names = sorted({symbol.name for expression in wanted for symbol in free_symbols(expression)})
    loads = "".join(f"    {name} = _values[{name!r}]\n" for name in names)
    results = "".join(f"{to_text(expression)}, " for expression in wanted)
    return _compiled(f"def _function(_values):\n{loads}    return ({results})\n")


def _compiled(text: str) -> Callable[..., Any]:
    scope = dict(_SCOPE)
    exec(compile(text, "<sizes>", "exec"), scope)
    return scope["_function"]


@dataclass(frozen=True, slots=True)
class _Step:
    """`target = text` if there is a target, else a condition that must hold; `explain` words its failure."""

    target: str
    text: str
    explain: Callable[[Mapping[str, Any]], str] | None = None


class SizeSolver:
    """Solves and checks the equations of some tensors.

    `undetermined` are the symbols that these tensors do not define.
    """

    def __init__(self, tensors: tuple[Terms, ...], symbols: Iterable[Expr], rules: Iterable[SizeRule] = ()) -> None:
        self.tensors = tensors
        self._known: set[Expr] = set()
        self._origin: dict[Expr, str] = {}
        self._defining: set[tuple[int, int]] = set()
        wanted = tuple(symbols)
        steps = [step for place, terms in enumerate(tensors) for step in self._unpack(place, terms)]
        for symbol, text in self._solutions(wanted):
            steps.append(_Step(symbol.name, text))
            steps += self._facts(symbol)
        self.undetermined = tuple(symbol for symbol in wanted if symbol not in self._known)
        if self.undetermined:
            return
        steps += map(self._rule, rules)
        steps += [step for place, terms in enumerate(tensors) for step in self._checks(place, terms)]
        self._steps = steps
        self._solve = _compiled(_function_text(steps, [symbol.name for symbol in wanted]))

    def __call__(self, shapes: Shapes, strides: Shapes) -> Values:
        """The value of every symbol; IllegalProblem names the first rule that the arrays break.

        `shapes` and `strides` (in elements) in the order of the tensors.
        """
        found = self._solve(shapes, strides)
        if found is None:
            raise self._explanation(shapes, strides)
        return found

    # --- equations --------------------------------------------------------------------------------------------------

    def _unpack(self, place: int, terms: Terms) -> Iterator[_Step]:
        if terms.flat:
            return
        rank = len(terms.shape)

        def explain(values: Mapping[str, Any]) -> str:
            given = values["_s"][place]
            return f"{terms.name} must have {rank} dimensions, {_shape_text(terms)}; got shape {given}; reshape it"

        yield _Step("", f"_len(_s[{place}]) == {rank}", explain)
        for dim in range(rank):
            yield _Step(_extent(place, dim), f"_s[{place}][{dim}]")
            yield _Step(_stride(place, dim), f"_r[{place}][{dim}]")

    def _extents(self) -> Iterator[tuple[int, int, Expr]]:
        for place, terms in enumerate(self.tensors):
            if not terms.flat:
                for dim, extent in enumerate(terms.shape):
                    yield place, dim, extent

    def _solutions(self, wanted: tuple[Expr, ...]) -> Iterator[tuple[Expr, str]]:
        """Definitions of symbols in an order in which each uses only those before it."""
        yield from self._plain_extents()
        progress = True
        while progress:
            progress = False
            for place, dim, extent in self._extents():
                solved = _solved(extent, self._known, _extent(place, dim))
                if solved is not None:
                    yield self._define(solved[0], place, dim), solved[1]
                    progress = True
        for symbol in wanted:
            if symbol not in self._known:
                yield from self._from_strides(symbol)

    def _plain_extents(self) -> Iterator[tuple[Expr, str]]:
        for place, dim, extent in self._extents():
            if extent.op is Op.SYM and extent not in self._known:
                self._defining.add((place, dim))
                yield self._define(extent, place, dim), _extent(place, dim)

    def _define(self, symbol: Expr, place: int, dim: int) -> Expr:
        self._known.add(symbol)
        self._origin[symbol] = f"dimension {dim} of {self.tensors[place].name}"
        return symbol

    def _from_strides(self, symbol: Expr) -> Iterator[tuple[Expr, str]]:
        """The stride of a dimension of more than one element, else (then it does not matter) the least legal value."""
        places = [
            (place, dim)
            for place, terms in enumerate(self.tensors)
            if not terms.flat
            for dim, stride in enumerate(terms.layout.strides)
            if stride is symbol
        ]
        if places:
            least = 0 if symbol.facts.lo is None else symbol.facts.lo
            choices = [f"{_stride(*at)} if {_extent(*at)} > 1 and 0 not in _s[{at[0]}] else " for at in places]
            self._known.add(symbol)
            place, dim = places[0]
            self._origin[symbol] = f"the stride of dimension {dim} of {self.tensors[place].name}"
            yield symbol, "".join(choices) + str(least)

    # --- checks -----------------------------------------------------------------------------------------------------

    def _facts(self, symbol: Expr) -> Iterator[_Step]:
        origin = self._origin[symbol]
        for text in fact_texts(symbol):

            def explain(values: Mapping[str, Any], text: str = text) -> str:
                return (
                    f"dim {symbol.name} was declared with {text}; got {symbol.name} = {values[symbol.name]} "
                    f"({origin}); pass another size or declare the dim with weaker facts"
                )

            yield _Step("", text, explain)

    def _rule(self, rule: SizeRule) -> _Step:
        names = sorted(free_symbols(rule.condition), key=lambda symbol: symbol.name)

        def explain(values: Mapping[str, Any]) -> str:
            sources = ", ".join(f"{s.name} = {values[s.name]} from {self._origin[s]}" for s in names)
            return f"{rule.rule}: it takes {rule.text}; got {sources}; {rule.remedy}"

        return _Step("", to_text(rule.condition), explain)

    def _checks(self, place: int, terms: Terms) -> Iterator[_Step]:
        if terms.flat:
            yield self._storage_check(place, terms)
            return
        for dim, extent in enumerate(terms.shape):
            if (place, dim) not in self._defining:
                yield self._extent_check(place, terms, dim, extent)
        for dim, stride in enumerate(terms.layout.strides):
            yield self._stride_check(place, terms, dim, stride)

    def _extent_check(self, place: int, terms: Terms, dim: int, extent: Expr) -> _Step:
        text = to_text(extent)
        names = sorted(free_symbols(extent), key=lambda symbol: symbol.name)

        def explain(values: Mapping[str, Any]) -> str:
            sources = ", ".join(f"{s.name} = {values[s.name]} from {self._origin[s]}" for s in names)
            expected = eval(text, dict(_SCOPE), dict(values))
            return (
                f"{terms.name} must have shape {_shape_text(terms)}; got {values['_s'][place]}: dimension {dim} is "
                f"{values[_extent(place, dim)]}, expected {_equal(text, expected)}"
                f"{f' ({sources})' if sources else ''}; pass arrays whose shapes agree"
            )

        return _Step("", f"{_extent(place, dim)} == {_grouped(text)}", explain)

    def _stride_check(self, place: int, terms: Terms, dim: int, stride: Expr) -> _Step:
        text = to_text(stride)

        def explain(values: Mapping[str, Any]) -> str:
            expected = eval(text, dict(_SCOPE), dict(values))
            return (
                f"{terms.name} must have the strides of the problem's layout; got {values['_r'][place]} elements for "
                f"shape {values['_s'][place]}: dimension {dim} has stride {values[_stride(place, dim)]}, expected "
                f"{_equal(text, expected)}; copy it into that layout or compile the problem with its strides"
            )

        condition = f"{_extent(place, dim)} < 2 or {_stride(place, dim)} == {_grouped(text)} or 0 in _s[{place}]"
        return _Step("", condition, explain)

    def _storage_check(self, place: int, terms: Terms) -> _Step:
        text = to_text(terms.storage)

        def explain(values: Mapping[str, Any]) -> str:
            expected = eval(text, dict(_SCOPE), dict(values))
            return (
                f"{terms.name} has a blocked layout and is passed as its contiguous storage of "
                f"{_equal(text, expected)} elements; got shape {values['_s'][place]} with strides "
                f"{values['_r'][place]}; lay it out first"
            )

        return _Step(
            "", f"_prod(_s[{place}]) == {_grouped(text)} and _is_contiguous(_s[{place}], _r[{place}])", explain
        )

    def _explanation(self, shapes: Shapes, strides: Shapes) -> ConvloomError:
        """Goes through the steps one by one to find the one that fails."""
        values: dict[str, Any] = {"_s": shapes, "_r": strides}
        for step in self._steps:
            try:
                result = eval(step.text, dict(_SCOPE), values)
            except ZeroDivisionError:
                return IllegalProblem(
                    f"a size that divides must not be zero; {step.text} got {_symbol_values(values)}; pass another size"
                )
            if step.target:
                values[step.target] = result
            elif not result and step.explain is not None:
                return IllegalProblem(step.explain(values))
        return InternalError(
            f"a refusal needs a reason; shapes {shapes} and strides {strides} have none; please report this"
        )


def _function_text(steps: Iterable[_Step], names: Iterable[str]) -> str:
    lines = [f"{s.target} = {s.text}" if s.target else f"if not ({s.text}): return None" for s in steps]
    body = "".join(f"        {line}\n" for line in lines)
    result = ", ".join(f"{name!r}: {name}" for name in names)
    return (
        f"def _function(_s, _r):\n    try:\n{body}        return {{{result}}}\n"
        "    except ZeroDivisionError:\n        return None\n"
    )


def _extent(place: int, dim: int) -> str:
    return f"_e{place}_{dim}"


def _stride(place: int, dim: int) -> str:
    return f"_r{place}_{dim}"


def _grouped(text: str) -> str:
    return text if text.isalnum() else f"({text})"


def _equal(text: str, value: int) -> str:
    return text if text == str(value) else f"{text} = {value}"


def _shape_text(terms: Terms) -> str:
    return "(" + ", ".join(map(to_text, terms.shape)) + ("," if len(terms.shape) == 1 else "") + ")"


def _symbol_values(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items() if not name.startswith("_"))


def _solved(extent: Expr, known: set[Expr], value: str) -> tuple[Expr, str] | None:
    """(symbol, its value as text) if `extent = value` has one unknown symbol, once, in a linear term or a product."""
    unknown = [symbol for symbol in free_symbols(extent) if symbol not in known]
    if len(unknown) != 1:
        return None
    symbol = unknown[0]
    form = linear_form(extent)
    holders = [(atom, coefficient) for atom, coefficient in form.terms if symbol in free_symbols(atom)]
    if len(holders) != 1:
        return None
    atom, coefficient = holders[0]
    factors = _factors_beside(atom, symbol)
    if factors is None:
        return None
    rest = to_text(extent - atom * coefficient)
    divisor = to_text(factors * coefficient)
    least = 0 if symbol.facts.lo is None else symbol.facts.lo
    quotient = f"({value} - ({rest})) // ({divisor})"
    return symbol, quotient if factors.is_const else f"{quotient} if ({divisor}) else {least}"


def _factors_beside(atom: Expr, symbol: Expr) -> Expr | None:
    """The product of the other factors of a product that has the symbol once; 1 for the symbol itself."""
    if atom is symbol:
        return const(1)
    if atom.op is not Op.MUL or sum(symbol in free_symbols(factor) for factor in atom.args) != 1:
        return None
    if symbol not in atom.args:
        return None
    factors = const(1)
    for factor in atom.args:
        if factor is not symbol:
            factors = factors * factor
    return factors
