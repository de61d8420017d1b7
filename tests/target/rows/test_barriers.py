"""Transaction barriers: phases by hand, random scripts against a model of counters; rows without effect."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convloom.target.catalogue import all_rows, row_named
from convloom.target.instruction import Completion, Family, Ordering
from convloom.target.memory import FlatMemory
from convloom.target.transaction_barrier import BarrierFault, advance, decode, initial
from tests.target.rows.barrier_scripts import barrier_scripts


def run(memory, name, lanes=1, **numbers):
    values = {key: np.full((1, lanes, 1), number, np.uint32) for key, number in numbers.items()}
    values["barrier"] = np.zeros((1, lanes, 1), np.uint32)
    return row_named(name).execute(values, memory)


def is_over(memory, parity):
    return int(run(memory, "mbarrier.try_wait.parity", parity=parity)["d"][0, 0, 0])


def test_a_phase_needs_all_arrivals_and_all_bytes():
    memory = FlatMemory(None, np.zeros((1, 8), np.uint8))
    run(memory, "mbarrier.init", count=2)
    assert (is_over(memory, 0), is_over(memory, 1)) == (0, 1)
    run(memory, "mbarrier.arrive.expect_tx", nbytes=64)
    run(memory, "mbarrier.complete_tx", nbytes=64)
    assert is_over(memory, 0) == 0
    run(memory, "mbarrier.arrive")
    assert (is_over(memory, 0), is_over(memory, 1)) == (1, 0)
    run(memory, "mbarrier.arrive")
    run(memory, "mbarrier.arrive.expect_tx", nbytes=16)
    assert is_over(memory, 1) == 0
    run(memory, "mbarrier.complete_tx", nbytes=16)
    assert (is_over(memory, 0), is_over(memory, 1)) == (0, 1)


def test_lanes_that_arrive_together_are_all_counted():
    memory = FlatMemory(None, np.zeros((1, 8), np.uint8))
    run(memory, "mbarrier.init", count=32)
    run(memory, "mbarrier.arrive", lanes=31)
    assert is_over(memory, 0) == 0
    run(memory, "mbarrier.arrive", lanes=33)  # the last one of this phase, and all of the next
    assert is_over(memory, 0) == 0
    assert int(decode(memory.shared_bytes.view(np.uint64)).pending[0, 0]) == 32


def test_misuse_is_reported():
    with pytest.raises(BarrierFault, match="at least 1 arrival"):
        initial(np.zeros(1, np.int64))
    one = initial(np.ones(1, np.int64))
    with pytest.raises(BarrierFault, match="arrivals pending"):
        advance(one, arrivals=2)
    with pytest.raises(BarrierFault, match="bytes expected"):
        advance(one, expected_bytes=1 << 20)


@pytest.mark.parametrize("script", list(barrier_scripts(count=12)), ids=lambda script: script.name)
def test_scripts_pass_all_their_phases(script):
    over = script.expected()
    assert over[0].tolist() == [0, 1]
    assert (over.sum(axis=1) == 1).all()
    assert np.count_nonzero(np.diff(over[:, 0])) == 6


@given(st.integers(1, 5), st.lists(st.tuples(st.integers(0, 1), st.integers(0, 64), st.integers(0, 64)), max_size=40))
@settings(derandomize=True, max_examples=200, deadline=None)
def test_advance_follows_counters(count, steps):
    word = initial(np.array([count]))
    pending, nbytes, phase = count, 0, 0
    for arrivals, expected, completed in steps:
        word = advance(word, arrivals, expected, completed)
        pending, nbytes = pending - arrivals, nbytes + expected - completed
        if pending == 0 and nbytes == 0:
            pending, phase = count, phase + 1
        if pending == 0 and arrivals and nbytes != 0:
            state = decode(word)
            assert (int(state.pending[0]), int(state.pending_bytes[0]), int(state.parity[0])) == (0, nbytes, phase % 2)
            return
        state = decode(word)
        assert (int(state.pending[0]), int(state.pending_bytes[0]), int(state.parity[0])) == (
            pending,
            nbytes,
            phase % 2,
        )


def test_order_rows_name_their_groups_and_change_nothing():
    rows = [row for row in all_rows().values() if row.ordering is not Ordering.NONE]
    assert {row.ordering for row in rows} == set(Ordering) - {Ordering.NONE}
    accesses = (Family.ATOMIC, Family.BARRIER)  # those that order others beside what they do to memory
    for row in rows:
        if row.family in accesses and any(operand.space is not None for operand in row.operands):
            continue
        numbers = {operand.name: 0 for operand in row.operands} | {"threads": 64}
        assert row.execute(numbers) == {}
        assert row.meaning
        grouped = row.ordering in (Ordering.COMMIT, Ordering.WAIT, Ordering.WAIT_READ)
        assert grouped == (row.completion is not Completion.AT_ONCE)


def test_register_budgets_are_multiples_of_eight():
    for name in ("setmaxnreg.inc", "setmaxnreg.dec"):
        row = row_named(name)
        assert row.family is Family.REGISTER_BUDGET
        assert row.execute({"registers": 232}) == {}
        for wrong in (20, 100, 264):
            with pytest.raises(ValueError, match="'registers' of setmaxnreg"):
                row.execute({"registers": wrong})
