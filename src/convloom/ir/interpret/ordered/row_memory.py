"""The byte interface of instruction rows in an ordered launch: accesses are checked, late effects kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from convloom.errors import InternalError
from convloom.ir.interpret.findings import FindingKind
from convloom.ir.interpret.memory import Array, Bools
from convloom.ir.interpret.order import Use
from convloom.ir.interpret.ordered.accesses import Actors, Toucher
from convloom.ir.interpret.ordered.block import Block, Clock, Transactions, byte_places
from convloom.ir.interpret.ordered.row_counts import count_row
from convloom.ir.interpret.ordered.world import Arrival, Deposit, Flight, World, finish, item_bytes, place_bytes
from convloom.ir.ops import Buffer
from convloom.target.instruction import Completion, Family, Instruction
from convloom.target.memory import Space
from convloom.target.tensor_map import TensorMap
from convloom.target.transaction_barrier import BarrierFault

_ON_BARRIERS = (Completion.BARRIER_BYTES, Completion.COPIES_DONE)


@dataclass
class RowMemory:
    """Memory as one execution of a row sees it. `allowed`: byte ranges of shared memory that its operands name."""

    world: World
    block: Block
    row: Instruction
    toucher: Toucher
    threads_of: Callable[[tuple[int, ...]], Array]  # the thread of each address
    actors: Actors
    allowed: Sequence[range]
    flight: Flight | None = None  # of an asynchronous row
    read_actors: Actors | None = None  # of loads, where they differ
    silent: bool = False  # looks only: no access is noted
    copies_of: Callable[[int], Clock] | None = None  # of an arrival behind copies: what it releases, by thread

    def base(self, buffer: Buffer) -> int:
        """See `instructions.Spaces`."""
        return self.world.base(buffer)

    def tensor_map(self, name: str) -> TensorMap:
        """See `instructions.Spaces`."""
        return self.world.maps[name]

    # --- Memory -----------------------------------------------------------------------------------------------------

    def load(self, space: Space, addresses: Array, nbytes: int, active: Bools | None = None) -> Array:
        """See `target.memory.Memory`."""
        self._count(space, addresses, nbytes, active, written=False)
        flat, threads, kept = self._flat(addresses, active)
        result = np.zeros((flat.size, nbytes), np.uint8)
        if kept.any():
            result[kept] = self._loaded(space, flat[kept], threads[kept], nbytes)
        return result.reshape(*addresses.shape, nbytes)

    def store(self, space: Space, addresses: Array, data: Array, active: Bools | None = None) -> None:
        """See `target.memory.Memory`."""
        self._count(space, addresses, data.shape[-1], active, written=True)
        flat, threads, kept = self._flat(addresses, active)
        if kept.any():
            self._put(space, flat[kept], threads[kept], data.reshape(flat.size, -1)[kept], None)

    def update(
        self,
        space: Space,
        addresses: Array,
        operand: Array,
        combine: Callable[[Array, Array], Array],
        active: Bools | None = None,
    ) -> Array:
        """See `target.memory.Memory`."""
        flat, threads, kept = self._flat(addresses, active)
        operands = np.broadcast_to(operand, addresses.shape).reshape(-1)
        old = np.zeros(flat.size, operand.dtype)
        if self.row.family is Family.BARRIER or self.row.completion in _ON_BARRIERS:
            for place in np.flatnonzero(kept):
                self._barrier(int(flat[place]), int(threads[place]), operands[place : place + 1], combine)
        elif kept.any():
            self._count(space, addresses, operand.dtype.itemsize, active, written=True)
            old[kept] = self._updated(space, flat[kept], threads[kept], operands[kept], combine)
        return old.reshape(addresses.shape)

    # --- pieces -----------------------------------------------------------------------------------------------------

    def _count(self, space: Space, addresses: Array, nbytes: int, active: Bools | None, *, written: bool) -> None:
        if not self.silent:
            count_row(self.world, self.toucher.chunk, self.row, space, addresses, nbytes, active, written=written)

    def _flat(self, addresses: Array, active: Bools | None) -> tuple[Array, Array, Bools]:
        threads = np.broadcast_to(self.threads_of(addresses.shape), addresses.shape).reshape(-1)
        kept = np.ones(addresses.size, np.bool_)
        if active is not None:
            kept = np.broadcast_to(active, addresses.shape).reshape(-1)
        return addresses.reshape(-1).astype(np.int64), threads, kept

    def _inside(self, space: Space, addresses: Array, threads: Array, nbytes: int) -> Array:
        """Shared addresses moved into what the operands name; those outside are findings."""
        inside = np.zeros(addresses.shape, np.bool_)
        for part in self.allowed:
            inside |= (addresses >= part.start) & (addresses + nbytes <= part.stop)
        if inside.all() or not self.allowed:
            return np.clip(addresses, 0, max(self.block.bytes.size - nbytes, 0))
        self.toucher.report(FindingKind.OUT_OF_BOUNDS, self._named(space), threads[~inside], addresses[~inside])
        return np.where(inside, addresses, self.allowed[0].start)

    def _named(self, space: Space) -> str:
        return f"{space.value} memory of {self.row.name}"

    def _target(self, space: Space, addresses: Array, threads: Array) -> tuple[Block, Array] | None:
        target, local = self.world.resolve(self.block, addresses)
        if target is None or target.ended:
            self.toucher.report(FindingKind.OUT_OF_BOUNDS, "shared memory of a block that is not there", threads, local)
            return None
        return target, local

    def _loaded(self, space: Space, addresses: Array, threads: Array, nbytes: int) -> Array:
        if space is Space.GLOBAL:
            return self._loaded_global(addresses, threads, nbytes)
        found = self._target(space, addresses, threads)
        if found is None:
            return np.zeros((addresses.size, nbytes), np.uint8)
        target, local = found
        local = self._inside(space, local, threads, nbytes)
        data, _ = target.load(local, nbytes)
        if not self.silent:
            known = target.known[self.world.starts[local[:, None] + np.arange(nbytes)]].all(axis=1)
            self.toucher.unknown(self._named(space), threads[~known], local[~known])
            self.toucher.touch(
                target.shadow,
                target.pieces(local, nbytes),
                threads,
                self.read_actors or self.actors,
                Use.READ,
                self._named(space),
            )
        return data

    def _loaded_global(self, addresses: Array, threads: Array, nbytes: int) -> Array:
        name, memory, first = self.world.global_place(addresses)
        first = self.toucher.inside_global(name, memory, first, threads, nbytes)
        raw = memory.values.view(np.uint8)
        places = first[:, None] + np.arange(nbytes)
        elements = places[:, :: memory.values.itemsize] // memory.values.itemsize
        if not self.silent:
            if memory.known is not None:
                known = memory.known[elements].all(axis=1)
                self.toucher.unknown(f"global {name}", threads[~known], first[~known])
            if self.row.completion is Completion.BARRIER_BYTES:
                self._flying.sources.append((name, elements))
            elif name in self.world.shadows:
                use = Use.UPDATE if self.row.family is Family.ATOMIC else Use.READ
                self.toucher.touch(
                    self.world.shadows[name], elements, threads, self.read_actors or self.actors, use, f"global {name}"
                )
            if self.row.family is Family.ATOMIC:
                self._synchronise(name, first, threads)
        return raw[places]

    def _put(
        self,
        space: Space,
        addresses: Array,
        threads: Array,
        data: Array,
        combine: Callable[[Array, Array], Array] | None,
    ) -> None:
        """Writes now, or when the operation lands."""
        nbytes = data.shape[-1]
        if space is Space.GLOBAL:
            name, memory, first = self.world.global_place(addresses)
            first = self.toucher.inside_global(name, memory, first, threads, nbytes)
            item = memory.values.itemsize
            pieces = byte_places(first, nbytes)[:, ::item] // item
            use = Use.UPDATE if combine is not None or self.row.family is Family.ATOMIC else Use.WRITE
            if name in self.world.shadows:
                self.toucher.touch(self.world.shadows[name], pieces, threads, self.actors, use, f"global {name}")
            if self.row.family is Family.ATOMIC:
                self._synchronise(name, first, threads)
            deposit = Deposit(name, first, data, pieces, combine)
        else:
            found = self._target(space, addresses, threads)
            if found is None:
                return
            target, local = found
            local = self._inside(space, local, threads, nbytes)
            pieces = target.pieces(local, nbytes)
            if self.row.completion is not Completion.BARRIER_BYTES:  # those know their barrier only later
                self.toucher.touch(target.shadow, pieces, threads, self.actors, Use.WRITE, self._named(space))
            deposit = Deposit(target, local, data, pieces)
        if self.flight is not None:
            self.flight.deposits.append(deposit)
        elif isinstance(deposit.target, Block):
            deposit.target.store(deposit.addresses, deposit.data)
            self.world.version += 1
        else:
            place_bytes(self.world.launch.memories[deposit.target], deposit)
            self.world.version += 1

    def _synchronise(self, name: str, first: Array, threads: Array) -> None:
        for place, thread in zip(first, threads, strict=True):
            self.toucher.synchronise(name, int(place), int(thread), self.row.ordering)

    def _updated(
        self, space: Space, addresses: Array, threads: Array, operands: Array, combine: Callable[[Array, Array], Array]
    ) -> Array:
        nbytes = operands.dtype.itemsize
        data = np.ascontiguousarray(operands)[:, None].view(np.uint8)
        if self.flight is not None:
            self._put(space, addresses, threads, data, combine)
            return np.zeros_like(operands)
        if space is Space.GLOBAL:
            name, memory, first = self.world.global_place(addresses)
            first = self.toucher.inside_global(name, memory, first, threads, nbytes)
            elements = (first[:, None] + np.arange(0, nbytes, memory.values.itemsize)) // memory.values.itemsize
            if memory.known is not None:
                known = memory.known[elements].all(axis=1)
                self.toucher.unknown(f"global {name}", threads[~known], first[~known])
            shadow, raw = self.world.shadows.get(name), memory.values.view(np.uint8)
            pieces, subject = elements, f"global {name}"
        else:
            first = self._inside(space, addresses, threads, nbytes)
            shadow, raw, name = self.block.shadow, self.block.bytes, f"shared {self.block.number}"
            pieces, subject = self.block.pieces(first, nbytes), self._named(space)
            known = self.block.known[self.world.starts[first]]
            self.toucher.unknown(subject, threads[~known], first[~known])
        if shadow is not None:
            self.toucher.touch(shadow, pieces, threads, self.actors, Use.UPDATE, subject)
        old = np.zeros_like(operands)
        for number, place in enumerate(first):
            self.toucher.synchronise(name, int(place), int(threads[number]), self.row.ordering)
            word = raw[place : place + nbytes].view(operands.dtype)
            old[number] = word[0]
            word[:] = combine(word.copy(), operands[number : number + 1])
        self.world.version += 1
        return old

    # --- transaction barriers ---------------------------------------------------------------------------------------

    def _barrier(self, address: int, thread: int, operand: Array, combine: Callable[[Array, Array], Array]) -> None:
        """One thread's operation on a barrier, or a copy's count of its bytes."""
        here = np.array([address]), np.array([thread])
        found = self._target(Space.CLUSTER, *here)
        if found is None:
            return
        target, place = found[0], int(self._inside(Space.SHARED, found[1], here[1], 8)[0])
        if self.row.name == "mbarrier.init":
            self._initialise(target, place, thread)
        state = target.transactions.get(place)
        if state is None:
            self.toucher.report(FindingKind.UNINITIALISED, "transaction barrier", here[1], here[0])
            return
        if self.row.name != "mbarrier.init":
            counts_bytes = self.row.completion is Completion.BARRIER_BYTES
            self.toucher.check_barrier(state, thread, asynchronous=counts_bytes)
        if self.copies_of is not None:
            self._flying.arrivals.append(Arrival(target, place, thread, combine, operand, self.copies_of(thread)))
            return
        if self.flight is not None:
            self._count_later(target, place, state, thread, int(operand[0]))
            return
        word = target.bytes[place : place + 8].view(np.uint64).copy()
        try:
            after = combine(word, operand)
        except BarrierFault:
            self.toucher.report(FindingKind.BROKEN_RULE, f"{self.row.name} on {state.name}", here[1], here[0])
            return
        if "arrive" in self.row.name:
            state.gathered = self.toucher.release_into(state.gathered, thread)
        finish(target, place, word, after)
        self.world.version += 1

    def _initialise(self, target: Block, place: int, thread: int) -> None:
        name = next(
            (
                f"{buffer.name}[{(place - self.world.offsets[buffer.name]) // 8}]"
                for buffer in self.world.shared.values()
                if 0 <= place - self.world.offsets[buffer.name] < buffer.size * item_bytes(buffer)
            ),
            str(place),
        )
        column = self.world.column("a copy that counts on a barrier", target.number, place)
        one = np.array([thread])
        maker = int(target.own_columns(one)[0]), int(target.own_clocks(one)[0])
        target.transactions[place] = Transactions(name, column, maker)
        pieces = target.pieces(np.array([place]), 8)
        self.toucher.touch(target.shadow, pieces, one, self.actors, Use.WRITE, f"barrier {name}")

    @property
    def _flying(self) -> Flight:
        """The operation that a row issues which others wait for."""
        if self.flight is None:
            raise InternalError(f"{self.row.name} is executed as an operation in flight; it was not; report this")
        return self.flight

    def _count_later(self, target: Block, place: int, state: Transactions, thread: int, nbytes: int) -> None:
        """The barrier of a copy is known: what it writes in this block, and reads, is due when the phase is over."""
        flight = self._flying
        actors = Actors(True, state.column, flight.flying)
        for name, elements in () if flight.countdowns else flight.sources:  # once, where a copy goes to many blocks
            if name in self.world.shadows:
                threads = np.full(len(elements), thread)
                self.toucher.touch(self.world.shadows[name], elements, threads, actors, Use.READ, f"global {name}")
        flight.countdowns.append((target, place, nbytes))
        for deposit in flight.deposits:
            if deposit.target is target:
                threads = np.full(len(deposit.addresses), thread)
                self.toucher.touch(target.shadow, deposit.pieces, threads, actors, Use.WRITE, self._named(Space.SHARED))
