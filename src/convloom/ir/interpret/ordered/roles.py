"""Which threads of a block advance together: warps, and warpgroups that multiply together; their registers."""

from __future__ import annotations

import numpy as np

from convloom.expr import Expr, free_symbols
from convloom.ir.interpret.index_code import IndexMath
from convloom.ir.interpret.memory import Array, Bools
from convloom.ir.ops import For, If, Instruct, Kernel, Let, Statement
from convloom.ir.rewrite import statements_in
from convloom.target.instruction import Completion, Family, Instruction, Ordering

WARP = 32
RAISE = "setmaxnreg.inc"
_FILE = 65536  # registers of a multiprocessor
_STEP = 8  # they are given in multiples of it
_MOST = 256


def needs_order(kernel: Kernel) -> bool:
    """Whether more than barriers of whole blocks and copy groups orders its threads."""
    rows = [statement.row for statement in statements_in(kernel.body) if isinstance(statement, Instruct)]
    return kernel.cluster > 1 or any(map(_orders, rows))


def _orders(row: Instruction) -> bool:
    if row.completion is Completion.COPY_GROUP:
        return False
    synchronises = row.family in (Family.BARRIER, Family.ATOMIC, Family.REGISTER_BUDGET)
    return synchronises or row.ordering is not Ordering.NONE or row.completion is not Completion.AT_ONCE


def groups(kernel: Kernel) -> list[range]:
    """Ranges of threads that advance together.

    Warps do; those of which one may reach an instruction of more lanes advance with the others that it needs. Which
    threads reach it is told by the conditions that depend on nothing but the thread.
    """
    reached = _Reach(kernel.threads)
    reached.walk(kernel.body, np.ones(kernel.threads, np.bool_))
    found: list[range] = []
    start = 0
    while start < kernel.threads:
        size = reached.lanes[start] if start % reached.lanes[start] == 0 else WARP
        found.append(range(start, min(start + size, kernel.threads)))
        start += size
    return found


def entry_registers(kernel: Kernel) -> int:
    """Registers per thread that a block begins with: its share of the file, but no more than any warp asks for.

    As NVIDIA's compiler decides for kernels with budgets and one block per multiprocessor.
    """
    share = min(_FILE // kernel.threads // _STEP * _STEP, _MOST)
    asked = [
        dict(statement.arguments)["registers"]
        for statement in statements_in(kernel.body)
        if isinstance(statement, Instruct) and statement.row.name == RAISE
    ]
    known = [number.value for number in asked if isinstance(number, Expr) and number.is_const]
    return min(share, max(known)) if known else share


class _Reach:
    """The most lanes of an instruction that each thread's group may reach."""

    def __init__(self, threads: int) -> None:
        self.lanes: list[int] = [WARP] * threads
        self._names: dict[str, int | Array] = {"tid": np.arange(threads)}
        self._math = IndexMath(None, lambda value: value)

    def walk(self, body: tuple[Statement, ...], mask: Bools) -> None:
        """Follows all statements for the threads of a mask."""
        for statement in body:
            match statement:
                case Let(value=Expr() as value) if self._known(value):
                    self._names[statement.variable.name] = self._math.evaluate(value, self._names)
                case Let():
                    self._names.pop(statement.variable.name, None)
                case If():
                    self.walk(statement.body, mask & self._holds(statement.condition))
                case For():
                    self._names.pop(statement.variable.name, None)
                    self.walk(statement.body, mask)
                case Instruct() if statement.row.lanes > WARP and statement.row.family is not Family.REGISTER_BUDGET:
                    self._widen(mask, statement.row.lanes)
                case _:
                    pass

    def _known(self, expression: Expr) -> bool:
        return all(symbol.name in self._names for symbol in free_symbols(expression))

    def _holds(self, condition: Expr) -> Bools:
        if not self._known(condition):
            return np.ones(len(self.lanes), np.bool_)
        return np.asarray(self._math.evaluate(condition, self._names)) != 0

    def _widen(self, mask: Bools, lanes: int) -> None:
        for start in range(0, len(self.lanes), lanes):
            if mask[start : start + lanes].any():
                for thread in range(start, min(start + lanes, len(self.lanes))):
                    self.lanes[thread] = max(self.lanes[thread], lanes)
