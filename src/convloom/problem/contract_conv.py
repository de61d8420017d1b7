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
from convloom.problem.epilogue import EpilogueOperand
from convloom.problem.layout import Layout
from convloom.problem.taps import SPATIAL, Taps, conv_taps
from convloom.view import Axis, Join, Pass, Transform, View


def contract_conv(conv: Conv) -> Contraction:
    """The contraction of a convolution; views take only the axes that they need."""
    letters = SPATIAL[-conv.rank :]
    phases, taps = conv_taps(conv)
    loops = _channel_loops(conv) + [loop for part in taps for loop in part.loops]
    views = _views(conv, letters, taps, dict(loops), {role: conv.spec(role).layout for role in Role})
    a, b, c = (Operand(role.value, conv.spec(role).dtype, views[role]) for role in conv.roles)
    bias = None
    if conv.bias is not None:
        bias = Operand("bias", conv.bias, _bias_view(conv, dict(loops)))
    declared = tuple(ContractionAxis(name, AxisKind.M, extent) for name, extent in loops)
    axes = classify_axes(declared, a.view, b.view, c.view)
    fused = _epilogue_operands(conv, letters, taps, dict(loops))
    return Contraction(axes, a, b, c, conv.acc, bias, conv.scaling, phases, conv.tf32, conv.epilogue.steps, *fused)


def _channel_loops(conv: Conv) -> list[tuple[str, Expr]]:
    return [
        ("g", conv.groups),
        ("n", conv.batch),
        ("oc", conv.outputs_per_group),
        ("ic", conv.channels_per_group),
    ]


# --- views ----------------------------------------------------------------------------------------------------------


def _epilogue_operands(
    conv: Conv, letters: Sequence[str], taps: Sequence[Taps], extents: dict[str, Expr]
) -> tuple[tuple[Operand, ...], Operand | None, Operand | None]:
    """The epilogue's operands along the result, and the zero points along the factors: as those, but strides of 0."""

    def along(role: Role, operand: EpilogueOperand) -> Operand:
        layouts = {other: conv.spec(other).layout for other in Role}
        layouts[role] = operand.spread(conv.shape(role))
        return Operand(operand.name, operand.dtype, _views(conv, letters, taps, extents, layouts)[role])

    first, second, result = conv.roles
    extras = tuple(along(result, operand) for operand in conv.epilogue.operands)
    zero_a, zero_b = conv.epilogue.zero_a, conv.epilogue.zero_b
    return (
        extras,
        None if zero_a is None else along(first, zero_a),
        None if zero_b is None else along(second, zero_b),
    )


def _views(
    conv: Conv, letters: Sequence[str], taps: Sequence[Taps], extents: dict[str, Expr], layouts: dict[Role, Layout]
) -> dict[Role, View]:
    """Tensors of the shapes of the three, in these layouts, over the loops."""
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
        memory = layouts[role].view(names, conv.shape(role))
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
