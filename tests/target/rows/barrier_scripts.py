"""Random sequences of transaction-barrier operations, as a kernel of one thread and as executions of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from convloom.artifact import Access, BufferParam, KernelSource, Language
from convloom.target.asm_text import statement
from convloom.target.catalogue import row_named
from convloom.target.memory import FlatMemory

Step = tuple[str, int]


@dataclass(frozen=True)
class ScriptCase:
    """Operations on one barrier; after each one both parities are tested."""

    name: str
    steps: tuple[Step, ...]

    def expected(self) -> np.ndarray:
        """(steps, 2): whether the phase of parity 0 and 1 is over."""
        memory = FlatMemory(None, np.zeros((1, 8), np.uint8))
        answers = []
        for name, amount in self.steps:
            self._execute(memory, name, amount)
            answers.append([self._execute(memory, "mbarrier.try_wait.parity", parity) for parity in (0, 1)])
        return np.array(answers)

    def _execute(self, memory: FlatMemory, name: str, amount: int) -> int:
        row = row_named(name)
        values = {operand.name: np.full((1, 1, 1), amount, np.uint32) for operand in row.operands}
        values["barrier"] = np.zeros((1, 1, 1), np.uint32)
        return int(row.execute(values, memory).get("d", np.zeros(1)).reshape(-1)[0])

    def source(self, arch: str) -> KernelSource:
        """The kernel; it writes the answers one after the other."""
        name = "script_" + "".join(letter if letter.isalnum() else "_" for letter in self.name)
        body = [self._text(step, place) for place, step in enumerate(self.steps)]
        text = "\n".join(
            (
                f'extern "C" __global__ void {name}(unsigned long long *answers) {{',
                "    __shared__ unsigned long long word;",
                "    unsigned barrier = (unsigned)__cvta_generic_to_shared(&word), d;",
                *body,
                "}",
            )
        )
        return KernelSource(
            name,
            Language.CUDA,
            arch,
            text,
            (BufferParam("answers", "u8", Access.WRITE),),
            (),
            ("1", "1", "1"),
            (1, 1, 1),
            0,
            (),
        )

    def _text(self, step: Step, place: int) -> str:
        # The fence: a waiting try_wait lets the thread's next operation go ahead, which would then answer it.
        lines = [_call(*step)]
        for parity in (0, 1):
            test = _call("mbarrier.try_wait.parity", parity)
            lines.append(f"{test} answers[{2 * place + parity}] = d; __threadfence();")
        return "\n".join("    " + line for line in lines)


def _call(name: str, amount: int) -> str:
    row = row_named(name)
    given = {operand.name: [f"{amount}u"] for operand in row.operands}
    return statement(row, Language.CUDA, {**given, "barrier": ["barrier"], **({"d": ["d"]} if "d" in given else {})})


def barrier_scripts(seed: int = 4, count: int = 6) -> Iterator[ScriptCase]:
    """Sequences of legal operations: arrivals and bytes of each phase are used up in a random order."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        arrivals = int(rng.integers(1, 4))
        steps: list[Step] = [("mbarrier.init", arrivals)]
        for _ in range(6):
            steps += _phase(rng, arrivals)
        yield ScriptCase(f"mbarrier script {number}", tuple(steps))


def _phase(rng: np.random.Generator, arrivals: int) -> list[Step]:
    """Announcements come before the last arrival; bytes may arrive earlier than announced."""
    announced = [int(rng.integers(1, 5)) * 16 for _ in range(int(rng.integers(0, 3)))]
    last = announced.pop() if announced and rng.integers(2) else None
    early: list[Step] = [("mbarrier.arrive", 0)] * (arrivals - 1)
    early += [("mbarrier.expect_tx", nbytes) for nbytes in announced]
    done = sum(announced) + (last or 0)
    parts = [part for part in (done // 2, done - done // 2) if part]
    split = int(rng.integers(0, len(parts) + 1))
    early += [("mbarrier.complete_tx", part) for part in parts[:split]]
    rng.shuffle(early)  # pyright: ignore[reportArgumentType]
    final: Step = ("mbarrier.arrive", 0) if last is None else ("mbarrier.arrive.expect_tx", last)
    return [*((str(name), int(amount)) for name, amount in early), final] + [
        ("mbarrier.complete_tx", part) for part in parts[split:]
    ]
