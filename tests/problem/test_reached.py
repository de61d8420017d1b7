"""Positions that take part in products, and the bytes that must be touched, beside a plain enumeration."""

import itertools

import pytest

from convloom.problem.conv import Direction, Role
from convloom.problem.notation.choose import parse_problem
from convloom.problem.reached import reached_positions, touched_bytes

TEXTS = (
    "mb1ic2ih9oc3oh9kh3ph1",
    "mb1ic2ih14oc3oh7kh1sh2",
    "mb1ic2ih20oc3oh4kh2sh5dh2",
    "mb1ic2ih3oc3oh5kh7ph4",
    "mb1ic2ih5oc3oh9kh1ph2",
)


def enumerated(conv, role):
    window, inside, outside = conv.windows[0], conv.in_spatial[0].value, conv.out_spatial[0].value
    found = set()
    for output, tap in itertools.product(range(outside), range(window.kernel)):
        place = output * window.stride + tap * window.dilation - window.pad_begin
        if 0 <= place < inside:
            found.add({Role.SRC: place, Role.WEI: tap, Role.DST: output}[role])
    return len(found)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("role", list(Role))
def test_reached_positions(text, role):
    conv = parse_problem(text)
    assert reached_positions(conv, role, 0) == enumerated(conv, role)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("direction", list(Direction))
def test_used_operands_and_the_whole_result_count(text, direction):
    conv = parse_problem(text, direction=direction)
    expected = 0
    for role in Role:
        shape = [extent.value for extent in conv.shape(role)]
        sides = [shape[2]] * 2 if role is conv.result else [enumerated(conv, role)] * 2
        expected += shape[0] * shape[1] * sides[0] * sides[1] * 4
    assert touched_bytes(conv) == expected


def test_a_stride_skips_input():
    conv = parse_problem("mb1ic8ih14oc8oh7kh1sh2", dtypes="f16")
    assert touched_bytes(conv) == 2 * (8 * 7 * 7 + 8 * 8 + 8 * 7 * 7)


def test_a_product_counts_each_tensor_once():
    gemm = parse_problem("-t f16 -transA false -transB true -g 2 -m 3 -n 5 -k 7")
    assert touched_bytes(gemm) == 2 * 2 * (3 * 7 + 7 * 5 + 3 * 5)
