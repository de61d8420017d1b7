"""A batched matrix product as a contraction; a batch over a shared operand becomes M or N by itself."""

from __future__ import annotations

from convloom.expr import Expr, const
from convloom.problem.contraction import AxisKind, Contraction, ContractionAxis, Operand, classify_axes
from convloom.problem.conv import TensorSpec
from convloom.problem.epilogue import EpilogueOperand
from convloom.problem.gemm import BiasAxis, Gemm
from convloom.view import Axis, strided


def contract_gemm(gemm: Gemm) -> Contraction:
    """The contraction of a matrix product over axes b0.., m, n, k."""
    batch = tuple(f"b{index}" for index in range(len(gemm.batch)))
    extents = {**dict(zip(batch, gemm.batch, strict=True)), "m": gemm.m, "n": gemm.n, "k": gemm.k}
    a = _operand("a", gemm.a, (*batch, "m", "k"), extents)
    b = _operand("b", gemm.b, (*batch, "k", "n"), extents)
    c = _operand("c", gemm.c, (*batch, "m", "n"), extents)
    bias = None
    if gemm.bias is not None:
        name = "n" if gemm.bias_axis is BiasAxis.N else "m"
        bias = Operand("bias", gemm.bias, strided((Axis(name, extents[name]),), (const(1),)))
    kinds = {**dict.fromkeys(batch, AxisKind.G), "m": AxisKind.M, "n": AxisKind.N, "k": AxisKind.K}
    declared = tuple(ContractionAxis(name, kind, extents[name]) for name, kind in kinds.items())
    axes = classify_axes(declared, a.view, b.view, c.view)
    epilogue = gemm.epilogue

    def along(operand: EpilogueOperand, dims: tuple[str, ...]) -> Operand:
        shape = [extents[dim] for dim in dims]
        return Operand(operand.name, operand.dtype, operand.spread(shape).view(dims, shape))

    return Contraction(
        axes,
        a,
        b,
        c,
        gemm.acc,
        bias,
        gemm.scaling,
        tf32=gemm.tf32,
        steps=epilogue.steps,
        extras=tuple(along(operand, (*batch, "m", "n")) for operand in epilogue.operands),
        zero_a=None if epilogue.zero_a is None else along(epilogue.zero_a, (*batch, "m", "k")),
        zero_b=None if epilogue.zero_b is None else along(epilogue.zero_b, (*batch, "k", "n")),
    )


def _operand(name: str, spec: TensorSpec, dims: tuple[str, ...], extents: dict[str, Expr]) -> Operand:
    return Operand(name, spec.dtype, spec.layout.view(dims, [extents[dim] for dim in dims]))
