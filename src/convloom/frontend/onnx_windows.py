"""Padding and output sizes of ONNX convolution nodes, by the formulas of the ONNX operator specification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from convloom.errors import IllegalProblem


class AutoPad(Enum):
    """How a node pads by itself; the values are the specification's."""

    NOTSET = "NOTSET"
    SAME_UPPER = "SAME_UPPER"
    SAME_LOWER = "SAME_LOWER"
    VALID = "VALID"


@dataclass(frozen=True, slots=True)
class Window:
    """One spatial dimension of a convolution node: sizes in elements, `pad_begin` may be negative (crops)."""

    size_in: int
    size_out: int
    kernel: int
    stride: int
    dilation: int
    pad_begin: int


@dataclass(frozen=True, slots=True)
class _Given:
    """What a node says of one spatial dimension."""

    size: int
    kernel: int
    stride: int
    dilation: int
    pads: tuple[int, int]
    output_padding: int
    output_shape: int | None

    @property
    def span(self) -> int:
        """Elements from the first to the last tap."""
        return (self.kernel - 1) * self.dilation + 1


def conv_windows(sizes: Sequence[int], kernel: Sequence[int], attributes: Mapping[str, Any]) -> tuple[Window, ...]:
    """The windows of a Conv node whose input has these spatial sizes."""
    mode = _auto_pad(attributes)
    return tuple(_conv_window(given, mode) for given in _given(sizes, kernel, attributes))


def conv_transpose_windows(
    sizes: Sequence[int], kernel: Sequence[int], attributes: Mapping[str, Any]
) -> tuple[Window, ...]:
    """The windows of a ConvTranspose node; `size_out` belongs to the node's output."""
    mode = _auto_pad(attributes)
    return tuple(_transpose_window(given, mode) for given in _given(sizes, kernel, attributes))


def _conv_window(given: _Given, mode: AutoPad) -> Window:
    if mode in (AutoPad.SAME_UPPER, AutoPad.SAME_LOWER):
        size_out = -(-given.size // given.stride)
        begin, _ = _share(max((size_out - 1) * given.stride + given.span - given.size, 0), mode)
        return _window(given, size_out, begin)
    pads = given.pads if mode is AutoPad.NOTSET else (0, 0)
    room = given.size + sum(pads) - given.span
    if room < 0:
        raise IllegalProblem(
            f"a kernel must fit the padded input of {given.size + sum(pads)}; got {given.span} from first to last tap; "
            "pad more or use a smaller kernel"
        )
    return _window(given, room // given.stride + 1, pads[0])


def _transpose_window(given: _Given, mode: AutoPad) -> Window:
    full = given.stride * (given.size - 1) + given.output_padding + given.span
    size_out = given.output_shape
    if size_out is None and mode in (AutoPad.SAME_UPPER, AutoPad.SAME_LOWER):
        size_out = given.size * given.stride
    if size_out is not None:
        return _window(given, size_out, _share_transposed(full - size_out, mode))
    pads = given.pads if mode is AutoPad.NOTSET else (0, 0)
    return _window(given, full - sum(pads), pads[0])


def _share(total: int, mode: AutoPad) -> tuple[int, int]:
    """(begin, end) of a total padding: an odd element goes to the end for SAME_UPPER, to the begin for SAME_LOWER."""
    half = total // 2
    return (half, total - half) if mode is AutoPad.SAME_UPPER else (total - half, half)


def _share_transposed(total: int, mode: AutoPad) -> int:
    """The begin of a transposed convolution's total padding.

    A negative total (an output longer than the taps reach) adds nothing in front: the specification leaves open how its
    halves are rounded, and ONNX Runtime puts all of it at the end.
    """
    return _share(total, mode)[0] if total > 0 else 0


def _window(given: _Given, size_out: int, pad_begin: int) -> Window:
    return Window(given.size, size_out, given.kernel, given.stride, given.dilation, pad_begin)


def _auto_pad(attributes: Mapping[str, Any]) -> AutoPad:
    value = attributes.get("auto_pad", b"NOTSET")
    text = value.decode() if isinstance(value, bytes) else str(value)
    known = {mode.value: mode for mode in AutoPad}
    if text not in known:
        raise IllegalProblem(f"auto_pad must be one of {', '.join(known)}; got {text!r}; correct the node")
    return known[text]


def _given(sizes: Sequence[int], kernel: Sequence[int], attributes: Mapping[str, Any]) -> tuple[_Given, ...]:
    rank = len(sizes)
    declared = _per_dimension(attributes, "kernel_shape", rank, kernel)
    if tuple(declared) != tuple(kernel):
        raise IllegalProblem(
            f"kernel_shape must equal the weights' {tuple(kernel)}; got {tuple(declared)}; correct the node"
        )
    strides = _per_dimension(attributes, "strides", rank, (1,) * rank)
    dilations = _per_dimension(attributes, "dilations", rank, (1,) * rank)
    pads = _per_dimension(attributes, "pads", 2 * rank, (0,) * (2 * rank))
    output_padding = _per_dimension(attributes, "output_padding", rank, (0,) * rank)
    output_shape = attributes.get("output_shape")
    return tuple(
        _Given(
            size=sizes[i],
            kernel=kernel[i],
            stride=strides[i],
            dilation=dilations[i],
            pads=(pads[i], pads[i + rank]),
            output_padding=output_padding[i],
            output_shape=None if output_shape is None else list(output_shape)[-rank:][i],
        )
        for i in range(rank)
    )


def _per_dimension(attributes: Mapping[str, Any], name: str, count: int, default: Sequence[int]) -> Sequence[int]:
    values = attributes.get(name)
    if values is None:
        return default
    if len(values) != count:
        raise IllegalProblem(f"{name} must have {count} values; got {list(values)}; correct the node")
    return values
