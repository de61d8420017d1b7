"""What all parts of one kernel share while it is built."""

from __future__ import annotations

from dataclasses import dataclass

from convloom.dtypes import F32, F64, S32, DType
from convloom.expr import Expr, simplify
from convloom.ir.ops import Buffer, Scope
from convloom.ir.symbols import thread_id
from convloom.plan.flat_axis import Merged, merged_axis
from convloom.plan.grid_plan import GridPlan
from convloom.plan.tiled import TiledPlan
from convloom.problem.contraction import Contraction
from convloom.target.instruction import Instruction


@dataclass(frozen=True, slots=True)
class GridFrame:
    """The contraction as a plan of any family orients it, its flat axes and buffers.

    A block may hold several groups of threads with the same tile of C, K groups; `member` is the place of the thread in
    its group `k_group`.
    """

    contraction: Contraction
    plan: GridPlan
    m: Merged
    n: Merged
    k: Merged
    g: Merged
    buffers: dict[str, Buffer]
    k_group: Expr
    member: Expr

    @property
    def merged(self) -> tuple[Merged, ...]:
        """The flat axes."""
        return (self.m, self.n, self.k, self.g)

    @property
    def operand_buffers(self) -> tuple[Buffer, ...]:
        """What is multiplied, zero points included."""
        of = self.contraction
        given = (of.a, of.b, of.zero_a, of.zero_b)
        return tuple(self.buffers[operand.name] for operand in given if operand is not None)

    @property
    def result_buffers(self) -> tuple[Buffer, ...]:
        """What the epilogue reads and writes."""
        return tuple(buffer for buffer in self.buffers.values() if buffer not in self.operand_buffers)


@dataclass(frozen=True, slots=True)
class Frame(GridFrame):
    """A tiled plan's frame, and where a thread stands in its block.

    Units of threads (a thread, or a subgroup that multiplies together) form a grid; `unit_m`, `unit_n` are the place of
    the thread's unit in it and `lane` its place in the unit.
    """

    plan: TiledPlan
    row: Instruction | None  # multiplies fragments; None: scalar multiply-adds
    thread: Expr
    unit_m: Expr
    unit_n: Expr
    lane: Expr


def operand_buffers(contraction: Contraction) -> dict[str, Buffer]:
    """The parameters of all operands, by name."""
    return {
        operand.name: Buffer(operand.name, operand.dtype, Scope.GLOBAL, written=operand is contraction.c)
        for operand in contraction.operands
    }


def make_frame(contraction: Contraction, plan: TiledPlan) -> Frame:
    """The frame of a contraction that is oriented as the plan says."""
    thread = thread_id(plan.threads)
    member = simplify(thread % plan.group_threads)
    unit = simplify(member // plan.unit_lanes)
    return Frame(
        contraction,
        plan,
        *flat_axes_of(contraction, plan),
        operand_buffers(contraction),
        simplify(thread // plan.group_threads),
        member,
        plan.instruction,
        thread,
        simplify(unit // plan.units_n),
        simplify(unit % plan.units_n),
        simplify(member % plan.unit_lanes),
    )


def flat_axes_of(contraction: Contraction, plan: GridPlan) -> tuple[Merged, Merged, Merged, Merged]:
    """M, N, K and G as the plan merges and tiles them."""
    return (
        merged_axis(contraction, "M", plan.m, plan.block_m),
        merged_axis(contraction, "N", plan.n, plan.block_n),
        merged_axis(contraction, "K", plan.merged, plan.block_k),
        merged_axis(contraction, "G", plan.g),
    )


def factor_type(contraction: Contraction) -> DType:
    """The type in which alpha, beta and float biases act: f32, but f64 where f32 would lose digits of C (f64, s32)."""
    return F64 if contraction.c.dtype in (F64, S32) else F32
