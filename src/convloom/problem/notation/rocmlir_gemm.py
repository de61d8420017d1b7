"""rocMLIR's matrix product lines: `-t f16 -out_datatype f16 -transA false -transB true -g 1 -m 384 -n 64 -k 768`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from convloom.dtypes import BF16, F16, F32, F64, S8, S32, DType
from convloom.errors import IllegalProblem
from convloom.expr import Expr, const
from convloom.problem.conv import TensorSpec
from convloom.problem.gemm import Gemm
from convloom.problem.layout import Layout, dense
from convloom.problem.notation.defaults import Defaults, Types, printed_size, refusal
from convloom.problem.notation.driver_flags import pairs

NAME = "rocMLIR gemm"

_TYPES: Mapping[str, DType] = MappingProxyType({"f32": F32, "f16": F16, "bf16": BF16, "i8": S8, "i32": S32, "f64": F64})
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_TRUTH = {"true": True, "1": True, "false": False, "0": False}
_FLAGS = ("t", "out_datatype", "transA", "transB", "transO", "g", "m", "n", "k", "perf_priority")


def parse_gemm(text: str, defaults: Defaults) -> Gemm:
    """The product of a line: A is m x k (stored k x m if transA), B k x n, result m x n; -g above 1 is a batch axis.

    IllegalProblem names the flag that is wrong.
    """
    words = text.split()
    if words and words[0] == "gemm":
        words = words[1:]
    flags = {flag.lstrip("-"): value for flag, value in pairs(words)}
    for name in flags:
        if name not in _FLAGS:
            raise IllegalProblem(
                f"a flag of a gemm line must be one of {', '.join(_FLAGS)}; got {name}; use one of these"
            )
    groups, m, n, k = (_size(flags, name) for name in "gmnk")
    batch = () if groups is const(1) else (groups,)
    types = _types(flags, defaults)
    layouts = [
        _matrix(batch, rows, columns, _truth(flags, name))
        for name, rows, columns in (("transA", m, k), ("transB", k, n), ("transO", m, n))
    ]
    specs = [TensorSpec(dtype, layout) for dtype, layout in zip(types, layouts, strict=True)]
    return Gemm(batch, m, n, k, *specs, bias=defaults.bias)


def _size(flags: dict[str, str], name: str) -> Expr:
    text = flags.get(name, "1" if name == "g" else None)
    if text is None:
        raise IllegalProblem(f"a gemm line needs -m, -n and -k; -{name} is missing; add it")
    if not text.isdecimal():
        raise IllegalProblem(f"flag -{name} takes a size; got {text!r}; write a number")
    return const(int(text))


def _truth(flags: dict[str, str], name: str) -> bool:
    text = flags.get(name, "false").lower()
    if text not in _TRUTH:
        raise IllegalProblem(f"-{name} must be true or false; got {text!r}; use one of these")
    return _TRUTH[text]


def _types(flags: dict[str, str], defaults: Defaults) -> Types:
    if "t" not in flags:
        a, b, c = defaults.dtypes
        return a, b, _dtype(flags["out_datatype"]) if "out_datatype" in flags else c
    operand = _dtype(flags["t"])
    result = _dtype(flags["out_datatype"]) if "out_datatype" in flags else (S32 if operand is S8 else operand)
    return operand, operand, result


def _dtype(name: str) -> DType:
    found = _TYPES.get(name)
    if found is None:
        raise IllegalProblem(
            f"a type of a gemm line must be one of {', '.join(_TYPES)}; got {name!r}; use one of these"
        )
    return found


def _matrix(batch: tuple[Expr, ...], rows: Expr, columns: Expr, transposed: bool) -> Layout:
    leading = tuple(range(len(batch)))
    first = len(batch)
    order = (*leading, first + 1, first) if transposed else (*leading, first, first + 1)
    return dense((*batch, rows, columns), order)


def print_gemm(gemm: Gemm) -> str:
    """The line that parses back to the same problem. IllegalProblem names what the notation cannot say."""
    if gemm.scaling.alpha or gemm.scaling.beta or gemm.bias is not None:
        raise refusal(NAME, "it has alpha, beta or a bias")
    if len(gemm.batch) > 1 or gemm.batch == (const(1),):
        raise refusal(NAME, f"its batch is {list(map(str, gemm.batch))}, not one axis of more than 1")
    if gemm.a.dtype is not gemm.b.dtype or not {gemm.a.dtype, gemm.c.dtype} <= set(_NAMES):
        raise refusal(NAME, f"it has no words for the types {gemm.a.dtype}, {gemm.b.dtype}, {gemm.c.dtype}")
    words = ["-t", _NAMES[gemm.a.dtype], "-out_datatype", _NAMES[gemm.c.dtype]]
    words += [
        "-transA",
        _transposition(gemm, "a", gemm.m, gemm.k),
        "-transB",
        _transposition(gemm, "b", gemm.k, gemm.n),
    ]
    if _transposition(gemm, "c", gemm.m, gemm.n) == "true":
        words += ["-transO", "true"]
    groups = gemm.batch[0] if gemm.batch else const(1)
    for name, size in (("g", groups), ("m", gemm.m), ("n", gemm.n), ("k", gemm.k)):
        words += [f"-{name}", str(printed_size(NAME, name, size))]
    return " ".join(words)


def _transposition(gemm: Gemm, name: str, rows: Expr, columns: Expr) -> str:
    layout = {"a": gemm.a, "b": gemm.b, "c": gemm.c}[name].layout
    for text in ("false", "true"):
        if _matrix(gemm.batch, rows, columns, _TRUTH[text]) == layout:
            return text
    raise refusal(NAME, f"{name} is neither dense nor the transpose of a dense matrix")
