"""Runs the blocks of an ordered launch: a seed decides whose turn it is, among groups and operations in flight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from convloom.errors import InternalError
from convloom.ir.interpret.chunk import Chunk, Launch
from convloom.ir.interpret.findings import FindingKind
from convloom.ir.interpret.options import Landing
from convloom.ir.interpret.order import Pause
from convloom.ir.interpret.ordered.accesses import Toucher
from convloom.ir.interpret.ordered.block import Block
from convloom.ir.interpret.ordered.budgets import check_budgets
from convloom.ir.interpret.ordered.executor import Executor
from convloom.ir.interpret.ordered.roles import groups
from convloom.ir.interpret.ordered.world import World
from convloom.ir.interpret.statements import Arrival, run_body
from convloom.target.tensor_map import TensorMap


@dataclass(slots=True, eq=False)
class _Actor:
    """A group on its way through the kernel, and what it waits for."""

    group: Executor
    steps: Iterator[Arrival]
    pause: Pause | None = None

    def ready(self) -> bool:
        return self.pause is None or self.pause.ready()

    def advance(self) -> bool:
        """Runs to the next pause; False at the end."""
        arrival = next(self.steps, None)
        if arrival is None:
            self.group.finish()
            return False
        if not isinstance(arrival, Pause):
            raise InternalError("a chunk with an order waits by pauses; report this")
        self.pause = arrival
        return True


def run_ordered(launch: Launch, blocks: int, arguments: Mapping[str, int], maps: Mapping[str, TensorMap]) -> None:
    """Runs a whole launch; as many blocks are present at a time as there are multiprocessors (whole clusters)."""
    world = World(launch, maps)
    size = launch.kernel.cluster
    present = max(size, launch.options.multiprocessors // size * size)
    waiting = iter(range(0, blocks, size))
    parts = groups(launch.kernel)
    actors: list[_Actor] = []
    while True:
        while len({actor.group.block.number for actor in actors}) + size <= present:
            first = next(waiting, None)
            if first is None:
                break
            for number in range(first, min(first + size, blocks)):
                actors.extend(_entered(world, world.enter(number), arguments, parts))
        if not actors:
            break
        if not _step(world, actors):
            _report_deadlock(world, actors)
            break
    for flight in tuple(world.flights):
        world.land(flight)


def _entered(world: World, block: Block, arguments: Mapping[str, int], parts: list[range]) -> Iterator[_Actor]:
    for part in parts:
        chunk = Chunk(world.launch, range(block.number, block.number + 1), dict(arguments), part)
        group = Executor(world, block, chunk, Toucher(world, block, chunk))
        chunk.order = group
        yield _Actor(group, run_body(chunk, world.launch.kernel.body))


def _step(world: World, actors: list[_Actor]) -> bool:
    """Lets one group go on, or one operation land; False where neither can."""
    able = [actor for actor in actors if actor.ready()]
    seeded = world.launch.options.landing is Landing.SEEDED
    landable = world.flights if seeded or not able else []
    choices = len(able) + len(landable)
    if not choices:
        return False
    choice = int(world.random.integers(choices))
    if choice >= len(able):
        world.land(landable[choice - len(able)])
        return True
    actor = able[choice]
    if not actor.advance():
        actors.remove(actor)
        block = actor.group.block
        if all(other.group.block is not block for other in actors):
            _leave(world, block)
    return True


def _leave(world: World, block: Block) -> None:
    """A block ends: copies that still write its shared memory are a fault."""
    for flight in tuple(world.flights):
        if flight.uses(block):
            what = "an arrival" if flight.arrivals else "a copy to shared memory"
            world.report(FindingKind.UNFINISHED, flight.place, what, block.number, flight.thread)
            world.land(flight)
    check_budgets(world, block)
    block.ended = True
    if world.launch.kernel.cluster == 1:
        del world.blocks[block.number]


def _report_deadlock(world: World, actors: list[_Actor]) -> None:
    for actor in actors:
        group, pause = actor.group, actor.pause
        awaited = "nothing" if pause is None else pause.awaited()
        world.report(FindingKind.DEADLOCK, group.chunk.place, awaited, group.block.number, group.chunk.group.start)
