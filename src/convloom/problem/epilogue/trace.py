"""Epilogues written as Python functions: operator overloading records the expression."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from convloom.dtypes import DType, dtype_named
from convloom.errors import IllegalProblem
from convloom.problem.epilogue.nodes import ACCUMULATOR, Input, Node, as_node
from convloom.problem.epilogue.record import EVERYWHERE, Epilogue, EpilogueOperand

Declared = EpilogueOperand | DType | str | tuple[DType | str, int]


def trace(function: Callable[..., Any], operands: Mapping[str, Declared] | None = None) -> Epilogue:
    """The epilogue that a function of the accumulator and named operands computes.

    `operands`: by parameter name an element type, (element type, mask) or an EpilogueOperand; bit d of a mask says that
    the operand has dimension d of the result, without a mask it has all. IllegalProblem if names and parameters differ.
    """
    declared = [_operand(name, item) for name, item in (operands or {}).items()]
    wanted = list(inspect.signature(function).parameters)[1:]
    names = [operand.name for operand in declared]
    if sorted(wanted) != sorted(names):
        raise IllegalProblem(
            f"an epilogue function takes the accumulator, then its operands by name; got parameters {wanted} for "
            f"operands {names}; declare each"
        )
    values: dict[str, Node] = {name: Input(place) for place, name in enumerate(names)}
    return Epilogue(tuple(declared), expression=as_node(function(ACCUMULATOR, **values)))


def _operand(name: str, item: Declared) -> EpilogueOperand:
    if isinstance(item, EpilogueOperand):
        return item
    dtype, mask = item if isinstance(item, tuple) else (item, EVERYWHERE)
    return EpilogueOperand(name, dtype_named(dtype) if isinstance(dtype, str) else dtype, mask)
