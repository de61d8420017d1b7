"""The functional text of expressions, complete for all of them: `relu(add(acc,in0),0.5,0.0)`; and back."""

from __future__ import annotations

import ast

from convloom.dtypes import dtype_named
from convloom.errors import IllegalProblem
from convloom.problem.epilogue.nodes import (
    ACCUMULATOR,
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
)

_ELTWISE = {kind.value: kind for kind in EltwiseKind}
_BINARY = {kind.value: kind for kind in BinaryKind}


def expression_text(node: Node) -> str:
    """The text of an expression, without blanks."""
    match node:
        case Accumulator():
            return "acc"
        case Input():
            return f"in{node.index}"
        case Old():
            return f"old({node.scale!r},{node.zero_point},{node.dtype or 'own'})"
        case Number():
            return repr(node.value)
        case Eltwise():
            return f"{node.kind.value}({expression_text(node.x)},{node.alpha!r},{node.beta!r})"
        case Binary():
            return f"{node.kind.value}({expression_text(node.left)},{expression_text(node.right)})"
        case Select():
            parts = map(expression_text, (node.condition, node.yes, node.no))
            return f"select({','.join(parts)})"
        case _:
            raise IllegalProblem(f"an expression consists of epilogue nodes; got {node!r}; build it from them")


def parse_expression(text: str) -> Node:
    """The expression of a text; IllegalProblem quotes what is wrong."""
    try:
        return _node(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, IndexError, KeyError) as error:
        if isinstance(error, IllegalProblem):
            raise
        raise IllegalProblem(
            f"an epilogue is written as calls over acc and in0, in1 ..; got {text!r}; correct it"
        ) from None


def _node(node: ast.expr) -> Node:
    if isinstance(node, ast.Name):
        return ACCUMULATOR if node.id == "acc" else Input(int(node.id.removeprefix("in")))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return Number(_number(node))
    name, parts = node.func.id, node.args
    if name == "old":
        own = ast.unparse(parts[2])
        return Old(_number(parts[0]), int(_number(parts[1])), None if own == "own" else dtype_named(own))
    if name == "select":
        return Select(_node(parts[0]), _node(parts[1]), _node(parts[2]))
    if name in _BINARY:
        return Binary(_BINARY[name], _node(parts[0]), _node(parts[1]))
    return Eltwise(_ELTWISE[name], _node(parts[0]), _number(parts[1]), _number(parts[2]))


def _number(node: ast.expr) -> float:
    return float(ast.unparse(node))
