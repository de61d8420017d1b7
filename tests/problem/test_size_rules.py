"""What an operation demands of symbolic sizes is decided from facts, or left open for each call."""

import pytest

from convloom.errors import IllegalProblem
from convloom.expr import sym
from convloom.problem.conv import Direction
from convloom.problem.conv_arguments import conv_problem, conv_transpose_problem
from convloom.problem.size_rules import SizeRule, open_rules

H, C = sym("h", lo=0), sym("c", lo=1)


def problem(make=conv_problem, **changes):
    sizes = {"batch": 2, "in_channels": 4, "out_channels": 4, "in_spatial": (H,), "kernel": (3,)}
    return make(**{**sizes, **changes})


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(
    ("geometry", "texts"),
    [
        ({}, ["h >= 3"]),
        ({"padding": 1}, ["h >= 1"]),
        ({"padding": [(0, 2)], "dilation": 4}, ["h >= 7"]),
        ({"padding": -1, "stride": 3}, ["h >= 5"]),
        ({"kernel": (1,)}, ["h >= 1"]),
        ({"padding": 2}, []),
    ],
)
def test_the_kernel_must_fit(direction, geometry, texts):
    assert [rule.text for rule in problem(direction=direction, **geometry).open_rules] == texts


def test_a_transposed_output_is_not_empty():
    assert [rule.text for rule in problem(conv_transpose_problem, padding=4, stride=2).open_rules] == ["h >= 4"]


def test_facts_close_rules():
    assert problem(in_spatial=(sym("h", lo=3),)).open_rules == ()


def test_groups_divide_symbolic_channels():
    rules = problem(in_channels=C, in_spatial=(9,), groups=2).open_rules
    assert [rule.text for rule in rules] == ["c % 2 == 0"]
    assert problem(in_channels=sym("c", divisor=4, lo=0), in_spatial=(9,), groups=2).open_rules == ()


def test_bound_sizes_must_keep_the_rules():
    assert problem().bind({H: 3}).open_rules == ()
    with pytest.raises(IllegalProblem, match=r"effective kernel 3 needs as large a padded input, h; .* pad more"):
        problem().bind({H: 2})


def test_a_rule_that_follows_from_others_is_not_listed():
    rules = [SizeRule(H.ge(3), "first", ""), SizeRule((H // 2).ge(1), "follows", "")]
    assert [rule.rule for rule in open_rules(rules)] == ["first"]
