"""The law that a test of a persistent kernel obeys, or its ring never wraps around as it does on a device.

Every block runs at least three tiles, each in more K steps than twice the stages of the ring: then every barrier passes
several phases within a tile and across tiles, and a parity that is off by one phase shows.
"""

from dataclasses import dataclass

from convloom.ir.interpret import interpret
from convloom.ir.interpret.options import Landing, Options
from convloom.ir.ops import Address, For, If, Instruct
from convloom.target.instruction import Ordering

LEAST_TILES = 3


@dataclass(frozen=True)
class Ring:
    """A loop that waits for the barriers of a ring, inside a loop over tiles; `stages`: barriers of the ring."""

    tiles: str  # paths of the loops
    steps: str
    stages: int


def rings(kernel):
    """The rings of a kernel: innermost loops around waits for barriers, with the outermost loop around them."""
    found = {}
    _walk(kernel.body, "body", (), found)
    return [Ring(outer, inner, stages) for (outer, inner), stages in found.items()]


def _walk(body, path, loops, found):
    for number, statement in enumerate(body):
        here = f"{path}.{number}"
        if isinstance(statement, For):
            _walk(statement.body, here, (*loops, here), found)
        elif isinstance(statement, If):
            _walk(statement.body, here, loops, found)
        elif isinstance(statement, Instruct) and statement.row.ordering is Ordering.AWAIT and loops:
            barrier = dict(statement.arguments).get("barrier")
            if isinstance(barrier, Address):
                key = loops[0], loops[-1]
                found[key] = max(found.get(key, 0), barrier.buffer.size)


def broken_laws(kernel, counts):
    """What a launch left untried, in words; empty if its blocks ran enough tiles and steps."""
    found = rings(kernel)
    if not found:
        return ["no loop waits for barriers: the kernel has no ring"]
    broken = []
    for ring in found:
        tiles, steps = (counts.loops.get(path) for path in (ring.tiles, ring.steps))
        if ring.tiles == ring.steps or tiles is None or steps is None:
            broken.append(f"{ring.steps}: a ring that no loop over tiles is around")
            continue
        if tiles.fewest < LEAST_TILES:
            broken.append(f"{ring.tiles}: {tiles.fewest} tiles of a block; at least {LEAST_TILES} are due")
        if steps.fewest <= 2 * ring.stages:
            broken.append(f"{ring.steps}: {steps.fewest} K steps; more than twice {ring.stages} stages are due")
    return broken


def check_persistent(kernel, memories, arguments, floats, blocks, multiprocessors):
    """Launches under each landing; fails for findings, and for a launch that proves too little. The last outcome."""
    for landing in Landing:
        options = Options(landing=landing, seed=1, counted=True, multiprocessors=multiprocessors)
        outcome = interpret(kernel, memories(), arguments, floats, blocks, options)
        wrong = [*map(str, outcome.findings), *broken_laws(kernel, outcome.counts)]
        assert not wrong, "; ".join(wrong)
    return outcome
