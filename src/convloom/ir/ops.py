"""The whole IR on one screen: buffers, values, statements, kernel.

Integer index math is `expr.Expr`; the symbols in it are launch arguments, loop variables, the thread's and the block's
number and names bound by `Let`. Everything else (element values) is a `Value`. Nodes are frozen; passes build new ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from convloom.dtypes import DType
from convloom.expr import Expr, const
from convloom.ir.functions import Function
from convloom.target.instruction import Instruction
from convloom.target.swizzle import Swizzle


class Scope(Enum):
    """Where a buffer lives and who sees it."""

    GLOBAL = "global"  # a kernel parameter, seen by all
    SHARED = "shared"  # one per thread block
    REGISTER = "register"  # one per thread
    CONSTANT = "constant"  # a table baked into the source


@dataclass(frozen=True, slots=True)
class Buffer:
    """A linear array of `size` numbers (0: a parameter) in vectors of `lanes`; `dtype` None means index integers.

    `alignment`, in bytes, of a SHARED buffer (0: the least that all have).
    """

    name: str
    dtype: DType | None
    scope: Scope
    size: int = 0
    lanes: int = 1
    values: tuple[int, ...] = ()  # CONSTANT only
    written: bool = False  # GLOBAL only: the kernel stores to it
    alignment: int = 0


_ZERO = const(0)


@dataclass(frozen=True, slots=True)
class MapParameter:
    """A tensor map of a GLOBAL buffer as a kernel parameter: the host makes it for each launch.

    Dimensions count from the fastest one. `sizes` in elements, `strides` of dimensions 1 and up in bytes, and `offset`,
    elements from the buffer's first to the map's, are expressions over problem symbols. Tiled maps have a `box`; maps
    of image columns have corners, `channels` and `pixels` (see `target.tensor_map`).
    """

    name: str
    buffer: Buffer
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    steps: tuple[int, ...]
    swizzle: Swizzle
    box: tuple[int, ...] = ()
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    channels: int = 0
    pixels: int = 0
    offset: Expr = _ZERO


# --- values ---------------------------------------------------------------------------------------------------------


class BinaryOp(Enum):
    """Element-wise arithmetic of two values of one type."""

    ADD = "+"
    MUL = "*"


@dataclass(frozen=True, slots=True)
class Constant:
    """A number in every lane."""

    value: float
    dtype: DType
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Parameter:
    """A floating-point launch argument (alpha, beta)."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class Read:
    """`lanes` consecutive numbers of a buffer from number `index` on; zeros where mask is 0."""

    buffer: Buffer
    index: Expr
    lanes: int = 1
    mask: Expr | None = None


@dataclass(frozen=True, slots=True)
class Convert:
    """The same numbers in another type: round to nearest even; integers saturate."""

    value: Value
    dtype: DType


@dataclass(frozen=True, slots=True)
class Pack:
    """The bits of a vector of 32 bits as one register word, its first number in the lowest."""

    value: Value


@dataclass(frozen=True, slots=True)
class Splat:
    """One number in every lane."""

    value: Value
    lanes: int


@dataclass(frozen=True, slots=True)
class Binary:
    """op(left, right), lane by lane."""

    op: BinaryOp
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class MultiplyAdd:
    """left * right + addend, lane by lane; fused where the target fuses."""

    left: Value
    right: Value
    addend: Value


@dataclass(frozen=True, slots=True)
class Call:
    """function(values; numbers), lane by lane; values and result have one type."""

    function: Function
    values: tuple[Value, ...]
    numbers: tuple[float, ...] = ()


Value = Constant | Parameter | Read | Convert | Pack | Splat | Binary | MultiplyAdd | Call

# --- statements -----------------------------------------------------------------------------------------------------


class LoopKind(Enum):
    """How a loop is to be executed."""

    SERIAL = "serial"
    UNROLLED = "unrolled"  # constant extent; every use of its variable becomes a constant
    WORK_ITEMS = "work_items"  # the threads of a block, made a loop by lower.serialize_work_items


@dataclass(frozen=True, slots=True)
class Let:
    """Binds an index name: to an expression, or to one integer read from a table or an index array."""

    variable: Expr
    value: Expr | Read


@dataclass(frozen=True, slots=True)
class Allocate:
    """Brings a SHARED or REGISTER buffer into being; its contents are undefined."""

    buffer: Buffer


@dataclass(frozen=True, slots=True)
class Write:
    """Stores a value from number `index` on; index arrays take an Expr. Nothing happens where mask is 0.

    `adds`: each number is added to what is there instead, in one step that no other such access of the launch divides
    (GLOBAL buffers of f32, f64 or s32). The order of such additions is open.
    """

    buffer: Buffer
    index: Expr
    value: Value | Expr
    mask: Expr | None = None
    adds: bool = False


@dataclass(frozen=True, slots=True)
class For:
    """for variable in range(extent): body."""

    variable: Expr
    extent: Expr
    body: tuple[Statement, ...]
    kind: LoopKind = LoopKind.SERIAL


@dataclass(frozen=True, slots=True)
class If:
    """body where condition holds."""

    condition: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Registers:
    """`count` consecutive numbers of a REGISTER buffer, as an instruction's operand."""

    buffer: Buffer
    index: Expr
    count: int


@dataclass(frozen=True, slots=True)
class Address:
    """The place of a number in a SHARED or GLOBAL buffer, as an instruction's operand."""

    buffer: Buffer
    index: Expr


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A matrix in a SHARED buffer, from number `index` on, as an operand of asynchronous multiplies.

    `leading` and `stride` in bytes, as in `target.group_multiply.MatrixDescriptor`.
    """

    buffer: Buffer
    index: Expr
    leading: int
    stride: int
    swizzle: Swizzle


@dataclass(frozen=True, slots=True)
class Numbers:
    """Several numbers as one operand: the coordinates of a box."""

    values: tuple[Expr, ...]


Argument = Registers | Address | Descriptor | MapParameter | Numbers | Expr


@dataclass(frozen=True, slots=True)
class Instruct:
    """Executes one hardware instruction, a row of the target's catalogue, on named arguments (numbers as Expr)."""

    row: Instruction
    arguments: tuple[tuple[str, Argument], ...]


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads of the block arrive, and see each other's shared memory, before any goes on."""


@dataclass(frozen=True, slots=True)
class Comment:
    """Words for the reader of the generated source."""

    text: str


Statement = Let | Allocate | Write | For | If | Instruct | Barrier | Comment


@dataclass(frozen=True, slots=True)
class LaunchScalar:
    """A scalar launch argument: its name in the body, and the expression over problem symbols that the host evaluates.

    `value` is a name instead where the caller passes the number (alpha, beta).
    """

    name: str
    value: Expr | str
    dtype: DType | None  # None: an index integer


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel: parameters, thread count of a block, number of blocks (an expression over problem symbols), body.

    `cluster`: so many neighbouring blocks run at a time and reach each other's shared memory; it divides the blocks.
    """

    name: str
    buffers: tuple[Buffer, ...]
    scalars: tuple[LaunchScalar, ...]
    threads: int
    blocks: Expr
    index_bits: int
    body: tuple[Statement, ...]
    maps: tuple[MapParameter, ...] = ()
    cluster: int = 1
