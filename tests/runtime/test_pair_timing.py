"""Interleaved times of two calls, on a timer that only counts."""

from convloom.runtime.pair_timing import Effort, Pair, measure_pair
from convloom.runtime.timing import Timing


class CountingTimer:
    """Writes down what happens; each call takes the seconds that its name stands for."""

    def __init__(self, costs):
        self.events = []
        self.costs = costs

    def cool(self):
        self.events.append("cool")

    def seconds(self, call):
        name = call()
        self.events.append(f"timed {name}")
        return self.costs[name]


def measured(effort, clock=lambda: 0.0):
    timer = CountingTimer({"ours": 2.0, "theirs": 3.0})
    return timer, measure_pair(timer, lambda: "ours", lambda: "theirs", effort, clock)


def test_each_round_has_ours_theirs_and_ours_again_in_a_turning_order():
    timer, pair = measured(Effort(least=3, most=3, warm_up=0))
    order = [event.removeprefix("timed ") for event in timer.events if event != "cool"]
    assert order == ["ours", "theirs", "ours", "theirs", "ours", "ours", "ours", "ours", "theirs"]
    assert [len(timing.seconds) for timing in (pair.ours, pair.again, pair.theirs)] == [3, 3, 3]


def test_caches_are_cooled_in_front_of_every_timed_call():
    timer, _ = measured(Effort(least=2, most=2))
    assert timer.events[::2] == ["cool"] * 6
    assert all(event.startswith("timed") for event in timer.events[1::2])


def test_a_warm_call_follows_one_of_its_kind():
    calls = []

    def named(name):
        return lambda: calls.append(name) or name

    timer = CountingTimer({"ours": 1.0, "theirs": 1.0})
    measure_pair(timer, named("ours"), named("theirs"), Effort(least=1, most=1, warm_up=0, warm=True))
    assert calls == ["ours", "ours", "theirs", "theirs", "ours", "ours"]


def test_no_round_begins_after_the_budget_but_the_least_number_is_made():
    moments = iter(range(100))
    _, pair = measured(Effort(least=4, most=50, budget=0.0), lambda: next(moments))
    assert len(pair.ours.seconds) == 4
    _, pair = measured(Effort(least=4, most=6, budget=1e9))
    assert len(pair.ours.seconds) == 6


def test_ratios_are_theirs_by_ours_and_ours_by_ours():
    pair = Pair(Timing((2.0, 4.0, 3.0)), Timing((3.0, 3.3, 2.7)), Timing((6.0, 6.0, 1.0)))
    assert pair.ratio == 2.0
    assert pair.same == 1.0
