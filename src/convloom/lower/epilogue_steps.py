"""An epilogue's expression as IR values: one function per node, values that are used twice kept in registers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from convloom.dtypes import U8, DType
from convloom.errors import InternalError
from convloom.expr import const
from convloom.ir.build import IrBuilder
from convloom.ir.functions import Function
from convloom.ir.ops import Binary as IrBinary
from convloom.ir.ops import BinaryOp, Buffer, Call, Constant, Read, Scope, Value
from convloom.problem.epilogue import (
    Accumulator,
    Binary,
    BinaryKind,
    Eltwise,
    EltwiseKind,
    Input,
    Node,
    Number,
    Old,
    Select,
    children,
)


@dataclass(frozen=True, slots=True)
class Leaves:
    """What an expression starts from, in the type that it is computed in; `lanes` are those of register vectors."""

    accumulator: Value
    old: Value
    old_type: DType
    extra: Callable[[int], Value]
    dtype: DType
    width: int
    lanes: int


def lower_expression(builder: IrBuilder, expression: Node, leaves: Leaves) -> Value:
    """The value of an expression. Every operand is read once, before anything is computed from it."""
    uses = Counter[Node]()
    _count(expression, uses)
    return _Lowering(builder, leaves, uses).value(expression)


def _count(node: Node, uses: Counter[Node]) -> None:
    uses[node] += 1
    if uses[node] == 1:
        for child in children(node):
            _count(child, uses)


class _Lowering:
    """Values of the nodes met so far."""

    def __init__(self, builder: IrBuilder, leaves: Leaves, uses: Counter[Node]) -> None:
        self._builder, self._leaves, self._uses = builder, leaves, uses
        self._kept: dict[Node, Value] = {}

    def value(self, node: Node) -> Value:
        """The value of a node."""
        found = self._kept.get(node)
        if found is None:
            found = self._made(node)
            if self._uses[node] > 1 and not isinstance(node, Number):
                found = self._in_register(found)
            self._kept[node] = found
        return found

    def _in_register(self, value: Value) -> Value:
        width = self._leaves.width
        name = self._builder.unique("step")
        buffer = Buffer(name, self._leaves.dtype, Scope.REGISTER, width, self._leaves.lanes)
        self._builder.allocate(buffer)
        self._builder.write(buffer, 0, value)
        return Read(buffer, const(0), width)

    def _made(self, node: Node) -> Value:
        match node:
            case Accumulator():
                return self._leaves.accumulator
            case Input():
                return self._leaves.extra(node.index)
            case Old():
                return self._old(node)
            case Number():
                return self._number(node.value)
            case Eltwise():
                return _eltwise(node, self.value(node.x))
            case Binary():
                return _binary(node.kind, self.value(node.left), self.value(node.right))
            case Select():
                parts = (node.condition, node.yes, node.no)
                return Call(Function.SELECT, tuple(self.value(part) for part in parts))
            case _:
                raise InternalError(f"an expression consists of epilogue nodes; got {node!r}; report this")

    def _number(self, value: float) -> Value:
        return Constant(value, self._leaves.dtype, self._leaves.width)

    def _old(self, node: Old) -> Value:
        """Scale * (old - zero_point); a byte of the other signedness is told by its sign or size."""
        value = self._leaves.old
        if node.dtype is not None and node.dtype is not self._leaves.old_type:
            value = self._reread(value, to_unsigned=node.dtype is U8)
        if node.zero_point:
            value = Call(Function.LINEAR, (value,), (1.0, -float(node.zero_point)))
        return value if node.scale == 1 else Call(Function.LINEAR, (value,), (node.scale, 0.0))

    def _reread(self, value: Value, *, to_unsigned: bool) -> Value:
        """The number of the byte as the other type: 256 more for negative ones, or 256 less from 128 on."""
        byte = self._in_register(value)
        limit, step = (0.0, 256.0) if to_unsigned else (128.0, -256.0)
        changes = Call(Function.LT if to_unsigned else Function.GE, (byte, self._number(limit)))
        return Call(Function.SELECT, (changes, Call(Function.LINEAR, (byte,), (1.0, step)), byte))


def _eltwise(node: Eltwise, x: Value) -> Value:
    function = Function.CLIP if node.kind is EltwiseKind.CLIP_V2 else Function(node.kind.value)
    return Call(function, (x,), (node.alpha, node.beta)[: function.arity.numbers])


def _binary(kind: BinaryKind, left: Value, right: Value) -> Value:
    match kind:
        case BinaryKind.ADD:
            return IrBinary(BinaryOp.ADD, left, right)
        case BinaryKind.MUL:
            return IrBinary(BinaryOp.MUL, left, right)
        case _:
            return Call(Function(kind.value), (left, right))
