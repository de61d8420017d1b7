"""Convolution problems from the arguments of a framework call: paddings in any form, extents computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, SupportsIndex, TypeAlias, cast

from convloom.dtypes import F32, DType
from convloom.errors import IllegalProblem
from convloom.expr import Expr, ExprLike, Truth, const, prove
from convloom.problem.checks import check_groups, check_size, check_windows
from convloom.problem.conv import (
    NO_SCALING,
    Conv,
    Direction,
    Role,
    Scaling,
    TensorSpec,
)
from convloom.problem.geometry import Window, input_extent, output_extent
from convloom.problem.given import Integers, check_kind, check_largest, integer, integers, listed, size, sizes, three
from convloom.problem.layout import Layout
from convloom.problem.layout_given import LayoutLike, given_layout
from convloom.problem.layout_tags import TensorKind, weights_layout
from convloom.problem.output_layout import follow_order
from convloom.problem.size_rules import SizeRule

PerDimension: TypeAlias = SupportsIndex | Integers
Padding: TypeAlias = PerDimension | Sequence[Integers] | Literal["same", "valid"] | str
Pads: TypeAlias = tuple[tuple[int, int], ...]


def per_dimension(name: str, value: PerDimension, rank: int) -> tuple[int, ...]:
    """One int for all dimensions, or one each, as a sequence or a 1-D array. IllegalProblem for another number."""
    items = listed(value)
    if items is None:
        return (integer(name, cast("SupportsIndex", value)),) * rank
    values = tuple([integer(name, item) for item in items])
    if len(values) == 1:
        return values * rank
    if len(values) != rank:
        raise IllegalProblem(
            f"{name} must be one integer or one per spatial dimension ({rank}); got {value!r}; give {rank}"
        )
    return values


def pad_pairs(padding: Padding, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]) -> Pads:
    """(begin, end) per dimension from an int, one int or one pair per dimension, 'same' or 'valid'. Negative pads crop.

    'same' (stride 1 only, as in PyTorch) pads dilation * (kernel - 1) in total, an odd one at the end.
    """
    rank = len(kernel)
    if isinstance(padding, str):
        return _named_pads(padding, kernel, stride, dilation)
    items = listed(padding)
    if items is not None and any(listed(item) is not None for item in items):
        pads = _given_pairs(items, rank)
    else:
        pads = tuple([(pad, pad) for pad in per_dimension("padding", cast("PerDimension", padding), rank)])
    check_largest(("padding", pad) for pair in pads for pad in pair)
    return pads


def _given_pairs(padding: list[Any], rank: int) -> Pads:
    pairs = [pair for pair in map(listed, padding) if pair is not None and len(pair) == 2]
    if len(padding) != rank or len(pairs) != rank:
        raise IllegalProblem(
            f"padding must be one (begin, end) pair per spatial dimension ({rank}); got {padding!r}; give {rank} pairs"
        )
    return tuple([(integer("padding", begin), integer("padding", end)) for begin, end in pairs])


def _named_pads(name: str, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]) -> Pads:
    if name == "valid":
        return ((0, 0),) * len(kernel)
    if name != "same":
        raise IllegalProblem(f"padding is integers, pairs, 'same' or 'valid'; got {name!r}; use one of these")
    if max(stride) > 1:
        raise IllegalProblem(f"padding='same' needs stride 1; got stride={stride}; give the pads as numbers")
    totals = [step * (extent - 1) for extent, step in zip(kernel, dilation, strict=True)]
    return tuple([(total // 2, total - total // 2) for total in totals])


def conv_problem(
    *,
    direction: Direction = Direction.FWD,
    batch: ExprLike,
    in_channels: ExprLike,
    out_channels: ExprLike,
    in_spatial: Sequence[ExprLike],
    kernel: Sequence[SupportsIndex],
    stride: PerDimension = 1,
    padding: Padding = 0,
    dilation: PerDimension = 1,
    groups: ExprLike = 1,
    out_spatial: Sequence[ExprLike] | None = None,
    dtypes: tuple[DType, DType, DType] = (F32, F32, F32),
    layouts: tuple[LayoutLike, LayoutLike, LayoutLike] = (None, None, None),
    bias: DType | None = None,
    scaling: Scaling = NO_SCALING,
    name: str = "",
) -> Conv:
    """A convolution as frameworks describe it; `dtypes` and `layouts` in the order src, wei, dst.

    Output extents follow the floor formula (in + pads - dilation*(kernel-1) - 1) // stride + 1; `out_spatial`, where
    given, must agree with it. A layout is a Layout, strides in elements, a tag, or None: dense for what is read, and
    for the result the dimension order of the input (see `output_layout`).
    IllegalProblem names the dimension that does not fit.
    """
    check_kind("direction", direction, Direction, "a Direction, as Direction.FWD")
    shape = _taken_windows(kernel, stride, dilation)
    taken = _taken_sizes(batch, in_channels, out_channels, groups, in_spatial, len(shape[0]))
    pads = pad_pairs(padding, *shape)
    outputs, rules = _convolved(taken.spatial, shape, pads)
    if out_spatial is not None:
        _check_outputs(sizes("out_spatial", out_spatial), outputs)
    shapes = _shapes(taken.batch, taken.inputs, taken.outputs, taken.groups, taken.spatial, outputs, shape[0])
    specs = _specs(direction, shapes, taken.groups, three("dtypes", dtypes), three("layouts", layouts))
    return _build(direction, shapes, taken.groups, shape, pads, specs, bias, scaling, rules, name)


def conv_transpose_problem(
    *,
    batch: ExprLike,
    in_channels: ExprLike,
    out_channels: ExprLike,
    in_spatial: Sequence[ExprLike],
    kernel: Sequence[SupportsIndex],
    stride: PerDimension = 1,
    padding: Padding = 0,
    output_padding: PerDimension = 0,
    dilation: PerDimension = 1,
    groups: ExprLike = 1,
    dtypes: tuple[DType, DType, DType] = (F32, F32, F32),
    layouts: tuple[LayoutLike, LayoutLike, LayoutLike] = (None, None, None),
    bias: DType | None = None,
    scaling: Scaling = NO_SCALING,
    name: str = "",
) -> Conv:
    """A transposed convolution in its own terms (torch.nn.functional.conv_transpose); gives a BWD_D Conv.

    Weights are (in_channels, out_channels/groups, *kernel). Output extents are (in-1)*stride - pads +
    dilation*(kernel-1) + output_padding + 1. `dtypes` and `layouts` in the order input, weights, output.
    IllegalProblem names the dimension whose output is empty or whose output_padding is out of range.
    """
    shape = _taken_windows(kernel, stride, dilation)
    taken = _taken_sizes(batch, in_channels, out_channels, groups, in_spatial, len(shape[0]))
    pads = pad_pairs(padding, *shape)
    extra = per_dimension("output_padding", output_padding, len(shape[0]))
    _check_output_padding(extra, shape[1], shape[2])
    produced, rules = _transposed(taken.spatial, shape, pads, extra)
    shapes = _shapes(taken.batch, taken.outputs, taken.inputs, taken.groups, produced, taken.spatial, shape[0])
    backward = three("dtypes", dtypes)[::-1], three("layouts", layouts)[::-1]
    specs = _specs(Direction.BWD_D, shapes, taken.groups, *backward)
    return _build(Direction.BWD_D, shapes, taken.groups, shape, pads, specs, bias, scaling, rules, name)


Windows: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
Shapes: TypeAlias = dict[Role, tuple[Expr, ...]]
Specs: TypeAlias = dict[Role, TensorSpec]
Rules: TypeAlias = tuple[SizeRule, ...]


def _taken_windows(kernel: Sequence[SupportsIndex], stride: PerDimension, dilation: PerDimension) -> Windows:
    extents = integers("kernel", kernel)
    rank = len(extents)
    if not 1 <= rank <= 3:
        raise IllegalProblem(f"a convolution has 1 to 3 spatial dimensions; got kernel {extents}; reshape the tensors")
    steps, gaps = per_dimension("stride", stride, rank), per_dimension("dilation", dilation, rank)
    check_windows(extents, steps, gaps)
    return extents, steps, gaps


class _Sizes(NamedTuple):
    batch: Expr
    inputs: Expr
    outputs: Expr
    groups: Expr
    spatial: tuple[Expr, ...]


def _taken_sizes(
    batch: ExprLike,
    in_channels: ExprLike,
    out_channels: ExprLike,
    groups: ExprLike,
    in_spatial: Sequence[ExprLike],
    rank: int,
) -> _Sizes:
    """The sizes as expressions; IllegalProblem for negative ones, or groups that do not divide the channels."""
    scalars = {"batch": batch, "in_channels": in_channels, "out_channels": out_channels}
    taken = {name: size(name, value) for name, value in scalars.items()}
    spatial = sizes("in_spatial", in_spatial)
    for name, extent in (*taken.items(), *((f"in_spatial[{dim}]", extent) for dim, extent in enumerate(spatial))):
        check_size(name, extent)
    if len(spatial) != rank:
        raise IllegalProblem(
            f"input and kernel must have as many spatial dimensions; got {len(spatial)} and {rank}; reshape one"
        )
    count = size("groups", groups)
    check_groups(taken["in_channels"], taken["out_channels"], count)
    return _Sizes(taken["batch"], taken["in_channels"], taken["out_channels"], count, spatial)


def _convolved(in_spatial: Sequence[Expr], shape: Windows, pads: Pads) -> tuple[tuple[Expr, ...], Rules]:
    """Output extents, and the rule that the kernel fits where it depends on the sizes of a call."""
    found: list[Expr] = []
    rules: list[SizeRule] = []
    for dim, (extent, kernel, stride, dilation, (begin, end)) in enumerate(zip(in_spatial, *shape, pads, strict=True)):
        window = Window(kernel, stride, dilation, begin)
        padded = extent + (begin + end)
        words = f"the kernel must fit the padded input; in spatial dimension {dim} the effective kernel {window.reach}"
        remedy = "pad more or use a smaller kernel or dilation"
        if prove(padded.lt(window.reach)) is Truth.YES:
            raise IllegalProblem(f"{words} is larger than the padded input {padded}; {remedy}")
        rules.append(SizeRule(padded.ge(window.reach), f"{words} needs as large a padded input, {padded}", remedy))
        found.append(output_extent(extent, window, end))
    return tuple(found), tuple(rules)


def _transposed(
    in_spatial: Sequence[Expr], shape: Windows, pads: Pads, output_padding: tuple[int, ...]
) -> tuple[tuple[Expr, ...], Rules]:
    """Output extents, and the rule that none is empty where it depends on the sizes of a call."""
    found: list[Expr] = []
    rules: list[SizeRule] = []
    columns = zip(in_spatial, *shape, pads, output_padding, strict=True)
    for dim, (extent, kernel, stride, dilation, (begin, end), extra) in enumerate(columns):
        produced = input_extent(extent, Window(kernel, stride, dilation, begin), end) + extra
        words = (
            f"a transposed convolution's output must not be empty; spatial dimension {dim} computes to {produced} "
            f"from input {extent} and padding {(begin, end)}"
        )
        if prove(produced.ge(1)) is Truth.NO:
            raise IllegalProblem(f"{words}; pad less")
        if produced.is_const:
            check_largest(((f"the output's extent in spatial dimension {dim}", produced.value),))
        rules.append(SizeRule(produced.ge(1), words, "pad less"))
        found.append(produced)
    return tuple(found), tuple(rules)


def _check_output_padding(extra: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]) -> None:
    for dim, (value, step, gap) in enumerate(zip(extra, stride, dilation, strict=True)):
        if not 0 <= value < max(step, gap):
            raise IllegalProblem(
                f"output_padding must be smaller than stride or dilation; got {value} in spatial dimension {dim}; "
                f"allowed is 0 to {max(step, gap) - 1}"
            )


def _check_outputs(given: Sequence[Expr], computed: tuple[Expr, ...]) -> None:
    if len(given) != len(computed):
        raise IllegalProblem(
            f"the output needs {len(computed)} spatial dimensions; got {len(given)}; give one extent for each"
        )
    for dim, (extent, expected) in enumerate(zip(given, computed, strict=True)):
        if prove(expected.eq(extent)) is Truth.NO:
            raise IllegalProblem(
                f"output extents follow from input, kernel, stride, dilation and padding; spatial dimension {dim} is "
                f"{extent}, expected {expected}; correct the extent or the padding"
            )


def _shapes(
    batch: Expr,
    inputs: Expr,
    outputs: Expr,
    groups: Expr,
    in_spatial: Sequence[Expr],
    out_spatial: Sequence[Expr],
    kernel: tuple[int, ...],
) -> Shapes:
    return {
        Role.SRC: (batch, inputs, *in_spatial),
        Role.WEI: (outputs, inputs // groups, *map(const, kernel)),
        Role.DST: (batch, outputs, *out_spatial),
    }


def _specs(
    direction: Direction,
    shapes: Shapes,
    groups: Expr,
    dtypes: tuple[DType, DType, DType],
    layouts: tuple[LayoutLike, LayoutLike, LayoutLike],
) -> Specs:
    found = {role: _layout(role, shapes[role], groups, given) for role, given in zip(Role, layouts, strict=True)}
    result = {Direction.FWD: Role.DST, Direction.BWD_D: Role.SRC, Direction.BWD_W: Role.WEI}[direction]
    leader = Role.DST if direction is Direction.BWD_D else Role.SRC
    if layouts[tuple(Role).index(result)] is None:
        found[result] = follow_order(found[leader], shapes[leader], shapes[result])
    return {role: TensorSpec(dtype, found[role]) for role, dtype in zip(Role, dtypes, strict=True)}


def _layout(role: Role, shape: tuple[Expr, ...], groups: Expr, given: LayoutLike) -> Layout:
    if role is Role.WEI and isinstance(given, str):
        return weights_layout(given, shape, groups, explicit_groups=groups is not const(1))
    return given_layout(given, shape, TensorKind.ACTIVATION)


def _build(
    direction: Direction,
    shapes: Shapes,
    groups: Expr,
    shape: Windows,
    pads: Pads,
    specs: Specs,
    bias: DType | None,
    scaling: Scaling,
    rules: Rules,
    name: str,
) -> Conv:
    batch, in_channels, *in_spatial = shapes[Role.SRC]
    _, out_channels, *out_spatial = shapes[Role.DST]
    kernel, stride, dilation = shape
    return Conv(
        direction=direction,
        batch=batch,
        in_channels=in_channels,
        out_channels=out_channels,
        groups=groups,
        in_spatial=tuple(in_spatial),
        out_spatial=tuple(out_spatial),
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        pad_begin=tuple([begin for begin, _ in pads]),
        src=specs[Role.SRC],
        wei=specs[Role.WEI],
        dst=specs[Role.DST],
        bias=bias,
        scaling=scaling,
        rules=rules,
        name=name,
    )
