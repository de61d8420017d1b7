"""From accumulators to C: factors, bias and old output in floating point, one rounding, a masked store."""

from __future__ import annotations

from convloom.dtypes import DType
from convloom.expr import Expr, all_of, const, simplify
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Binary, BinaryOp, Convert, MultiplyAdd, Parameter, Read, Splat, Value
from convloom.lower.frame import Frame, factor_type
from convloom.plan.flat_axis import MASKED_IN_RESULT, tile_view
from convloom.problem.contraction import Contraction, Operand


def store_part(builder: IrBuilder, frame: Frame, coordinates: dict[str, Expr], value: Value) -> None:
    """Stores one run of columns of C; `coordinates` are those of its first number by flat axis."""
    contraction, width = frame.contraction, frame.plan.store
    offset, mask = _place(builder, frame, contraction.c, coordinates, MASKED_IN_RESULT)
    old = Read(frame.buffers[contraction.c.name], offset, width, mask)
    value = _scaled(contraction, value, old, width)
    if contraction.bias is not None:
        value = _biased(builder, frame, contraction.bias, coordinates, value)
    builder.write(frame.buffers[contraction.c.name], offset, Convert(value, contraction.c.dtype), mask)


def _scaled(contraction: Contraction, value: Value, old: Read, width: int) -> Value:
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


def _biased(builder: IrBuilder, frame: Frame, bias: Operand, coordinates: dict[str, Expr], value: Value) -> Value:
    contraction = frame.contraction
    offset, mask = _place(builder, frame, bias, coordinates)
    exact = not contraction.scaling.alpha and not contraction.scaling.beta and not bias.dtype.is_float
    sum_type = contraction.acc if exact else factor_type(contraction)
    width = frame.plan.store
    varies = "N" in {axis.name for axis in tile_view(bias.view, frame.merged, ()).axes}
    addend: Value
    if width == 1 or not varies:
        addend = Convert(Read(frame.buffers[bias.name], offset, 1, mask), sum_type)
        addend = addend if width == 1 else Splat(addend, width)
    else:
        addend = Convert(Read(frame.buffers[bias.name], offset, width, mask), sum_type)
    return Binary(BinaryOp.ADD, Convert(value, sum_type), addend)


def _place(
    builder: IrBuilder, frame: Frame, operand: Operand, coordinates: dict[str, Expr], masked: tuple[str, ...] = ()
) -> tuple[Expr, Expr | None]:
    """(offset, mask if one is needed) of an epilogue operand at a point of C."""
    view = tile_view(operand.view, frame.merged, (), masked)
    access = view.access({axis.name: coordinates[axis.name] for axis in view.axes})
    mask = simplify(all_of(*access.conditions))
    return builder.let(f"{operand.name}_at", access.offset), None if mask is const(1) else mask
