"""A convolution as a contraction: source document 000's mapping, the same for all directions and ranks.

Forward: src -> A, wei -> B, dst -> C. Backward by data: dst -> A, wei -> B, src -> C. Backward by weights: src -> A,
dst -> B, wei -> C. What becomes M, N, K or G follows from which operands have an axis.

The coordinates of the three tensors are tied by `ih = oh * S + kh * D - P` in each spatial dimension (D = 1: dense).
Forward and backward by weights evaluate it; backward by data solves it for oh, which has solutions for some kh only:
all residues of ih modulo the stride become the phases of a family, those that no tap reaches included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, prod

from convloom.expr import Expr, Truth, ceil_div, const, prove
from convloom.problem.contraction import (
    AxisKind,
    Contraction,
    ContractionAxis,
    Operand,
    PhaseParameter,
    classify_axes,
    phase_parameter,
)
from convloom.problem.conv import Conv, Direction, Role
from convloom.problem.geometry import Window
from convloom.view import Affine, Axis, Const, Join, Pad, Pass, Transform, View

_SPATIAL = ("d", "h", "w")


@dataclass(frozen=True, slots=True)
class _Taps:
    """One dimension's loops and how they reach the three tensors.

    `loops`: (axis name, extent) of the produced or reduced positions and of the taps; the transforms lead from them to
    the coordinates `i*` of src, `k*` of wei and `o*` of dst.
    """

    loops: tuple[tuple[str, Expr], ...]
    src: tuple[Transform, ...]
    wei: tuple[Transform, ...]
    dst: tuple[Transform, ...]
    src_axes: tuple[str, ...]
    wei_axes: tuple[str, ...]
    dst_axes: tuple[str, ...]


def contract_conv(conv: Conv) -> Contraction:
    """The contraction of a convolution; views take only the axes that they need."""
    letters = _SPATIAL[-conv.rank :]
    phases, residues = _phases(conv, letters)
    taps = [
        _forward_taps(conv, dim, letter) if letter not in residues else residues[letter]
        for dim, letter in enumerate(letters)
    ]
    loops = _channel_loops(conv) + [loop for part in taps for loop in part.loops]
    views = _views(conv, letters, taps, dict(loops))
    a, b, c = (Operand(role.value, conv.spec(role).dtype, views[role]) for role in conv.roles)
    bias = None
    if conv.bias is not None:
        bias = Operand("bias", conv.bias, _bias_view(conv, dict(loops)))
    declared = tuple(ContractionAxis(name, AxisKind.M, extent) for name, extent in loops)
    axes = classify_axes(declared, a.view, b.view, c.view)
    return Contraction(axes, a, b, c, conv.acc, bias, conv.scaling, phases)


def _channel_loops(conv: Conv) -> list[tuple[str, Expr]]:
    return [
        ("g", conv.groups),
        ("n", conv.batch),
        ("oc", conv.outputs_per_group),
        ("ic", conv.channels_per_group),
    ]


def _forward_taps(conv: Conv, dim: int, letter: str) -> _Taps:
    """The window: ih = oh * S + kh * D - P, valid inside the source."""
    window = conv.windows[dim]
    o, k, i = f"o{letter}", f"k{letter}", f"i{letter}"
    padded = f"{i}_padded"
    source = (
        Affine((o, k), padded, (window.stride, window.dilation), 0),
        Pad(padded, f"{i}_src", window.pad_begin, conv.in_spatial[dim]),
    )
    loops = ((o, conv.out_spatial[dim]), (k, const(window.kernel)))
    return _Taps(loops, source, (Pass(k, f"{k}_wei"),), (Pass(o, f"{o}_dst"),), (o, k), (k,), (o,))


# --- families of phases ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Residue:
    """Constants of the input positions ih = S * t + residue.

    Their taps are kh = first + (S / gcd(S, D)) * j for j < taps, the output is oh = t + shift - j * (D / gcd(S, D)).
    """

    residue: int
    shift: int
    first: int
    taps: int


def residue_of(window: Window, residue: int) -> _Residue:
    """Solves ih + P = oh * S + kh * D for the taps of one residue of ih modulo S."""
    total = residue + window.pad_begin
    step = window.stride // gcd(window.stride, window.dilation)
    rest = total % window.stride
    first = next((k for k in range(step) if (rest - k * window.dilation) % window.stride == 0), None)
    if first is None or first >= window.kernel:
        return _Residue(residue, 0, 0, 0)
    shift = total // window.stride + (rest - first * window.dilation) // window.stride
    return _Residue(residue, shift, first, -(-(window.kernel - first) // step))


def _phases(conv: Conv, letters: Sequence[str]) -> tuple[tuple[PhaseParameter, ...], dict[str, _Taps]]:
    """The family's parameters, the phases with most taps first, and the taps of each dimension by its letter."""
    if conv.direction is not Direction.BWD_D:
        return (), {}
    strided = [dim for dim, window in enumerate(conv.windows) if window.stride > 1 and not _is_whole_window(conv, dim)]
    choices = [[residue_of(conv.windows[dim], r) for r in range(conv.windows[dim].stride)] for dim in strided]
    family = sorted(product(*choices), key=lambda phase: -prod(residue.taps for residue in phase))
    parameters: list[PhaseParameter] = []
    taps: dict[str, _Taps] = {}
    for dim, letter in enumerate(letters):
        if _is_whole_window(conv, dim):
            taps[letter] = _whole_window_taps(conv, dim, letter)
            continue
        if dim not in strided:
            taps[letter] = _unit_stride_taps(conv, dim, letter)
            continue
        mine = [phase[strided.index(dim)] for phase in family]
        own = _parameters(letter, mine)
        parameters += own
        taps[letter] = _residue_taps(conv, dim, letter, own)
    return tuple(parameters), taps


def _parameters(letter: str, residues: Sequence[_Residue]) -> list[PhaseParameter]:
    columns = {
        "residue": [residue.residue for residue in residues],
        "shift": [residue.shift for residue in residues],
        "first": [residue.first for residue in residues],
        "taps": [residue.taps for residue in residues],
    }
    return [phase_parameter(f"{name}_{letter}", tuple(values)) for name, values in columns.items()]


def _is_whole_window(conv: Conv, dim: int) -> bool:
    """Whether one output is known to see every input position through a tap of its own."""
    window, inside, outside = conv.windows[dim], conv.in_spatial[dim], conv.out_spatial[dim]
    if window.dilation != 1 or window.pad_begin < 0 or window.kernel == 1:
        return False
    one_output, all_seen = outside.eq(1), (inside + window.pad_begin).le(window.kernel)
    return prove(one_output) is Truth.YES and prove(all_seen) is Truth.YES


def _whole_window_taps(conv: Conv, dim: int, letter: str) -> _Taps:
    """One output: kh = ih + P is the only tap of ih, so nothing is summed over taps (there may be millions of them)."""
    o, k, i = f"o{letter}", f"k{letter}", f"i{letter}"
    wei = (Affine((i,), f"{k}_wei", (1,), conv.windows[dim].pad_begin),)
    loops = ((i, conv.in_spatial[dim]),)
    return _Taps(loops, (Pass(i, f"{i}_src"),), wei, (Const(f"{o}_dst", 0),), (i,), (i,), ())


def _unit_stride_taps(conv: Conv, dim: int, letter: str) -> _Taps:
    """The inverse window: oh = ih + P - kh * D, valid inside dst."""
    window = conv.windows[dim]
    o, k, i = f"o{letter}", f"k{letter}", f"i{letter}"
    solved = f"{o}_solved"
    dst = (
        Affine((i, k), solved, (1, -window.dilation), window.pad_begin),
        Pad(solved, f"{o}_dst", 0, conv.out_spatial[dim]),
    )
    loops = ((i, conv.in_spatial[dim]), (k, const(window.kernel)))
    return _Taps(loops, (Pass(i, f"{i}_src"),), (Pass(k, f"{k}_wei"),), dst, (i,), (k,), (i, k))


def _residue_taps(conv: Conv, dim: int, letter: str, parameters: list[PhaseParameter]) -> _Taps:
    """Phases: ih = S * t + residue, kh = first + step * j, oh = t + shift - j * (D / gcd)."""
    window = conv.windows[dim]
    residue, shift, first, taps = (parameter.symbol for parameter in parameters)
    common = gcd(window.stride, window.dilation)
    t, j = f"t{letter}", f"k{letter}"
    reached, solved, tap = f"i{letter}_reached", f"o{letter}_solved", f"k{letter}_wei"
    src = (
        Affine((t,), reached, (window.stride,), residue),
        Pad(reached, f"i{letter}_src", 0, conv.in_spatial[dim]),
    )
    dst = (
        Affine((t, j), solved, (1, -(window.dilation // common)), shift),
        Pad(solved, f"o{letter}_dst", 0, conv.out_spatial[dim]),
    )
    wei = (Affine((j,), tap, (window.stride // common,), first),)
    loops = ((t, ceil_div(conv.in_spatial[dim], window.stride)), (j, taps))
    return _Taps(loops, src, wei, dst, (t,), (j,), (t, j))


# --- views ----------------------------------------------------------------------------------------------------------


def _views(conv: Conv, letters: Sequence[str], taps: Sequence[_Taps], extents: dict[str, Expr]) -> dict[Role, View]:
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
