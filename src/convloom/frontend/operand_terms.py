"""The tensors of a problem as a call sees them: names, types, extents and strides as expressions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from convloom.dtypes import DType
from convloom.expr import Expr, as_expr, free_symbols
from convloom.problem.conv import Conv, TensorSpec
from convloom.problem.gemm import Gemm
from convloom.problem.layout import Layout, dense
from convloom.problem.reference import Problem, symbolic_extra_shapes
from convloom.problem.size_rules import SizeRule


@dataclass(frozen=True, slots=True)
class Terms:
    """One tensor of a problem. `flat`: its layout is blocked, so that a call passes its storage, contiguous."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    layout: Layout

    @property
    def flat(self) -> bool:
        """Whether strides alone cannot describe the layout."""
        return bool(self.layout.blocks)

    @property
    def storage(self) -> Expr:
        """Elements from the lowest to the highest used one."""
        return self.layout.storage_size(self.shape)

    def expressions(self) -> Iterator[Expr]:
        """Everything that mentions symbols."""
        yield from self.shape
        yield from self.layout.strides
        for block in self.layout.blocks:
            yield block.period
            yield block.stride


@dataclass(frozen=True, slots=True)
class ProblemTerms:
    """The tensors of a problem in the order of a call, and what the operation demands of symbolic sizes."""

    first: Terms
    second: Terms
    result: Terms
    bias: Terms | None
    rules: tuple[SizeRule, ...]
    extras: tuple[Terms, ...] = ()  # the epilogue's operands

    @property
    def inputs(self) -> tuple[Terms, ...]:
        """What a call always passes."""
        return (self.first, self.second, *(() if self.bias is None else (self.bias,)), *self.extras)

    @property
    def symbols(self) -> tuple[Expr, ...]:
        """Every symbol, in the order of first mention."""
        found: dict[Expr, None] = {}
        for terms in (*self.inputs, self.result):
            for expression in terms.expressions():
                found.update(dict.fromkeys(sorted(free_symbols(expression), key=lambda symbol: symbol.name)))
        return tuple(found)

    @property
    def empty(self) -> bool:
        """Whether the result is known to have no elements."""
        return any(extent is as_expr(0) for extent in self.result.shape)


def problem_terms(problem: Problem) -> ProblemTerms:
    """The tensors of a problem; their names are those of the kernel's buffers."""
    first, second, result = _conv_terms(problem) if isinstance(problem, Conv) else _gemm_terms(problem)
    bias = None
    if problem.bias is not None:
        extent = (problem.bias_extent,)
        bias = Terms("bias", problem.bias, extent, dense(extent))
    shapes = symbolic_extra_shapes(problem)
    extras = tuple(
        Terms(operand.name, operand.dtype, shape, dense(shape) if operand.layout is None else operand.layout)
        for operand, shape in zip(problem.epilogue.all_operands, shapes, strict=True)
    )
    return ProblemTerms(first, second, result, bias, problem.open_rules, extras)


def _conv_terms(conv: Conv) -> tuple[Terms, Terms, Terms]:
    first, second, result = (_terms(role.value, conv.spec(role), conv.shape(role)) for role in conv.roles)
    return first, second, result


def _gemm_terms(gemm: Gemm) -> tuple[Terms, Terms, Terms]:
    return _terms("a", gemm.a, gemm.a_shape), _terms("b", gemm.b, gemm.b_shape), _terms("c", gemm.c, gemm.c_shape)


def _terms(name: str, spec: TensorSpec, shape: tuple[Expr, ...]) -> Terms:
    return Terms(name, spec.dtype, shape, spec.layout)
