"""rocMLIR's convolution lines: `convfp16 -F 1 -f GNC01 -I NGC01 -O NGC01 -n 1 -c 64 -H 56 ..` (channels are totals).

Layout letters: N (images; output channels of a group in the filter), G groups, C channels of a group, 0 1 2 spatial.
"""

from __future__ import annotations

from dataclasses import replace

from convloom.errors import IllegalProblem
from convloom.expr import Expr, const
from convloom.problem.conv import Conv, Role
from convloom.problem.layout import Layout, fuse, unfuse
from convloom.problem.layout_tags import layout_from_letters, storage_order
from convloom.problem.notation import miopen
from convloom.problem.notation.defaults import Defaults, refusal
from convloom.problem.notation.driver_flags import DIRECTION_OF_FLAG, base_of, print_geometry

NAME = "rocMLIR"
_GROUPED_DIM = {Role.SRC: 1, Role.WEI: 0, Role.DST: 1}


def is_grouped_letters(letters: str) -> bool:
    """True for a layout of this notation: it names the groups."""
    return "G" in letters


def parse_conv(text: str, defaults: Defaults) -> Conv:
    """The convolution of a line. IllegalProblem names the flag or the layout that is wrong."""
    words = text.split()
    letters: dict[Role, str] = {}
    for role, flag in miopen.LAYOUT_FLAGS.items():
        if f"-{flag}" in words[:-1]:
            place = words.index(f"-{flag}")
            letters[role] = words[place + 1]
            del words[place : place + 2]
    if len(letters) < len(Role):
        raise IllegalProblem(f"a rocMLIR line names all layouts with -f, -I and -O; got {text!r}; add the missing ones")
    conv = miopen.parse_conv(" ".join(words), defaults)
    return replace(
        conv, **{role.value: replace(conv.spec(role), layout=_layout(conv, role, letters[role])) for role in Role}
    )


def _layout(conv: Conv, role: Role, letters: str) -> Layout:
    extents, order = _letters_of(conv, role)
    grouped = layout_from_letters(letters, extents, order)
    dim = _GROUPED_DIM[role]
    return fuse(grouped, dim, extents[order[dim + 1]], conv.groups)


def _letters_of(conv: Conv, role: Role) -> tuple[dict[str, Expr], str]:
    """Extents by letter, and the letters in the order of the logical dimensions."""
    spatial = "012"[: conv.rank]
    if role is Role.WEI:
        values = (conv.groups, conv.outputs_per_group, *conv.wei_shape[1:])
        return dict(zip("GNC" + spatial, values, strict=True)), "GNC" + spatial
    channels = conv.channels_per_group if role is Role.SRC else conv.outputs_per_group
    values = (conv.batch, conv.groups, channels, *conv.shape(role)[2:])
    return dict(zip("NGC" + spatial, values, strict=True)), "NGC" + spatial


def print_conv(conv: Conv) -> str:
    """The line that parses back to the same problem. IllegalProblem names what rocMLIR cannot say."""
    if conv.scaling.alpha or conv.scaling.beta or conv.bias is not None:
        raise refusal(NAME, "it has alpha, beta or a bias")
    number = next(flag for flag, direction in DIRECTION_OF_FLAG.items() if direction is conv.direction)
    layouts = [f"-{flag} {_printed_letters(conv, role)}" for role, flag in (("wei", "f"), ("src", "I"), ("dst", "O"))]
    return " ".join([base_of(NAME, conv), "-F", number, *layouts, print_geometry(NAME, conv, transposed=False)])


def _printed_letters(conv: Conv, name: str) -> str:
    role = Role(name)
    dim = _GROUPED_DIM[role]
    extents, order = _letters_of(conv, role)
    layout = conv.spec(role).layout
    grouped = unfuse(layout, dim, extents[order[dim + 1]])
    if grouped is None or grouped.blocks:
        raise refusal(NAME, f"{name} is blocked")
    found = "".join(order[place] for place in _order(grouped, [extents[letter] for letter in order], dim))
    if _layout(conv, role, found) != layout:
        raise refusal(NAME, f"{name} is not dense")
    return found


def _order(layout: Layout, extents: list[Expr], group_dim: int) -> tuple[int, ...]:
    """Storage order; a single group stands right in front of its channels, where it changes no stride."""
    order = list(storage_order(layout, extents))
    if extents[group_dim] is const(1):
        order.remove(group_dim)
        order.insert(order.index(group_dim + 1), group_dim)
    return tuple(order)
