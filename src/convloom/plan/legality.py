"""Whether a plan can be built for a contraction and target: the answer is a value, with the reason if not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

from convloom.expr import free_symbols
from convloom.plan.access_facts import flat_axes, flat_width
from convloom.plan.flat_axis import MASKED_IN_FACTORS, MASKED_IN_RESULT, Merged
from convloom.plan.policy import ANYTHING, Policy
from convloom.plan.split import Reduction
from convloom.plan.tiled import SCALAR, Along, TiledPlan, Transfer
from convloom.plan.workspace import refused_by
from convloom.problem.contraction import AxisKind, Contraction, Operand, exchange
from convloom.target.arch import Target
from convloom.target.catalogue import rows_for
from convloom.target.instruction import Family, Instruction


@dataclass(frozen=True, slots=True)
class InfeasiblePlan:
    """Why a plan cannot be built here: the rule and the value that breaks it."""

    reason: str


_MOST_LANES = 16  # of OpenCL's vectors
_MATRIX_ROW_BYTES = 16  # what one lane of a matrix load reads

_LOADED_REGISTERS = (4, 2)  # of a fragment of A and of B
_TURNED_BITS = 16
_MATRIX_LINE_BYTES = 16

Check = Callable[[TiledPlan, Contraction, Target], str | None]


def check_plan(
    plan: TiledPlan, contraction: Contraction, target: Target, policy: Policy = ANYTHING
) -> InfeasiblePlan | None:
    """The first rule that the plan breaks, the caller's wishes among them; None for a legal plan."""
    oriented = exchange(contraction) if plan.swap else contraction
    for rule in RULES:
        reason = rule(plan, oriented, target)
        if reason is not None:
            return InfeasiblePlan(reason)
    refused = refused_by(policy, plan, contraction)
    return None if refused is None else InfeasiblePlan(refused)


def check_resources(plan: TiledPlan, acc_bytes: int, operand_bytes: int, target: Target) -> str | None:
    """The rules that depend on tile sizes alone; cheap enough for every candidate.

    `operand_bytes`: of a number of A and B, which matrix instructions keep as they are in shared memory.
    """
    if plan.threads > target.max_threads:
        return f"a block has at most {target.max_threads} threads on {target.name}; this plan has {plan.threads}"
    shared = plan.shared_bytes(acc_bytes, operand_bytes)
    if shared > target.max_shared_bytes:
        return (
            f"a block has {target.max_shared_bytes} bytes of shared memory on {target.name}; this plan needs {shared}"
        )
    words = plan.registers() * max(acc_bytes // 4, 1) // plan.lanes
    if words > target.max_registers:
        return f"a thread has {target.max_registers} registers on {target.name}; this plan needs about {words}"
    return None


def _axes_covered(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    for kind, names in (
        (AxisKind.G, plan.g),
        (AxisKind.M, plan.m),
        (AxisKind.N, plan.n),
        (AxisKind.K, plan.serial + plan.merged),
    ):
        wanted = sorted(axis.name for axis in contraction.of_kind(kind))
        if sorted(names) != wanted:
            return f"the {kind.value} axes of a plan are those of the contraction, {wanted}; got {sorted(names)}"
    return None


def _tiles_divide(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    pairs = (
        ("block_m", plan.block_m, "thread_m", plan.thread_m),
        ("block_n", plan.block_n, "thread_n", plan.thread_n),
        ("thread_m", plan.thread_m, "chunk_m", plan.chunk_m),
        ("thread_n", plan.thread_n, "chunk_n", plan.chunk_n),
        ("chunk_n", plan.chunk_n, "lanes", plan.lanes),
        ("chunk_n", plan.chunk_n, "store", plan.store),
    )
    for whole_name, whole, part_name, part in pairs:
        if whole % part:
            return f"{part_name} must divide {whole_name}; got {part} and {whole}"
    return None


def _groups_share_k(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    depth = 1 if plan.instruction is None else plan.instruction.shape[2]
    if plan.k_groups > 1 and plan.block_k % (plan.k_groups * depth):
        return (
            f"the {plan.k_groups} K groups of a block take equal shares of a K tile, multiples of {depth}; "
            f"block_k is {plan.block_k}"
        )
    return None


def _atomic_types(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    if plan.split.how is Reduction.ATOMIC and contraction.acc.bits not in target.atomic_bits:
        return f"{target.name} adds numbers of {target.atomic_bits} bits atomically; sums are {contraction.acc}"
    return None


def _powers_of_two(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    """Vectors of other lengths are no types of the languages; fragments that one thread reads at once end at 16."""
    sizes = (
        ("chunk_m", plan.chunk_m, _MOST_LANES),
        ("chunk_n", plan.chunk_n // plan.lanes, _MOST_LANES),
        ("the vector of transfer a", plan.a.vector, None),
        ("the vector of transfer b", plan.b.vector, None),
        ("store", plan.store, None),
    )
    for name, size, most in sizes:
        if size < 1 or size & (size - 1) or (most is not None and size > most):
            limit = "" if most is None else f" up to {most}"
            return f"{name} must be a power of two{limit}; got {size}"
    return None


def _vectors_divide(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    for name, transfer, rows in (("a", plan.a, plan.block_m), ("b", plan.b, plan.block_n)):
        length = rows if transfer.along is Along.ROW else plan.block_k
        if length % transfer.vector:
            return f"the vector of transfer {name} must divide the tile along it; got {transfer.vector} and {length}"
        if transfer.along is Along.ROW and transfer.pad % transfer.vector:
            return f"the padding of transfer {name} must keep its vectors aligned; got {transfer.pad}"
    return None


def _fragments_aligned(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    """Threads read chunks of shared rows at once; matrix instructions read rows of 16 bytes."""
    if plan.row == SCALAR:
        units = (plan.chunk_m, plan.chunk_n)
    else:
        units = tuple(_MATRIX_ROW_BYTES // operand.dtype.nbytes for operand in (contraction.a, contraction.b))
    if plan.a.pad % units[0] or plan.b.pad % units[1]:
        return f"shared padding must keep fragments aligned, a multiple of {units}; got {plan.a.pad} and {plan.b.pad}"
    return None


def _lanes_fit(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    most = target.math_lanes(contraction.acc)
    if plan.lanes > most or plan.lanes & (plan.lanes - 1):
        return f"lanes must be a power of two up to {most} on {target.name}; got {plan.lanes}"
    if plan.lanes > 1 and plan.store not in (1, plan.lanes):
        return f"vector registers are stored whole or one by one; got store {plan.store} for {plan.lanes} lanes"
    return None


def _phase_axes_serial(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    parameters = frozenset(parameter.symbol for parameter in contraction.phases)
    varying = {axis.name for axis in contraction.axes if free_symbols(axis.extent) & parameters}
    merged = sorted(varying & set(plan.merged))
    return f"axes whose extent differs between phases are serial loops; {merged} are merged" if merged else None


def _widths_allowed(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    merged = flat_axes(contraction, plan.m, plan.n, plan.merged, plan.g)
    for name, operand, transfer, row in (("a", contraction.a, plan.a, "M"), ("b", contraction.b, plan.b, "N")):
        axis = row if transfer.along is Along.ROW else "K"
        widest = flat_width(operand, merged, plan.serial, axis, target.access_bits, MASKED_IN_FACTORS)
        if widest % transfer.vector:
            return f"transfer {name} moves {transfer.vector} numbers along {axis}; the view allows {widest}"
    widest = store_width(contraction, merged, target)
    if widest % plan.store:
        return f"a store moves {plan.store} numbers along n; the views allow {widest}"
    return None


def store_width(contraction: Contraction, merged: tuple[Merged, ...], target: Target) -> int:
    """Numbers along n that one store of C may move; a bias along n must allow it too."""
    from_c = flat_width(contraction.c, merged, (), "N", target.access_bits, MASKED_IN_RESULT)
    bias = contraction.bias
    if bias is None or not _varies_along_n(bias, contraction):
        return from_c
    return gcd(from_c, flat_width(bias, merged, (), "N", target.access_bits))


def _varies_along_n(bias: Operand, contraction: Contraction) -> bool:
    names = {axis.name for axis in bias.view.axes}
    return any(axis.name in names for axis in contraction.of_kind(AxisKind.N))


def _resources(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    return check_resources(plan, contraction.acc.nbytes, contraction.a.dtype.nbytes, target)


def _instruction_fits(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    row = plan.instruction
    if row is None:
        copies = rows_for(target.arch, Family.ASYNC_COPY)
        return None if plan.stages == 1 or copies else f"{target.name} has no asynchronous copies"
    if row not in rows_for(target.arch, Family.MATRIX_MULTIPLY):
        return f"{target.name} has no instruction {row.name}"
    types = tuple(row.fragment(name).dtype for name in "abd")
    given = (contraction.a.dtype, contraction.b.dtype, contraction.acc)
    if types != given:
        listed = ", ".join(map(str, given))
        return f"{row.name} multiplies {types[0]} by {types[1]} to {types[2]}; the contraction has {listed}"
    reason = _matrix_loads_fit(plan, row, contraction)
    if reason is not None:
        return reason
    m, n, k = row.shape
    for name, size, unit in (
        ("thread_m", plan.thread_m, m),
        ("thread_n", plan.thread_n, 2 * n),
        ("block_k", plan.block_k, k),
    ):
        if size % unit:
            return f"{name} must be a multiple of {unit} for {row.name}; got {size}"
    if plan.store > 2 or plan.lanes != 1:
        return f"fragments of {row.name} hold pairs of columns; got store {plan.store} and lanes {plan.lanes}"
    return None


def _matrix_loads_fit(plan: TiledPlan, row: Instruction, contraction: Contraction) -> str | None:
    """Fragments are brought by matrix loads of four 8 x 16-byte matrices: one of A, two of B."""
    registers = (row.operand("a").registers, row.operand("b").registers)
    if registers != _LOADED_REGISTERS:
        return f"matrix loads bring {_LOADED_REGISTERS} registers of A and B; {row.name} takes {registers}"
    sides = (("a", plan.a, plan.block_m, contraction.a), ("b", plan.b, plan.block_n, contraction.b))
    for name, transfer, rows, operand in sides:
        if transfer.along is Along.ROW and operand.dtype.bits != _TURNED_BITS:
            return f"matrix loads turn tiles of {_TURNED_BITS}-bit numbers only; operand {name} is {operand.dtype}"
        line = ((rows if transfer.along is Along.ROW else plan.block_k) + transfer.pad) * operand.dtype.nbytes
        if line % _MATRIX_LINE_BYTES:
            return (
                f"lines of a tile begin at multiples of {_MATRIX_LINE_BYTES} bytes; operand {name} has lines of {line}"
            )
    return None


def _index_bits(plan: TiledPlan, contraction: Contraction, target: Target) -> str | None:
    return None if plan.index_bits in (32, 64) else f"index math has 32 or 64 bits; got {plan.index_bits}"


def transfer_for(row_width: int, k_width: int, prefer_k: bool, rows: int, depth: int, pad: int) -> Transfer:
    """The transfer of a tile: along the direction that moves more numbers at once, else the one of smaller strides."""
    row, deep = gcd(row_width, rows), gcd(k_width, depth)
    if deep > row or (deep == row and prefer_k):
        return Transfer(Along.K, deep, pad)
    return Transfer(Along.ROW, row, pad)


RULES: tuple[Check, ...] = (
    _axes_covered,
    _tiles_divide,
    _powers_of_two,
    _vectors_divide,
    _fragments_aligned,
    _lanes_fit,
    _phase_axes_serial,
    _index_bits,
    _instruction_fits,
    _groups_share_k,
    _atomic_types,
    _resources,
    _widths_allowed,
)
