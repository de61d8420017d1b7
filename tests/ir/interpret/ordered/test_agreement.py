"""Kernels ordered by barriers of blocks get the same verdict from vector clocks as from intervals between barriers."""

from functools import cache

import pytest

from convloom.ir.interpret import FindingKind, Options
from tests.ir.interpret import mutations as plant
from tests.ir.interpret.launching import Case
from tests.ir.interpret.test_mutants import PROBLEMS

NAMES = ("forward", "backward weights", "matrix")
SYNCHRONOUS = (plant.dropped_barrier, plant.overlapping_store, plant.wrong_block)
PAIRS = [
    *((name, operator) for name in ("forward", "backward weights") for operator in SYNCHRONOUS),
    ("matrix", plant.dropped_wait),
    ("matrix", plant.short_wait),
]


@cache
def case(name):
    return Case(PROBLEMS[name]())


@pytest.mark.parametrize("name", NAMES)
def test_right_kernels_have_no_finding(name):
    outcome, wrong = case(name).launch(options=Options(clocks=True))
    assert [str(finding) for finding in outcome.findings] == []
    assert not wrong


@pytest.mark.parametrize(("name", "operator"), PAIRS)
def test_races_are_the_same(name, operator):
    mutants = list(operator(case(name).kernel))
    for number, (_, kernel) in enumerate(mutants[:2]):
        here, there = (
            FindingKind.RACE.name in case(name).found(kernel, options)
            for options in (Options(clocks=True, seed=number), Options())
        )
        assert here == there
