"""A convolution as a contraction: source document 000's mapping, the same for all directions and ranks.

Forward: src -> A, wei -> B, dst -> C. Backward by data: dst -> A, wei -> B, src -> C. Backward by weights: src -> A,
dst -> B, wei -> C. What becomes M, N, K or G follows from which operands have an axis. `taps` ties the coordinates of
the three tensors in each spatial dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

from convloom.expr import Expr
from convloom.problem.contraction import AxisKind, Contraction, ContractionAxis, Operand, classify_axes
from convloom.problem.conv import Conv, Direction, Role
from convloom.problem.taps import SPATIAL, Taps, conv_taps
from convloom.view import Axis, Join, Pass, Transform, View


def contract_conv(conv: Conv) -> Contraction:
    """The contraction of a convolution; views take only the axes that they need."""
    letters = SPATIAL[-conv.rank :]
    phases, taps = conv_taps(conv)
    loops = _channel_loops(conv) + [loop for part in taps for loop in part.loops]
    views = _views(conv, letters, taps, dict(loops))
    a, b, c = (Operand(role.value, conv.spec(role).dtype, views[role]) for role in conv.roles)
    bias = None
    if conv.bias is not None:
        bias = Operand("bias", conv.bias, _bias_view(conv, dict(loops)))
    declared = tuple(ContractionAxis(name, AxisKind.M, extent) for name, extent in loops)
    axes = classify_axes(declared, a.view, b.view, c.view)
    return Contraction(axes, a, b, c, conv.acc, bias, conv.scaling, phases, conv.tf32)


def _channel_loops(conv: Conv) -> list[tuple[str, Expr]]:
    return [
        ("g", conv.groups),
        ("n", conv.batch),
        ("oc", conv.outputs_per_group),
        ("ic", conv.channels_per_group),
    ]


# --- views ----------------------------------------------------------------------------------------------------------


def _views(conv: Conv, letters: Sequence[str], taps: Sequence[Taps], extents: dict[str, Expr]) -> dict[Role, View]:
    """The three tensors over the loops."""
    groups = conv.groups
    ic = Join(("g", "ic"), "c_src", (groups, conv.channels_per_group))
    oc_dst = Join(("g", "oc"), "c_dst", (groups, conv.outputs_per_group))
    oc_wei = Join(("g", "oc"), "oc_wei", (groups, conv.outputs_per_group))
    src_names = ("n_src", "c_src", *[f"i{letter}_src" for letter in letters])
    dst_names = ("n_dst", "c_dst", *[f"o{letter}_dst" for letter in letters])
    wei_names = ("oc_wei", "ic_wei", *[f"k{letter}_wei" for letter in letters])
    src_axes = ("n", "g", "ic", *[axis for part in taps for axis in part.src_axes])
    dst_axes = ("n", "g", "oc", *[axis for part in taps for axis in part.dst_axes])
    wei_axes = ("g", "oc", "ic", *[axis for part in taps for axis in part.wei_axes])
    src = [Pass("n", "n_src"), ic, *[step for part in taps for step in part.src]]
    dst = [Pass("n", "n_dst"), oc_dst, *[step for part in taps for step in part.dst]]
    wei = [oc_wei, Pass("ic", "ic_wei"), *[step for part in taps for step in part.wei]]

    def placed(role: Role, names: tuple[str, ...], axes: tuple[str, ...], transforms: list[Transform]) -> View:
        memory = conv.spec(role).layout.view(names, conv.shape(role))
        return memory.prepend(tuple(Axis(name, extents[name]) for name in axes), tuple(transforms))

    return {
        Role.SRC: placed(Role.SRC, src_names, src_axes, src),
        Role.WEI: placed(Role.WEI, wei_names, wei_axes, wei),
        Role.DST: placed(Role.DST, dst_names, dst_axes, dst),
    }


def _bias_view(conv: Conv, extents: dict[str, Expr]) -> View:
    """One value per produced channel, dense."""
    channel = "ic" if conv.direction is Direction.BWD_D else "oc"
    axes = (Axis("g", extents["g"]), Axis(channel, extents[channel]))
    return View(axes, (Join(("g", channel), "offset", (extents["g"], extents[channel])),))
