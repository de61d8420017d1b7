"""Rows of sm_90's synchronisation: transaction barriers, cluster barriers and addresses, fences, register budgets.

Source: NVIDIA, PTX ISA, "mbarrier", "barrier.cluster", "mapa", "fence.proxy", "setmaxnreg".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from convloom.target.instruction import (
    Completion,
    Constraint,
    Direction,
    Execution,
    Family,
    Instruction,
    Operand,
    OperandKind,
    Ordering,
    OutOfBounds,
    Register,
    Rule,
    Semantics,
    no_effect,
)
from convloom.target.memory import CLUSTER_PITCH, Space
from convloom.target.number_format import Array
from convloom.target.nvidia_sm80 import WARP, immediate, nvidia, order_row, ptx
from convloom.target.transaction_barrier import advance, initial, passed

NEEDS = nvidia(90)
ONLY = nvidia(90, only=True)

_COUNT, _BYTES, _PARITY = (Operand(name, Direction.IN) for name in ("count", "nbytes", "parity"))


def _barrier_address(space: Space) -> Operand:
    return Operand("barrier", Direction.IN, kind=OperandKind.ADDRESS, space=space)


def _transition(space: Space, name: str | None, change: Callable[[Array, Array], Array]) -> Semantics:
    """Barrier := change(barrier, operand `name` or 1), indivisible, for each active lane."""

    def run(execution: Execution) -> dict[str, Array]:
        barriers = execution.number("barrier")
        amount = np.ones_like(barriers) if name is None else np.broadcast_to(execution.number(name), barriers.shape)

        def combine(words: Array, amounts: Array) -> Array:
            return change(words, amounts.astype(np.int64))

        execution.space.update(space, barriers, amount.astype(np.uint64), combine, execution.active)
        return {}

    return run


def _initialise(_: Array, count: Array) -> Array:
    return initial(count)


def _arrive(words: Array, count: Array) -> Array:
    return advance(words, arrivals=count)


def _expect(words: Array, nbytes: Array) -> Array:
    return advance(words, expected_bytes=nbytes)


def _arrive_expect(words: Array, nbytes: Array) -> Array:
    return advance(words, arrivals=1, expected_bytes=nbytes)


def _complete(words: Array, nbytes: Array) -> Array:
    return advance(words, completed_bytes=nbytes)


def _test(execution: Execution) -> dict[str, Array]:
    data = execution.space.load(Space.SHARED, execution.number("barrier"), 8, execution.active)
    words = np.ascontiguousarray(data).view(np.uint64)[..., 0]
    return {"d": passed(words, execution.number("parity"))[..., None].astype(Register.B32.word)}


def _await(execution: Execution) -> dict[str, Array]:
    return {"done": _test(execution)["d"][..., 0] != 0}


def _barrier_row(
    name: str,
    text: str,
    semantics: Semantics,
    meaning: str,
    operands: tuple[Operand, ...] = (),
    space: Space = Space.SHARED,
    ordering: Ordering = Ordering.NONE,
) -> Instruction:
    written = tuple(operand for operand in operands if operand.direction is Direction.OUT)
    read = tuple(operand for operand in operands if operand.direction is Direction.IN)
    return Instruction(
        name=name,
        family=Family.BARRIER,
        needs=NEEDS,
        lanes=1,
        operands=(*written, _barrier_address(space), *read),
        texts=ptx(text),
        semantics=semantics,
        constraints=(Constraint("barrier", Rule.MULTIPLE, (8,)),),
        out_of_bounds=OutOfBounds.FAULT,
        ordering=ordering,
        meaning=meaning,
    )


_TRY_WAIT = (
    "{ .reg .pred done; mbarrier.try_wait.parity.shared::cta.b64 done, [$barrier], $parity; selp.u32 $d, 1, 0, done; }"
)
_WAIT = (
    "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [$barrier], $parity; @!done bra again; }"
)
_DONE = Operand("d", Direction.OUT)
_ARRIVE_BEHIND_COPIES = replace(
    _barrier_row(
        "cp.async.mbarrier.arrive.noinc",
        "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [$barrier];",
        _transition(Space.SHARED, None, _arrive),
        "One arrival, of those that the barrier was initialised for, when all cp.async that the thread issued before "
        "it are done, committed or not: releases what they wrote, and no other access of the thread. What they wrote "
        "came by the ordinary path: asynchronous multiplies read it behind a proxy fence of those who waited.",
    ),
    needs=nvidia(80),
    family=Family.ASYNC_COPY,
    completion=Completion.COPIES_DONE,
)

_BARRIERS = (
    _barrier_row(
        "mbarrier.init",
        "mbarrier.init.shared::cta.b64 [$barrier], $count;",
        _transition(Space.SHARED, "count", _initialise),
        "A fresh barrier for `count` arrivals in each phase. Others may use it after a fence and a block barrier.",
        (_COUNT,),
    ),
    _barrier_row(
        "mbarrier.arrive",
        "mbarrier.arrive.shared::cta.b64 _, [$barrier];",
        _transition(Space.SHARED, None, _arrive),
        "One arrival; releases the thread's earlier accesses to those who wait.",
    ),
    _barrier_row(
        "mbarrier.arrive.cluster",
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [$barrier];",
        _transition(Space.CLUSTER, None, _arrive),
        "One arrival at a barrier in any block of the cluster (address from mapa).",
        space=Space.CLUSTER,
    ),
    _barrier_row(
        "mbarrier.expect_tx",
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [$barrier], $nbytes;",
        _transition(Space.SHARED, "nbytes", _expect),
        "The phase waits for `nbytes` more bytes.",
        (_BYTES,),
    ),
    _barrier_row(
        "mbarrier.complete_tx",
        "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [$barrier], $nbytes;",
        _transition(Space.SHARED, "nbytes", _complete),
        "`nbytes` bytes arrived: what a copy does to its barrier.",
        (_BYTES,),
    ),
    _barrier_row(
        "mbarrier.arrive.expect_tx",
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$barrier], $nbytes;",
        _transition(Space.SHARED, "nbytes", _arrive_expect),
        "The phase waits for `nbytes` more bytes; then one arrival.",
        (_BYTES,),
    ),
    _barrier_row(
        "mbarrier.try_wait.parity",
        _TRY_WAIT,
        _test,
        "d := 1 if the phase with this parity is over, else 0, after some time of waiting: call it in a loop. Acquires "
        "what was released by the arrivals of that phase.",
        (_DONE, _PARITY),
    ),
    _barrier_row(
        "mbarrier.wait.parity",
        _WAIT,
        _await,
        "Waits until the phase with this parity is over, and acquires what its arrivals released.",
        (_PARITY,),
        ordering=Ordering.AWAIT,
    ),
)


def _map_address(execution: Execution) -> dict[str, Array]:
    mapped = execution.number("address") % CLUSTER_PITCH + (execution.number("rank") + 1) * CLUSTER_PITCH
    return {"d": mapped[..., None].astype(Register.B32.word)}


_MAPA = Instruction(
    name="mapa",
    family=Family.BARRIER,
    needs=NEEDS,
    lanes=1,
    operands=(
        Operand("d", Direction.OUT),
        Operand("address", Direction.IN),
        Operand("rank", Direction.IN),
    ),
    texts=ptx("mapa.shared::cluster.u32 $d, $address, $rank;"),
    semantics=_map_address,
    meaning="The cluster address of a shared address of block `rank`. The number itself is the hardware's affair; "
    " here it is (rank + 1) * CLUSTER_PITCH + address.",
)


def _register_budget(direction: str, meaning: str) -> Instruction:
    return Instruction(
        name=f"setmaxnreg.{direction}",
        family=Family.REGISTER_BUDGET,
        needs=ONLY,
        lanes=4 * WARP,
        operands=(immediate("registers"),),
        texts=ptx(f"setmaxnreg.{direction}.sync.aligned.u32 $registers;"),
        semantics=no_effect,
        constraints=(
            Constraint("registers", Rule.MULTIPLE, (8,)),
            Constraint("registers", Rule.WITHIN, (24, 256)),
        ),
        meaning=meaning,
    )


_ORDER = (
    order_row(
        "fence.proxy.async",
        NEEDS,
        Family.FENCE,
        Ordering.FENCE_PROXY,
        "fence.proxy.async;",
        "Asynchronous copies and multiplies after it see this thread's earlier ordinary accesses, in all spaces.",
    ),
    order_row(
        "fence.proxy.async.shared",
        NEEDS,
        Family.FENCE,
        Ordering.FENCE_PROXY,
        "fence.proxy.async.shared::cta;",
        "The same for shared memory only. Every writer fences, then a barrier, then one thread issues the copy.",
    ),
    order_row(
        "fence.mbarrier_init",
        NEEDS,
        Family.FENCE,
        Ordering.FENCE_BARRIER_INIT,
        "fence.mbarrier_init.release.cluster;",
        "Barriers initialised by this thread before it may be used by the cluster and by copies after it.",
    ),
    order_row(
        "barrier.cluster.arrive",
        NEEDS,
        Family.BARRIER,
        Ordering.CLUSTER_ARRIVE,
        "barrier.cluster.arrive.release.aligned;",
        "All threads of the cluster arrive; each releases its earlier accesses.",
        lanes=WARP,
    ),
    order_row(
        "barrier.cluster.wait",
        NEEDS,
        Family.BARRIER,
        Ordering.CLUSTER_WAIT,
        "barrier.cluster.wait.acquire.aligned;",
        "Waits until all threads of the cluster arrived.",
        lanes=WARP,
    ),
    order_row(
        "prefetch.tensormap",
        NEEDS,
        Family.TENSOR_LOAD,
        Ordering.NONE,
        "prefetch.tensormap [$map];",
        "Brings a tensor map near; changes nothing.",
        (Operand("map", Direction.IN, Register.B64, kind=OperandKind.TENSOR_MAP, space=Space.GLOBAL),),
    ),
)

ROWS: tuple[Instruction, ...] = (
    *_BARRIERS,
    _ARRIVE_BEHIND_COPIES,
    _MAPA,
    _register_budget("dec", "The warpgroup gives up registers beyond this count per thread."),
    _register_budget(
        "inc", "Waits until the warpgroup has this count of registers per thread; new ones are undefined."
    ),
    *_ORDER,
)
