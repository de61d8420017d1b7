"""A small builder that collects statements in nested bodies and gives bound names their facts."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from convloom.expr import Expr, Op, bounds, const, divisor, local_sym, simplify
from convloom.ir.arguments import map_argument
from convloom.ir.ops import (
    Allocate,
    Argument,
    Barrier,
    Buffer,
    Comment,
    For,
    If,
    Instruct,
    Let,
    LoopKind,
    Read,
    Statement,
    Value,
    Write,
)
from convloom.target.instruction import Instruction


class IrBuilder:
    """Appends statements to the innermost open body."""

    def __init__(self) -> None:
        self._bodies: list[list[Statement]] = [[]]
        self._used: dict[str, int] = {}

    @property
    def body(self) -> tuple[Statement, ...]:
        """The statements of the outermost body."""
        return tuple(self._bodies[0])

    def unique(self, name: str) -> str:
        """`name`, with a number behind it if it was given out before."""
        count = self._used.get(name, 0)
        self._used[name] = count + 1
        return name if count == 0 else f"{name}_{count}"

    def append(self, statement: Statement) -> None:
        """Adds one statement."""
        self._bodies[-1].append(statement)

    def comment(self, text: str) -> None:
        """Adds words for the reader of the source."""
        self.append(Comment(text))

    def allocate(self, buffer: Buffer) -> Buffer:
        """Adds an allocation and returns its buffer."""
        self.append(Allocate(buffer))
        return buffer

    def let(self, name: str, value: Expr, below: Expr | None = None) -> Expr:
        """Binds a simplified expression to a name that carries its bounds; constants and names stay as they are.

        `below`: the launch guarantees 0 <= value < below, where index math cannot show it.
        """
        value = simplify(value)
        if value.op is Op.CONST or (value.op is Op.SYM and below is None):
            return value
        limits = bounds(value)
        known = [limit for limit in (limits.hi, _less_one(below)) if limit is not None]
        hi = min(known, default=None)
        lo = limits.lo if below is None else max(limits.lo or 0, 0)
        variable = local_sym(self.unique(name), divisor=max(divisor(value), 1), lo=lo, hi=hi)
        self.append(Let(variable, value))
        return variable

    def let_read(self, name: str, value: Read, lo: int | None, hi: int | None) -> Expr:
        """Binds an integer read from an index array or table."""
        variable = local_sym(self.unique(name), lo=lo, hi=hi)
        self.append(Let(variable, value))
        return variable

    def bind(self, variable: Expr, value: Expr | Read) -> None:
        """Binds a given name, for symbols that other expressions already mention."""
        self.append(Let(variable, value))

    def write(self, buffer: Buffer, index: Expr | int, value: Value | Expr, mask: Expr | None = None) -> None:
        """Adds a store; a mask that is the constant 1 is dropped."""
        if mask is not None and mask.op is Op.CONST and mask.value == 1:
            mask = None
        self.append(Write(buffer, const(index) if isinstance(index, int) else simplify(index), value, mask))

    def add(self, buffer: Buffer, index: Expr, value: Value, mask: Expr | None = None) -> None:
        """Adds an atomic addition to memory; a mask that is the constant 1 is dropped."""
        if mask is not None and mask.op is Op.CONST and mask.value == 1:
            mask = None
        self.append(Write(buffer, simplify(index), value, mask, adds=True))

    def instruct(self, row: Instruction, **arguments: Argument) -> None:
        """Adds one hardware instruction with its named arguments; index expressions are simplified."""
        simple = {name: map_argument(item, simplify) for name, item in arguments.items()}
        self.append(Instruct(row, tuple(simple.items())))

    def barrier(self) -> None:
        """Adds a barrier."""
        self.append(Barrier())

    @contextmanager
    def loop(self, name: str, extent: Expr | int, kind: LoopKind = LoopKind.SERIAL) -> Generator[Expr]:
        """Opens a loop; yields its variable, or the constant 0 without a loop where the extent is 1."""
        extent = const(extent) if isinstance(extent, int) else simplify(extent)
        if extent.op is Op.CONST and extent.value == 1:
            yield const(0)
            return
        hi = bounds(extent).hi
        variable = local_sym(self.unique(name), lo=0, hi=None if hi is None else max(hi - 1, 0))
        with self.repeat(variable, extent, kind):
            yield variable

    @contextmanager
    def repeat(self, variable: Expr, extent: Expr | int, kind: LoopKind = LoopKind.SERIAL) -> Generator[None]:
        """Opens a loop over a given variable; no loop where the variable is a constant."""
        if variable.op is Op.CONST:
            yield
            return
        self._bodies.append([])
        yield
        body = tuple(self._bodies.pop())
        self.append(For(variable, const(extent) if isinstance(extent, int) else extent, body, kind))

    @contextmanager
    def condition(self, condition: Expr | None) -> Generator[None]:
        """Opens an if; no if where the condition is None or the constant 1."""
        if condition is None or (condition.op is Op.CONST and condition.value == 1):
            yield
            return
        self._bodies.append([])
        yield
        body = tuple(self._bodies.pop())
        self.append(If(condition, body))


def _less_one(bound: Expr | None) -> int | None:
    hi = None if bound is None else bounds(bound).hi
    return None if hi is None else max(hi - 1, 0)
