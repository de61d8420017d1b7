"""Structure of a view: for each axis the (extent, stride) digits by which it walks through memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

from convloom.expr import Expr
from convloom.view.domain import Domain, digit_stride, divisor_chain, quotient_of
from convloom.view.form import ONE, ZERO, Form, Source, exact_quotient
from convloom.view.view import View, flat

Digits: TypeAlias = tuple[tuple[Expr, Expr], ...]


def structure(view: View) -> dict[str, Digits | None]:
    """For each axis its digits as (extent, element stride), outermost first; None where the axis has no such form.

    The extents multiply to the axis' extent, and the offset of coordinate i is the sum of i's mixed-radix digits times
    their strides (plus what other axes and the base add). Neighbours that continue each other are one digit; a
    broadcast axis of extent e is ((e, 0),), an axis of extent 1 is ((1, 0),). Checks do not matter. An axis has no such
    form where its scales do not nest, or where a sum of it with other axes is split.
    """
    return dict(_structure(view))


@lru_cache(maxsize=4096)
def _structure(view: View) -> tuple[tuple[str, Digits | None], ...]:
    found = flat(view)
    terms = terms_by_source([found.offset])
    mixed = frozenset[str]().union(*(axes_of(source) for source in terms if not isinstance(source, str)))
    return tuple(
        (axis.name, None if axis.name in mixed else _digits(axis.name, found.offset, found.domain))
        for axis in view.axes
    )


def _digits(axis: str, form: Form, domain: Domain) -> Digits | None:
    extent = domain.extents[axis]
    terms = {atom.scale: coefficient for atom, coefficient in form.terms.items() if atom.source == axis}
    if extent is ONE or not terms:
        return ((extent, ZERO),)
    chain = divisor_chain(frozenset(terms) | {ONE})
    if chain is None or exact_quotient(extent, chain[-1]) is None:
        return None
    return tuple(zip(radixes(chain, extent), strides(terms, chain), strict=True))


def radixes(chain: tuple[Expr, ...], extent: Expr) -> tuple[Expr, ...]:
    """Extents of the digits at the scales of a divisor chain, outermost first; the outermost scale divides `extent`."""
    ends = (*chain[1:], extent)
    return tuple(quotient_of(end, scale) for scale, end in reversed(tuple(zip(chain, ends, strict=True))))


def strides(terms: Mapping[Expr, Expr], chain: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Strides of the digits at the scales of the chain, outermost first, from a form's scale -> coefficient."""
    found = [digit_stride(terms, chain[: position + 1], scale) for position, scale in enumerate(chain)]
    return tuple(reversed(found))


def terms_by_source(forms: list[Form]) -> dict[Source, dict[Expr, None]]:
    """The scales at which the forms use each source (not looking into sources that are forms)."""
    scales: dict[Source, dict[Expr, None]] = {}
    for form in forms:
        for atom in form.terms:
            scales.setdefault(atom.source, {})[atom.scale] = None
    return scales


def axes_of(source: Source) -> frozenset[str]:
    """The axes that a source depends on."""
    if isinstance(source, str):
        return frozenset((source,))
    forms = (source,) if isinstance(source, Form) else (source.left, source.right)
    return frozenset[str]().union(*(axes_of(atom.source) for form in forms for atom in form.terms))
