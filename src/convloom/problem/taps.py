"""The loops of one spatial dimension and how they reach src, wei and dst, in each direction.

The coordinates of the three tensors are tied by `ih = oh * S + kh * D - P` (D = 1: dense). Forward and backward by
weights evaluate it; backward by data solves it for oh, which has solutions for some kh only: those with
kh * D = ih + P (mod S). All residues of ih modulo the stride become the phases of a family, those that no tap reaches
included; where there would be too many of them, each position computes its taps by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, prod

from convloom.errors import IllegalProblem
from convloom.expr import Expr, Truth, bounds, ceil_div, const, prove
from convloom.problem.contraction import PhaseParameter, phase_parameter
from convloom.problem.conv import Conv, Direction
from convloom.problem.geometry import Window
from convloom.view import Affine, Broadcast, Const, Modulo, Pad, PadTo, Pass, Split, Transform

SPATIAL = ("d", "h", "w")
MOST_PHASES = 1024
"""Residues of all dimensions together that a family may have; beyond it dimensions compute their taps by position."""

_MOST_INVERTED = 2**31  # residues that are multiplied by another one below it in 64 bits


@dataclass(frozen=True, slots=True)
class Taps:
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


def conv_taps(conv: Conv) -> tuple[tuple[PhaseParameter, ...], tuple[Taps, ...]]:
    """The parameters of a family (or none), and the taps of each spatial dimension."""
    letters = SPATIAL[-conv.rank :]
    if conv.direction is not Direction.BWD_D:
        return (), tuple([_forward_taps(conv, dim, letter) for dim, letter in enumerate(letters)])
    phases, taps = _phases(conv, letters)
    return phases, tuple([taps[letter] for letter in letters])


def _forward_taps(conv: Conv, dim: int, letter: str) -> Taps:
    """The window: ih = oh * S + kh * D - P, valid inside the source."""
    window = conv.windows[dim]
    o, k, i = f"o{letter}", f"k{letter}", f"i{letter}"
    padded = f"{i}_padded"
    source = (
        Affine((o, k), padded, (window.stride, window.dilation), 0),
        Pad(padded, f"{i}_src", window.pad_begin, conv.in_spatial[dim]),
    )
    loops = ((o, conv.out_spatial[dim]), (k, const(window.kernel)))
    return Taps(loops, source, (Pass(k, f"{k}_wei"),), (Pass(o, f"{o}_dst"),), (o, k), (k,), (o,))


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


@dataclass(frozen=True, slots=True)
class _Solution:
    """How kh * D = rest (mod S) is solved: where `common` divides rest, by kh = rest / common * inverse (mod step)."""

    common: int  # gcd(S, D)
    step: int  # S / common: distance of the taps of one residue
    inverse: int  # of D / common modulo step

    @classmethod
    def of(cls, window: Window) -> _Solution:
        """The solution for one window."""
        common = gcd(window.stride, window.dilation)
        step = window.stride // common
        return cls(common, step, pow(window.dilation // common, -1, step) if step > 1 else 0)


def residue_of(window: Window, residue: int) -> _Residue:
    """Solves ih + P = oh * S + kh * D for the taps of one residue of ih modulo S."""
    total = residue + window.pad_begin
    solution = _Solution.of(window)
    rest = total % window.stride
    first = rest // solution.common * solution.inverse % solution.step
    if rest % solution.common or first >= window.kernel:
        return _Residue(residue, 0, 0, 0)
    shift = total // window.stride + (rest - first * window.dilation) // window.stride
    return _Residue(residue, shift, first, -(-(window.kernel - first) // solution.step))


def _phases(conv: Conv, letters: Sequence[str]) -> tuple[tuple[PhaseParameter, ...], dict[str, Taps]]:
    """The family's parameters, the phases with most taps first, and the taps of each dimension by its letter."""
    counts = _residue_counts(conv)
    computed = _computed(counts)
    strided = [dim for dim in counts if dim not in computed]
    choices = [[residue_of(conv.windows[dim], residue) for residue in range(counts[dim])] for dim in strided]
    family = sorted(product(*choices), key=lambda phase: -prod(residue.taps for residue in phase))
    parameters: list[PhaseParameter] = []
    taps: dict[str, Taps] = {}
    for dim, letter in enumerate(letters):
        if dim in strided:
            own = _parameters(letter, [phase[strided.index(dim)] for phase in family])
            parameters += own
            taps[letter] = _residue_taps(conv, dim, letter, own)
        elif dim in computed:
            taps[letter] = _computed_taps(conv, dim, letter)
        else:
            taps[letter] = (_whole_window_taps if _is_whole_window(conv, dim) else _unit_stride_taps)(conv, dim, letter)
    return tuple(parameters), taps


def _residue_counts(conv: Conv) -> dict[int, int]:
    """How many residues modulo the stride positions have, for each dimension that needs to tell them apart."""
    counts: dict[int, int] = {}
    for dim, window in enumerate(conv.windows):
        if window.stride > 1 and not _is_whole_window(conv, dim):
            positions = bounds(conv.in_spatial[dim]).hi
            counts[dim] = window.stride if positions is None else max(min(window.stride, positions), 1)
    return counts


def _computed(counts: dict[int, int]) -> frozenset[int]:
    """The dimensions, those of most residues first, without which the family is small enough."""
    computed: set[int] = set()
    for dim in sorted(counts, key=lambda dim: -counts[dim]):
        if prod(count for other, count in counts.items() if other not in computed) <= MOST_PHASES:
            break
        computed.add(dim)
    return frozenset(computed)


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


def _whole_window_taps(conv: Conv, dim: int, letter: str) -> Taps:
    """One output: kh = ih + P is the only tap of ih, so nothing is summed over taps (there may be millions of them)."""
    o, k, i = f"o{letter}", f"k{letter}", f"i{letter}"
    wei = (Affine((i,), f"{k}_wei", (1,), conv.windows[dim].pad_begin),)
    loops = ((i, conv.in_spatial[dim]),)
    return Taps(loops, (Pass(i, f"{i}_src"),), wei, (Const(f"{o}_dst", 0),), (i,), (i,), ())


def _unit_stride_taps(conv: Conv, dim: int, letter: str) -> Taps:
    """The inverse window: oh = ih + P - kh * D, valid inside dst."""
    window = conv.windows[dim]
    o, k, i = f"o{letter}", f"k{letter}", f"i{letter}"
    solved = f"{o}_solved"
    dst = (
        Affine((i, k), solved, (1, -window.dilation), window.pad_begin),
        Pad(solved, f"{o}_dst", 0, conv.out_spatial[dim]),
    )
    loops = ((i, conv.in_spatial[dim]), (k, const(window.kernel)))
    return Taps(loops, (Pass(i, f"{i}_src"),), (Pass(k, f"{k}_wei"),), dst, (i,), (k,), (i, k))


def _residue_taps(conv: Conv, dim: int, letter: str, parameters: list[PhaseParameter]) -> Taps:
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
    return Taps(loops, src, wei, dst, (t,), (j,), (t, j))


# --- taps by position -----------------------------------------------------------------------------------------------


def _computed_taps(conv: Conv, dim: int, letter: str) -> Taps:
    """Every position solves for its own taps: kh = first + step * j, oh = (ih + P - kh * D) / S.

    first = (ih + P) mod S / gcd(S, D) * inverse (mod step). Positions and taps without a solution are checked in both
    factors, so that they multiply nothing.
    """
    window = conv.windows[dim]
    solution = _Solution.of(window)
    _check_inverse(window, solution)
    i, k, o = f"i{letter}", f"k{letter}", f"o{letter}"
    tap = _solved_tap(window, solution, letter)
    dst = (
        *tap,
        Affine((f"total_{letter}", f"{k}_valid"), f"scaled_{letter}", (1, -window.dilation), 0),
        Split(f"scaled_{letter}", (f"{o}_solved", f"left_{letter}"), (1, window.stride)),
        Broadcast(f"left_{letter}"),
        Pad(f"{o}_solved", f"{o}_dst", 0, conv.out_spatial[dim]),
    )
    loops = ((i, conv.in_spatial[dim]), (k, const(-(-window.kernel // solution.step))))
    return Taps(loops, (Pass(i, f"{i}_src"),), (*tap, Pass(f"{k}_valid", f"{k}_wei")), dst, (i,), (i, k), (i, k))


def _solved_tap(window: Window, solution: _Solution, letter: str) -> tuple[Transform, ...]:
    """From the position and the number j of a tap to `k*_valid`, the tap."""
    total, turn, rest, part, odd = (f"{name}_{letter}" for name in ("total", "turn", "rest", "part", "odd"))
    turned, first, tap = f"turned_{letter}", f"first_{letter}", f"tap_{letter}"
    return (
        Affine((f"i{letter}",), total, (1,), window.pad_begin),
        Split(total, (turn, rest), (1, window.stride)),
        Broadcast(turn),
        Split(rest, (part, odd), (solution.step, solution.common)),
        PadTo(odd, f"{odd}_valid", 1),
        Broadcast(f"{odd}_valid"),
        Affine((part,), turned, (solution.inverse,), 0),
        Modulo(turned, first, solution.step),
        Affine((first, f"k{letter}"), tap, (1, solution.step), 0),
        PadTo(tap, f"k{letter}_valid", window.kernel),
    )


def _check_inverse(window: Window, solution: _Solution) -> None:
    if solution.inverse > 1 and solution.step > _MOST_INVERTED:
        raise IllegalProblem(
            "stride / gcd(stride, dilation) must not exceed 2**31 where more than "
            f"{MOST_PHASES} positions are told apart by their residue modulo the stride; got {solution.step} "
            f"(stride {window.stride}, dilation {window.dilation}); use a smaller stride"
        )
