"""The source view of a one-dimensional forward convolution, `ncw`."""

from __future__ import annotations

from convloom.expr import Expr
from convloom.view import OFFSET, Affine, Axis, Pad, View


def window_view(
    batch: Expr | int,
    channels: Expr | int,
    width: Expr | int,
    out: Expr | int,
    kernel: int,
    stride: int,
    dilation: int,
    pad: int,
) -> View:
    """Axes mb, ow, ic, kw; iw = ow*stride + kw*dilation - pad, valid iff 0 <= iw < width."""
    return View(
        (Axis("mb", batch), Axis("ow", out), Axis("ic", channels), Axis("kw", kernel)),
        (
            Affine(("ow", "kw"), "padded", (stride, dilation)),
            Pad("padded", "iw", pad, width),
            Affine(("mb", "ic", "iw"), OFFSET, (channels * width, width, 1)),
        ),
    )
