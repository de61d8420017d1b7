"""Every problem of some files through generated kernels on a device, compared exactly with a hand-written reference.

    python -m tests.device.check_suites --batch suites/benchdnn/*.txt suites/*.txt \\
        --dirs fwd,bwd_d,bwd_w --dts f32,tf32,f16,bf16,s8:s8:s32,u8:s8:u8 --stag axb --dtag axb

Types are those of first operand, second operand and result, whatever the direction; u8 is one of activations, and runs
forward. Products run once, in these types too, whatever their lines say.
Several processes build and run side by side (building takes most of the time). One that dies takes only its problem
with it. Nothing is skipped silently: what `--max-mops` or `--deadline` left out is listed and does not count as passed.
The last line is `N passed, N failed, N skipped`; the exit status is 1 unless all passed or were skipped.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from convloom.errors import ConvloomError
from convloom.frontend.compile import compile
from convloom.problem.data import Fill, choose_fill
from convloom.problem.gemm import Gemm
from convloom.problem.notation import read_batch
from convloom.problem.reference import Problem, operand_shapes, reduction_length, result_shape
from convloom.runtime.device import device_named
from convloom.runtime.interface import DeviceFailure
from tests.device.device_check import CheckedProblem, signs
from tests.device.problems import defaults_of, problem_of

TYPES_IN_LINE = re.compile(r"-(t|out_datatype) +\S+ *")  # of products: the option says them
WIDEST = {"f16": 2, "bf16": 2, "f64": 8}  # bytes of a tensor's elements, where they are not 4 or fewer
SERIAL_OPS = 2e5  # a step of a long sum takes a lonely block as long as a full GPU takes for so many operations
SPARE_BYTES = {"cpu": 4e9}
GPU_BYTES = 100e9
PROGRESS_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Row:
    """One problem in one direction and type; `place` names where it was read first."""

    place: str
    text: str
    direction: str
    dtypes: str
    tags: tuple[str, str, str]

    @property
    def problem(self) -> Problem:
        """The problem."""
        return problem_of(self.text, self.direction, self.dtypes, self.tags)

    @property
    def command(self) -> str:
        """A command that repeats it on a GPU."""
        named = zip(("stag", "wtag", "dtag"), self.tags, strict=True)
        tags = "".join(f" --{key} {tag}" for key, tag in named if tag != "any")
        return f"convloom run '{self.text}' --dir {self.direction} --dt {self.dtypes}{tags} --device cuda --data int"


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a row. status: passed, failed or skipped; times in seconds: making the kernel, its first call."""

    row: Row
    status: str
    reason: str = ""
    nonzero_share: float = 0.0
    build: float = 0.0
    run: float = 0.0
    fill: str = ""
    plan: str = ""
    lines: int = 1


@dataclass(frozen=True, slots=True)
class Task:
    """Rows that differ in their types only, so that one worker can use their data again; and what they cost."""

    rows: tuple[Row, ...]
    nbytes: float
    effort: float
    lines: int

    @staticmethod
    def of(rows: Sequence[Row], lines: int) -> Task:
        """A task with its memory and a rough effort, by which the longest come first."""
        problem = rows[0].problem
        outputs = math.prod(result_shape(problem))
        operands = sum(math.prod(shape) for shape in operand_shapes(problem))
        widest = max(WIDEST.get(row.dtypes, 4) for row in rows)
        length = reduction_length(problem)
        return Task(
            tuple(rows), operands * (1 + widest) + outputs * (8 + widest), problem.ops + length * SERIAL_OPS, lines
        )


# --- a worker -------------------------------------------------------------------------------------------------------


def serve(connection: Connection, device_name: str) -> None:
    """Runs tasks until none comes; a device that failed is not used again: the process ends."""
    while True:
        rows: tuple[Row, ...] | None = connection.recv()
        if rows is None:
            return
        if not _run_rows(rows, device_name, connection):
            os._exit(3)


def _run_rows(rows: Sequence[Row], device_name: str, connection: Connection) -> bool:
    """False if the device is lost."""
    made: CheckedProblem | None = None
    try:
        for row, fill in with_common_fills(rows):
            connection.send(row)
            problem = row.problem
            start = time.perf_counter()
            try:
                kernel = compile(problem, device_name)
                build = time.perf_counter() - start
                if made is None or (made.fill, signs(made.problem)) != (fill, signs(problem)):
                    if made is not None:
                        made.__exit__()
                    made = None
                    made = CheckedProblem(problem, fill, device_named(device_name))
                found = made.check(kernel)
            except DeviceFailure as error:
                connection.send(Result(row, "failed", f"{type(error).__name__}: {error}", fill=_text(fill)))
                return False
            except ConvloomError as error:
                connection.send(Result(row, "failed", f"{type(error).__name__}: {error}"[:2000], fill=_text(fill)))
                continue
            status = "passed" if found.passed else "failed"
            result = Result(
                row, status, found.reason, found.nonzero_share, build, found.seconds, _text(fill), kernel.plan
            )
            connection.send(result)
        connection.send(None)
        return True
    finally:
        if made is not None:
            made.__exit__()


def with_common_fills(rows: Sequence[Row]) -> list[tuple[Row, Fill]]:
    """Rows whose operands have the same signs get the same data: the least magnitudes and the least density of all."""
    groups: dict[tuple[bool, bool], list[Row]] = {}
    for row in rows:
        groups.setdefault(signs(row.problem), []).append(row)
    return [(row, fill) for group in groups.values() for fill in (_common_fill(group),) for row in group]


def _common_fill(rows: Sequence[Row]) -> Fill:
    fills = [choose_fill(row.problem) for row in rows]
    return Fill(min(fill.a for fill in fills), min(fill.b for fill in fills), min(fill.density for fill in fills))


def _text(fill: Fill) -> str:
    return f"+-{fill.a} x +-{fill.b}, density {fill.density:g}"


# --- the parent -----------------------------------------------------------------------------------------------------


class Worker:
    """A process with its pipe and what it is at."""

    def __init__(self, device: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, device), daemon=True)
        self.process.start()
        other.close()
        self.task: Task | None = None
        self.row: Row | None = None
        self.done: set[Row] = set()
        self.since = 0.0

    def start(self, task: Task) -> None:
        """Gives it a task."""
        self.task, self.row, self.done, self.since = task, None, set(), time.monotonic()
        self.pipe.send(task.rows)

    def rest(self) -> Task | None:
        """What remains of its task behind the row in progress."""
        assert self.task is not None
        rows = tuple(row for row in self.task.rows if row not in self.done and row != self.row)
        return Task(rows, self.task.nbytes, self.task.effort, self.task.lines) if rows else None

    def end(self) -> None:
        """Ends the process, whatever it does."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Check:
    """All tasks, the workers, and the results so far."""

    def __init__(self, tasks: Sequence[Task], options: argparse.Namespace) -> None:
        self.waiting = sorted(tasks, key=lambda task: -task.effort)
        self.options = options
        self.results: list[Result] = []
        self.workers: list[Worker] = []
        self.room = SPARE_BYTES.get(options.device, GPU_BYTES)
        self.start = time.monotonic()
        self.shown = self.start

    def run(self) -> list[Result]:
        """Runs until all is done or the deadline passed."""
        self.workers = [Worker(self.options.device) for _ in range(self.options.workers)]
        while self._give_out() and not self._late():
            busy = [worker.pipe for worker in self.workers if worker.task is not None]
            for pipe in wait(busy, timeout=1.0):
                self._receive(next(worker for worker in self.workers if worker.pipe is pipe))
            for worker in self.workers:
                if worker.task is not None and time.monotonic() - worker.since > self.options.row_timeout:
                    self._lose(worker, f"no result within {self.options.row_timeout:g} s")
            self._show()
        self._skip_rest()
        for worker in self.workers:
            worker.end()
        return self.results

    def _late(self) -> bool:
        return time.monotonic() - self.start > self.options.deadline

    def _give_out(self) -> bool:
        """Hands out the tasks for which there is memory; False if nothing is left to do."""
        used = sum(worker.task.nbytes for worker in self.workers if worker.task is not None)
        for worker in self.workers:
            if worker.task is not None:
                continue
            place = next(
                (n for n, task in enumerate(self.waiting) if used + task.nbytes <= self.room or not used), None
            )
            if place is None:
                break
            task = self.waiting.pop(place)
            used += task.nbytes
            worker.start(task)
        return bool(self.waiting) or any(worker.task is not None for worker in self.workers)

    def _receive(self, worker: Worker) -> None:
        try:
            message = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            worker.process.join(5)
            self._lose(worker, f"the process ended with status {worker.process.exitcode}")
            return
        worker.since = time.monotonic()
        if message is None:
            worker.task = worker.row = None
        elif isinstance(message, Row):
            worker.row = message
        else:
            self._add(worker, message)

    def _add(self, worker: Worker, result: Result) -> None:
        assert worker.task is not None
        worker.done.add(result.row)
        worker.row = None
        self.results.append(Result(**{**_fields(result), "lines": worker.task.lines}))
        if result.status == "failed":
            print(f"failed {_label(result.row)}: {result.reason[:400]}", flush=True)

    def _lose(self, worker: Worker, reason: str) -> None:
        """Replaces a worker; the row in progress failed, the rest of its task waits again."""
        if worker.row is not None:
            self._add(worker, Result(worker.row, "failed", reason))
        elif not worker.done:
            raise RuntimeError(f"a worker must start; {reason}")
        rest = worker.rest()
        if rest is not None:
            self.waiting.insert(0, rest)
        worker.end()
        self.workers[self.workers.index(worker)] = Worker(self.options.device)

    def _skip_rest(self) -> None:
        unfinished = [rest for worker in self.workers if worker.task is not None and (rest := _unfinished(worker))]
        for task in (*unfinished, *self.waiting):
            self.results += [Result(row, "skipped", "deadline", lines=task.lines) for row in task.rows]

    def _show(self) -> None:
        now = time.monotonic()
        if now - self.shown < PROGRESS_SECONDS:
            return
        self.shown = now
        rows = sum(len(task.rows) for task in self.waiting)
        print(f"[{now - self.start:4.0f} s] {closing_line(self.results)}; {rows} rows wait", flush=True)
        save(self.results, self.options)


def _unfinished(worker: Worker) -> Task | None:
    worker.row = None
    return worker.rest()


def _fields(result: Result) -> dict[str, Any]:
    return {name: getattr(result, name) for name in Result.__slots__}


def _label(row: Row) -> str:
    return f"{row.place} {row.direction} {row.dtypes} {row.text}"


# --- rows and reports -----------------------------------------------------------------------------------------------


def tasks_of(options: argparse.Namespace) -> tuple[list[Task], list[Result]]:
    """The tasks, equal problems once each, and the rows that are left out."""
    tags = (options.stag, options.wtag, options.dtag)
    found: dict[tuple[Problem, str], list[tuple[str, str]]] = {}
    for direction in options.dirs.split(","):
        for line in read_batch(sorted(options.batch), defaults_of(direction, "f32", tags)):
            if isinstance(line.problem, Gemm) and direction != "fwd":
                continue
            place, text = f"{line.path.name}:{line.number}", TYPES_IN_LINE.sub("", line.text)
            found.setdefault((problem_of(text, direction, "f32", tags), direction), []).append((place, text))
    tasks: list[Task] = []
    skipped: list[Result] = []
    for (problem, direction), lines in found.items():
        place, text = lines[0]
        types = (types_along(dtypes, direction) for dtypes in options.dts.split(","))
        rows = [Row(place, text, direction, dtypes, tags) for dtypes in types if dtypes]
        if not rows:
            continue
        if problem.ops * 1e-6 > options.max_mops:
            reason = f"{problem.ops * 1e-6:.0f} Mop"
            skipped += [Result(row, "skipped", reason, lines=len(lines)) for row in rows]
        else:
            tasks.append(Task.of(rows, len(lines)))
    selected: list[Task] = []
    done = _passed_in(options.again)
    for place, task in enumerate(tasks):
        rows = [row for row in task.rows if place % options.every == options.offset and row not in done]
        skipped += [Result(row, "skipped", "not selected", lines=task.lines) for row in task.rows if row not in rows]
        if rows:
            selected.append(Task.of(rows, task.lines))
    return selected, skipped


def types_along(dtypes: str, direction: str) -> str:
    """Types of first operand, second operand and result as src:wei:dst of a direction; empty where they do not go."""
    first, *others = dtypes.split(":")
    if not others or direction == "fwd":
        return dtypes
    second, result = others
    if "u8" in (first, second, result):
        return ""
    return f"{result}:{second}:{first}" if direction == "bwd_d" else f"{first}:{result}:{second}"


def _passed_in(path: Path | None) -> set[Row]:
    """The rows that passed in an earlier run."""
    if path is None:
        return set()
    rows = [result["row"] for result in json.loads(path.read_text()) if result["status"] == "passed"]
    return {Row(**{**row, "tags": tuple(row["tags"])}) for row in rows}


def closing_line(results: Sequence[Result]) -> str:
    """`N passed, N failed, N skipped`, counted in lines of the files."""
    counts = Counter[str]()
    for result in results:
        counts[result.status] += result.lines
    return f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"


def report(results: Sequence[Result], seconds: float) -> None:
    """Lists what was skipped and what failed, and counts."""
    for result in results:
        if result.status == "skipped":
            print(f"skipped {_label(result.row)} ({result.reason})")
    failed = [result for result in results if result.status == "failed"]
    for result in failed:
        print(f"failed {_label(result.row)}: {result.reason[:300]}\n    {result.row.command}")
    passed = [result for result in results if result.status == "passed"]
    if passed:
        least = min(passed, key=lambda result: result.nonzero_share)
        print(f"fewest non-zero outputs: {least.nonzero_share:.1%} in {_label(least.row)}")
        print(f"kernels ran for {sum(r.run for r in passed):.1f} s, were made in {sum(r.build for r in passed):.1f} s")
    print(f"{seconds:.0f} s with {len(results)} distinct rows")
    print(closing_line(results))


def save(results: Sequence[Result], options: argparse.Namespace) -> None:
    """Writes the results as JSON, one object a row."""
    if options.json is not None:
        options.json.write_text("[\n" + ",\n".join(json.dumps(asdict(result)) for result in results) + "\n]\n")


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", nargs="+", type=Path, required=True)
    parser.add_argument("--dirs", default="fwd,bwd_d,bwd_w")
    parser.add_argument("--dts", default="f32,f16,bf16")
    for key in ("stag", "wtag", "dtag"):
        parser.add_argument(f"--{key}", default="any")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--max-mops", type=float, default=math.inf)
    parser.add_argument("--deadline", type=float, default=math.inf, help="seconds after which nothing new begins")
    parser.add_argument("--row-timeout", type=float, default=240.0, help="seconds that one row may take")
    parser.add_argument("--every", type=int, default=1, help="take each n-th problem only")
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--again", type=Path, help="results of an earlier run: only what did not pass there")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """The command; the exit status."""
    options = parsed(arguments)
    start = time.monotonic()
    tasks, skipped = tasks_of(options)
    results = [*skipped, *Check(tasks, options).run()]
    save(results, options)
    report(results, time.monotonic() - start)
    return int(any(result.status == "failed" for result in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
