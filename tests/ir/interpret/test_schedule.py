"""Groups of threads in an order by seed: what correct kernels do not notice and faulty ones do."""

import pytest

from convloom.ir.interpret import FindingKind, Options
from tests.ir.interpret import mutations as plant
from tests.ir.interpret.kernels import kinds, run
from tests.ir.interpret.test_mutants import PROBLEMS, case

REVERSE = """
shared t f32[8]
write t[tid] = read(a, tid, 1)
barrier
write c[tid] = read(t, 7 - tid, 1)
"""


@pytest.mark.parametrize("group_threads", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", range(4))
def test_order_does_not_matter_where_barriers_are_right(group_threads, seed):
    outcome, values = run(REVERSE, options=Options(group_threads=group_threads, seed=seed))
    assert list(outcome.findings) == []
    assert values.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]


def test_a_missing_barrier_is_a_race_in_every_order_and_shows_in_the_result():
    results = set()
    for seed in range(8):
        outcome, values = run(REVERSE.replace("barrier\n", ""), options=Options(group_threads=4, seed=seed))
        assert FindingKind.RACE in kinds(outcome)
        results.add(tuple(values.tolist()))
    assert len(results) == 2  # either half first; in lock-step the result happens to be right


def test_groups_that_never_arrive_are_found():
    for body in ("when tid < 4\n  barrier\n", "when 4 <= tid\n  barrier\n"):
        outcome, _ = run(body, options=Options(group_threads=4))
        (finding,) = outcome.findings
        assert finding.kind is FindingKind.DIVERGENT_BARRIER
        assert finding.place.statement == "barrier"
        assert {thread < 4 for _, thread, _ in finding.examples} == {"<= tid" in body}


def test_two_barrier_statements_are_one_barrier():
    body = """
    shared t f32[8]
    write t[tid] = read(a, tid, 1)
    when tid < 4
      barrier
    when 4 <= tid
      barrier
    write c[tid] = read(t, 7 - tid, 1)
    """
    outcome, values = run(body, options=Options(group_threads=4))
    assert list(outcome.findings) == []
    assert values.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]
    assert kinds(run(body)[0]) >= {FindingKind.DIVERGENT_BARRIER}  # threads of one group may not part there


@pytest.mark.parametrize("name", PROBLEMS)
def test_generated_kernels_in_groups(name):
    for seed in range(2):
        outcome, wrong = case(name).launch(options=Options(group_threads=32, seed=seed))
        assert list(outcome.findings) == []
        assert wrong == 0


@pytest.mark.parametrize("name", ["forward", "matrix"])
def test_dropped_barriers_are_found_in_groups(name):
    for _, kernel in plant.dropped_barrier(case(name).kernel):
        assert "RACE" in case(name).found(kernel, Options(group_threads=32))
