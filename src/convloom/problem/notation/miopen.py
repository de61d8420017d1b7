"""MIOpenDriver's convolution lines: `MIOpenDriver convfp16 -n 8 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -F 1`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from convloom.dtypes import S8
from convloom.errors import IllegalProblem
from convloom.expr import Expr
from convloom.problem.conv import Conv, Direction, Role
from convloom.problem.conv_arguments import conv_problem, conv_transpose_problem
from convloom.problem.geometry import Window
from convloom.problem.layout import Layout
from convloom.problem.layout_tags import layout_from_letters, storage_order
from convloom.problem.notation.defaults import Defaults, bias_fields, refusal
from convloom.problem.notation.driver_flags import (
    DIRECTION_OF_FLAG,
    Geometry,
    base_of,
    direction_of,
    geometry,
    print_geometry,
    read_flags,
    types_of,
)

NAME = "MIOpenDriver"
LAYOUT_FLAGS = {Role.SRC: "I", Role.WEI: "f", Role.DST: "O"}

# In a transposed convolution the driver's input is the record's dst, and its output the record's src.
_TRANSPOSED_ROLE = {Role.SRC: Role.DST, Role.WEI: Role.WEI, Role.DST: Role.SRC}
_TRANSPOSED_DIRECTION = {
    Direction.FWD: Direction.BWD_D,
    Direction.BWD_D: Direction.FWD,
    Direction.BWD_W: Direction.BWD_W,
}
_MODES = ("conv", "trans")


def parse_conv(text: str, defaults: Defaults) -> Conv:
    """The convolution of a line; without base name the default types. IllegalProblem names the flag that is wrong."""
    words = text.split()
    if words and words[0].endswith(NAME):
        words = words[1:]
    base = words.pop(0) if words and not words[0].startswith("-") else None
    flags = read_flags(words, extra=("perf_priority",))
    mode = flags.get("m", "conv")
    if mode not in _MODES:
        raise IllegalProblem(f"-m must be conv or trans; got {mode!r}; use one of these")
    conv = _geometric(flags, transposed=mode == "trans")
    direction = direction_of(flags, defaults)
    if mode == "trans":
        direction = _TRANSPOSED_DIRECTION[direction]
    return _typed(conv, base, flags, direction, defaults)


def _geometric(flags: dict[str, str], transposed: bool) -> Conv:
    numbers = _with_pad_mode(geometry(flags), flags.get("z", "default"))
    layouts = [flags.get(LAYOUT_FLAGS[role]) for role in Role]
    build = _transposed if transposed else _direct
    conv = build(numbers)
    for role, letters in zip(Role, layouts, strict=True):
        if letters is not None:
            conv = _with_letters(conv, _TRANSPOSED_ROLE[role] if transposed else role, letters)
    return conv


def _direct(numbers: Geometry) -> Conv:
    columns = tuple(zip(*numbers.windows, strict=True))
    return conv_problem(
        batch=numbers.batch,
        in_channels=numbers.in_channels,
        out_channels=numbers.out_channels,
        in_spatial=numbers.extents,
        kernel=columns[0],
        stride=columns[1],
        dilation=columns[2],
        padding=columns[3],
        groups=numbers.groups,
    )


def _transposed(numbers: Geometry) -> Conv:
    columns = tuple(zip(*numbers.windows, strict=True))
    return conv_transpose_problem(
        batch=numbers.batch,
        in_channels=numbers.in_channels,
        out_channels=numbers.out_channels,
        in_spatial=numbers.extents,
        kernel=columns[0],
        stride=columns[1],
        dilation=columns[2],
        padding=columns[3],
        output_padding=numbers.output_pads,
        groups=numbers.groups,
    )


def _with_pad_mode(numbers: Geometry, mode: str) -> Geometry:
    """`valid` pads nothing; `same` pads max(kernel - (input % stride or stride), 0) in all, half on each side."""
    if mode == "default":
        return numbers
    if mode not in ("same", "valid"):
        raise IllegalProblem(f"-z must be default, same or valid; got {mode!r}; use one of these")
    if mode == "valid":
        return replace(numbers, windows=tuple(window._replace(pad_begin=0) for window in numbers.windows))
    windows = [_same(extent, window) for extent, window in zip(numbers.extents, numbers.windows, strict=True)]
    return replace(numbers, windows=tuple(windows))


def _same(extent: int, window: Window) -> Window:
    total = max(window.kernel - (extent % window.stride or window.stride), 0)
    if window.dilation > 1 or total % 2:
        raise IllegalProblem(
            f"-z same needs dilation 1 and an even total pad; got kernel {window.kernel}, stride {window.stride}, "
            f"dilation {window.dilation} on extent {extent}; give -p and -q"
        )
    return window._replace(pad_begin=total // 2)


def _typed(conv: Conv, base: str | None, flags: dict[str, str], direction: Direction, defaults: Defaults) -> Conv:
    src, wei, dst = types_of(base, direction, defaults)
    bias = defaults.bias
    if flags.get("b", "0") != "0" and direction is not Direction.BWD_W:
        bias = src
    return replace(
        conv,
        direction=direction,
        src=replace(conv.src, dtype=src),
        wei=replace(conv.wei, dtype=wei),
        dst=replace(conv.dst, dtype=dst),
        **bias_fields(direction, bias),
    )


def _with_letters(conv: Conv, role: Role, letters: str) -> Conv:
    layout = layout_from_letters(letters, *_letters_of(conv, role))
    spec = replace(conv.spec(role), layout=layout)
    return replace(conv, **{role.value: spec})


def _letters_of(conv: Conv, role: Role) -> tuple[dict[str, Expr], str]:
    """Extents by letter and the declared order; the weights' output channels are called N, too."""
    order = "NC" + "DHW"[3 - conv.rank :]
    return dict(zip(order, conv.shape(role), strict=True)), order


def print_conv(conv: Conv) -> str:
    """The line that parses back to the same problem. IllegalProblem names what MIOpenDriver cannot say.

    A backward-data problem with a bias is printed as transposed convolution.
    """
    if conv.scaling.alpha or conv.scaling.beta:
        raise refusal(NAME, "it has alpha or beta")
    if conv.bias_grad is not None:
        raise refusal(NAME, "it gives a bias gradient")
    if conv.bias is not None and (conv.bias is not conv.src.dtype or conv.src.dtype is S8):
        raise refusal(NAME, f"the bias has its own type {conv.bias}")
    transposed = conv.direction is Direction.BWD_D and conv.bias is not None
    asked = Direction.FWD if transposed else conv.direction
    number = next(flag for flag, direction in DIRECTION_OF_FLAG.items() if direction is asked)
    words = [NAME, base_of(NAME, conv), "-F", number, print_geometry(NAME, conv, transposed)]
    words += ["-m", "trans" if transposed else "conv", *_printed_layouts(conv, transposed)]
    return " ".join([*words, *(["-b", "1"] if conv.bias is not None else [])])


def _printed_layouts(conv: Conv, transposed: bool) -> Sequence[str]:
    letters = {role: _printed_letters(conv, _TRANSPOSED_ROLE[role] if transposed else role) for role in Role}
    order = _letters_of(conv, Role.SRC)[1]
    if all(found == order for found in letters.values()):
        return ()
    return [word for role, found in letters.items() for word in (f"-{LAYOUT_FLAGS[role]}", found)]


def _printed_letters(conv: Conv, role: Role) -> str:
    layout: Layout = conv.spec(role).layout
    extents, order = _letters_of(conv, role)
    found = "".join(order[dim] for dim in storage_order(layout, conv.shape(role)))
    if layout_from_letters(found, extents, order) != layout:
        raise refusal(NAME, f"{role.value} is not dense")
    return found
