"""The record of one hardware instruction: what it needs, which lane holds what, its text and its executable meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias, cast

import numpy as np

from convloom.artifact import Language
from convloom.dtypes import DType
from convloom.errors import IllegalProblem
from convloom.target.lane_map import extents
from convloom.target.memory import Flags, Memory, Space
from convloom.target.number_format import Array
from convloom.view import View


class Vendor(Enum):
    """Who numbers the architectures that a level counts in."""

    ANY = "any"
    NVIDIA = "nvidia"
    AMD = "amd"
    INTEL = "intel"


@dataclass(frozen=True, slots=True)
class Capability:
    """The least machine: `level` in the vendor's numbering (80 = sm_80); `only` = this level alone, no later one."""

    vendor: Vendor = Vendor.ANY
    level: int = 0
    only: bool = False

    def includes(self, machine: Capability) -> bool:
        """Whether an instruction that needs this runs on the machine; one with `only` set has its level's extras."""
        if self.vendor is Vendor.ANY:
            return True
        if self.only:
            return machine == self
        return machine.vendor is self.vendor and machine.level >= self.level


class Family(Enum):
    """What an instruction is for; selectors ask by family."""

    MULTIPLY_ADD = "multiply-add"
    DOT = "dot"  # short dot product in one lane
    MATRIX_MULTIPLY = "matrix-multiply"  # operands in the registers of a subgroup
    GROUP_MULTIPLY = "group-multiply"  # asynchronous, operands (partly) in shared memory
    LOAD = "load"
    STORE = "store"
    MATRIX_LOAD = "matrix-load"  # shared memory to fragments
    MATRIX_STORE = "matrix-store"
    ASYNC_COPY = "async-copy"  # per lane, global to shared
    TENSOR_LOAD = "tensor-load"  # a box of a tensor, by one lane
    TENSOR_STORE = "tensor-store"
    BARRIER = "barrier"
    FENCE = "fence"
    ATOMIC = "atomic"  # indivisible updates, and accesses that order threads of different blocks
    REGISTER_BUDGET = "register-budget"


class OutOfBounds(Enum):
    """The law for addresses outside the tensor or range that the instruction was given."""

    FAULT = "fault"  # the program ends; the lane must be masked
    ZERO_PER_BOX = "zero per box"  # reads zero, writes nothing, outside any dimension of the tensor
    ZERO_PAST_RANGE = "zero past range"  # reads zero, writes nothing, past the end of a linear range


class Completion(Enum):
    """When the effect is there for others to see; of a COMMIT or WAIT: the kind of groups that it is about."""

    AT_ONCE = "at once"
    COPY_GROUP = "copy group"  # per thread: committed, then waited for
    BULK_GROUP = "bulk group"
    MULTIPLY_GROUP = "multiply group"
    BARRIER_BYTES = "barrier bytes"  # counts its bytes on a transaction barrier when done
    COPIES_DONE = "copies done"  # happens when the earlier copies (of copy groups) of the thread are done


class Proxy(Enum):
    """The path to memory; between two different ones a fence is due."""

    GENERIC = "generic"
    ASYNC = "async"


class Ordering(Enum):
    """What an instruction does to the order of others; a scheduler acts on it, data is untouched."""

    NONE = "none"
    SYNC = "sync"  # arrive at a named barrier and wait until `threads` arrived
    ARRIVE = "arrive"  # arrive at a named barrier, go on
    CLUSTER_ARRIVE = "cluster arrive"
    CLUSTER_WAIT = "cluster wait"
    COMMIT = "commit"  # what this thread issued since the last commit becomes one group
    WAIT = "wait"  # until at most `pending` groups of this thread are unfinished
    WAIT_READ = "wait read"  # until at most `pending` groups still read their source
    FENCE_PROXY = "fence proxy"  # generic accesses before it, async ones after it
    FENCE_REGISTERS = "fence registers"  # register writes before it, asynchronous multiplies after it
    AWAIT = "await"  # repeats until the semantics' extra result `done` is true; then acquires
    ACQUIRE = "acquire"  # of an atomic access: sees what was released to its address
    RELEASE = "release"
    ACQUIRE_RELEASE = "acquire release"
    FENCE_THREADS = "fence threads"  # makes relaxed atomic accesses around it acquire and release
    FENCE_BARRIER_INIT = "fence barrier init"  # barrier initialisations before it, uses by other threads after it


class OperandKind(Enum):
    """How an operand is passed."""

    REGISTERS = "registers"
    ADDRESS = "address"  # bytes within `space`
    DESCRIPTOR = "descriptor"  # an encoded address with strides
    TENSOR_MAP = "tensor map"  # the address of one in text, a TensorMap in semantics
    IMMEDIATE = "immediate"  # a number in the text


class Direction(Enum):
    """Who writes the operand."""

    IN = "in"
    OUT = "out"
    IN_OUT = "in-out"


class Register(Enum):
    """The class of one register: its NumPy word."""

    B32 = "b32"
    F32 = "f32"
    F64 = "f64"
    B64 = "b64"

    @property
    def word(self) -> np.dtype[Any]:
        """Unsigned integers that carry the register's bits."""
        return _WORDS[self]


_WORDS: dict[Register, np.dtype[Any]] = {
    Register.B32: np.dtype(np.uint32),
    Register.F32: np.dtype(np.uint32),
    Register.F64: np.dtype(np.uint64),
    Register.B64: np.dtype(np.uint64),
}


@dataclass(frozen=True, slots=True)
class Fragment:
    """A matrix spread over lanes: element type, shape, and the view (lane, element) -> row * columns + column.

    Elements lie in a lane's registers in order, the first one in the lowest bits.
    """

    dtype: DType
    shape: tuple[int, int]
    layout: View

    @property
    def lanes(self) -> int:
        """Lanes that hold it."""
        return extents(self.layout)[0]

    @property
    def elements(self) -> int:
        """Elements in each lane."""
        return extents(self.layout)[1]


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand: `registers` words per lane of class `register` (immediates: none)."""

    name: str
    direction: Direction
    register: Register = Register.B32
    registers: int = 1
    kind: OperandKind = OperandKind.REGISTERS
    fragment: Fragment | None = None
    space: Space | None = None


class Rule(Enum):
    """A condition on the numbers given for an operand."""

    MULTIPLE = "a multiple of"
    WITHIN = "within"
    ONE_OF = "one of"


@dataclass(frozen=True, slots=True)
class Constraint:
    """Each number of the operand obeys the rule; breaking it is a fault or an undefined result."""

    operand: str
    rule: Rule
    numbers: tuple[int, ...]

    def holds(self, values: Array) -> Flags:
        """Element-wise: whether the rule holds."""
        match self.rule:
            case Rule.MULTIPLE:
                return values % values.dtype.type(self.numbers[0]) == 0
            case Rule.WITHIN:
                low, high = self.numbers
                return (values >= low) & (values <= high)
            case Rule.ONE_OF:
                return np.isin(values, self.numbers)


class TextForm(Enum):
    """How a text pattern becomes a statement."""

    STATEMENT = "statement"  # `$name` is replaced by the operand's expressions, in order
    PTX = "ptx"  # inline assembly; `$name` is replaced by the operand's places


@dataclass(frozen=True, slots=True)
class Text:
    """One language's pattern; `$name` stands for an operand's registers, separated by commas."""

    language: Language
    form: TextForm
    pattern: str


Value: TypeAlias = Any
"""An operand's value: words of shape (*batch, lanes, registers), an int (immediate), or a TensorMap."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution by many groups of lanes: operand values, the memory, and which lanes take part (None: all)."""

    values: Mapping[str, Value]
    memory: Memory | None = None
    active: Flags | None = None

    def words(self, name: str) -> Array:
        """An operand's words (*batch, lanes, registers)."""
        return cast(Array, self.values[name])

    def number(self, name: str) -> Array:
        """A one-register operand as int64 (*batch, lanes)."""
        return self.words(name)[..., 0].astype(np.int64)

    def immediate(self, name: str) -> int:
        """An immediate operand."""
        return int(self.values[name])

    @property
    def space(self) -> Memory:
        """The memory; IllegalProblem if none was given."""
        if self.memory is None:
            raise IllegalProblem("an instruction that touches memory needs one; got none; pass memory=")
        return self.memory


Semantics: TypeAlias = Callable[[Execution], dict[str, Array]]
"""Operand values -> the words of each operand that is written, shape (*batch, lanes, registers)."""


def no_effect(_: Execution) -> dict[str, Array]:
    """The semantics of instructions that only order others."""
    return {}


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One row. Two rows are equal only if they are the same one; names are unique in the catalogue.

    `shape` is (m, n, k) of a multiplication, else empty. `lanes` execute it together; with 1 each lane does so for
    itself and any number of lanes may be given to the semantics. `meaning` says in words what the semantics leaves out.
    """

    name: str
    family: Family
    needs: Capability
    lanes: int
    operands: tuple[Operand, ...]
    texts: tuple[Text, ...]
    semantics: Semantics
    shape: tuple[int, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    out_of_bounds: OutOfBounds | None = None
    completion: Completion = Completion.AT_ONCE
    proxy: Proxy = Proxy.GENERIC
    ordering: Ordering = Ordering.NONE
    meaning: str = ""

    def operand(self, name: str) -> Operand:
        """The operand of this name; IllegalProblem if there is none."""
        for operand in self.operands:
            if operand.name == name:
                return operand
        known = ", ".join(operand.name for operand in self.operands)
        raise IllegalProblem(f"an operand of {self.name} is one of {known}; got {name!r}; use one of these")

    def fragment(self, name: str) -> Fragment:
        """The lane map and type of an operand; IllegalProblem if it is no matrix in registers."""
        found = self.operand(name).fragment
        if found is None:
            raise IllegalProblem(
                f"operand {name!r} of {self.name} must be a matrix in registers; it is not; ask another"
            )
        return found

    def text(self, language: Language) -> Text | None:
        """The pattern in a language, if the instruction can be written in it."""
        return next((text for text in self.texts if text.language is language), None)

    def execute(
        self, values: Mapping[str, Value], memory: Memory | None = None, active: Flags | None = None
    ) -> dict[str, Array]:
        """The words of each written operand; memory is changed through `memory`.

        IllegalProblem for a missing operand, a wrong word type or register count, or a broken constraint.
        """
        for operand in self.operands:
            if operand.direction is not Direction.OUT:
                _check_operand(self, operand, values)
        for constraint in self.constraints:
            _check_constraint(self, constraint, values, active)
        return self.semantics(Execution(values, memory, active))


def _check_operand(row: Instruction, operand: Operand, values: Mapping[str, Value]) -> None:
    if operand.name not in values:
        raise IllegalProblem(f"{row.name} needs operand {operand.name!r}; got {', '.join(values)}; pass it")
    value = values[operand.name]
    if operand.kind in (OperandKind.IMMEDIATE, OperandKind.TENSOR_MAP):
        return
    if not isinstance(value, np.ndarray):
        raise IllegalProblem(
            f"operand {operand.name!r} of {row.name} must be an array of words; got {value!r}; pass one"
        )
    words = cast(Array, value)
    if words.dtype != operand.register.word or words.ndim < 2 or words.shape[-1] != operand.registers:
        raise IllegalProblem(
            f"operand {operand.name!r} of {row.name} must have shape (.., lanes, {operand.registers}) of "
            f"{operand.register.word}; got {words.shape} of {words.dtype}; pack it with number_format.as_words"
        )
    if row.lanes > 1 and words.shape[-2] != row.lanes:
        raise IllegalProblem(
            f"{row.name} is executed by {row.lanes} lanes; operand {operand.name!r} has {words.shape[-2]}; pass all"
        )


def _check_constraint(
    row: Instruction, constraint: Constraint, values: Mapping[str, Value], active: Flags | None
) -> None:
    given = np.asarray(values[constraint.operand])
    holds = constraint.holds(given)
    if active is not None and given.ndim:
        holds = holds | ~active[..., None]
    if not holds.all():
        numbers = ", ".join(map(str, constraint.numbers))
        raise IllegalProblem(
            f"operand {constraint.operand!r} of {row.name} must be {constraint.rule.value} {numbers}; "
            f"got {given[~holds].reshape(-1)[0]}; change the layout or choose another instruction"
        )
