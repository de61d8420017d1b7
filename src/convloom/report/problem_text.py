"""A problem in a few words."""

from __future__ import annotations

from convloom.errors import IllegalProblem
from convloom.problem.conv import Conv, Direction
from convloom.problem.gemm import Gemm
from convloom.problem.notation.benchdnn import print_descriptor
from convloom.problem.reference import Problem


def problem_text(problem: Problem) -> str:
    """The benchdnn descriptor of a convolution (shapes where it has none), the sizes of a product."""
    return _gemm_text(problem) if isinstance(problem, Gemm) else _conv_text(problem)


def _gemm_text(gemm: Gemm) -> str:
    batch = "x".join(map(str, gemm.batch))
    return f"gemm {'b' + batch if batch else ''}m{gemm.m}n{gemm.n}k{gemm.k}"


def _conv_text(conv: Conv) -> str:
    direction = "" if conv.direction is Direction.FWD else f"{conv.direction.value} "
    try:
        return direction + print_descriptor(conv)
    except IllegalProblem:  # the notation lacks words for it: symbolic sizes, negative pads
        return f"{direction}src {_sizes(conv.src_shape)} wei {_sizes(conv.wei_shape)} dst {_sizes(conv.dst_shape)}"


def _sizes(shape: tuple[object, ...]) -> str:
    return "x".join(map(str, shape))
