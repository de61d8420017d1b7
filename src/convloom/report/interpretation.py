"""What an interpreted kernel did, in words: counts beside the plan's estimates, then each access and its cost."""

from __future__ import annotations

from collections.abc import Iterator

from convloom.frontend.interpret_counts import Interpretation
from convloom.ir.interpret.counts import Counts, Site
from convloom.ir.ops import Scope
from convloom.plan.predicted import LINE_BYTES


def interpretation_text(found: Interpretation) -> str:
    """A table of totals, then one line for each statement that touches shared or global memory."""
    counts = found.outcome.counts
    assert counts is not None
    verdict = found.check.reason or "result equal to the reference, no faults"
    return "\n".join([f"interpreted   {verdict}", *_totals(found, counts), *_rows(counts), *_sites(counts)])


def _totals(found: Interpretation, counts: Counts) -> Iterator[str]:
    expected = found.predicted
    loads = sum(site.accesses for site in counts.of_scope(Scope.GLOBAL) if not site.written)
    stores = sum(site.accesses for site in counts.of_scope(Scope.GLOBAL) if site.written)
    lines = (
        ("blocks", found.outcome.blocks, expected and expected.blocks),
        ("multiply-adds", counts.operations.get("multiply-add", 0), expected and expected.multiply_adds),
        ("barriers", counts.barriers, expected and expected.barriers),
        ("global loads of threads", loads, expected and expected.load_accesses),
        ("global stores of threads", stores, expected and expected.store_accesses),
        ("bytes of global sectors", counts.sector_bytes(), expected and expected.global_bytes),
        ("sectors of global loads", _units(counts, Scope.GLOBAL, written=False), expected and expected.load_sectors),
        ("bytes loaded", counts.moved_bytes(Scope.GLOBAL, written=False), None),
        ("bytes stored", counts.moved_bytes(Scope.GLOBAL, written=True), None),
        (
            "bytes written to shared",
            counts.moved_bytes(Scope.SHARED, written=True),
            expected and expected.written_bytes + expected.handed_bytes,
        ),
        (
            "bytes read from shared",
            counts.moved_bytes(Scope.SHARED, written=False),
            expected and expected.read_bytes + expected.handed_bytes,
        ),
        (
            "wavefronts of stores to it",
            _units(counts, Scope.SHARED, written=True),
            expected and expected.written_wavefronts + expected.handed_bytes // LINE_BYTES,
        ),
        (
            "wavefronts of loads",
            _units(counts, Scope.SHARED, written=False),
            expected and expected.read_wavefronts + expected.handed_bytes // LINE_BYTES,
        ),
        ("multiplying instructions", _multiplies(found, counts), expected and expected.multiplies),
    )
    yield f"{'':<14}{'':<26}{'counted':>16}{'estimated':>16}"
    for name, counted, estimated in lines:
        yield f"{'':<14}{name:<26}{counted:>16}{'' if estimated is None else estimated:>16}"


def _units(counts: Counts, scope: Scope, *, written: bool) -> int:
    return sum(site.units for site in counts.of_scope(scope) if site.written is written)


def _multiplies(found: Interpretation, counts: Counts) -> int:
    return counts.rows.get(found.plan.row, 0)


def _rows(counts: Counts) -> Iterator[str]:
    for number, (name, times) in enumerate(counts.rows.items()):
        yield f"{'' if number else 'instructions':<14}{name:<36}{times:>6} times"


def _sites(counts: Counts) -> Iterator[str]:
    for number, site in enumerate(counts.sites.values()):
        yield f"{'' if number else 'accesses':<14}{_site(site)}"


def _site(site: Site) -> str:
    verb = "store to" if site.written else "load from"
    unit = "wavefronts" if site.scope is Scope.SHARED else "sectors"
    each = site.units / site.requests if site.requests else 0.0
    where = f"{verb} {site.scope.value} {site.buffer}"
    return (
        f"{where:<32} {site.requests:>9} requests {each:>7.2f} {unit} each, {site.excess:.2f} of ideal  ({site.path})"
    )
