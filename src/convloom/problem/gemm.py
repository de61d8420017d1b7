"""The matrix product problem: C[.., m, n] = A[.., m, k] * B[.., k, n], with broadcast batches and any strides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from convloom.dtypes import DType, accumulator
from convloom.expr import Expr, ExprLike, substitute
from convloom.problem.checks import (
    check_result_layout,
    check_size,
    check_storage,
    check_tf32,
    check_types,
    not_negative,
)
from convloom.problem.conv import NO_SCALING, Scaling, TensorSpec, check_epilogue_kinds, constant
from convloom.problem.epilogue import NO_EPILOGUE, Epilogue
from convloom.problem.given import check_kind, size, sizes
from convloom.problem.size_rules import SizeRule, open_rules


class BiasAxis(Enum):
    """The axis of C along which the bias runs."""

    M = "m"
    N = "n"


@dataclass(frozen=True, slots=True)
class Gemm:
    """A batched product; logical dims a (*batch, m, k), b (*batch, k, n), c (*batch, m, n), bias (n) or (m).

    Transposes and leading dimensions are strides; an operand shared by a batch axis has stride 0 there. Sizes may be
    ints where the record is built; zero is legal. `tf32` as in `Conv`. `name` is a label and takes no part in equality.
    IllegalProblem states the broken rule.
    """

    batch: tuple[Expr, ...]
    m: Expr
    n: Expr
    k: Expr
    a: TensorSpec
    b: TensorSpec
    c: TensorSpec
    bias: DType | None = None
    scaling: Scaling = NO_SCALING
    bias_axis: BiasAxis = BiasAxis.N
    epilogue: Epilogue = NO_EPILOGUE
    name: str = field(default="", compare=False)
    tf32: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch", sizes("batch", self.batch))
        for name in ("m", "n", "k"):
            object.__setattr__(self, name, size(name, getattr(self, name)))
        for name in ("a", "b", "c"):
            check_kind(name, getattr(self, name), TensorSpec, "a TensorSpec(dtype, layout)")
        check_epilogue_kinds(self.bias, self.scaling, self.epilogue)
        check_kind("bias_axis", self.bias_axis, BiasAxis, "a BiasAxis, as BiasAxis.N")
        _check_sizes(self)
        check_types(self.a.dtype, self.b.dtype, self.c.dtype, self.bias)
        check_tf32(self.tf32, self.a.dtype, self.b.dtype)
        for spec in (self.a, self.b, self.c):
            spec.layout.check_rank(len(self.batch) + 2)
        check_result_layout("c", self.c.layout, self.c_shape)
        for name, spec, shape in (
            ("a", self.a, self.a_shape),
            ("b", self.b, self.b_shape),
            ("c", self.c, self.c_shape),
        ):
            check_storage(name, spec.layout, shape)
        rank = len(self.batch) + 2
        self.epilogue.check(self.a.dtype, self.c.dtype, (rank, rank, rank))

    @property
    def a_shape(self) -> tuple[Expr, ...]:
        """(*batch, m, k)."""
        return (*self.batch, self.m, self.k)

    @property
    def b_shape(self) -> tuple[Expr, ...]:
        """(*batch, k, n)."""
        return (*self.batch, self.k, self.n)

    @property
    def c_shape(self) -> tuple[Expr, ...]:
        """(*batch, m, n)."""
        return (*self.batch, self.m, self.n)

    @property
    def acc(self) -> DType:
        """The type that products are summed in."""
        return accumulator(self.a.dtype, self.b.dtype)

    @property
    def bias_extent(self) -> Expr:
        """Number of bias values."""
        return self.n if self.bias_axis is BiasAxis.N else self.m

    @property
    def ops(self) -> int:
        """Twice the multiplications. IllegalProblem for symbolic sizes: `bind` them first."""
        sizes = (*self.batch, self.m, self.n, self.k)
        return 2 * math.prod([constant(size, "the number of operations") for size in sizes])

    @property
    def open_rules(self) -> tuple[SizeRule, ...]:
        """What a call must check of symbolic sizes: that none is negative."""
        return open_rules(map(not_negative, _named_sizes(self)))

    def bind(self, values: Mapping[Expr, ExprLike]) -> Gemm:
        """The problem with symbols replaced by values or other expressions."""

        def spec(old: TensorSpec) -> TensorSpec:
            return TensorSpec(old.dtype, old.layout.bind(values))

        return replace(
            self,
            batch=tuple(substitute(extent, values) for extent in self.batch),
            m=substitute(self.m, values),
            n=substitute(self.n, values),
            k=substitute(self.k, values),
            a=spec(self.a),
            b=spec(self.b),
            c=spec(self.c),
            epilogue=self.epilogue.bind(lambda layout: layout.bind(values)),
        )


def _named_sizes(gemm: Gemm) -> list[tuple[str, Expr]]:
    batch = [(f"batch[{dim}]", extent) for dim, extent in enumerate(gemm.batch)]
    return [*batch, ("m", gemm.m), ("n", gemm.n), ("k", gemm.k)]


def _check_sizes(gemm: Gemm) -> None:
    for name, extent in _named_sizes(gemm):
        check_size(name, extent)
