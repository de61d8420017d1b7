"""The epilogue of a problem: operands, scales, zero points and the expression, in the order in which they act."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from convloom.dtypes import S8, S32, U8, DType
from convloom.errors import IllegalProblem
from convloom.expr import Expr, const
from convloom.problem.epilogue.nodes import ACCUMULATOR, Accumulator, Input, Node, Old, walk
from convloom.problem.layout import Layout, dense, plain

LayoutMap = Callable[[Layout], Layout]

EVERYWHERE = -1
"""The mask of an operand that has every dimension."""

_RESERVED = frozenset(("src", "wei", "dst", "a", "b", "c", "bias", "workspace", "alpha", "beta"))


@dataclass(frozen=True, slots=True)
class EpilogueOperand:
    """A tensor that the epilogue reads. Bit d of `mask`: it has dimension d of the result, else extent 1 there.

    `layout` (None: dense) has the rank of the result. `value` is what checks fill it with, and no part of equality.
    """

    name: str
    dtype: DType
    mask: int = EVERYWHERE
    layout: Layout | None = None
    value: float | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if re.fullmatch(r"[A-Za-z_]\w*", self.name) is None or self.name in _RESERVED:
            raise IllegalProblem(f"an epilogue operand has a word of its own as name; got {self.name!r}; rename it")

    def has(self, dim: int) -> bool:
        """Whether the operand varies along a dimension."""
        return bool(self.mask >> dim & 1)

    def shape(self, of: Sequence[Expr]) -> tuple[Expr, ...]:
        """Its extents, for the extents of the tensor that it goes along with."""
        return tuple([extent if self.has(dim) else const(1) for dim, extent in enumerate(of)])

    def stored(self, of: Sequence[Expr]) -> Layout:
        """Its layout over its own extents."""
        return dense(self.shape(of)) if self.layout is None else self.layout

    def spread(self, of: Sequence[Expr]) -> Layout:
        """Its layout over the extents of the tensor that it goes along with: stride 0 where it has no dimension."""
        own = self.stored(of)
        if own.blocks:
            if any(not self.has(dim) for dim in range(len(of))):
                raise IllegalProblem(
                    f"a blocked epilogue operand has every dimension; got mask {self.mask} for {self.name}; "
                    "use a plain layout"
                )
            return own
        return plain([stride if self.has(dim) else const(0) for dim, stride in enumerate(own.strides)])

    def check_rank(self, rank: int) -> None:
        """IllegalProblem unless mask and layout fit a tensor of so many dimensions."""
        if self.mask != EVERYWHERE and not 0 <= self.mask < 1 << rank:
            raise IllegalProblem(
                f"a mask has one bit per dimension, 0 .. {(1 << rank) - 1}; got {self.mask} for {self.name}; correct it"
            )
        if self.layout is not None:
            self.layout.check_rank(rank)


class Steps(NamedTuple):
    """What a contraction keeps of an epilogue: which operands are factors of the sum, and the expression."""

    factors: tuple[int, ...] = ()
    expression: Node = ACCUMULATOR

    @property
    def is_plain(self) -> bool:
        """Whether the sum is stored as it is."""
        return not self.factors and isinstance(self.expression, Accumulator)

    @property
    def reads_old(self) -> bool:
        """Whether the result's former content is read."""
        return any(isinstance(node, Old) for node in walk(self.expression))


NO_STEPS = Steps()


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What becomes of a sum of products.

        s = sum of (a - zero_a) * (b - zero_b) over taps that are no padding      exact, in the accumulator's type
        x = alpha * s * (product of the operands `factors`) + beta * old + bias    in f32 (f64 for f64 and s32 results)
        y = expression, in which `Accumulator` is x

    and y is rounded once to the result's type. `zero_a`, `zero_b` have the dimensions of the two operands, `operands`
    those of the result. IllegalProblem names a broken rule.
    """

    operands: tuple[EpilogueOperand, ...] = ()
    factors: tuple[int, ...] = ()
    expression: Node = ACCUMULATOR
    zero_a: EpilogueOperand | None = None
    zero_b: EpilogueOperand | None = None

    def __post_init__(self) -> None:
        used = [node.index for node in walk(self.expression) if isinstance(node, Input)]
        for index in (*used, *self.factors):
            if not 0 <= index < len(self.operands):
                raise IllegalProblem(
                    f"an epilogue of {len(self.operands)} operands has no operand {index}; declare it or correct it"
                )
        names = [operand.name for operand in self.all_operands]
        if len(set(names)) != len(names):
            raise IllegalProblem(f"epilogue operands have different names; got {names}; rename one")

    @property
    def zeros(self) -> tuple[EpilogueOperand, ...]:
        """The zero points of the factors that are given."""
        return tuple(zero for zero in (self.zero_a, self.zero_b) if zero is not None)

    @property
    def all_operands(self) -> tuple[EpilogueOperand, ...]:
        """In the order in which a call passes them: those along the result, then the zero points."""
        return (*self.operands, *self.zeros)

    @property
    def steps(self) -> Steps:
        """Factors and expression."""
        return Steps(self.factors, self.expression)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return self.steps.is_plain and not self.zeros

    def check(self, a: DType, result: DType, ranks: tuple[int, int, int]) -> None:
        """IllegalProblem unless it fits an operand and a result of these types, and the ranks (a, b, result)."""
        for node in self.nodes():
            if isinstance(node, Old) and node.dtype not in (None, result) and {node.dtype, result} != {S8, U8}:
                raise IllegalProblem(
                    f"the old result is read as its own type, or one of s8 and u8 as the other; got {node.dtype} for "
                    f"{result}; leave the type of the sum out"
                )
        for operand in self.operands:
            operand.check_rank(ranks[2])
        for zero, rank in ((self.zero_a, ranks[0]), (self.zero_b, ranks[1])):
            if zero is None:
                continue
            zero.check_rank(rank)
            if a.is_float or zero.dtype not in (S8, U8, S32):
                raise IllegalProblem(
                    f"zero points are s8, u8 or s32 and belong to s8 and u8 operands; got {zero.dtype} for {a}; "
                    "leave them out"
                )

    def bind(self, rebuild: LayoutMap) -> Epilogue:
        """The same epilogue with every given layout mapped."""

        def mapped(operand: EpilogueOperand) -> EpilogueOperand:
            return operand if operand.layout is None else replace(operand, layout=rebuild(operand.layout))

        return replace(
            self,
            operands=tuple(map(mapped, self.operands)),
            zero_a=None if self.zero_a is None else mapped(self.zero_a),
            zero_b=None if self.zero_b is None else mapped(self.zero_b),
        )

    def nodes(self) -> Iterator[Node]:
        """All nodes of the expression."""
        return walk(self.expression)


NO_EPILOGUE = Epilogue()
