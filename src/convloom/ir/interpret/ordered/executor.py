"""A group that executes instruction rows: which row goes which way."""

from __future__ import annotations

from collections.abc import Iterator

from convloom.errors import ConvloomError, IllegalProblem
from convloom.ir.interpret.findings import FindingKind
from convloom.ir.interpret.memory import Array
from convloom.ir.interpret.order import Pause
from convloom.ir.interpret.ordered.accesses import Actors
from convloom.ir.interpret.ordered.asynchronous import arrive_behind_copies, issue_copies, issue_single, multiply
from convloom.ir.interpret.ordered.budgets import change_budget
from convloom.ir.interpret.ordered.group import Group
from convloom.ir.interpret.ordered.order_rows import HANDLERS
from convloom.ir.interpret.ordered.roles import WARP
from convloom.ir.interpret.ordered.waits import acquire_tested, await_row, block_barrier
from convloom.ir.ops import Instruct
from convloom.target.instruction import Completion, Family, Ordering


class Executor(Group):
    """Implements `order.Order`."""

    def execute(self, statement: Instruct) -> Iterator[Pause]:
        """See `Order`."""
        row = statement.row
        threads = self.active_threads()
        if not threads.size:
            return
        if self.world.launch.counts is not None:
            self.world.launch.counts.row(row.name, row.shape, max(1, threads.size // row.lanes))
        self.in_row = True
        try:
            step = self._prepared(statement, threads)
        except IllegalProblem:
            self.report_all(FindingKind.BROKEN_RULE, row.name, 0)
            step = None
        except ConvloomError as error:
            self.report_all(FindingKind.BROKEN_RULE, f"{row.name}: {error}", 0)
            step = None
        finally:
            self.in_row = False
        if step is not None:
            yield from step
        elif row.ordering is not Ordering.NONE or row.completion is not Completion.AT_ONCE:
            yield Pause(lambda: True, lambda: "nothing")

    def _prepared(self, statement: Instruct, threads: Array) -> Iterator[Pause] | None:
        """Executes a row; what is left where threads wait."""
        row = statement.row
        if row.family is Family.REGISTER_BUDGET:
            self.whole(row, threads, WARP)
            return change_budget(self, statement, threads)
        if row.ordering is Ordering.AWAIT:
            return await_row(self, statement, threads)
        if row.ordering in HANDLERS:
            arguments = {name: self.chunk.index(item) for name, item in statement.arguments}  # type: ignore[arg-type]
            self.whole(row, threads, min(row.lanes, WARP))
            return HANDLERS[row.ordering](self, row, threads, arguments)
        if row.completion in (Completion.BULK_GROUP, Completion.BARRIER_BYTES):
            for thread in threads:
                issue_single(self, statement, int(thread))
        elif row.completion is Completion.MULTIPLY_GROUP:
            multiply(self, statement, threads)
        elif row.completion is Completion.COPY_GROUP:
            issue_copies(self, statement)
        elif row.completion is Completion.COPIES_DONE:
            arrive_behind_copies(self, statement)
        else:
            self._plain(statement)
        return None

    def _plain(self, statement: Instruct) -> None:
        self.run(statement, self.memory(statement, Actors()))
        if statement.row.name == "mbarrier.try_wait.parity":
            acquire_tested(self, statement)

    def barrier(self) -> Iterator[Pause]:
        """See `Order`."""
        return block_barrier(self)
