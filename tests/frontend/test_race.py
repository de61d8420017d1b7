"""Candidates against each other, with made-up kernels and clocks: only what is verified can win."""

from types import SimpleNamespace

import pytest

from convloom.errors import BuildFailed
from convloom.frontend import race as race_module
from convloom.frontend.race import Outcome, race
from convloom.runtime.pair_timing import Effort
from convloom.tune.build_jobs import Proposal

EFFORT = Effort(least=3, most=3, budget=0.0, warm_up=1)


class MadeUpStand:
    """Kernels are names; each takes its seconds, and has its fault."""

    def __init__(self, seconds, faults=()):
        self.takes, self.faults = seconds, dict(faults)
        self.timed, self.cooled = [], 0
        self.timer = self

    def fault(self, kernel):
        found = self.faults.get(kernel.plan, "")
        if isinstance(found, Exception):
            raise found
        return found

    def call(self, kernel):
        def call():
            pass

        call.plan = kernel.plan
        return call

    def cool(self):
        self.cooled += 1

    def seconds(self, call):
        self.timed.append(call.plan)
        return self.takes[call.plan]


def proposals(names):
    return [Proposal(name, 1.0 + place) for place, name in enumerate(names)]


def make(plan):
    if plan == "unbuildable":
        raise BuildFailed("no luck")
    report = SimpleNamespace(spill_bytes=8 if plan == "spilling" else 0, serialised=plan == "serialised")
    return SimpleNamespace(plan=plan, variants=[SimpleNamespace(launches=[SimpleNamespace(built=SimpleNamespace(
        resources=report))])])  # fmt: skip


def test_the_fastest_wins_and_all_are_kept():
    stand = MadeUpStand({"a": 3.0, "b": 1.0, "c": 2.0})
    found = race(proposals("abc"), make, stand, EFFORT)
    assert found.kernel.plan == found.fastest.plan == "b"
    assert [(item.plan, item.predicted, item.seconds, item.spread) for item in found.tried] == [
        ("a", 1.0, 3.0, 0.0),
        ("b", 2.0, 1.0, 0.0),
        ("c", 3.0, 2.0, 0.0),
    ]
    assert "".join(stand.timed) == "abcbcacab"  # interleaved, in turning order
    assert stand.cooled == 9


@pytest.mark.parametrize(
    ("name", "faults", "outcome", "words"),
    [
        ("wrong", {"wrong": "1 elements wrong"}, Outcome.WRONG, "1 elements wrong"),
        ("unbuildable", {}, Outcome.FAILED, "BuildFailed: no luck"),
        ("crashing", {"crashing": RuntimeError("driver")}, Outcome.FAILED, "RuntimeError: driver"),
        ("hungry", {"hungry": MemoryError("too large")}, Outcome.FAILED, "MemoryError: too large"),
        ("spilling", {}, Outcome.REJECTED, "spills 8 bytes"),
        ("serialised", {}, Outcome.REJECTED, "serialises the multiplies"),
    ],
)
def test_what_is_not_right_is_never_timed_and_never_wins(name, faults, outcome, words):
    stand = MadeUpStand({name: 1e-9, "right": 5.0}, faults)
    found = race(proposals([name, "right"]), make, stand, EFFORT)
    assert found.kernel.plan == "right"
    assert found.tried[0].outcome is outcome
    assert words in found.tried[0].reason
    assert found.tried[0].seconds is None
    assert set(stand.timed) == {"right"}


def test_nobody_wins_where_nothing_is_right():
    found = race(proposals(["wrong"]), make, MadeUpStand({}, {"wrong": "nan"}), EFFORT)
    assert found.kernel is None
    assert found.fastest is None
    assert found.tried[0].outcome is Outcome.WRONG


def test_the_rounds_of_a_race_are_few():
    assert race_module.RACE_EFFORT.budget <= 1.0
