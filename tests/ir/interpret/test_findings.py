"""Each kind of fault in the smallest kernel that has it, next to the correct kernel that must give no finding."""

import numpy as np
import pytest

from convloom.errors import InternalError
from convloom.ir.interpret import FindingKind, Options
from tests.ir.interpret.kernels import kinds, memory, run

REVERSE = """
shared t f32[8]
write t[tid] = read(a, tid, 1)
barrier
write c[tid] = read(t, 7 - tid, 1)
"""


def only(outcome):
    (finding,) = outcome.findings
    return finding


def test_correct_kernel_gives_values_and_no_finding():
    outcome, values = run(REVERSE)
    assert len(outcome.findings) == 0
    assert values.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]


def test_missing_barrier_is_a_race():
    outcome, _ = run(REVERSE.replace("barrier\n", ""))
    finding = only(outcome)
    assert finding.kind is FindingKind.RACE
    assert finding.place.path == "body.2"
    assert finding.place.statement == "write c[tid] = read(t, -tid + 7, 1)"
    assert finding.count == 8
    assert finding.examples[0] == (0, 0, 7)
    assert "data race: shared t" in str(finding)


def test_write_after_read_without_barrier_is_a_race():
    body = REVERSE + "write t[tid] = const(0.0, f32, 1)\n"
    assert kinds(run(body)[0]) == {FindingKind.RACE}
    assert len(run(REVERSE + "barrier\nwrite t[tid] = const(0.0, f32, 1)\n")[0].findings) == 0


def test_two_writers_of_one_statement_race_even_with_equal_values():
    body = "shared t f32[8]\nwrite t[tid // 2] = const(1.0, f32, 1)\n"
    finding = only(run(body)[0])
    assert finding.kind is FindingKind.RACE
    assert finding.count == 4  # one of the two survives in each pair


def test_many_readers_are_no_race():
    body = "shared t f32[1]\nwhen tid == 0\n  write t[0] = read(a, 3, 1)\nbarrier\nwrite c[tid] = read(t, 0, 1)\n"
    outcome, values = run(body)
    assert len(outcome.findings) == 0
    assert set(values) == {3.0}


def test_a_race_of_one_block_only():
    body = """
    shared t f32[8]
    write t[tid] = read(a, tid, 1)
    write c[bid * 8 + tid] = read(t, (tid + bid // 2) % 8, 1)
    """
    finding = only(run(body, blocks=3)[0])
    assert finding.kind is FindingKind.RACE
    assert {block for block, _, _ in finding.examples} == {2}


def test_blocks_do_not_share_their_shared_memory():
    body = (
        "shared t f32[8]\nwrite t[tid] = read(a, bid * 8 + tid, 1)\nbarrier\nwrite c[bid * 8 + tid] = read(t, tid, 1)\n"
    )
    for chunk_threads in (8, 16, 1024):
        outcome, values = run(body, blocks=5, options=Options(chunk_threads=chunk_threads))
        assert len(outcome.findings) == 0
        assert values.tolist() == list(range(40))


@pytest.mark.parametrize("chunk_threads", [8, 1024])
def test_two_blocks_writing_one_element_race(chunk_threads):
    body = "write c[tid] = read(a, bid * 8 + tid, 1)\n"
    outcome, _ = run(body, blocks=2, options=Options(chunk_threads=chunk_threads))
    assert kinds(outcome) == {FindingKind.RACE}


def test_reading_what_another_thread_stores_to_global_memory_races_in_spite_of_a_barrier():
    body = "write c[tid] = read(a, tid, 1)\nbarrier\nregister r f32[1]\nwrite r[0] = read(c, 7 - tid, 1)\n"
    finding = only(run(body)[0])
    assert finding.kind is FindingKind.RACE
    assert finding.subject == "global c"


def test_reading_what_another_thread_later_stores_races():
    body = "register r f32[1]\nwrite r[0] = read(c, 7 - tid, 1)\nwrite c[tid] = read(r, 0, 1)\n"
    assert kinds(run(body, c=memory(np.ones(8)))[0]) == {FindingKind.RACE}


def test_reading_and_storing_an_own_element_is_no_race():
    body = "write c[tid] = add(read(c, tid, 1), read(a, tid, 1))\n"
    outcome, values = run(body, c=memory(np.ones(8)))
    assert len(outcome.findings) == 0
    assert values.tolist() == list(range(1, 9))


@pytest.mark.parametrize(
    ("body", "subject"),
    [
        ("write c[tid] = read(a, tid + 1, 1)\n", "global a"),
        ("write c[tid - 1] = read(a, tid, 1)\n", "global c"),
        ("shared t f32[7]\nwrite t[tid] = read(a, tid, 1)\n", "shared t"),
        ("shared t f32[8]\nwrite t[tid] = read(a, tid, 1)\nbarrier\nwrite c[tid] = read(t, tid + 1, 1)\n", "shared t"),
        ("register r f32[2]\nwrite r[tid] = read(a, tid, 1)\n", "register r"),
        ("register r f32[2]\nwrite r[2] = read(a, tid, 1)\n", "register r"),
        ("table s = 3, 4\nlet x[,] = read(s, tid, 1)\n", "table s"),
    ],
)
def test_out_of_bounds(body, subject):
    from convloom.ir.parse import parse_kernel
    from tests.ir.interpret.kernels import HEAD

    if body.startswith("table"):
        table, _, rest = body.partition("\n")
        head = HEAD.format(threads=8, bits=32, blocks=1).replace("  blocks", f"  {table}\n  blocks")
        outcome = _interpreted(parse_kernel(head + "  " + rest))
    else:
        outcome, _ = run(body)
    assert FindingKind.OUT_OF_BOUNDS in kinds(outcome)
    assert next(iter(outcome.findings)).subject == subject


def _interpreted(kernel):
    from convloom.ir.interpret import interpret

    return interpret(kernel, {"a": memory(np.zeros(8)), "c": memory(np.zeros(8))}, {}, {}, 1)


def test_memory_outside_the_allowed_range_is_out_of_bounds_though_it_exists():
    a = memory(np.arange(12), origin=2, allowed=range(2, 10))
    assert len(run("write c[tid] = read(a, tid, 1)\n", a)[0].findings) == 0
    finding = only(run("write c[tid] = read(a, tid - 1, 1)\n", a)[0])
    assert (finding.kind, finding.examples) == (FindingKind.OUT_OF_BOUNDS, ((0, 0, -1),))


def test_masked_accesses_may_point_anywhere():
    body = "write c[tid * 2] = read(a, tid * 3, 1, if_=tid < 2) if tid < 4\n"
    outcome, values = run(body)
    assert len(outcome.findings) == 0
    assert values.tolist() == [0, 0, 3, 0, 0, 0, 0, 0]


def test_read_of_unknown_memory():
    assert kinds(run("write c[tid] = read(c, tid, 1)\n")[0]) == {FindingKind.UNINITIALISED}
    assert kinds(run("shared t f32[8]\nwrite c[tid] = read(t, tid, 1)\n")[0]) == {FindingKind.UNINITIALISED}
    assert kinds(run("register r f32[2]\nwrite c[tid] = read(r, 1, 1)\n")[0]) == {FindingKind.UNINITIALISED}


def test_partly_written_registers_are_known_where_written():
    body = "register r f32[1]\nwhen tid < 5\n  write r[0] = read(a, tid, 1)\nwrite c[tid] = read(r, 0, 1)\n"
    finding = only(run(body)[0])
    assert finding.kind is FindingKind.UNINITIALISED
    assert [thread for _, thread, _ in finding.examples] == [5, 6, 7]


def test_an_allocation_forgets_what_was_there():
    body = """
    for i[0,1] < 2 serial
      shared t f32[8]
      when i == 0
        write t[tid] = read(a, tid, 1)
      barrier
      write c[tid] = read(t, tid, 1)
    """
    assert kinds(run(body)[0]) == {FindingKind.UNINITIALISED}


def test_divergent_barrier():
    finding = only(run("when tid < 5\n  barrier\n", blocks=2)[0])
    assert finding.kind is FindingKind.DIVERGENT_BARRIER
    assert finding.examples[0] == (0, 5, 0)
    assert finding.count == 6
    assert len(run("when bid < 1\n  barrier\n", blocks=2)[0].findings) == 0


def test_a_barrier_counts_for_the_blocks_that_reach_it():
    body = """
    shared t f32[8]
    write t[tid] = read(a, tid, 1)
    when bid < 1
      barrier
    write c[bid * 8 + tid] = read(t, 7 - tid, 1)
    """
    finding = only(run(body, blocks=2)[0])
    assert finding.kind is FindingKind.RACE
    assert {block for block, _, _ in finding.examples} == {1}


def test_loops_of_different_lengths():
    body = """
    register r f32[1]
    write r[0] = const(0.0, f32, 1)
    for i[0,7] < tid serial
      write r[0] = add(read(r, 0, 1), read(a, i, 1))
    write c[tid] = read(r, 0, 1)
    """
    outcome, values = run(body)
    assert len(outcome.findings) == 0
    assert values.tolist() == [0, 0, 1, 3, 6, 10, 15, 21]


def test_overflow_of_32_bits():
    body = "let x[,] = index(bid * 1000000000)\nwrite c[bid * 8 + tid] = read(a, x % 8, 1)\n"
    finding = only(run(body, blocks=4)[0])
    assert finding.kind is FindingKind.OVERFLOW
    assert {block for block, _, _ in finding.examples} == {3}
    assert len(run(body, blocks=4, bits=64)[0].findings) == 0
    assert len(run(body, blocks=4, options=Options(overflow=False))[0].findings) == 0


def test_division_by_zero():
    assert FindingKind.DIVISION in kinds(run("let x[,] = index(tid // bid)\n", blocks=2)[0])


def test_misaligned_vectors():
    body = "register r f32[4]\nwrite r[0] = read(a, (tid % 2) * {step}, 4)\n"
    assert len(run(body.format(step=4))[0].findings) == 0
    assert kinds(run(body.format(step=2))[0]) == {FindingKind.MISALIGNED}
    assert kinds(run(body.format(step=4), memory(np.zeros(8), address=8))[0]) == {FindingKind.MISALIGNED}
    assert len(run(body.format(step=2), options=Options(alignment=8))[0].findings) == 0


def test_names_keep_to_their_facts():
    assert len(run("let x[0,7] = index(tid)\n")[0].findings) == 0
    assert kinds(run("let x[0,6] = index(tid + bid)\n")[0]) == {FindingKind.BROKEN_FACT}
    assert kinds(run("let x[0,]%2 = index(tid + bid)\n")[0]) == {FindingKind.BROKEN_FACT}
    assert kinds(run("for i[0,2] < 4 serial\n  # body\n")[0]) == {FindingKind.BROKEN_FACT}


def test_loops_over_work_items_are_refused():
    with pytest.raises(InternalError, match="serialised for a CPU"):
        run("for w[0,7] < 8 work_items\n  # body\n")


def test_checks_can_be_left_out():
    off = Options(races=False, known=False, overflow=False)
    racing = REVERSE.replace("barrier\n", "")
    assert len(run(racing, options=off)[0].findings) == 0
    assert len(run("register r f32[2]\nwrite c[tid] = read(r, 1, 1)\n", options=off)[0].findings) == 0
