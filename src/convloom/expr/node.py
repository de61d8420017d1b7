"""The node of an index expression: interned, immutable, with operators that build canonical nodes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum, unique
from typing import Final, SupportsIndex, TypeVar, cast

from convloom.errors import IllegalProblem, IllegalType, InternalError

Result = TypeVar("Result")


@unique
class Op(IntEnum):  # IntEnum, because Enum hashes in Python code
    """What a node computes; the order is the order of terms in a sum."""

    CONST = 0  # value
    SYM = 1  # name, facts
    MUL = 2  # (atom, CONST) or a sorted product of atoms
    ADD = 3  # sorted terms, each an atom or (atom * CONST), then a non-zero CONST or nothing
    FLOORDIV = 4  # rounds to minus infinity
    MOD = 5  # sign of the divisor
    MIN = 6  # n-ary
    MAX = 7  # n-ary
    LT = 8
    LE = 9
    EQ = 10
    NE = 11
    AND = 12  # n-ary
    OR = 13  # n-ary
    NOT = 14
    SELECT = 15  # (condition, value if true, value if false)
    FAST_DIV = 16  # (x * multiplier) >> shift, in 64 bits
    MAGIC_MULTIPLIER = 17  # of a divisor
    MAGIC_SHIFT = 18  # of a divisor


TRUTH_OPS: Final = frozenset((Op.LT, Op.LE, Op.EQ, Op.NE, Op.AND, Op.OR, Op.NOT))


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a symbol: value % divisor == 0, lo <= value <= hi (None: unbounded). `hint` is never a fact."""

    divisor: int = 1
    lo: int | None = None
    hi: int | None = None
    hint: int | None = None
    local: bool = False  # bound by a kernel or an analysis itself: never the size of a user that has the same name


class Expr:
    """An integer expression. Build through the operators and functions of `convloom.expr`, never directly.

    Equal expressions in canonical form are one object: `==` is identity. `key` orders nodes independently of what
    the process built before, so that printed text is reproducible.
    """

    __slots__ = ("args", "facts", "key", "name", "op", "value")
    __array_ufunc__ = None  # a NumPy integer on the left must leave the operation to us

    def __init__(
        self, op: Op, args: tuple[Expr, ...], value: int, name: str, facts: Facts, key: tuple[object, ...]
    ) -> None:
        self.op: Final = op
        self.args: Final = args
        self.value: Final = value
        self.name: Final = name
        self.facts: Final = facts
        self.key: Final = key

    def __add__(self, other: ExprLike) -> Expr:
        return BINARY[Op.ADD](self, _lifted(other))

    def __radd__(self, other: ExprLike) -> Expr:
        return BINARY[Op.ADD](_lifted(other), self)

    def __sub__(self, other: ExprLike) -> Expr:
        return BINARY[Op.ADD](self, BINARY[Op.MUL](_lifted(other), MINUS_ONE))

    def __rsub__(self, other: ExprLike) -> Expr:
        return BINARY[Op.ADD](_lifted(other), BINARY[Op.MUL](self, MINUS_ONE))

    def __mul__(self, other: ExprLike) -> Expr:
        return BINARY[Op.MUL](self, _lifted(other))

    def __rmul__(self, other: ExprLike) -> Expr:
        return BINARY[Op.MUL](_lifted(other), self)

    def __neg__(self) -> Expr:
        return BINARY[Op.MUL](self, MINUS_ONE)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return BINARY[Op.FLOORDIV](self, _lifted(other))

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return BINARY[Op.FLOORDIV](_lifted(other), self)

    def __mod__(self, other: ExprLike) -> Expr:
        return BINARY[Op.MOD](self, _lifted(other))

    def __rmod__(self, other: ExprLike) -> Expr:
        return BINARY[Op.MOD](_lifted(other), self)

    def lt(self, other: ExprLike) -> Expr:
        """1 if self < other, else 0."""
        return BINARY[Op.LT](self, _lifted(other))

    def le(self, other: ExprLike) -> Expr:
        """1 if self <= other, else 0."""
        return BINARY[Op.LE](self, _lifted(other))

    def gt(self, other: ExprLike) -> Expr:
        """1 if self > other, else 0."""
        return BINARY[Op.LT](_lifted(other), self)

    def ge(self, other: ExprLike) -> Expr:
        """1 if self >= other, else 0."""
        return BINARY[Op.LE](_lifted(other), self)

    def eq(self, other: ExprLike) -> Expr:
        """1 if the values are equal, else 0 (`==` compares the nodes)."""
        return BINARY[Op.EQ](self, _lifted(other))

    def ne(self, other: ExprLike) -> Expr:
        """1 if the values differ, else 0 (`!=` compares the nodes)."""
        return BINARY[Op.NE](self, _lifted(other))

    @property
    def is_const(self) -> bool:
        """True for an integer constant; its value is `value`."""
        return self.op is Op.CONST

    def __bool__(self) -> bool:
        raise IllegalType(
            f"an expression has no truth value of its own; got {self!r}; ask prove(..) or compare with None"
        )

    def __repr__(self) -> str:
        return PRINTERS[-1](self)

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: object) -> Expr:
        return self

    def __reduce__(self) -> tuple[Callable[..., Expr], tuple[object, ...]]:
        if self.op is Op.CONST:
            return const, (self.value,)
        if self.op is Op.SYM:
            return _intern_symbol, (self.name, self.facts)
        return (intern_scaled, self.args) if is_scaled(self) else (intern, (self.op, self.args))


ExprLike = Expr | SupportsIndex
Binary = Callable[[Expr, Expr], Expr]

# The canonicalising constructors of the binary operators; their modules enter them, `convloom.expr` imports them all.
BINARY: dict[Op, Binary] = {}
PRINTERS: list[Callable[[Expr], str]] = [lambda node: f"<{node.op.name} node>"]

_NO_FACTS: Final = Facts()
_CONSTANTS: dict[int, Expr] = {}
_SYMBOLS: dict[tuple[str, Facts], Expr] = {}
_NODES: dict[tuple[Op, tuple[Expr, ...]], Expr] = {}


key_of: Final[Callable[[Expr], tuple[object, ...]]] = operator.attrgetter("key")


def const(value: SupportsIndex) -> Expr:
    """The constant node of an integer (NumPy integers too); IllegalType for anything else."""
    found = _CONSTANTS.get(value) if type(value) is int else None
    return found if found is not None else _intern_constant(value)


def _intern_constant(value: SupportsIndex) -> Expr:
    try:
        number = operator.index(value)
    except TypeError:
        raise IllegalType(
            f"index expressions hold integers; got {value!r} of type {type(value).__name__}; convert it with int()"
        ) from None
    return _CONSTANTS.setdefault(number, Expr(Op.CONST, (), number, "", _NO_FACTS, (0, number)))


def _lifted(value: ExprLike) -> Expr:
    return value if type(value) is Expr else const(cast("SupportsIndex", value))


def as_expr(value: ExprLike) -> Expr:
    """An Expr as it is, an integer as its constant node."""
    return value if isinstance(value, Expr) else const(value)


def sym(name: str, *, divisor: int = 1, lo: int | None = None, hi: int | None = None, hint: int | None = None) -> Expr:
    """A symbol: a multiple of `divisor` in [lo, hi]. IllegalProblem if no value satisfies the facts or the name is bad.

    Bounds are tightened to multiples of the divisor, so equal knowledge is the same node.
    """
    if not name.isidentifier():
        raise IllegalProblem(f"a symbol's name must be an identifier; got {name!r}; use letters, digits and _")
    if divisor < 1:
        raise IllegalProblem(
            f"a symbol's divisor must be at least 1; got {divisor} for {name}; drop it or make it positive"
        )
    low = None if lo is None else -(-lo // divisor) * divisor
    high = None if hi is None else hi // divisor * divisor
    if low is not None and high is not None and low > high:
        raise IllegalProblem(
            f"some value must satisfy a symbol's facts; {name} has divisor {divisor}, lo {lo}, hi {hi}; widen them"
        )
    return _intern_symbol(name, Facts(divisor, low, high, hint))


def local_sym(name: str, *, divisor: int = 1, lo: int | None = None, hi: int | None = None) -> Expr:
    """A symbol that a kernel or an analysis binds itself; never the same node as a `sym` of that name."""
    facts = sym(name, divisor=divisor, lo=lo, hi=hi).facts
    return _intern_symbol(name, replace(facts, local=True))


def _intern_symbol(name: str, facts: Facts) -> Expr:
    found = _SYMBOLS.get((name, facts))
    if found is None:
        key = (int(Op.SYM), name, repr(facts))
        found = _SYMBOLS.setdefault((name, facts), Expr(Op.SYM, (), 0, name, facts, key))
    return found


def intern(op: Op, args: tuple[Expr, ...]) -> Expr:
    """The one node of this operator and arguments, which the caller has already brought into canonical form."""
    found = _NODES.get((op, args))
    if found is None:
        key = (int(op), *map(key_of, args))
        found = _NODES.setdefault((op, args), Expr(op, args, 0, "", _NO_FACTS, key))
    return found


def intern_scaled(atom: Expr, coefficient: Expr) -> Expr:
    """The one node of atom * coefficient, a constant neither 0 nor 1. It is sorted right behind its atom."""
    args = (atom, coefficient)
    found = _NODES.get((Op.MUL, args))
    if found is None:
        key = (*atom.key, coefficient.key)
        found = _NODES.setdefault((Op.MUL, args), Expr(Op.MUL, args, 0, "", _NO_FACTS, key))
    return found


def is_scaled(node: Expr) -> bool:
    """True for atom * constant."""
    return node.op is Op.MUL and node.args[-1].op is Op.CONST


ZERO: Final = const(0)
ONE: Final = const(1)
MINUS_ONE: Final = const(-1)


def fold(root: Expr, memo: dict[Expr, Result], step: Callable[[Expr, Mapping[Expr, Result]], Result]) -> Result:
    """Computes memo[root] bottom up, every shared node once, without recursion; `step` finds its arguments in memo."""
    found = memo.get(root)
    if found is not None:
        return found
    stack = [root]
    while stack:
        node = stack[-1]
        waiting = [arg for arg in node.args if arg not in memo]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        if node not in memo:
            memo[node] = step(node, memo)
    return memo[root]


def free_symbols(root: ExprLike) -> frozenset[Expr]:
    """The symbols that the expression mentions."""
    return fold(as_expr(root), _FREE, _free_step)


_FREE: dict[Expr, frozenset[Expr]] = {}


def _free_step(node: Expr, memo: Mapping[Expr, frozenset[Expr]]) -> frozenset[Expr]:
    if node.op is Op.SYM:
        return frozenset((node,))
    return frozenset[Expr]().union(*[memo[arg] for arg in node.args])


def unknown_op(node: Expr) -> InternalError:
    """The error of a table that misses an operator."""
    return InternalError(f"every operator needs an entry in each table; none for {node.op.name}; please report this")
