"""What all groups of an ordered launch share: blocks, columns of clocks, memories, operations in flight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import gcd

import numpy as np

from convloom.ir.interpret.chunk import Launch
from convloom.ir.interpret.findings import FindingKind, Place
from convloom.ir.interpret.memory import Array, GlobalMemory
from convloom.ir.interpret.options import Landing
from convloom.ir.interpret.ordered.block import Block, Clock, Meeting, byte_places, joined, nothing
from convloom.ir.interpret.ordered.roles import entry_registers
from convloom.ir.interpret.ordered.shadow import FLYING, Shadow
from convloom.ir.ops import Buffer, Scope
from convloom.ir.shared_space import shared_bytes, shared_offsets
from convloom.target.memory import CLUSTER_PITCH
from convloom.target.tensor_map import TensorMap
from convloom.target.transaction_barrier import BarrierFault, advance, decode

SPACE_STEP = 1 << 40
"""Between the made-up addresses of two global buffers."""
_ADDRESSES = 256  # real addresses count modulo this: no access asks for a larger alignment
_SPARE = 64


@dataclass(slots=True)
class Deposit:
    """Bytes that an operation in flight will write: to a block's shared memory, or to a global buffer (by name)."""

    target: Block | str
    addresses: Array  # (n,): bytes from the start of the shared space, or of the buffer's array
    data: Array  # (n, nbytes)
    pieces: Array  # of the target's shadow
    combine: Callable[[Array, Array], Array] | None = None  # None: the bytes replace


@dataclass(slots=True)
class Arrival:
    """One thread's arrival at a barrier of a block, yet to come: the change of its word, and what it releases."""

    target: Block
    place: int
    thread: int
    combine: Callable[[Array, Array], Array]
    operand: Array
    clock: Clock


@dataclass(slots=True)
class Flight:
    """An asynchronous operation between issue and completion. `key`: of the group that a wait completes."""

    key: tuple[str, int, int, int]
    place: Place
    block: Block
    thread: int
    flying: int
    deposits: list[Deposit] = field(default_factory=list[Deposit])
    sources: list[tuple[str, Array]] = field(default_factory=list[tuple[str, Array]])
    """(global buffer, numbers) that it reads and counts on a barrier."""
    countdowns: list[tuple[Block, int, int]] = field(default_factory=list[tuple[Block, int, int]])
    """(block, barrier, bytes) of what it counts on barriers."""
    arrivals: list[Arrival] = field(default_factory=list[Arrival])
    behind: list[Flight] = field(default_factory=list["Flight"])
    """Operations that land before it."""

    def uses(self, block: Block) -> bool:
        """Whether it will write a block's shared memory."""
        return any(item.target is block for item in (*self.deposits, *self.arrivals))


class World:
    """State of one launch."""

    def __init__(self, launch: Launch, maps: Mapping[str, TensorMap]) -> None:
        kernel = launch.kernel
        self.launch = launch
        self.random = np.random.default_rng(launch.options.seed)
        self.offsets = {buffer.name: offset for buffer, offset in shared_offsets(kernel).items()}
        self.shared = {buffer.name: buffer for buffer in shared_offsets(kernel)}
        self.nbytes = shared_bytes(kernel)
        self.starts = np.arange(self.nbytes)  # of each byte: the first one of its number
        for buffer in self.shared.values():
            first, size = self.offsets[buffer.name], item_bytes(buffer)
            part = np.arange(buffer.size * size)
            self.starts[first : first + part.size] = first + part // size * size
        self.granule = gcd(*(item_bytes(buffer) for buffer in self.shared.values())) if self.shared else 4
        self.numbers = {buffer.name: number for number, buffer in enumerate(kernel.buffers)}
        self.buffers = {buffer.name: buffer for buffer in kernel.buffers}
        self.shadows = {
            buffer.name: Shadow(launch.memories[buffer.name].values.size)
            for buffer in kernel.buffers
            if buffer.written and launch.options.races
        }
        self.registers = entry_registers(kernel)
        self.columns: list[str] = []
        self._column_of: dict[tuple[str, int, int], int] = {}
        self.blocks: dict[int, Block] = {}
        self.clusters: dict[int, Meeting] = {}
        self.locations: dict[tuple[str, int], Clock] = {}  # what was released to a global address
        self.flights: list[Flight] = []
        self.serial = 0
        self.version = 0
        self.maps = {name: _moved(found, self.base(self._buffer_of(name))) for name, found in maps.items()}

    def _buffer_of(self, name: str) -> Buffer:
        return next(item.buffer for item in self.launch.kernel.maps if item.name == name)

    # --- columns ----------------------------------------------------------------------------------------------------

    def new_columns(self, names: list[str]) -> int:
        """Makes columns; the first one's number."""
        first = len(self.columns)
        self.columns.extend(names)
        for block in self.blocks.values():
            block.fit(len(self.columns), _SPARE)
        return first

    def column(self, kind: str, block: int, number: int) -> int:
        """The column of a thread's or warpgroup's asynchronous operations of one kind."""
        key = (kind, block, number)
        if key not in self._column_of:
            self._column_of[key] = self.new_columns([kind])
        return self._column_of[key]

    # --- blocks and addresses ---------------------------------------------------------------------------------------

    def enter(self, number: int) -> Block:
        """A block begins."""
        threads = self.launch.kernel.threads
        first = self.new_columns(["another thread"] * threads)
        block = Block(number, threads, self.nbytes, self.granule, first, self.registers)
        block.fit(len(self.columns), _SPARE)
        self.blocks[number] = block
        return block

    def cluster_of(self, block: Block) -> int:
        """The number of a block's cluster."""
        return block.number // self.launch.kernel.cluster

    def resolve(self, block: Block, addresses: Array) -> tuple[Block | None, Array]:
        """The block whose shared memory cluster addresses mean (None: there is no such one), and addresses in it."""
        if not addresses.size or int(addresses.flat[0]) < CLUSTER_PITCH:
            return block, addresses
        rank = int(addresses.flat[0]) // CLUSTER_PITCH - 1
        size = self.launch.kernel.cluster
        number = self.cluster_of(block) * size + rank
        found = self.blocks.get(number) if rank < size else None
        return found, addresses % CLUSTER_PITCH

    def base(self, buffer: Buffer) -> int:
        """The made-up byte address of a buffer's number 0; shared ones count from the start of the shared space."""
        if buffer.scope is Scope.SHARED:
            return self.offsets[buffer.name]
        memory = self.launch.memories[buffer.name]
        return (self.numbers[buffer.name] + 1) * SPACE_STEP + memory.address % _ADDRESSES

    def global_place(self, addresses: Array) -> tuple[str, GlobalMemory, Array]:
        """(buffer, its memory, bytes from the start of its array) of made-up addresses in one buffer."""
        number = (int(addresses.flat[0]) + SPACE_STEP // 2) // SPACE_STEP - 1
        name = next(name for name, place in self.numbers.items() if place == number)
        memory = self.launch.memories[name]
        first = addresses - self.base(self.buffers[name]) + memory.origin * memory.values.itemsize
        return name, memory, first

    # --- operations in flight ---------------------------------------------------------------------------------------

    def next_flying(self) -> int:
        """The clock of an operation that has not landed."""
        self.serial += 1
        return FLYING + self.serial

    def start(self, flight: Flight) -> None:
        """An operation was issued; it lands at once, or when somebody makes it."""
        self.flights.append(flight)
        if self.launch.options.landing is Landing.EARLIEST:
            self.land(flight)

    def land(self, flight: Flight) -> None:
        """Its bytes are written, and counted on its barriers; what it is behind lands first."""
        for earlier in flight.behind:
            if any(item is earlier for item in self.flights):
                self.land(earlier)
        self.flights.remove(flight)
        self.version += 1
        for deposit in flight.deposits:
            self._write(flight, deposit)
        self._end_reads(flight)
        for block, barrier, nbytes in flight.countdowns:
            count_bytes(self, flight, block, barrier, nbytes)
        for arrival in flight.arrivals:
            arrive_late(self, flight, arrival)

    def land_group(self, key: tuple[str, int, int], most: int) -> None:
        """Lands operations of a thread's groups up to number `most`."""
        for flight in [item for item in self.flights if item.key[:3] == key and item.key[3] <= most]:
            self.land(flight)

    def _write(self, flight: Flight, deposit: Deposit) -> None:
        target = deposit.target
        if isinstance(target, Block):
            target.store(deposit.addresses, deposit.data)
            barrier = next((item for item in flight.countdowns if item[0] is target), None)
            if barrier is not None and barrier[1] in target.transactions:
                phase = target.transactions[barrier[1]].phase + 1
                target.shadow.land(deposit.pieces.ravel(), flight.flying, phase)
            return
        memory = self.launch.memories[target]
        place_bytes(memory, deposit)

    def _end_reads(self, flight: Flight) -> None:
        """Reads of global memory are over for those who have seen the phase of the (first) barrier."""
        if not flight.countdowns:
            return
        block, barrier, _ = flight.countdowns[0]
        for name, elements in flight.sources:
            if name in self.shadows:
                phase = block.transactions[barrier].phase + 1
                self.shadows[name].land_reads(elements.ravel(), flight.flying, phase)

    def report(self, kind: FindingKind, place: Place, subject: str, block: int, thread: int) -> None:
        """Records a fault that is no access."""
        self.launch.findings.add(kind, place, subject, np.array([block]), np.array([thread]), np.array([0]))


def place_bytes(memory: GlobalMemory, deposit: Deposit) -> None:
    """Writes (or combines) bytes into a global buffer's array."""
    raw = memory.values.view(np.uint8)
    places: Array = byte_places(deposit.addresses, deposit.data.shape[-1])
    if deposit.combine is None:
        raw[places] = deposit.data
    else:
        for place, new in zip(places, deposit.data, strict=True):
            kind = new.view(memory.values.dtype)
            raw[place] = deposit.combine(raw[place].view(memory.values.dtype), kind).view(np.uint8)
    if memory.known is not None:
        memory.known[places.ravel() // memory.values.itemsize] = True


def count_bytes(world: World, flight: Flight, block: Block, barrier: int, nbytes: int) -> None:
    """A copy's bytes count on its barrier."""
    from_words = block.bytes[barrier : barrier + 8].view(np.uint64)
    try:
        words = advance(from_words, completed_bytes=nbytes)
    except BarrierFault:
        world.report(FindingKind.BROKEN_RULE, flight.place, "bytes of a barrier", block.number, flight.thread)
        return
    finish(block, barrier, from_words.copy(), words)


def arrive_late(world: World, flight: Flight, arrival: Arrival) -> None:
    """An arrival that waited for copies happens."""
    block, place = arrival.target, arrival.place
    word = block.bytes[place : place + 8].view(np.uint64).copy()
    try:
        after = arrival.combine(word, arrival.operand)
    except BarrierFault:
        world.report(FindingKind.BROKEN_RULE, flight.place, "arrivals of a barrier", block.number, arrival.thread)
        return
    state = block.transactions[place]
    state.gathered = joined(state.gathered, arrival.clock)
    finish(block, place, word, after)


def finish(block: Block, barrier: int, before: Array, after: Array) -> None:
    """Stores a barrier's word; where its phase ended, what its arrivals released can be acquired."""
    block.store(np.array([barrier]), np.ascontiguousarray(after).view(np.uint8).reshape(1, 8))
    state = block.transactions.get(barrier)
    if state is not None and int(decode(before).parity[0]) != int(decode(after).parity[0]):
        state.released, state.gathered = state.gathered, nothing()
        state.phase += 1


def item_bytes(buffer: Buffer) -> int:
    """Bytes of one number; index integers have 8."""
    return 8 if buffer.dtype is None else buffer.dtype.nbytes


def _moved(found: TensorMap, base: int) -> TensorMap:
    return replace(found, address=found.address + base)
