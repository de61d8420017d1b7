"""Shared memory as a picture: the layout of both operand tiles by bank, and the banks that each access meets."""

from __future__ import annotations

from collections.abc import Iterator

from convloom.compiler import Generated
from convloom.expr import const, evaluate
from convloom.lower.build_tiled import multiplier_for
from convloom.lower.frame import make_frame
from convloom.plan.shared_layout import SharedLayout
from convloom.plan.tiled import TiledPlan
from convloom.problem.contraction import Contraction, exchange
from convloom.report.shared_accesses import SharedAccess, shared_accesses
from convloom.report.svg import INK, box, colour, picture, words
from convloom.target.memory_requests import Geometry

_CELL = 20.0
_LINES, _PLACES = 12, 40
_BANKS, _WORD = Geometry().banks, Geometry().word_bytes
_LABEL = 330.0


def draw_layouts(contraction: Contraction, plan: TiledPlan) -> str:
    """The first lines of each tile, a cell per number, coloured and numbered by bank."""
    frame = make_frame(exchange(contraction) if plan.swap else contraction, plan)
    shapes: list[str] = []
    top = 0.0
    for name, layout in zip(("A", "B"), multiplier_for(frame).layouts(), strict=True):
        shapes += _layout(name, layout, top)
        top += (min(_lines(layout), _LINES) + 2.2) * _CELL
    return picture(_PLACES * _CELL + 60, top, shapes, "shared memory layout by banks")


def _lines(layout: SharedLayout) -> int:
    return layout.rows if layout.k_fastest else layout.depth


def _layout(name: str, layout: SharedLayout, top: float) -> Iterator[str]:
    places = min(layout.depth if layout.k_fastest else layout.rows, _PLACES)
    across, down = ("k", "row") if layout.k_fastest else ("row", "k")
    size = f"{layout.rows} rows x {layout.depth} k of {layout.dtype}, {layout.line} numbers from line to line"
    yield words(0, top + 14, f"tile of {name}: {size}; {across} to the right, {down} downwards; the number is the bank")
    for line in range(min(_lines(layout), _LINES)):
        yield words(40, top + (line + 1.7) * _CELL, f"{down} {line}", size=10, anchor="end")
        for place in range(places):
            row, k = (line, place) if layout.k_fastest else (place, line)
            bank = evaluate(layout.index(const(row), const(k)), {}) * layout.dtype.nbytes // _WORD % _BANKS
            x, y = 46 + place * _CELL, top + (line + 1) * _CELL
            yield box(x, y, _CELL, _CELL, colour(bank, _BANKS), note=f"row {row}, k {k}: bank {bank}", stroke=INK)
            yield words(x + _CELL / 2, y + _CELL * 0.7, str(bank), size=9, anchor="middle", fill="black")


def draw_accesses(generated: Generated) -> str:
    """A strip per access: the bank in which each lane of the first subgroup begins; conflicts are marked."""
    found = shared_accesses(generated.kernel)
    shapes = [shape for number, access in enumerate(found) for shape in _strip(access, number * (_CELL + 6))]
    return picture(_LABEL + _BANKS * _CELL, max(len(found), 1) * (_CELL + 6), shapes, "banks of each access")


def _strip(access: SharedAccess, top: float) -> Iterator[str]:
    verdict = f"{access.wavefronts} wavefronts" if access.wavefronts != 1 else "1 wavefront"
    if access.conflicts:
        verdict = f"\N{WARNING SIGN} conflict: {verdict}, {access.fewest} would do"
    yield words(0, top + 14, f"{access.what} {access.buffer}, {access.nbytes} bytes a lane: {verdict}", size=11)
    for lane, address in enumerate(access.addresses):
        bank = address // _WORD % _BANKS
        x = _LABEL + lane * _CELL
        yield box(
            x, top, _CELL, _CELL, colour(bank, _BANKS), note=f"lane {lane}: bank {bank}, byte {address}", stroke=INK
        )
        yield words(x + _CELL / 2, top + _CELL * 0.7, str(bank), size=9, anchor="middle", fill="black")
