"""How results go to C through shared memory: in chunks, by the stores that C's view allows."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from convloom.dtypes import BF16, F16
from convloom.expr import divisor
from convloom.plan.access_facts import flat_axes, flat_width
from convloom.plan.bulk_copy import BulkCopy, CopyKind, bulk_copy
from convloom.plan.epilogue_access import varies_along_n
from convloom.plan.flat_axis import MASKED_IN_RESULT, merged_axis
from convloom.plan.grid_plan import GridPlan
from convloom.problem.contraction import Contraction
from convloom.target.group_multiply import Major
from convloom.target.swizzle import Swizzle
from convloom.target.tensor_map import GRANULE

_SPAN = 64
"""Columns of the widest chunk: 128 bytes."""
_LEAST = 16
"""Columns of a store of four matrices."""
SLOTS = 2
"""Chunks of a consumer that are in shared memory at a time: one is filled while the other is copied."""


PIECE = 8
"""Numbers of a piece of a row: 16 bytes."""


@dataclass(frozen=True, slots=True)
class ResultChunks:
    """Chunks of `rows` x `width` numbers of 16 bits; `copy`: each is written by one tensor store, None: by threads.

    They lie in lines along a row, or along a column where `turned`.
    """

    copy: BulkCopy | None
    rows: int
    width: int
    turned: bool = False

    @property
    def line(self) -> int:
        """Numbers of a line."""
        return self.rows if self.turned else self.width

    @property
    def swizzle(self) -> Swizzle:
        """The one that spans a line of a chunk, so that matrix stores meet no bank twice."""
        return Swizzle(self.line * F16.nbytes)

    @property
    def size(self) -> int:
        """Numbers of a chunk."""
        return self.rows * self.width


def chunk_bytes(block_n: int, rows: int) -> int:
    """Bytes of shared memory that a consumer's chunks take."""
    return SLOTS * rows * gcd(block_n, _SPAN) * F16.nbytes


def result_copy(contraction: Contraction, plan: GridPlan, rows: int) -> ResultChunks | str:
    """Chunks by tensor stores, `rows` rows at a time; in words why there are none."""
    return _copied(contraction, plan, rows, turned=False)


def result_turned(contraction: Contraction, plan: GridPlan, rows: int) -> ResultChunks | str:
    """Chunks by tensor stores into a C that is contiguous along M; in words why there are none."""
    if contraction.reads_old:
        return "pairs of columns of the old C do not lie together"
    if contraction.bias is not None and varies_along_n(contraction.bias, contraction):
        return "the bias varies along N"
    return _copied(contraction, plan, rows, turned=True)


def _copied(contraction: Contraction, plan: GridPlan, rows: int, *, turned: bool) -> ResultChunks | str:
    width = _width(contraction, plan)
    if isinstance(width, str):
        return width
    m, n = merged_axis(contraction, "M", plan.m, rows), merged_axis(contraction, "N", plan.n, width)
    outer, inner = (n, m) if turned else (m, n)
    copy = bulk_copy(contraction, contraction.c, outer, inner)
    if isinstance(copy, str):
        return copy
    if copy.kind is not CopyKind.TILE or copy.major is not Major.K:
        return f"its lines do not lie a constant stride apart, each contiguous along {inner.name}"
    if divisor(copy.dimensions[0].size) * contraction.c.dtype.nbytes % GRANULE:
        return f"a tensor store cuts lines at multiples of {GRANULE} bytes; those of C have {copy.dimensions[0].size}"
    return ResultChunks(copy, rows, width, turned)


def result_pieces(contraction: Contraction, plan: GridPlan, rows: int) -> ResultChunks | str:
    """Chunks that threads store piece by piece; in words why there are none."""
    width = _width(contraction, plan)
    if isinstance(width, str):
        return width
    merged = flat_axes(contraction, plan.m, plan.n, plan.merged, plan.g)
    widest = flat_width(contraction.c, merged, (), "N", PIECE * contraction.c.dtype.bits, MASKED_IN_RESULT)
    if widest % PIECE:
        return f"pieces of {PIECE} numbers lie together along N; the view of C allows {widest}"
    return ResultChunks(None, rows, width)


def _width(contraction: Contraction, plan: GridPlan) -> int | str:
    """Columns of a chunk."""
    if contraction.c.dtype not in (F16, BF16):
        return f"matrix stores write numbers of 16 bits; C has {contraction.c.dtype}"
    width = gcd(plan.block_n, _SPAN)
    return width if width >= _LEAST else f"matrix stores write {_LEAST} columns at a time; tiles have {plan.block_n}"
