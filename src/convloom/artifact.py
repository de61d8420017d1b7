"""The records that cross the border between compiler and runtime. The runtime sees these and nothing above them.

Launch arithmetic (grid sizes, scalar arguments, requirements) travels as text in a small expression language so
that it can be stored in a manifest: integers, symbol names, `+ - * // %`, comparisons, `and or not`, `min(..)
max(..)`, and the two functions `magic_multiplier(d)` and `magic_shift(d)` (division by multiplication, see
`expr.FAST_DIV`). Symbols are the problem's sizes and strides, `<buffer>_address` for the byte address of a
buffer's first element, and MULTIPROCESSORS.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Language(Enum):
    """What a kernel's text is written in."""

    C = "c"
    OPENCL = "opencl"
    CUDA = "cuda"
    IR = "ir"  # the text form of the IR, for the interpreter


class Access(Enum):
    """How a kernel uses a buffer."""

    READ = "r"
    WRITE = "w"
    READ_WRITE = "rw"


class ScalarKind(Enum):
    """Type of a scalar kernel parameter."""

    I32 = "i32"
    I64 = "i64"
    F32 = "f32"
    F64 = "f64"


@dataclass(frozen=True, slots=True)
class BufferParam:
    """One pointer parameter: its name, element type name (see dtypes) and use."""

    name: str
    dtype: str
    access: Access


@dataclass(frozen=True, slots=True)
class ScalarParam:
    """One scalar parameter; `expression` gives it from the symbols of the call (for alpha and beta: their own name)."""

    name: str
    expression: str
    kind: ScalarKind


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition that must hold at a call, and words for the user: what relied on it and what to do."""

    condition: str
    reason: str


@dataclass(frozen=True, slots=True)
class TensorMapParam:
    """The recipe of a tensor map, which the host makes for each set of sizes and addresses.

    Dimensions count from the fastest one. `sizes` in elements, `strides` of dimensions 1 and up in bytes and `offset`,
    elements from the first one of `buffer` to the map's, are expressions over the symbols of the call. A tiled map has
    a `box`; one of image columns has corners, `channels` and `pixels`. `swizzle`: its span in bytes, 0 for none.
    """

    name: str
    buffer: str
    dtype: str
    sizes: tuple[str, ...]
    strides: tuple[str, ...]
    offset: str
    steps: tuple[int, ...]
    swizzle: int
    box: tuple[int, ...] = ()
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    channels: int = 0
    pixels: int = 0

    @property
    def expressions(self) -> tuple[str, ...]:
        """Sizes, strides and the offset, in this order: what a launch computes of a map."""
        return (*self.sizes, *self.strides, self.offset)


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A kernel as text with everything needed to build and launch it.

    Parameters of the entry point, in order: `buffers`, `scalars`, `maps`. For Language.C the entry point has one fixed
    signature instead: `void NAME(void *const *buffers, const int64_t *integers, const double *floats,
    int64_t first_block, int64_t last_block)`, which runs the blocks [first_block, last_block) of the linear grid;
    `integers` holds the I32/I64 scalars in order, `floats` the F32/F64 ones.
    `grid` is in blocks, `block` in threads; `shared_bytes` is dynamic shared memory (0 if the text declares its own).
    """

    name: str
    language: Language
    arch: str
    text: str
    buffers: tuple[BufferParam, ...]
    scalars: tuple[ScalarParam, ...]
    grid: tuple[str, str, str]
    block: tuple[int, int, int]
    shared_bytes: int
    requirements: tuple[Requirement, ...]
    maps: tuple[TensorMapParam, ...] = ()


MULTIPROCESSORS = "multiprocessors"
"""The symbol of launch arithmetic whose value the device gives: how many of its processors run blocks."""

WORKSPACE = "partial"
"""The name, among the buffers of launches, of the scratch memory that a program lends them."""


@dataclass(frozen=True, slots=True)
class Program:
    """What one call runs: launches in order on one stream, each of which sees what those before it wrote.

    `workspace_bytes`: scratch memory of one call, an expression over the symbols ("0": none), undefined before the
    first launch and free after the last, aligned to 64 bytes. Launches name it WORKSPACE. `main`: the place of the
    launch that multiplies.
    """

    launches: tuple[KernelSource, ...]
    workspace_bytes: str
    main: int = 0
