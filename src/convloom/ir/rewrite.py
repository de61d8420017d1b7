"""Rebuilding statements and values with a function applied to their index expressions, and walking over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from convloom.expr import Expr
from convloom.ir.arguments import argument_expressions, map_argument, place_argument
from convloom.ir.ops import (
    Binary,
    Buffer,
    Call,
    Convert,
    For,
    If,
    Instruct,
    Let,
    MultiplyAdd,
    Pack,
    Read,
    Splat,
    Statement,
    Value,
    Write,
)

ExprMap = Callable[[Expr], Expr]


def map_value(value: Value, on_expr: ExprMap) -> Value:
    """The value with every index expression and mask replaced."""
    match value:
        case Read():
            mask = None if value.mask is None else on_expr(value.mask)
            return replace(value, index=on_expr(value.index), mask=mask)
        case Convert() | Pack() | Splat():
            return replace(value, value=map_value(value.value, on_expr))
        case Binary():
            return replace(value, left=map_value(value.left, on_expr), right=map_value(value.right, on_expr))
        case MultiplyAdd():
            return MultiplyAdd(
                map_value(value.left, on_expr), map_value(value.right, on_expr), map_value(value.addend, on_expr)
            )
        case Call():
            return replace(value, values=tuple(map_value(part, on_expr) for part in value.values))
        case _:
            return value


def map_statements(body: tuple[Statement, ...], on_expr: ExprMap) -> tuple[Statement, ...]:
    """The statements with every index expression replaced, nested bodies included."""
    return tuple(_map_statement(statement, on_expr) for statement in body)


def _map_statement(statement: Statement, on_expr: ExprMap) -> Statement:
    match statement:
        case Let():
            value = statement.value
            return replace(statement, value=on_expr(value) if isinstance(value, Expr) else map_value(value, on_expr))
        case Write():
            value = statement.value
            mask = None if statement.mask is None else on_expr(statement.mask)
            new_value = on_expr(value) if isinstance(value, Expr) else map_value(value, on_expr)
            return replace(statement, index=on_expr(statement.index), value=new_value, mask=mask)
        case For():
            return replace(statement, extent=on_expr(statement.extent), body=map_statements(statement.body, on_expr))
        case Instruct():
            arguments = tuple((name, map_argument(item, on_expr)) for name, item in statement.arguments)
            return replace(statement, arguments=arguments)
        case If():
            return replace(
                statement, condition=on_expr(statement.condition), body=map_statements(statement.body, on_expr)
            )
        case _:
            return statement


def values_in(value: Value) -> Iterator[Value]:
    """A value and all values inside it."""
    yield value
    match value:
        case Convert() | Pack() | Splat():
            yield from values_in(value.value)
        case Binary():
            yield from values_in(value.left)
            yield from values_in(value.right)
        case MultiplyAdd():
            for part in (value.left, value.right, value.addend):
                yield from values_in(part)
        case Call():
            for part in value.values:
                yield from values_in(part)
        case _:
            return


def statements_in(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """All statements, nested ones included, outer before inner."""
    for statement in body:
        yield statement
        if isinstance(statement, For | If):
            yield from statements_in(statement.body)


def statement_values(statement: Statement) -> Iterator[Value]:
    """All values that one statement itself holds (not those of a nested body)."""
    if isinstance(statement, Let | Write) and not isinstance(statement.value, Expr):
        yield from values_in(statement.value)


def statement_expressions(statement: Statement) -> Iterator[Expr]:
    """All index expressions that one statement itself holds (not those of a nested body)."""
    match statement:
        case Let(value=Expr() as value):
            yield value
        case Write():
            yield statement.index
            if statement.mask is not None:
                yield statement.mask
            if isinstance(statement.value, Expr):
                yield statement.value
        case For():
            yield statement.extent
        case If():
            yield statement.condition
        case Instruct():
            for _, item in statement.arguments:
                yield from argument_expressions(item)
        case _:
            pass
    for value in statement_values(statement):
        if isinstance(value, Read):
            yield value.index
            if value.mask is not None:
                yield value.mask


Place = Callable[[Buffer, Expr], tuple[Buffer, Expr]]


def map_buffers(body: tuple[Statement, ...], place: Place) -> tuple[Statement, ...]:
    """The statements with every access moved to the buffer and index that `place` gives for the old ones."""
    return tuple(_map_statement_buffers(statement, place) for statement in body)


def _map_statement_buffers(statement: Statement, place: Place) -> Statement:
    match statement:
        case Let():
            value = statement.value
            return statement if isinstance(value, Expr) else replace(statement, value=_moved(value, place))
        case Write():
            buffer, index = place(statement.buffer, statement.index)
            value = statement.value if isinstance(statement.value, Expr) else _moved(statement.value, place)
            return replace(statement, buffer=buffer, index=index, value=value)
        case Instruct():
            arguments = tuple((name, place_argument(item, place)) for name, item in statement.arguments)
            return replace(statement, arguments=arguments)
        case For() | If():
            return replace(statement, body=map_buffers(statement.body, place))
        case _:
            return statement


def _moved(value: Value, place: Place) -> Value:
    match value:
        case Read():
            buffer, index = place(value.buffer, value.index)
            return replace(value, buffer=buffer, index=index)
        case Convert() | Pack() | Splat():
            return replace(value, value=_moved(value.value, place))
        case Binary():
            return replace(value, left=_moved(value.left, place), right=_moved(value.right, place))
        case MultiplyAdd():
            return MultiplyAdd(*(_moved(part, place) for part in (value.left, value.right, value.addend)))
        case Call():
            return replace(value, values=tuple(_moved(part, place) for part in value.values))
        case _:
            return value
