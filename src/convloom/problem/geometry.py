"""Window arithmetic of one spatial dimension: extents, pads and the outputs that a kernel tap reaches."""

from __future__ import annotations

from typing import NamedTuple

from convloom.expr import Expr, ExprLike, as_expr


class Window(NamedTuple):
    """Kernel extent, stride, dilation (1 = dense) and left pad (negative: crop) of one spatial dimension."""

    kernel: int
    stride: int
    dilation: int
    pad_begin: int

    @property
    def reach(self) -> int:
        """Extent of the dilated kernel."""
        return (self.kernel - 1) * self.dilation + 1


class Span(NamedTuple):
    """The integers begin <= i < end; empty when end <= begin."""

    begin: int
    end: int

    @property
    def size(self) -> int:
        """How many integers."""
        return max(0, self.end - self.begin)


def output_extent(extent: ExprLike, window: Window, pad_end: int) -> Expr:
    """Outputs of a convolution by the floor formula; zero or negative if the kernel does not fit."""
    return (as_expr(extent) + (window.pad_begin + pad_end - window.reach)) // window.stride + 1


def input_extent(outputs: ExprLike, window: Window, pad_end: int) -> Expr:
    """The smallest input that gives so many outputs: the extent that a transposed convolution produces."""
    return (as_expr(outputs) - 1) * window.stride + (window.reach - window.pad_begin - pad_end)


def exact_pad_end(extent: Expr, outputs: Expr, window: Window) -> Expr:
    """The right pad with which the last output's window ends exactly at the padded input's end; negative: crop."""
    return (outputs - 1) * window.stride + (window.reach - window.pad_begin) - extent


def tap_outputs(tap: int, extent: int, outputs: int, window: Window) -> Span:
    """The outputs o with 0 <= o*stride - pad_begin + tap*dilation < extent."""
    shift = window.pad_begin - tap * window.dilation
    begin = max(0, -(-shift // window.stride))
    end = min(outputs, (extent - 1 + shift) // window.stride + 1)
    return Span(begin, max(begin, end))


def valid_taps(extent: int, outputs: int, window: Window) -> int:
    """Number of (output, tap) pairs whose input lies inside 0 <= i < extent."""
    return sum(tap_outputs(tap, extent, outputs, window).size for tap in range(window.kernel))
