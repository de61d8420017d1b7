"""From accumulators to C: scales, factors, bias, old output and the epilogue's steps; one rounding, a masked store."""

from __future__ import annotations

from convloom.dtypes import DType
from convloom.expr import Expr, all_of, const, simplify
from convloom.ir.build import IrBuilder
from convloom.ir.ops import (
    Binary,
    BinaryOp,
    Buffer,
    Constant,
    Convert,
    MultiplyAdd,
    Parameter,
    Read,
    Scope,
    Splat,
    Value,
)
from convloom.lower.epilogue_steps import Leaves, lower_expression
from convloom.lower.frame import GridFrame, factor_type
from convloom.plan.epilogue_access import ExtraAccess, extra_access, varies_along_n
from convloom.plan.flat_axis import MASKED_IN_RESULT, tile_view
from convloom.problem.contraction import Contraction, Operand


def store_part(builder: IrBuilder, frame: GridFrame, coordinates: dict[str, Expr], value: Value) -> None:
    """Stores one run of columns of C; `coordinates` are those of its first number by flat axis.

    `value` is the sum over all of K: whoever divides the sum adds its parts up first.
    """
    c = frame.contraction.c
    offset, mask = _place(builder, frame, c, coordinates, MASKED_IN_RESULT)
    old = Read(frame.buffers[c.name], offset, frame.plan.store, mask)
    builder.write(frame.buffers[c.name], offset, _finished(builder, frame, coordinates, value, old), mask)


def store_run(builder: IrBuilder, frame: GridFrame, coordinates: dict[str, Expr], value: Value) -> None:
    """Stores numbers as C holds them, a run of columns from these coordinates on."""
    c = frame.contraction.c
    offset, mask = _place(builder, frame, c, coordinates, MASKED_IN_RESULT)
    builder.write(frame.buffers[c.name], offset, value, mask)


def result_part(builder: IrBuilder, frame: GridFrame, coordinates: dict[str, Expr], value: Value) -> Value:
    """The numbers of C that `store_part` would store, for those who store them in another way."""
    c, width = frame.contraction.c, frame.plan.store
    old: Value = Constant(0, c.dtype, width)
    if frame.contraction.reads_old:
        offset, mask = _place(builder, frame, c, coordinates, MASKED_IN_RESULT)
        old = Read(frame.buffers[c.name], offset, width, mask)
    return _finished(builder, frame, coordinates, value, old)


def _finished(builder: IrBuilder, frame: GridFrame, coordinates: dict[str, Expr], value: Value, old: Value) -> Value:
    contraction = frame.contraction
    value = _with_factors(builder, frame, coordinates, value)
    value = _scaled(contraction, value, old, frame.plan.store)
    if contraction.bias is not None:
        value = _biased(builder, frame, contraction.bias, coordinates, value)
    if not contraction.steps.is_plain:
        value = _stepped(builder, frame, coordinates, value, old)
    return Convert(value, contraction.c.dtype)


def _with_factors(builder: IrBuilder, frame: GridFrame, coordinates: dict[str, Expr], value: Value) -> Value:
    """The sum times the operands that scale it."""
    wide = factor_type(frame.contraction)
    for number in frame.contraction.steps.factors:
        scale = _extra(builder, frame, number, coordinates, wide)
        value = Binary(BinaryOp.MUL, Convert(value, wide), scale)
    return value


def _stepped(builder: IrBuilder, frame: GridFrame, coordinates: dict[str, Expr], value: Value, old: Value) -> Value:
    """The expression of the epilogue, in f32 or f64."""
    contraction, wide = frame.contraction, factor_type(frame.contraction)
    leaves = Leaves(
        accumulator=Convert(value, wide),
        old=Convert(old, wide),
        old_type=contraction.c.dtype,
        extra=lambda number: _extra(builder, frame, number, coordinates, wide),
        dtype=wide,
        width=frame.plan.store,
        lanes=frame.plan.lanes if frame.plan.store == frame.plan.lanes else 1,
    )
    return lower_expression(builder, contraction.steps.expression, leaves)


def _extra(builder: IrBuilder, frame: GridFrame, number: int, coordinates: dict[str, Expr], wide: DType) -> Value:
    """The numbers of an epilogue operand beside a run of columns."""
    contraction, width = frame.contraction, frame.plan.store
    operand = contraction.extras[number]
    buffer, access = frame.buffers[operand.name], extra_access(operand, contraction, frame.plan)
    if access is ExtraAccess.GATHER:
        return _gathered(builder, frame, operand, coordinates, wide)
    offset, mask = _place(builder, frame, operand, coordinates)
    if access is ExtraAccess.VECTOR:
        return Convert(Read(buffer, offset, width, mask), wide)
    one = Convert(Read(buffer, offset, 1, mask), wide)
    return one if width == 1 else Splat(one, width)


def _gathered(
    builder: IrBuilder, frame: GridFrame, operand: Operand, coordinates: dict[str, Expr], wide: DType
) -> Value:
    """One read for each column."""
    width = frame.plan.store
    numbers = builder.allocate(Buffer(builder.unique(f"{operand.name}_numbers"), wide, Scope.REGISTER, width))
    for lane in range(width):
        offset, mask = _place(builder, frame, operand, {**coordinates, "N": coordinates["N"] + lane})
        builder.write(numbers, lane, Convert(Read(frame.buffers[operand.name], offset, 1, mask), wide))
    return Read(numbers, const(0), width)


def _scaled(contraction: Contraction, value: Value, old: Value, width: int) -> Value:
    """Alpha * value + beta * old, in floating point only where a factor is there."""
    wide = factor_type(contraction)
    if contraction.scaling.alpha:
        value = Binary(BinaryOp.MUL, Convert(value, wide), _factor("alpha", wide, width))
    if contraction.scaling.beta:
        value = Convert(value, wide)
        value = MultiplyAdd(Convert(old, wide), _factor("beta", wide, width), value)
    return value


def _factor(name: str, dtype: DType, width: int) -> Value:
    parameter = Parameter(name, dtype)
    return parameter if width == 1 else Splat(parameter, width)


def _biased(builder: IrBuilder, frame: GridFrame, bias: Operand, coordinates: dict[str, Expr], value: Value) -> Value:
    contraction = frame.contraction
    offset, mask = _place(builder, frame, bias, coordinates)
    scaled = contraction.scaling.alpha or contraction.scaling.beta or contraction.steps.factors
    exact = not scaled and not bias.dtype.is_float
    sum_type = contraction.acc if exact else factor_type(contraction)
    width = frame.plan.store
    addend: Value
    if width == 1 or not varies_along_n(bias, contraction):
        addend = Convert(Read(frame.buffers[bias.name], offset, 1, mask), sum_type)
        addend = addend if width == 1 else Splat(addend, width)
    else:
        addend = Convert(Read(frame.buffers[bias.name], offset, width, mask), sum_type)
    return Binary(BinaryOp.ADD, Convert(value, sum_type), addend)


def _place(
    builder: IrBuilder, frame: GridFrame, operand: Operand, coordinates: dict[str, Expr], masked: tuple[str, ...] = ()
) -> tuple[Expr, Expr | None]:
    """(offset, mask if one is needed) of an epilogue operand at a point of C."""
    view = tile_view(operand.view, frame.merged, (), masked)
    access = view.access({axis.name: coordinates[axis.name] for axis in view.axes})
    mask = simplify(all_of(*access.conditions))
    return builder.let(f"{operand.name}_at", access.offset), None if mask is const(1) else mask
