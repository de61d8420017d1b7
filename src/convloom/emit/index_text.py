"""Index expressions as C text."""

from __future__ import annotations

from convloom.errors import InternalError
from convloom.expr import Expr, Op, bounds

_INFIX = {Op.LT: "<", Op.LE: "<=", Op.EQ: "==", Op.NE: "!="}
_INT32 = range(-(2**31), 2**31)


def index_text(expression: Expr) -> str:
    """C text of an integer expression; parenthesised wherever it is more than a name or number."""
    match expression.op:
        case Op.CONST:
            return _constant(expression.value)
        case Op.SYM:
            return expression.name
        case Op.ADD:
            return _sum(expression)
        case Op.MUL:
            return "(" + " * ".join(index_text(argument) for argument in expression.args) + ")"
        case Op.FLOORDIV | Op.MOD:
            return _division(expression)
        case Op.LT | Op.LE | Op.EQ | Op.NE:
            left, right = (index_text(argument) for argument in expression.args)
            return f"({left} {_INFIX[expression.op]} {right})"
        case Op.AND | Op.OR:
            joint = " && " if expression.op is Op.AND else " || "
            return "(" + joint.join(index_text(argument) for argument in expression.args) + ")"
        case Op.NOT:
            return f"(!{index_text(expression.args[0])})"
        case Op.SELECT:
            condition, yes, no = (index_text(argument) for argument in expression.args)
            return f"({condition} ? {yes} : {no})"
        case Op.MIN | Op.MAX:
            return _extreme(expression)
        case Op.FAST_DIV:
            return f"fast_div({', '.join(index_text(argument) for argument in expression.args)})"
        case _:
            raise InternalError(f"kernels hold no {expression.op.name}; hoist it to the host; in {expression!r}")


def _constant(value: int) -> str:
    if value in _INT32:
        return str(value) if value >= 0 else f"({value})"
    return f"{value}LL" if value >= 0 else f"({value}LL)"


def _sum(expression: Expr) -> str:
    text = ""
    for argument in expression.args:
        sign, magnitude = _signed(argument)
        text += f" {sign} {magnitude}" if text else (f"-{magnitude}" if sign == "-" else magnitude)
    return f"({text})"


def _signed(argument: Expr) -> tuple[str, str]:
    """Sign and magnitude of a term, so that sums read `a - 3 * b`."""
    if argument.op is Op.CONST and argument.value < 0:
        return "-", _constant(-argument.value)
    if argument.op is Op.MUL and argument.args[-1].op is Op.CONST and argument.args[-1].value < 0:
        factors = [index_text(factor) for factor in argument.args[:-1]]
        coefficient = -argument.args[-1].value
        return "-", " * ".join([*factors, *([] if coefficient == 1 else [_constant(coefficient)])])
    return "+", index_text(argument)


def _division(expression: Expr) -> str:
    """C division where it agrees with floor division, else the helper that rounds down."""
    dividend, divisor = expression.args
    left, right = index_text(dividend), index_text(divisor)
    low, least = bounds(dividend).lo, bounds(divisor).lo
    if low is not None and low >= 0 and least is not None and least > 0:
        return f"({left} {'/' if expression.op is Op.FLOORDIV else '%'} {right})"
    return f"{'floor_div' if expression.op is Op.FLOORDIV else 'floor_mod'}({left}, {right})"


def _extreme(expression: Expr) -> str:
    name = "min_index" if expression.op is Op.MIN else "max_index"
    text = index_text(expression.args[-1])
    for argument in reversed(expression.args[:-1]):
        text = f"{name}({index_text(argument)}, {text})"
    return text
