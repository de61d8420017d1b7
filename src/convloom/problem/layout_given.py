"""Layouts as users give them: strides, a Layout, a tag, or nothing for dense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from convloom.expr import Expr, ExprLike
from convloom.problem.given import check_kind, listed, sizes
from convloom.problem.layout import Layout, dense, plain
from convloom.problem.layout_tags import TensorKind, layout_from_tag

LayoutLike: TypeAlias = Layout | str | Sequence[ExprLike] | None


def given_layout(given: LayoutLike, shape: tuple[Expr, ...], kind: TensorKind = TensorKind.MATRIX) -> Layout:
    """The layout of a tensor of this shape. IllegalType for what is no layout; IllegalProblem for another rank."""
    if given is None:
        return dense(shape)
    if isinstance(given, Layout):
        return given
    if isinstance(given, str):
        return layout_from_tag(given, shape, kind)
    if listed(given) is None:
        check_kind("a layout", given, str, "a Layout, strides in elements, a tag as 'nhwc', or None")
    layout = plain(sizes("strides", given))
    layout.check_rank(len(shape))
    return layout
