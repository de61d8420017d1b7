"""Compiles a kernel's launch arithmetic (see `artifact`) to one Python function."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from operator import index
from typing import Any, NamedTuple, NoReturn

from convloom.artifact import KernelSource, Requirement, ScalarKind, ScalarParam
from convloom.errors import IllegalProblem, IllegalType, InternalError
from convloom.magic import magic_multiplier, magic_shift

_OPERATORS: tuple[type[ast.AST], ...] = (
    ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod,
    ast.UnaryOp, ast.USub, ast.Not,
    ast.BoolOp, ast.And, ast.Or,
    ast.Compare, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq,
    ast.Load,
)  # fmt: skip
_ARITIES = {
    "min": range(1, 256),
    "max": range(1, 256),
    "select": range(3, 4),
    "fast_div": range(3, 4),
    "magic_multiplier": range(1, 2),
    "magic_shift": range(1, 2),
}


def _fast_div(x: int, multiplier: int, shift: int) -> int:
    return (x * multiplier) >> shift


_FUNCTIONS: dict[str, Callable[..., int]] = {
    "min": min,
    "max": max,
    "fast_div": _fast_div,
    "magic_multiplier": cache(magic_multiplier),
    "magic_shift": cache(magic_shift),
}
_INT_BITS = {ScalarKind.I32: 32, ScalarKind.I64: 64}

ADDRESS_PERIOD = 128
"""Bytes; what is decided of addresses by their remainders of smaller powers of two follows from those of this one."""


class LaunchArguments(NamedTuple):
    """What one call needs: the grid in blocks (all positive), integer scalars and floating scalars, each in order.

    `maps`: of each tensor map the values of its `expressions`.
    """

    grid: tuple[int, int, int]
    integers: tuple[int, ...]
    floats: tuple[float, ...]
    maps: tuple[tuple[int, ...], ...] = ()


ArithmeticFunction = Callable[[Mapping[str, int], Mapping[str, float]], "LaunchArguments | None"]


class Arithmetic:
    """The launch arithmetic of one kernel as a callable.

    Call it with the values of the symbols and of the floating scalars: the result is None if the grid is empty.
    Raises IllegalProblem for a missing symbol, a violated requirement or a value out of a scalar's range.
    """

    __slots__ = ("_evaluate", "source", "symbols")

    def __init__(self, source: KernelSource) -> None:
        self.source = source
        writer = _Writer(source)
        self.symbols: frozenset[str] = frozenset(writer.symbols)
        self._evaluate = writer.function()

    def __call__(self, symbols: Mapping[str, int], floats: Mapping[str, float]) -> LaunchArguments | None:
        """See the class."""
        try:
            return self._evaluate(symbols, floats)
        except KeyError as error:
            raise self._missing(str(error.args[0]), symbols, floats) from None
        except ZeroDivisionError:
            raise InternalError(
                f"launch arithmetic must not divide by zero; kernel {self.source.name} does with {_values(symbols)}; "
                "please report this"
            ) from None
        except TypeError as error:
            raise IllegalType(
                f"sizes, strides and addresses must be integers; {error}; got {_values(symbols)}; pass ints"
            ) from None

    def _missing(self, name: str, symbols: Mapping[str, int], floats: Mapping[str, float]) -> IllegalProblem:
        given = ", ".join([*symbols, *floats]) or "nothing"
        return IllegalProblem(f"kernel {self.source.name} needs a value for {name}; got {given}; pass {name} too")


def evaluate(expression: str, symbols: Mapping[str, int]) -> int:
    """The value of one expression; IllegalProblem for a missing symbol, InternalError for text outside the language."""
    tree = _parse(expression)
    missing = sorted(_names(tree) - set(symbols))
    if missing:
        raise IllegalProblem(
            f"{expression!r} needs values for {', '.join(missing)}; got {', '.join(symbols)}; pass them too"
        )
    code = compile(ast.fix_missing_locations(_Select().visit(tree)), "<expression>", "eval")
    return int(eval(code, {"__builtins__": {}, **_FUNCTIONS}, dict(symbols)))


def symbols_of(expression: str) -> frozenset[str]:
    """The symbols that an expression mentions; InternalError for text outside the language."""
    return frozenset(_names(_parse(expression)))


def is_periodic(expressions: Iterable[str]) -> bool:
    """Whether equal remainders of all addresses by ADDRESS_PERIOD give equal values of the expressions."""
    return all(_is_periodic(_parse(expression)) for expression in expressions)


def _is_periodic(tree: ast.Expression) -> bool:
    reduced = {
        id(node.left)
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mod)
        and isinstance(node.right, ast.Constant)
        and isinstance(node.right.value, int)
        and node.right.value > 0
        and ADDRESS_PERIOD % node.right.value == 0
    }
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id.endswith("_address"))
    return all(id(node) in reduced for node in names)


def _parse(expression: str) -> ast.Expression:
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        _check(tree.body, expression)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _outside(expression, str(error)) from None
    return tree


def _check(node: ast.AST, expression: str) -> None:
    if isinstance(node, ast.Call):
        _check_call(node, expression)
        children: list[ast.AST] = list(node.args)
    elif isinstance(node, ast.Constant):
        if type(node.value) is not int:
            raise _outside(expression, f"constant {node.value!r}")
        return
    elif isinstance(node, ast.Name):
        if node.id in _ARITIES:
            raise _outside(expression, f"name {node.id}")
        return
    elif isinstance(node, _OPERATORS):
        children = list(ast.iter_child_nodes(node))
    else:
        raise _outside(expression, type(node).__name__)
    for child in children:
        _check(child, expression)


def _check_call(node: ast.Call, expression: str) -> None:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if len(node.args) not in _ARITIES.get(name, ()) or node.keywords:
        raise _outside(expression, f"call {ast.unparse(node)}")


def _outside(expression: str, why: str) -> InternalError:
    shown = expression if len(expression) <= 200 else expression[:200] + "..."
    return InternalError(
        "launch arithmetic may use integers, symbols, + - * // %, comparisons, and, or, not and "
        f"{', '.join(_ARITIES)}; got {shown!r} ({why}); please report this"
    )


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - set(_ARITIES)


class _Select(ast.NodeTransformer):
    """Turns `select(c, a, b)` into a conditional, so that the branch not taken is not evaluated."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "select":
            return ast.IfExp(*node.args)
        return node


class _Rename(_Select):
    """Replaces symbols by local names, which cannot collide with anything."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in _ARITIES:
            return node
        local = self.names.setdefault(node.id, f"v{len(self.names)}")
        return ast.Name(local, ast.Load())


class _Writer:
    """Writes the Python text of one kernel's arithmetic: requirements, then the grid, then the scalars."""

    def __init__(self, source: KernelSource) -> None:
        self.source = source
        self.symbols: dict[str, str] = {}

        requirements = [self._translate(item.condition) for item in source.requirements]
        grid = [self._translate(text) for text in source.grid]
        integers = [item for item in source.scalars if item.kind in _INT_BITS]
        floats = [item for item in source.scalars if item.kind not in _INT_BITS]
        values = [self._translate(item.expression) for item in integers]
        maps = [_tuple(self._translate(text) for text in item.expressions) for item in source.maps]

        lines = [f"if not ({text}): violated({number}, s)" for number, text in enumerate(requirements)]
        lines += [f"g{axis} = {text}" for axis, text in enumerate(grid)]
        lines += ["if g0 <= 0 or g1 <= 0 or g2 <= 0: return empty((g0, g1, g2), s)"]
        lines += [f"i{number} = {text}" for number, text in enumerate(values)]
        lines += [_range_check(number, item) for number, item in enumerate(integers)]
        scalars = f"{_tuple(f'i{n}' for n in range(len(values)))}, {_floats(floats)}"
        lines += [f"return result((g0, g1, g2), {scalars}, {_tuple(maps)})"]
        loads = [f"{local} = index(s[{name!r}])" for name, local in self.symbols.items()]
        self._text = "def evaluate(s, f):\n" + "".join(f"    {line}\n" for line in loads + lines)
        self._integers = integers

    def _translate(self, expression: str) -> str:
        return ast.unparse(_Rename(self.symbols).visit(_parse(expression)))

    def function(self) -> ArithmeticFunction:
        """The compiled function."""
        scope: dict[str, Any] = {
            "__builtins__": {},
            **_FUNCTIONS,
            "index": index,
            "float": float,
            "result": LaunchArguments,
            "empty": self._empty,
            "violated": self._violated,
            "out_of_range": self._out_of_range,
        }
        exec(compile(self._text, f"<launch of {self.source.name}>", "exec"), scope)
        return scope["evaluate"]

    def _violated(self, number: int, symbols: Mapping[str, int]) -> NoReturn:
        raise IllegalProblem(violation(self.source.requirements[number], symbols))

    def _empty(self, grid: tuple[int, int, int], symbols: Mapping[str, int]) -> None:
        if min(grid) < 0:
            raise InternalError(
                f"a grid must not be negative; kernel {self.source.name} got {grid} with {_values(symbols)}; "
                "please report this"
            )

    def _out_of_range(self, number: int, value: int) -> NoReturn:
        item = self._integers[number]
        raise IllegalProblem(
            f"{item.name} = {item.expression} of kernel {self.source.name} must fit {_INT_BITS[item.kind]} bits; "
            f"got {value}; use a kernel with wider indices or smaller tensors"
        )


def _range_check(number: int, item: ScalarParam) -> str:
    limit = 1 << (_INT_BITS[item.kind] - 1)
    return f"if not {-limit} <= i{number} < {limit}: out_of_range({number}, i{number})"


def _floats(items: list[ScalarParam]) -> str:
    return _tuple(f"float(f[{item.expression!r}])" for item in items)


def _tuple(parts: Any) -> str:
    return "(" + "".join(f"{part}, " for part in parts) + ")"


def violation(requirement: Requirement, symbols: Mapping[str, int]) -> str:
    """The message for a requirement that does not hold: the condition, the values of its symbols and the reason."""
    mentioned = {name: symbols[name] for name in sorted(symbols_of(requirement.condition))}
    return f"the kernel requires {requirement.condition}; got {_values(mentioned)}; {requirement.reason}"


def _values(symbols: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in symbols.items()) or "no symbols"
