"""Whether a Hopper plan can be built for a contraction and target: rules that return reasons."""

from __future__ import annotations

from collections.abc import Callable

from convloom.expr import bounds
from convloom.plan.access_facts import flat_axes
from convloom.plan.bulk_copy import SPAN, BulkCopy, bulk_copy
from convloom.plan.flat_axis import merged_axis
from convloom.plan.hopper import HopperPlan, Output, row_for
from convloom.plan.legality import axes_covered, phase_axes_serial, store_width
from convloom.plan.result_chunks import ResultChunks, chunk_bytes, result_copy, result_pieces, result_turned
from convloom.plan.split import Reduction
from convloom.problem.contraction import AxisKind, Contraction
from convloom.target.arch import Target
from convloom.target.catalogue import rows_for
from convloom.target.group_multiply import Major
from convloom.target.instruction import Family

MOST_CONSUMERS = 3
_FILE = 65536
"""Registers of a multiprocessor."""
_MULTIPLY_REGISTERS = 26
"""What a multiply needs beside its accumulators within the registers that a kernel begins with (NVRTC 13: C7602)."""
_OTHER_REGISTERS = 40
"""What a consumer keeps beside its accumulators."""
CONSUMER_REGISTERS = {1: 255, 2: 232, 3: 152}
"""Of a thread, by consumers: what the register file leaves beside the producer's."""
_BARRIER_BYTES = 16
"""Of a stage: two barriers."""

Check = Callable[[HopperPlan, Contraction, Target], str | None]


def shared_bytes(plan: HopperPlan, nbytes: int) -> int:
    """Bytes of shared memory of a block, for operands of `nbytes` a number."""
    tiles = plan.stages * (plan.block_m + plan.block_n) * plan.block_k * nbytes
    if plan.output is not Output.REGISTERS:
        tiles += plan.consumers * chunk_bytes(plan.block_n, plan.instruction.shape[0])
    return tiles + 2 * SPAN * -(-plan.stages * _BARRIER_BYTES // (2 * SPAN))


def broken_rule(plan: HopperPlan, contraction: Contraction, target: Target) -> str | None:
    """The first rule that a plan breaks for a contraction that is oriented as it says; None for a legal plan."""
    for rule in RULES:
        reason = rule(plan, contraction, target)
        if reason is not None:
            return reason
    return None


def _axes(plan: HopperPlan, contraction: Contraction, target: Target) -> str | None:
    return axes_covered(plan, contraction, target) or phase_axes_serial(plan, contraction, target)


def _multiplies(plan: HopperPlan, contraction: Contraction, target: Target) -> str | None:
    row = plan.instruction
    if row not in rows_for(target.arch, Family.GROUP_MULTIPLY):
        return f"{target.name} has no instruction {row.name}"
    wanted = row_for(contraction, plan.instruction.shape[1])
    if isinstance(wanted, str):
        return wanted
    return None if wanted is row else f"the contraction is multiplied by {wanted.name}; got {row.name}"


def _tiles(plan: HopperPlan, contraction: Contraction, target: Target) -> str | None:
    m, n, _ = plan.instruction.shape
    if not 1 <= plan.consumers <= MOST_CONSUMERS:
        return f"a block has 1 to {MOST_CONSUMERS} consumers; got {plan.consumers}"
    if plan.block_m % (plan.consumers * m) or plan.block_n != n:
        return (
            f"{plan.consumers} consumers of {plan.row} compute a multiple of {plan.consumers * m} x {n}; "
            f"got {plan.block_m}x{plan.block_n}"
        )
    if plan.block_k * contraction.a.dtype.nbytes != SPAN:
        return f"a K tile has {SPAN} bytes; got {plan.block_k} of {contraction.a.dtype}"
    if plan.stages < 2:
        return f"stages are given back one step late, so that there are 2 or more; got {plan.stages}"
    return None


def _copies(plan: HopperPlan, contraction: Contraction, target: Target) -> str | None:
    k = merged_axis(contraction, "K", plan.merged, plan.block_k)
    for name, operand, axes, size, wanted in (
        ("a", contraction.a, ("M", plan.m), plan.block_m, plan.a),
        ("b", contraction.b, ("N", plan.n), plan.block_n, plan.b),
    ):
        copy = bulk_copy(contraction, operand, merged_axis(contraction, *axes, size), k)
        if not isinstance(copy, BulkCopy):
            return f"no tensor copy fetches tiles of {name}: {copy}"
        if copy.kind is not wanted:
            return f"tiles of {name} are fetched as {copy.kind.value}; the plan says {wanted.value}"
        reason = _lies_right(plan, contraction, name, copy, size)
        if reason is not None:
            return reason
    return None


def _lies_right(plan: HopperPlan, contraction: Contraction, name: str, copy: BulkCopy, size: int) -> str | None:
    span = SPAN // contraction.a.dtype.nbytes
    if copy.major is Major.K:
        return None
    if f"major_{name}" not in {operand.name for operand in plan.instruction.operands}:
        return f"{plan.row} takes tiles along k only; those of {name} lie across it"
    if size % span:
        return f"tiles of {name} lie across k in blocks of {span}; got {size}"
    return None


def _sums(plan: HopperPlan, contraction: Contraction, target: Target) -> str | None:
    if plan.split.how is Reduction.ATOMIC:
        return f"parts of a sum are added by a second launch; got split={plan.split}"
    for axis in contraction.of_kind(AxisKind.K):
        if axis.name in plan.merged and (bounds(axis.extent).lo or 0) < 1:
            return f"a tensor map has no dimension of size 0; {axis.name} has {axis.extent}"
    return None


def _store(plan: HopperPlan, contraction: Contraction, target: Target) -> str | None:
    if plan.output is not Output.REGISTERS:
        return _shared_output(plan, contraction, target)
    if plan.store not in (1, 2):
        return f"a thread holds 2 neighbouring columns; got store={plan.store}"
    widest = store_width(contraction, flat_axes(contraction, plan.m, plan.n, plan.merged, plan.g), target)
    if widest % plan.store:
        return f"a store moves {plan.store} numbers along n; the views allow {widest}"
    return None


def _shared_output(plan: HopperPlan, contraction: Contraction, target: Target) -> str | None:
    if plan.split.how is not Reduction.NONE:
        return f"parts of a sum go to the workspace from registers; got out={plan.output.value}, split={plan.split}"
    widest = 2
    if plan.output is not Output.TURNED:
        widest = store_width(contraction, flat_axes(contraction, plan.m, plan.n, plan.merged, plan.g), target)
    if plan.store != 2 or widest % 2:
        return f"matrix stores take pairs of columns; got store={plan.store}, and the views allow {widest}"
    found = chunks_of(contraction, plan)
    return f"out={plan.output.value} is not for this C: {found}" if isinstance(found, str) else None


def chunks_of(contraction: Contraction, plan: HopperPlan) -> ResultChunks | str:
    """The chunks of a plan whose results go through shared memory, or a reason why there are none."""
    return _CHUNKS[plan.output](contraction, plan, plan.instruction.shape[0])


_CHUNKS = {Output.SHARED: result_copy, Output.TURNED: result_turned, Output.PIECES: result_pieces}


def _numbers(plan: HopperPlan, contraction: Contraction, target: Target) -> str | None:
    if plan.index_bits != 32:
        return f"tensor copies take coordinates of 32 bits; got index={plan.index_bits}"
    return None


def resources(plan: HopperPlan, nbytes: int, target: Target) -> str | None:
    """The rules that depend on sizes of tiles and numbers alone."""
    shared = shared_bytes(plan, nbytes)
    if shared > target.max_shared_bytes:
        return (
            f"a block has {target.max_shared_bytes} bytes of shared memory on {target.name}; this plan needs {shared}"
        )
    most = CONSUMER_REGISTERS[plan.consumers]
    if plan.accumulators + _OTHER_REGISTERS > most:
        return (
            f"a thread of {plan.consumers} consumers has {most} registers; "
            f"this plan needs about {plan.accumulators + _OTHER_REGISTERS}"
        )
    at_entry = min(_FILE // plan.threads // 8 * 8, target.max_registers)
    one = plan.instruction.operand("d").registers + _MULTIPLY_REGISTERS
    if one > at_entry:
        return f"a multiply of {plan.row} needs {one} registers; a thread of {plan.threads} begins with {at_entry}"
    return None


def _resources(plan: HopperPlan, contraction: Contraction, target: Target) -> str | None:
    return resources(plan, contraction.a.dtype.nbytes, target)


def _zero_points(plan: HopperPlan, contraction: Contraction, target: Target) -> str | None:
    if contraction.zero_a is not None or contraction.zero_b is not None:
        return "tensor copies take numbers as they are; the contraction has zero points"
    return None


RULES: tuple[Check, ...] = (_axes, _zero_points, _multiplies, _tiles, _numbers, _resources, _sums, _copies, _store)
