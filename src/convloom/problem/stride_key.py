"""The stride key: the text of a contraction's normal form, and back.

Per operand and kind it lists (extent:stride) pairs, outermost first, instead of any layout name; checks follow. An
example on one line: a product whose first factor is a transposed, reshaped tensor (1 x 12 x 384 x 64 -> 1 x 384 x 768)

    acc=f32 | m=384 n=768 k=12,64
      | a f32 m=384:64 k=12:24576,64:1 | b f32 n=768:1 k=12:49152,64:768 | c f32 m=384:768 n=768:1

The key says everything the generator looks at and nothing else; `parse_key` gives the contraction without the user's
graph.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from convloom.dtypes import dtype_named
from convloom.errors import IllegalProblem
from convloom.expr import Expr, const, free_symbols, linear_form, parse, sym
from convloom.problem.access_pattern import (
    AccessPattern,
    RangeCheck,
    access_pattern,
    axis_symbol,
    compact,
    pattern_view,
)
from convloom.problem.contraction import (
    AxisKind,
    Contraction,
    ContractionAxis,
    Operand,
    PhaseParameter,
    phase_parameter,
)
from convloom.problem.conv import Scaling
from convloom.problem.epilogue import ACCUMULATOR, Accumulator, Steps, expression_text, parse_expression
from convloom.view import Axis

_KIND_OF_LETTER = {kind.value: kind for kind in AxisKind}
_SEPARATOR = " | "
_OWN_NAME = re.compile(r"[gmnkp]\d+")


def key_text(contraction: Contraction) -> str:
    """The key of a contraction in normal form."""
    sections = [_head(contraction), _axes_text(contraction), *_symbols_text(contraction)]
    if contraction.phases:
        sections.append(
            "phases " + " ".join(f"{p.symbol.name}={','.join(map(str, p.values))}" for p in contraction.phases)
        )
    sections += [_operand_text(operand, contraction) for operand in contraction.operands]
    return _SEPARATOR.join(sections)


def _head(contraction: Contraction) -> str:
    factors = [name for name in ("alpha", "beta") if getattr(contraction.scaling, name)]
    words = [f"acc={contraction.acc}", *([f"scale={','.join(factors)}"] if factors else [])]
    words += ["math=tf32"] if contraction.tf32 else []
    steps = contraction.steps
    words += [f"factors={','.join(map(str, steps.factors))}"] if steps.factors else []
    words += [] if isinstance(steps.expression, Accumulator) else [f"epilogue={expression_text(steps.expression)}"]
    return " ".join(words)


def _axes_text(contraction: Contraction) -> str:
    groups = [(kind, contraction.of_kind(kind)) for kind in AxisKind]
    words = [f"{kind.value}={','.join(compact(axis.extent) for axis in axes)}" for kind, axes in groups if axes]
    return " ".join(words) or "-"


def _symbols_text(contraction: Contraction) -> Iterable[str]:
    """Facts of the sizes that are not known, by name; hints are no facts and stay out."""
    parameters = {parameter.symbol for parameter in contraction.phases}
    axes = {axis_symbol(Axis(axis.name, axis.extent)) for axis in contraction.axes}
    symbols = {symbol for expression in _expressions(contraction) for symbol in free_symbols(expression)}
    sizes = sorted(symbols - parameters - axes, key=lambda symbol: symbol.name)
    for size in sizes:
        if _OWN_NAME.fullmatch(size.name):
            raise IllegalProblem(
                f"a key names its axes and phases itself; got a size named {size.name}; rename the size"
            )
    words = [_facts_text(symbol) for symbol in sizes]
    return ("sizes " + " ".join(words),) if words else ()


def _facts_text(symbol: Expr) -> str:
    facts = symbol.facts
    limits = f"[{'' if facts.lo is None else facts.lo},{'' if facts.hi is None else facts.hi}]"
    return f"{symbol.name}{limits}" + (f"%{facts.divisor}" if facts.divisor > 1 else "")


def _expressions(contraction: Contraction) -> Iterable[Expr]:
    yield from (axis.extent for axis in contraction.axes)
    for operand in contraction.operands:
        pattern = access_pattern(operand.view)
        yield pattern.offset
        for check in pattern.checks:
            yield check.value
            if check.size is not None:
                yield check.size


def _operand_text(operand: Operand, contraction: Contraction) -> str:
    pattern = access_pattern(operand.view)
    words = [operand.name, str(operand.dtype), *_access_words(operand, contraction, pattern.offset)]
    if pattern.checks:
        words.append("where " + " and ".join(check.text for check in pattern.checks))
    return " ".join(words)


def _access_words(operand: Operand, contraction: Contraction, offset: Expr) -> Iterable[str]:
    """(extent:stride) lists by kind and a base; the plain offset where it is not linear in the axes."""
    strides: dict[str, Expr] = {}
    rest = offset
    symbols = {axis.name: axis_symbol(axis) for axis in operand.view.axes}
    for name, symbol in symbols.items():
        stride = _coefficient(offset, symbol, frozenset(symbols.values()))
        if stride is None:
            return [f"offset={compact(offset)}"]
        strides[name] = stride
        rest = rest - symbol * stride
    if free_symbols(rest) & frozenset(symbols.values()):
        return [f"offset={compact(offset)}"]
    words: list[str] = []
    for kind in AxisKind:
        pairs = [
            f"{compact(axis.extent)}:{compact(strides[axis.name])}"
            for axis in contraction.of_kind(kind)
            if axis.name in strides
        ]
        if pairs:
            names = [axis.name for axis in contraction.of_kind(kind) if axis.name in strides]
            words.append(f"{_list_name(kind, names, contraction)}={','.join(pairs)}")
    return words if rest is const(0) else [*words, f"base={compact(rest)}"]


def _list_name(kind: AxisKind, names: list[str], contraction: Contraction) -> str:
    """The kind's letter; with the axes' numbers where the operand lacks some of them."""
    every = [axis.name for axis in contraction.of_kind(kind)]
    return kind.value if names == every else kind.value + ".".join(name[1:] for name in names)


def _coefficient(offset: Expr, symbol: Expr, axes: frozenset[Expr]) -> Expr | None:
    """The factor of an axis in a sum where it stands in no other way than times sizes; None otherwise."""
    total = const(0)
    for atom, number in linear_form(offset).terms:
        if symbol not in free_symbols(atom):
            continue
        others = [factor for factor in atom.args if factor is not symbol] if atom is not symbol else []
        if atom is not symbol and (symbol not in atom.args or len(others) + 1 != len(atom.args)):
            return None
        if any(free_symbols(factor) & axes for factor in others):
            return None
        product = const(number)
        for factor in others:
            product = product * factor
        total = total + product
    return total


# --- back -----------------------------------------------------------------------------------------------------------


def parse_key(text: str) -> Contraction:
    """The contraction of a key; IllegalProblem names the section that is malformed."""
    try:
        return _parse(text.strip())
    except (ValueError, KeyError, IndexError) as error:
        if isinstance(error, IllegalProblem):
            raise
        raise IllegalProblem(
            f"a stride key must look like `convloom key` prints it; got {text!r} ({error}); correct it"
        ) from error


def _parse(text: str) -> Contraction:
    head, axes_text, *rest = text.split(_SEPARATOR)
    table: dict[str, Expr] = {}
    phases: tuple[PhaseParameter, ...] = ()
    if rest and rest[0].startswith("sizes "):
        table.update(_parse_sizes(rest.pop(0)[len("sizes ") :]))
    if rest and rest[0].startswith("phases "):
        phases = tuple(_parse_phase(word) for word in rest.pop(0)[len("phases ") :].split())
        table.update({phase.symbol.name: phase.symbol for phase in phases})
    axes = tuple(_parse_axes(axes_text, table))
    operands = {operand.name: operand for operand in (_parse_operand(section, axes, table) for section in rest)}
    extras = {name: operand for name, operand in operands.items() if _EXTRA_NAME.fullmatch(name)}
    unknown = set(operands) - {"a", "b", "c", "bias", "za", "zb", *extras}
    if unknown or not {"a", "b", "c"} <= set(operands):
        raise IllegalProblem(
            f"a stride key has the operands a, b, c and perhaps bias, e0.., za, zb; got {sorted(operands)}; correct it"
        )
    fields = dict(word.split("=", 1) for word in head.split())
    factors = fields.get("scale", "").split(",")
    steps = Steps(
        tuple(int(number) for number in fields.get("factors", "").split(",") if number),
        parse_expression(fields["epilogue"]) if "epilogue" in fields else ACCUMULATOR,
    )
    return Contraction(
        axes,
        operands["a"],
        operands["b"],
        operands["c"],
        dtype_named(fields["acc"]),
        operands.get("bias"),
        Scaling("alpha" in factors, "beta" in factors),
        phases,
        fields.get("math") == "tf32",
        steps,
        tuple(extras[f"e{number}"] for number in range(len(extras))),
        operands.get("za"),
        operands.get("zb"),
    )


_EXTRA_NAME = re.compile(r"e\d+")
_SIZE = re.compile(r"(\w+)\[(-?\d*),(-?\d*)\](?:%(\d+))?")


def _parse_sizes(text: str) -> dict[str, Expr]:
    found: dict[str, Expr] = {}
    for word in text.split():
        match = _SIZE.fullmatch(word)
        if match is None:
            raise IllegalProblem(f"a size is written name[min,max]%divisor; got {word!r}; correct it")
        name, low, high, by = match.groups()
        found[name] = sym(name, divisor=int(by or 1), lo=int(low) if low else None, hi=int(high) if high else None)
    return found


def _parse_phase(word: str) -> PhaseParameter:
    name, _, values = word.partition("=")
    return phase_parameter(name, tuple(int(value) for value in values.split(",")))


def _parse_axes(text: str, table: dict[str, Expr]) -> Iterable[ContractionAxis]:
    if text == "-":
        return
    for word in text.split():
        letter, _, extents = word.partition("=")
        for number, extent in enumerate(_split_list(extents)):
            yield ContractionAxis(f"{letter}{number}", _KIND_OF_LETTER[letter], parse(extent, table))


def _parse_operand(section: str, axes: tuple[ContractionAxis, ...], table: dict[str, Expr]) -> Operand:
    access, _, conditions = section.partition(" where ")
    name, dtype, *words = access.split()
    view_axes = {axis.name: Axis(axis.name, axis.extent) for axis in axes}
    symbols = {**table, **{axis.name: axis_symbol(axis) for axis in view_axes.values()}}
    offset = _parse_offset(words, axes, symbols)
    checks = tuple(_parse_check(condition, symbols) for condition in conditions.split(" and ") if condition)
    pattern = AccessPattern(offset, checks)
    used = free_symbols(offset).union(*(free_symbols(check.value) for check in checks))
    needed = tuple(axis for axis in view_axes.values() if symbols[axis.name] in used)
    return Operand(name, dtype_named(dtype), pattern_view(needed, pattern))


def _parse_offset(words: list[str], axes: tuple[ContractionAxis, ...], symbols: dict[str, Expr]) -> Expr:
    total = const(0)
    for word in words:
        name, _, value = word.partition("=")
        if name in ("offset", "base"):
            total = total + parse(value, symbols)
            continue
        for axis, pair in zip(_listed_axes(name, axes), _split_list(value), strict=True):
            extent, _, stride = pair.rpartition(":")
            if parse(extent, symbols) is not axis.extent:
                raise IllegalProblem(f"axis {axis.name} of a key has one extent, {axis.extent}; got {pair}; correct it")
            total = total + symbols[axis.name] * parse(stride, symbols)
    return total


def _listed_axes(name: str, axes: tuple[ContractionAxis, ...]) -> tuple[ContractionAxis, ...]:
    """The axes of `m` (all of that kind) or `m0.2` (these)."""
    kind = tuple(axis for axis in axes if axis.kind is _KIND_OF_LETTER[name[0]])
    return tuple(kind[int(number)] for number in name[1:].split(".")) if name[1:] else kind


_CHECK = re.compile(r"(0<=)?([^<]+?)(?:<([^<]+))?")


def _parse_check(text: str, symbols: dict[str, Expr]) -> RangeCheck:
    match = _CHECK.fullmatch(text.strip())
    if match is None or not (match[1] or match[3]):
        raise IllegalProblem(f"a check is written 0<=value<size, or one side of it; got {text!r}; correct it")
    return RangeCheck(parse(match[2], symbols), parse(match[3], symbols) if match[3] else None, bool(match[1]))


def _split_list(text: str) -> list[str]:
    """Parts between commas that stand in no parentheses."""
    parts: list[str] = []
    depth = start = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]]
