"""Issues asynchronous operations: copies of one thread, copies of many, multiplies of a warpgroup."""

from __future__ import annotations

from typing import Any

import numpy as np

from convloom.expr import Expr
from convloom.ir.interpret.findings import FindingKind
from convloom.ir.interpret.memory import Array
from convloom.ir.interpret.ordered.accesses import Actors
from convloom.ir.interpret.ordered.group import Group
from convloom.ir.interpret.ordered.world import Flight
from convloom.ir.ops import Argument, Instruct, Registers
from convloom.target.instruction import Completion, Instruction


def issue_single(group: Group, statement: Instruct, thread: int) -> None:
    """A copy that one thread issues."""
    row, chunk = statement.row, group.chunk
    bulk = row.completion is Completion.BULK_GROUP
    label = group.label("bulk", thread)
    flight = Flight(
        ("bulk", group.block.number, thread, label), chunk.place, group.block, thread, group.world.next_flying()
    )
    column = group.world.column("a bulk copy", group.block.number, thread) if bulk else None
    actors = Actors(True, column, label)  # of bulk groups; copies that count on a barrier leave its column
    memory = group.memory(statement, actors, flight)
    memory.threads_of = lambda shape: np.full(shape, thread)
    lane = thread - chunk.group.start
    values: dict[str, Any] = {
        name: value[:, lane : lane + 1] if isinstance(value, np.ndarray) else value
        for name, value in group.values(statement, memory).items()
    }
    if bulk:
        memory.read_actors = Actors(
            True, group.world.column("a bulk copy that reads", group.block.number, thread), label
        )
        group.issued["bulk", thread] = label, chunk.place
    row.execute(values, memory)
    group.world.start(flight)


def issue_copies(group: Group, statement: Instruct) -> None:
    """Copies of many threads, in the groups of each."""
    start, block = group.chunk.group.start, group.block
    threads = group.active_threads()
    columns, labels = np.zeros(block.threads, np.int64), np.zeros(block.threads, np.int64)
    for thread in map(int, threads):
        columns[thread] = group.world.column("a copy in flight", block.number, thread)
        labels[thread] = group.copy_epochs[thread - start]
        group.issued["copy", thread] = int(labels[thread]), group.chunk.place
    first = int(threads[0])
    key = ("copy", block.number, start, int(labels[first]))
    flight = Flight(key, group.chunk.place, block, first, group.world.next_flying())
    memory = group.memory(statement, Actors(False, columns, labels), flight)
    memory.read_actors = Actors()
    group.run(statement, memory)
    group.world.start(flight)


def arrive_behind_copies(group: Group, statement: Instruct) -> None:
    """An arrival of each thread at a barrier, when its copies so far are done; whoever waits has seen them then."""
    start, threads = group.chunk.group.start, group.active_threads()
    flight = Flight(
        ("arrival", group.block.number, start, 0),
        group.chunk.place,
        group.block,
        int(threads[0]),
        group.world.next_flying(),
    )
    copies = ("copy", group.block.number, start)
    flight.behind = [item for item in group.world.flights if item.key[:3] == copies]
    memory = group.memory(statement, Actors(), flight)
    memory.copies_of = group.copies_of
    group.run(statement, memory)
    group.copy_epochs[threads - start] += 1
    for thread in map(int, threads):
        group.issued.pop(("copy", thread), None)
    group.world.start(flight)


def multiply(group: Group, statement: Instruct, threads: Array) -> None:
    """A multiply of a warpgroup: it reads shared memory, and has its registers, until it is waited for."""
    row = statement.row
    start = int(threads[0])
    label = group.label("multiply", start)
    column = group.world.column("a multiply in flight", group.block.number, group.chunk.group.start)
    memory = group.memory(statement, Actors(True, column, label, together=threads))
    _check_registers(group, statement)
    _ignore_old(group, dict(statement.arguments))
    group.run(statement, memory)
    group.issued["multiply", group.chunk.group.start] = label, group.chunk.place
    _hold_registers(group, statement, label, row)


def _ignore_old(group: Group, arguments: dict[str, Argument]) -> None:
    """A multiply that does not accumulate reads registers of which it uses nothing."""
    keep, d = arguments["accumulate"], arguments["d"]
    if isinstance(keep, Expr) and isinstance(d, Registers) and not np.any(group.chunk.index(keep)):
        index = group.chunk.index(d.index)
        group.chunk.registers[d.buffer.name].knowledge.complete[index : index + d.count] = True


def _check_registers(group: Group, statement: Instruct) -> None:
    for name, item in statement.arguments:
        if not isinstance(item, Registers) or not group.world.launch.options.races:
            continue
        index = group.chunk.index(item.index)
        part = slice(index, index + item.count)
        touched = group.touched.get(item.buffer.name, np.ones(item.buffer.size, np.bool_))
        if touched[part].any():
            group.report_all(FindingKind.UNFENCED, f"register {item.buffer.name} of {name}", index)


def _hold_registers(group: Group, statement: Instruct, label: int, row: Instruction) -> None:
    for _, item in statement.arguments:
        if isinstance(item, Registers):
            held = group.multiplying.setdefault(item.buffer.name, np.zeros(item.buffer.size, np.int64))
            index = group.chunk.index(item.index)
            held[index : index + item.count] = label
