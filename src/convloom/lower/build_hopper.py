"""Builds the IR of a Hopper kernel: persistent blocks, a producer and consumers around a ring of stages."""

from __future__ import annotations

from dataclasses import replace

from convloom.expr import const, simplify
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Kernel, LaunchScalar
from convloom.ir.symbols import thread_id
from convloom.lower.factors import factors
from convloom.lower.hopper_consumer import consume
from convloom.lower.hopper_frame import HopperFrame, hopper_frame
from convloom.lower.hopper_producer import produce
from convloom.lower.hopper_tiles import Tiles
from convloom.lower.partial_sums import finish, workspace_buffer
from convloom.lower.ring import ring_barriers
from convloom.lower.store_shared import SharedStore
from convloom.lower.tensor_copies import TensorCopies
from convloom.lower.warpgroup_sums import WarpgroupSums
from convloom.plan.hopper import HopperPlan
from convloom.plan.split import Reduction
from convloom.problem.contraction import Contraction, exchange
from convloom.target.catalogue import row_named

_BUDGETS = {2: (40, 232), 3: (40, 152)}
"""Registers per thread of producer and consumers, by consumers: what the file holds. One consumer needs none moved."""


def build_hopper(contraction: Contraction, plan: HopperPlan) -> tuple[Kernel, ...]:
    """The kernels of one plan in the order of their launches: one, and with K split a second one that adds up.

    requires: the plan is legal for the contraction. ensures: as `build_tiled`.
    """
    frame = hopper_frame(exchange(contraction) if plan.swap else contraction, plan)
    if plan.split.how is Reduction.NONE:
        return (_multiplying(frame, factors(contraction)),)
    return (_multiplying(frame, ()), _finishing(frame, factors(contraction)))


def _multiplying(frame: HopperFrame, scalars: tuple[LaunchScalar, ...]) -> Kernel:
    plan, builder = frame.plan, IrBuilder()
    of = frame.contraction
    copies = (
        TensorCopies(of.a, frame.buffers[of.a.name], frame.a, frame.m, frame.k, plan.stages),
        TensorCopies(of.b, frame.buffers[of.b.name], frame.b, frame.n, frame.k, plan.stages),
    )
    for item in copies:
        builder.allocate(item.shared)
    store = None if frame.result is None else SharedStore(frame, frame.result)
    if store is not None:
        builder.allocate(store.shared)
    barriers = ring_barriers(builder, plan.stages)
    with builder.condition(frame.thread.eq(0)):
        barriers.initialise(builder, plan.consumers)
    builder.barrier()
    budgets = _BUDGETS.get(plan.consumers)
    tiles = Tiles(builder, frame)
    builder.comment("the producer: one thread fetches the tiles")
    with builder.condition(simplify(frame.role.eq(0))):
        if budgets is not None:
            builder.instruct(row_named("setmaxnreg.dec"), registers=const(budgets[0]))
        with builder.condition(frame.thread.eq(0)):
            produce(builder, frame, tiles, copies, barriers)
    builder.comment("the consumers: they multiply, and store what they hold")
    with builder.condition(simplify(frame.role.ge(1))):
        if budgets is not None:
            builder.instruct(row_named("setmaxnreg.inc"), registers=const(budgets[1]))
        consume(builder, frame, tiles, copies, barriers, store)
    buffers = frame.operand_buffers
    buffers += frame.result_buffers if plan.split.how is Reduction.NONE else (workspace_buffer(frame, written=True),)
    name = f"hopper_{plan.block_m}x{plan.block_n}x{plan.block_k}"
    maps = tuple(item.map for item in copies) + (() if store is None or store.map is None else (store.map,))
    return Kernel(name, buffers, scalars, plan.threads, frame.blocks, plan.index_bits, builder.body, maps)


def _finishing(frame: HopperFrame, scalars: tuple[LaunchScalar, ...]) -> Kernel:
    """Adds the parts of each sum: as many threads as the consumers have, each with the same numbers of C."""
    plan, builder = frame.plan, IrBuilder()
    member = thread_id(plan.group_threads)
    whole = replace(frame, member=member)
    blocks = finish(builder, whole, WarpgroupSums(plan, member))
    buffers = (workspace_buffer(frame, written=False), *frame.result_buffers)
    name = f"finish_{plan.block_m}x{plan.block_n}"
    return Kernel(name, buffers, scalars, plan.group_threads, blocks, plan.index_bits, builder.body)
