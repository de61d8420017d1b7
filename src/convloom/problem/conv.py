"""The convolution problem: one frozen record for the three directions, the transposed convolution included."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from convloom.dtypes import DType, accumulator
from convloom.errors import IllegalProblem
from convloom.expr import Expr, ExprLike, as_expr, simplify, substitute
from convloom.problem.checks import (
    check_groups,
    check_result_layout,
    check_size,
    check_storage,
    check_tf32,
    check_types,
    check_windows,
    group_rules,
    not_negative,
)
from convloom.problem.epilogue import NO_EPILOGUE, Epilogue
from convloom.problem.geometry import Window, exact_pad_end, valid_taps
from convloom.problem.given import check_kind, check_largest, integers, size, sizes
from convloom.problem.layout import Layout
from convloom.problem.size_rules import SizeRule, open_rules


class Direction(Enum):
    """What is computed: dst from src and wei, src from dst and wei, or wei from src and dst."""

    FWD = "fwd"
    BWD_D = "bwd_d"
    BWD_W = "bwd_w"


class Role(Enum):
    """The three tensors of a convolution."""

    SRC = "src"
    WEI = "wei"
    DST = "dst"


_ROLES_OF_DIRECTION = {
    Direction.FWD: (Role.SRC, Role.WEI, Role.DST),
    Direction.BWD_D: (Role.DST, Role.WEI, Role.SRC),
    Direction.BWD_W: (Role.SRC, Role.DST, Role.WEI),
}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Element type and place in memory of one tensor."""

    dtype: DType
    layout: Layout

    def __post_init__(self) -> None:
        check_kind("dtype", self.dtype, DType, "an element type, as convloom.dtypes.F32")
        check_kind("layout", self.layout, Layout, "a Layout, as convloom.problem.layout.dense(shape) makes one")


@dataclass(frozen=True, slots=True)
class Scaling:
    """Whether a call passes `alpha` (factor of the product) and `beta` (factor of the old output, then read)."""

    alpha: bool = False
    beta: bool = False

    def __post_init__(self) -> None:
        check_kind("alpha", self.alpha, bool, "True or False: whether calls pass it")
        check_kind("beta", self.beta, bool, "True or False: whether calls pass it")


NO_SCALING = Scaling()


@dataclass(frozen=True, slots=True)
class Conv:
    """A convolution; logical dims src (n, c, *spatial), wei (oc, ic/g, *kernel), dst (n, oc, *spatial).

    Channels are totals, dilation 1 is dense, a negative pad crops. `pad_end` follows: what exactly fits. A transposed
    convolution is BWD_D (its input is dst, its output src) and may have a bias, one value per channel of the output.
    `bias_grad` is the type in which a BWD_W problem also gives the gradient by the bias: the sums of dst per channel.
    `tf32` allows that f32 factors are cut to tf32 where instructions then are faster. Sizes may be ints where the
    record is built. `rules` are what its maker demands of symbolic sizes, as that the kernel fits. `name` is a label
    and takes no part in equality.
    IllegalProblem states the broken rule; of symbolic sizes only what is provably broken is an error.
    """

    direction: Direction
    batch: Expr
    in_channels: Expr
    out_channels: Expr
    groups: Expr
    in_spatial: tuple[Expr, ...]
    out_spatial: tuple[Expr, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pad_begin: tuple[int, ...]
    src: TensorSpec
    wei: TensorSpec
    dst: TensorSpec
    bias: DType | None = None
    scaling: Scaling = NO_SCALING
    rules: tuple[SizeRule, ...] = ()
    epilogue: Epilogue = NO_EPILOGUE
    name: str = field(default="", compare=False)
    tf32: bool = False
    bias_grad: DType | None = None

    def __post_init__(self) -> None:
        for name in ("batch", "in_channels", "out_channels", "groups"):
            object.__setattr__(self, name, size(name, getattr(self, name)))
        for name in ("in_spatial", "out_spatial"):
            object.__setattr__(self, name, sizes(name, getattr(self, name)))
        for name in ("kernel", "stride", "dilation", "pad_begin"):
            object.__setattr__(self, name, integers(name, getattr(self, name)))
        _check_kinds(self)
        _check_ranks(self)
        check_windows(self.kernel, self.stride, self.dilation)
        _check_sizes(self)
        check_groups(self.in_channels, self.out_channels, self.groups)
        _check_types(self)
        _check_layouts(self)
        _check_storage(self)
        object.__setattr__(self, "rules", open_rules(self.rules))
        rank = self.rank + 2
        self.epilogue.check(self.spec(self.roles[0]).dtype, self.spec(self.result).dtype, (rank, rank, rank))

    @property
    def rank(self) -> int:
        """Number of spatial dimensions."""
        return len(self.kernel)

    @property
    def windows(self) -> tuple[Window, ...]:
        """The window of each spatial dimension."""
        return tuple(map(Window, self.kernel, self.stride, self.dilation, self.pad_begin))

    @property
    def pad_end(self) -> tuple[Expr, ...]:
        """Right pads with which the last window ends exactly at the padded input's end; negative: elements unused."""
        return tuple(map(exact_pad_end, self.in_spatial, self.out_spatial, self.windows))

    @property
    def channels_per_group(self) -> Expr:
        """Input channels of one group (ic/g)."""
        return simplify(self.in_channels // self.groups)

    @property
    def outputs_per_group(self) -> Expr:
        """Output channels of one group (oc/g)."""
        return simplify(self.out_channels // self.groups)

    @property
    def src_shape(self) -> tuple[Expr, ...]:
        """(n, c, *spatial)."""
        return (self.batch, self.in_channels, *self.in_spatial)

    @property
    def wei_shape(self) -> tuple[Expr, ...]:
        """(oc, ic/g, *kernel)."""
        return (self.out_channels, self.channels_per_group, *[as_expr(extent) for extent in self.kernel])

    @property
    def dst_shape(self) -> tuple[Expr, ...]:
        """(n, oc, *spatial)."""
        return (self.batch, self.out_channels, *self.out_spatial)

    @property
    def roles(self) -> tuple[Role, Role, Role]:
        """The operands A, B and the result C: (src, wei, dst), (dst, wei, src) or (src, dst, wei)."""
        return _ROLES_OF_DIRECTION[self.direction]

    @property
    def result(self) -> Role:
        """The tensor that is produced."""
        return self.roles[2]

    def shape(self, role: Role) -> tuple[Expr, ...]:
        """Logical extents of a tensor."""
        return {Role.SRC: self.src_shape, Role.WEI: self.wei_shape, Role.DST: self.dst_shape}[role]

    def spec(self, role: Role) -> TensorSpec:
        """Type and layout of a tensor."""
        return {Role.SRC: self.src, Role.WEI: self.wei, Role.DST: self.dst}[role]

    @property
    def acc(self) -> DType:
        """The type that products are summed in."""
        first, second, _ = self.roles
        return accumulator(self.spec(first).dtype, self.spec(second).dtype)

    @property
    def bias_extent(self) -> Expr:
        """Number of bias values: the channels of the produced activation."""
        return self.in_channels if self.direction is Direction.BWD_D else self.out_channels

    @property
    def ops(self) -> int:
        """Twice the multiplications with valid taps (no padding taps, as in benchdnn); the same in all directions.

        IllegalProblem for symbolic sizes: `bind` them first.
        """
        channels = constant(self.batch * self.out_channels * self.channels_per_group, "the number of operations")
        taps = (
            valid_taps(constant(i, "the number of operations"), constant(o, "the number of operations"), window)
            for i, o, window in zip(self.in_spatial, self.out_spatial, self.windows, strict=True)
        )
        return 2 * channels * math.prod(taps)

    @property
    def open_rules(self) -> tuple[SizeRule, ...]:
        """What a call must check of symbolic sizes: `rules`, that groups divide channels, that no size is negative."""
        own = (*self.rules, *group_rules(self.in_channels, self.out_channels, self.groups))
        return open_rules((*own, *map(not_negative, _named_sizes(self))))

    def replace_direction(self, direction: Direction) -> Conv:
        """The same geometry, types and layouts in another direction; a bias is dropped where it has no meaning.

        An epilogue belongs to one result: it stays where the direction does.
        """
        bias = None if direction is Direction.BWD_W else self.bias
        epilogue = self.epilogue if direction is self.direction else NO_EPILOGUE
        return replace(self, direction=direction, bias=bias, epilogue=epilogue)

    def bind(self, values: Mapping[Expr, ExprLike]) -> Conv:
        """The problem with symbols replaced by values or other expressions."""

        def spec(old: TensorSpec) -> TensorSpec:
            return TensorSpec(old.dtype, old.layout.bind(values))

        return replace(
            self,
            batch=substitute(self.batch, values),
            in_channels=substitute(self.in_channels, values),
            out_channels=substitute(self.out_channels, values),
            groups=substitute(self.groups, values),
            in_spatial=tuple(substitute(extent, values) for extent in self.in_spatial),
            out_spatial=tuple(substitute(extent, values) for extent in self.out_spatial),
            src=spec(self.src),
            wei=spec(self.wei),
            dst=spec(self.dst),
            rules=tuple([rule.bind(values) for rule in self.rules]),
            epilogue=self.epilogue.bind(lambda layout: layout.bind(values)),
        )


def constant(size: Expr, purpose: str) -> int:
    """The value of a size; IllegalProblem if it is symbolic."""
    if not size.is_const:
        raise IllegalProblem(f"{purpose} needs constant sizes; got {size}; bind its symbols to values first")
    return size.value


def _check_kinds(conv: Conv) -> None:
    check_kind("direction", conv.direction, Direction, "a Direction, as Direction.FWD")
    for role in Role:
        check_kind(role.value, conv.spec(role), TensorSpec, "a TensorSpec(dtype, layout)")
    check_epilogue_kinds(conv.bias, conv.scaling, conv.epilogue)


def check_epilogue_kinds(bias: DType | None, scaling: Scaling, epilogue: Epilogue) -> None:
    """IllegalType for a bias that is no element type, a scaling that is no Scaling, or an epilogue that is none."""
    if bias is not None:
        check_kind("bias", bias, DType, "None or an element type, as convloom.dtypes.F32")
    check_kind("scaling", scaling, Scaling, "a Scaling(alpha, beta)")
    check_kind("epilogue", epilogue, Epilogue, "an Epilogue, as convloom.Epilogue()")


def _check_ranks(conv: Conv) -> None:
    rank = len(conv.kernel)
    if not 1 <= rank <= 3:
        raise IllegalProblem(f"a convolution has 1 to 3 spatial dimensions; got kernel {conv.kernel}; reshape")
    for name in ("in_spatial", "out_spatial", "stride", "dilation", "pad_begin"):
        given = getattr(conv, name)
        if len(given) != rank:
            raise IllegalProblem(f"{name} needs one value per kernel dimension ({rank}); got {given}; give {rank}")


def _named_sizes(conv: Conv) -> list[tuple[str, Expr]]:
    sizes = [("batch", conv.batch), ("in_channels", conv.in_channels), ("out_channels", conv.out_channels)]
    sizes += [(f"in_spatial[{dim}]", extent) for dim, extent in enumerate(conv.in_spatial)]
    sizes += [(f"out_spatial[{dim}]", extent) for dim, extent in enumerate(conv.out_spatial)]
    return sizes


def _check_sizes(conv: Conv) -> None:
    for name, extent in _named_sizes(conv):
        check_size(name, extent)


def _check_types(conv: Conv) -> None:
    first, second, result = conv.roles
    check_types(conv.spec(first).dtype, conv.spec(second).dtype, conv.spec(result).dtype, conv.bias)
    check_tf32(conv.tf32, conv.spec(first).dtype, conv.spec(second).dtype)
    if conv.bias is not None and conv.direction is Direction.BWD_W:
        raise IllegalProblem(
            f"bias belongs to fwd and bwd_d; got bias {conv.bias} for bwd_w; its gradient is bias_grad"
        )
    if conv.bias_grad is not None:
        _check_bias_gradient(conv, conv.bias_grad)


def _check_bias_gradient(conv: Conv, dtype: DType) -> None:
    check_kind("bias_grad", dtype, DType, "None or an element type, as convloom.dtypes.F32")
    if conv.direction is not Direction.BWD_W:
        raise IllegalProblem(
            f"a bias gradient belongs to bwd_w; got bias_grad {dtype} for {conv.direction.value}; leave it out"
        )
    check_types(conv.dst.dtype, conv.dst.dtype, dtype, None)


def _check_layouts(conv: Conv) -> None:
    for role in Role:
        conv.spec(role).layout.check_rank(conv.rank + 2)
    check_result_layout(conv.result.value, conv.spec(conv.result).layout, conv.shape(conv.result))


def _check_storage(conv: Conv) -> None:
    check_largest(("pad_begin", pad) for pad in conv.pad_begin)
    check_largest(("pad_end", pad.value) for pad in conv.pad_end if pad.is_const)
    for role in Role:
        check_storage(role.value, conv.spec(role).layout, conv.shape(role))
