"""Attributes (post-ops, scales, zero points) of a problem in any notation."""

from __future__ import annotations

from dataclasses import replace

from convloom.expr import const
from convloom.problem.conv import Conv, Direction
from convloom.problem.epilogue.attributes import AttributeTexts, Surroundings, parse_attributes
from convloom.problem.gemm import Gemm

Problem = Conv | Gemm


def surroundings(problem: Problem) -> Surroundings:
    """What the attributes' masks refer to: channels of a convolution's result, columns of a product."""
    if isinstance(problem, Gemm):
        last = len(problem.c_shape) - 1
        return Surroundings(problem.c_shape, last, last)
    shape = problem.shape(problem.result)
    if problem.direction is Direction.FWD:
        return Surroundings(shape, 1, 0)
    one_group = problem.direction is Direction.BWD_D and problem.groups is const(1)
    return Surroundings(shape, 1, 1 if one_group else None)


def with_attributes(problem: Problem, texts: AttributeTexts) -> Problem:
    """The problem with the epilogue of the texts; unchanged where they are empty or it has an epilogue already.

    IllegalProblem quotes the part that is wrong, NotYetSupported names what convloom lacks.
    """
    if texts.is_empty or not problem.epilogue.is_empty:
        return problem
    return replace(problem, epilogue=parse_attributes(texts, surroundings(problem)))
