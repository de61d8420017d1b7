"""Additions that no other divides: of many threads and blocks to one number, apart from plain accesses."""

import numpy as np
import pytest

from convloom.ir.interpret import FindingKind, Options
from tests.ir.interpret.kernels import kinds, memory, run


def zeros(count):
    return memory(np.zeros(count))


@pytest.mark.parametrize("chunk_threads", [8, 4096])
def test_additions_of_all_threads_and_blocks_arrive(chunk_threads):
    outcome, values = run(
        "add c[tid % 2] = read(a, tid, 1)", c=zeros(8), blocks=5, options=Options(chunk_threads=chunk_threads)
    )
    assert kinds(outcome) == set()
    assert values.tolist() == [5 * (0 + 2 + 4 + 6), 5 * (1 + 3 + 5 + 7), 0, 0, 0, 0, 0, 0]


def test_lanes_and_masks():
    outcome, values = run("add c[tid % 2 * 2] = read(a, 4, 2) if tid < 3", c=zeros(8))
    assert kinds(outcome) == set()
    assert values.tolist() == [8, 10, 4, 5, 0, 0, 0, 0]


@pytest.mark.parametrize("other", ["write c[tid] = read(a, tid, 1)", "write c[0] = read(a, tid, 1) if tid == 7"])
def test_a_plain_store_beside_additions_is_a_race(other):
    add = "add c[0] = read(a, tid, 1)"
    for body in (f"{add}\n{other}", f"{other}\n{add}"):
        assert FindingKind.RACE in kinds(run(body, c=zeros(8))[0])


def test_a_read_beside_additions_is_a_race():
    add, read = "add c[0] = read(a, tid, 1)", "register r f32[1]\nwrite r[0] = read(c, 0, 1)"
    for body in (f"{add}\n{read}", f"{read}\n{add}"):
        assert FindingKind.RACE in kinds(run(body, c=zeros(8))[0])


def test_adding_to_what_nobody_wrote_is_a_finding():
    assert kinds(run("add c[0] = read(a, tid, 1)")[0]) == {FindingKind.UNINITIALISED}


def test_bounds_hold_for_additions():
    assert kinds(run("add c[tid + 1] = read(a, tid, 1)", c=zeros(8))[0]) == {FindingKind.OUT_OF_BOUNDS}
