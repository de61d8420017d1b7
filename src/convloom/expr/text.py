"""The text form of expressions: the launch expression language of `convloom.artifact`, printed and parsed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from convloom.errors import IllegalProblem
from convloom.expr.logic import all_of, any_of, equal, less, less_equal, maximum, minimum, negate, select, unequal
from convloom.expr.node import PRINTERS, Expr, ExprLike, Op, as_expr, const, fold
from convloom.expr.quotients import fast_div, floordiv, modulo, multiplier_of, shift_of
from convloom.expr.sums import linear_form, product_atoms

Printed = tuple[str, int]  # text and binding strength of its outermost operator

_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _ATOM = range(7)
_INFIX: dict[Op, tuple[str, int]] = {
    Op.FLOORDIV: (" // ", _PRODUCT),
    Op.MOD: (" % ", _PRODUCT),
    Op.LT: (" < ", _COMPARE),
    Op.LE: (" <= ", _COMPARE),
    Op.EQ: (" == ", _COMPARE),
    Op.NE: (" != ", _COMPARE),
    Op.AND: (" and ", _AND),
    Op.OR: (" or ", _OR),
}
_FUNCTIONS: dict[Op, str] = {
    Op.MIN: "min",
    Op.MAX: "max",
    Op.SELECT: "select",
    Op.FAST_DIV: "fast_div",
    Op.MAGIC_MULTIPLIER: "magic_multiplier",
    Op.MAGIC_SHIFT: "magic_shift",
}


def to_text(e: ExprLike) -> str:
    """The expression as text that `parse` reads back to the same node."""
    memo: dict[Expr, Printed] = {}
    return fold(as_expr(e), memo, _print_step)[0]


def _print_step(node: Expr, memo: Mapping[Expr, Printed]) -> Printed:
    if node.op is Op.CONST:
        return str(node.value), _ATOM if node.value >= 0 else _SUM
    if node.op is Op.SYM:
        return node.name, _ATOM
    if node.op is Op.ADD:
        return _print_sum(node, memo), _SUM
    if node.op is Op.MUL:
        return _print_product(node, memo)
    if node.op is Op.NOT:
        return f"not {_enclosed(node.args[0], _NOT, memo)}", _NOT
    if node.op in _FUNCTIONS:
        return f"{_FUNCTIONS[node.op]}({', '.join([memo[arg][0] for arg in node.args])})", _ATOM
    symbol, strength = _INFIX[node.op]
    first = strength if strength in (_PRODUCT, _AND, _OR) else strength + 1  # comparisons must not chain
    texts = [_enclosed(arg, strength + 1 if place else first, memo) for place, arg in enumerate(node.args)]
    return symbol.join(texts), strength


def _enclosed(node: Expr, strength: int, memo: Mapping[Expr, Printed]) -> str:
    text, own = memo[node]
    return text if own >= strength else f"({text})"


def _print_product(node: Expr, memo: Mapping[Expr, Printed]) -> Printed:
    last = node.args[-1]
    if last.op is Op.CONST:
        return _print_term(node.args[0], last.value, memo), _PRODUCT if last.value > 0 else _SUM
    return _print_term(node, 1, memo), _PRODUCT


def _print_term(atom: Expr, coefficient: int, memo: Mapping[Expr, Printed]) -> str:
    factors = [_enclosed(factor, _ATOM, memo) for factor in product_atoms(atom)]
    if len(factors) == 1 and abs(coefficient) == 1:
        factors = [_enclosed(atom, _PRODUCT if coefficient > 0 else _ATOM, memo)]  # -a % b means (-a) % b
    if abs(coefficient) != 1:
        factors.append(str(abs(coefficient)))
    return ("-" if coefficient < 0 else "") + " * ".join(factors)


def _print_sum(node: Expr, memo: Mapping[Expr, Printed]) -> str:
    constant, terms = linear_form(node)
    ordered = sorted(terms, key=lambda term: term[1] < 0)  # a positive term first where there is one
    text = ""
    for atom, coefficient in ordered:
        if not text:
            text = _print_term(atom, coefficient, memo)
        else:
            text = _joined(text, _print_term(atom, abs(coefficient), memo), coefficient)
    return _joined(text, str(abs(constant)), constant) if constant else text


def _joined(text: str, part: str, sign: int) -> str:
    return f"{text} {'+' if sign > 0 else '-'} {part}"


_BINARY_OPERATORS: dict[type[ast.operator], Callable[[Expr, Expr], Expr]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: floordiv,
    ast.Mod: modulo,
}
_COMPARE_OPERATORS: dict[type[ast.cmpop], Callable[[Expr, Expr], Expr]] = {
    ast.Lt: less,
    ast.LtE: less_equal,
    ast.Gt: lambda a, b: less(b, a),
    ast.GtE: lambda a, b: less_equal(b, a),
    ast.Eq: equal,
    ast.NotEq: unequal,
}
_UNARY_OPERATORS: dict[type[ast.unaryop], Callable[[Expr], Expr]] = {
    ast.USub: lambda a: -a,
    ast.UAdd: lambda a: a,
    ast.Not: negate,
}
_CALLS: dict[str, tuple[Callable[..., Expr], range]] = {  # constructor, possible numbers of arguments
    "min": (minimum, range(1, 1 << 16)),
    "max": (maximum, range(1, 1 << 16)),
    "select": (select, range(3, 4)),
    "fast_div": (fast_div, range(3, 4)),
    "magic_multiplier": (multiplier_of, range(1, 2)),
    "magic_shift": (shift_of, range(1, 2)),
}


def parse(text: str, symbols: Mapping[str, ExprLike]) -> Expr:
    """The expression of a text, names looked up in `symbols`; IllegalProblem names the part not understood."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        raise IllegalProblem(
            f"an expression must be integer arithmetic in Python's notation; got {text!r} ({error.msg}); correct it"
        ) from None
    return _Reader(text, symbols).read(tree.body)


class _Reader:
    """Turns a syntax tree into an expression."""

    def __init__(self, text: str, symbols: Mapping[str, ExprLike]) -> None:
        self._text = text
        self._symbols = symbols

    def read(self, tree: ast.expr) -> Expr:
        """The expression of one node of the syntax tree."""
        match tree:
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                return const(value)
            case ast.Name(id=name):
                return self._symbol(name)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY_OPERATORS:
                return _BINARY_OPERATORS[type(op)](self.read(left), self.read(right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY_OPERATORS:
                return _UNARY_OPERATORS[type(op)](self.read(operand))
            case ast.BoolOp(op=op, values=values):
                parts = [self.read(value) for value in values]
                return all_of(*parts) if isinstance(op, ast.And) else any_of(*parts)
            case ast.Compare():
                return self._compare(tree)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS:
                return self._call(name, args)
            case _:
                raise self._refused(ast.unparse(tree))

    def _symbol(self, name: str) -> Expr:
        found = self._symbols.get(name)
        if found is None:
            known = ", ".join(sorted(self._symbols)) or "none"
            raise IllegalProblem(
                f"a name in an expression must be a known symbol; got {name!r} in {self._text!r}; known: {known}"
            )
        return as_expr(found)

    def _compare(self, tree: ast.Compare) -> Expr:
        values = [self.read(value) for value in (tree.left, *tree.comparators)]
        parts: list[Expr] = []
        for op, left, right in zip(tree.ops, values, values[1:], strict=False):
            compare = _COMPARE_OPERATORS.get(type(op))
            if compare is None:
                raise self._refused(ast.unparse(tree))
            parts.append(compare(left, right))
        return all_of(*parts)

    def _call(self, name: str, args: list[ast.expr]) -> Expr:
        constructor, counts = _CALLS[name]
        if len(args) not in counts:
            raise self._refused(f"{name} with {len(args)} arguments")
        return constructor(*[self.read(arg) for arg in args])

    def _refused(self, part: str) -> IllegalProblem:
        return IllegalProblem(
            f"an expression holds integers, symbols, + - * // %, comparisons, and/or/not and {', '.join(_CALLS)}; "
            f"got {part} in {self._text!r}; write it with these"
        )


PRINTERS.append(to_text)
