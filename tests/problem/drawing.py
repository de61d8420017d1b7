"""Random small problems, each as one of constant sizes and as one whose sizes are symbols with the same values."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from convloom.dtypes import BF16, F16, F32, F64, S8, S32, U8, DType
from convloom.expr import Expr, ceil_div, const, sym
from convloom.problem.conv import Conv, Direction, Role, Scaling, TensorSpec
from convloom.problem.gemm import BiasAxis, Gemm
from convloom.problem.layout import Block, Layout, dense

Problem = Conv | Gemm

FLOAT = (F32, F32, F32)
TYPES = (
    FLOAT,
    (F64, F64, F64),
    (F16, F16, F16),
    (BF16, BF16, BF16),
    (F16, BF16, F32),
    (S8, S8, S32),
    (U8, S8, S8),
    (S8, S8, F32),
)


@dataclass
class Sizes:
    """Makes the sizes of a problem: numbers, or symbols whose values it remembers."""

    symbolic: bool = False
    values: dict[str, int] = field(default_factory=dict)

    def __call__(self, name: str, value: int, divisor: int = 1) -> Expr:
        if not self.symbolic:
            return const(value)
        name = f"{name}_{len(self.values)}"
        self.values[name] = value
        return sym(name, divisor=divisor, lo=1, hint=64)


@dataclass(frozen=True)
class Drawn:
    """A problem with constant sizes, its twin over symbols, and the symbols' values."""

    static: Problem
    dynamic: Problem
    values: dict[str, int]


def draw(seed: int, types: tuple[tuple[DType, DType, DType], ...] = (FLOAT,), *, rank: int | None = None) -> Drawn:
    """The problem of a seed: three convolutions for one product."""
    sizes = Sizes(symbolic=True)
    static = _draw(random.Random(seed), Sizes(), types, rank)
    return Drawn(static, _draw(random.Random(seed), sizes, types, rank), sizes.values)


def _draw(rng: random.Random, sizes: Sizes, types: tuple[tuple[DType, DType, DType], ...], rank: int | None) -> Problem:
    chosen = rng.choice(types)
    return _gemm(rng, sizes, chosen) if rng.random() < 0.25 else _conv(rng, sizes, chosen, rank)


def _bias(rng: random.Random, types: tuple[DType, DType, DType]) -> DType | None:
    if rng.random() < 0.6:
        return None
    a, _, c = types
    if not a.is_float:
        return rng.choice((S32, F32))
    return c if c.is_float else F32


def _scaling(rng: random.Random) -> Scaling:
    return Scaling(rng.random() < 0.2, rng.random() < 0.2)


def _conv(rng: random.Random, sizes: Sizes, types: tuple[DType, DType, DType], rank: int | None) -> Conv:
    direction = rng.choice(tuple(Direction))
    rank = rank or rng.choice((1, 2, 2, 3))
    most = 7 if rank < 3 else 4
    groups = sizes("groups", rng.choice((1, 1, 2, 3)))
    batch = sizes("batch", rng.randint(1, 3))
    per_group = sizes("ic", rng.choice((1, 2, 3, 4, 8)))
    inputs, outputs = groups * per_group, groups * sizes("oc", rng.choice((1, 2, 3, 4, 8)))
    in_spatial = tuple(sizes("in", rng.randint(1, most)) for _ in range(rank))
    out_spatial = tuple(sizes("out", rng.randint(1, most)) for _ in range(rank))
    kernel, stride, dilation = (tuple(rng.choice((1, 2, 3)) for _ in range(rank)) for _ in range(3))
    pad = tuple(rng.choice((0, 0, 1, 2, -1, -2, 4)) for _ in range(rank))
    shapes = {
        Role.SRC: (batch, inputs, *in_spatial),
        Role.WEI: (outputs, per_group, *(const(extent) for extent in kernel)),
        Role.DST: (batch, outputs, *out_spatial),
    }
    result = {Direction.FWD: Role.DST, Direction.BWD_D: Role.SRC, Direction.BWD_W: Role.WEI}[direction]
    layouts = {role: _layout(rng, shape, role is not result) for role, shape in shapes.items()}
    by_direction = {
        Direction.FWD: (Role.SRC, Role.WEI, Role.DST),
        Direction.BWD_D: (Role.DST, Role.WEI, Role.SRC),
        Direction.BWD_W: (Role.SRC, Role.DST, Role.WEI),
    }[direction]
    dtype = dict(zip(by_direction, types, strict=True))
    specs = [TensorSpec(dtype[role], layouts[role]) for role in Role]
    bias = None if direction is Direction.BWD_W else _bias(rng, types)
    sized = (batch, inputs, outputs, groups, in_spatial, out_spatial)
    return Conv(direction, *sized, kernel, stride, dilation, pad, *specs, bias, _scaling(rng))


def _gemm(rng: random.Random, sizes: Sizes, types: tuple[DType, DType, DType]) -> Gemm:
    batch = tuple(sizes("batch", rng.randint(1, 3)) for _ in range(rng.choice((0, 1, 2))))
    m, n, k = (sizes(name, rng.choice((1, 3, 5, 8, 16, 17))) for name in "mnk")
    shapes = ((*batch, m, k), (*batch, k, n), (*batch, m, n))
    layouts = [_layout(rng, shape, place < 2, blocks=False) for place, shape in enumerate(shapes)]
    specs = [TensorSpec(dtype, layout) for dtype, layout in zip(types, layouts, strict=True)]
    return Gemm(batch, m, n, k, *specs, _bias(rng, types), _scaling(rng), rng.choice(tuple(BiasAxis)))


def _layout(rng: random.Random, shape: tuple[Expr, ...], is_input: bool, *, blocks: bool = True) -> Layout:
    order = list(range(len(shape)))
    kind = rng.choice(("plain", "plain", "last", "mixed", "gaps", "blocked", "negative", "broadcast"))
    if kind == "last":  # channels last
        order = [0, *order[2:], 1]
    elif kind != "plain":
        rng.shuffle(order)
    if kind == "blocked" and blocks:
        return _blocked(rng, shape, order)
    layout = dense([extent + (kind == "gaps") for extent in shape], order)
    if is_input and kind in ("negative", "broadcast"):
        factor = -1 if kind == "negative" else 0
        return Layout(tuple(stride * (factor if rng.random() < 0.5 else 1) for stride in layout.strides))
    return layout


def _blocked(rng: random.Random, shape: tuple[Expr, ...], order: list[int]) -> Layout:
    """Channels in runs of 2, 4 or 8, padded up in memory."""
    period = rng.choice((2, 4, 8))
    outer = [ceil_div(extent, period) if dim == 1 else extent for dim, extent in enumerate(shape)]
    strides = tuple(stride * period for stride in dense(outer, order).strides)
    return Layout(strides, (Block(1, const(period), const(1)),))
