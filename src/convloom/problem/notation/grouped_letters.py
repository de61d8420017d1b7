"""Layouts whose letters name groups and channels of a group as storage axes of their own, as in rocMLIR's tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from convloom.expr import Expr, const
from convloom.problem.conv import Conv, Role
from convloom.problem.layout import Layout, fuse, unfuse
from convloom.problem.layout_tags import layout_from_letters, storage_order
from convloom.problem.notation.defaults import refusal

_GROUP_DIM = {Role.SRC: 1, Role.WEI: 0, Role.DST: 1}


def grouped_extents(conv: Conv, role: Role) -> tuple[Expr, ...]:
    """Extents with the groups apart: (n, g, c/g, *spatial), weights (g, oc/g, ic/g, *kernel)."""
    if role is Role.WEI:
        return (conv.groups, conv.outputs_per_group, *conv.wei_shape[1:])
    channels = conv.channels_per_group if role is Role.SRC else conv.outputs_per_group
    return (conv.batch, conv.groups, channels, *conv.shape(role)[2:])


def parse_layout(conv: Conv, role: Role, letters: str, order: str) -> Layout:
    """The dense layout of a tensor by its letters, outermost first; `order` names the dims of `grouped_extents`.

    IllegalProblem unless the letters are a permutation of `order`.
    """
    extents = dict(zip(order, grouped_extents(conv, role), strict=True))
    dim = _GROUP_DIM[role]
    return fuse(layout_from_letters(letters, extents, order), dim, extents[order[dim + 1]], conv.groups)


def print_layout(notation: str, conv: Conv, role: Role, order: str) -> str:
    """The letters that `parse_layout` takes for a tensor's layout; refuses layouts that have none."""
    extents, dim = grouped_extents(conv, role), _GROUP_DIM[role]
    layout = conv.spec(role).layout
    grouped = unfuse(layout, dim, extents[dim + 1])
    if grouped is None or grouped.blocks:
        raise refusal(notation, f"{role.value} is blocked")
    places = list(storage_order(grouped, extents))
    if conv.groups is const(1):  # right in front of its channels a single group changes no stride
        places.remove(dim)
        places.insert(places.index(dim + 1), dim)
    found = "".join(order[place] for place in places)
    if parse_layout(conv, role, found, order) != layout:
        raise refusal(notation, f"{role.value} is not dense")
    return found


def with_layouts(conv: Conv, layouts: Mapping[Role, Layout]) -> Conv:
    """The problem with other layouts for all tensors."""
    specs = {role: replace(conv.spec(role), layout=layout) for role, layout in layouts.items()}
    return replace(conv, src=specs[Role.SRC], wei=specs[Role.WEI], dst=specs[Role.DST])
