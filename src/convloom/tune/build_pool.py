"""Processes that plan and compile for this one."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import overload

from convloom import settings
from convloom.errors import BuildFailed
from convloom.tune.build_jobs import Build, Compiled, Job, Rank, Ranked

_WORKER = (sys.executable, "-P", "-m", "convloom.tune.build_worker")


class BuildPool:
    """Up to `processes` programs that work on jobs in the order of their submission; started when first needed.

    Ctrl-C does not reach them; leaving the `with` block gives up what is not finished and ends them.
    """

    def __init__(self, processes: int | None = None) -> None:
        self._threads = ThreadPoolExecutor(processes or settings.current().threads)
        self._own = threading.local()
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._closed = False

    def __enter__(self) -> BuildPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @overload
    def submit(self, job: Rank) -> Future[Ranked]: ...
    @overload
    def submit(self, job: Build) -> Future[Compiled]: ...
    def submit(self, job: Job) -> Future[Ranked] | Future[Compiled]:
        """The outcome of a job under way; `result()` raises what the job raised, BuildFailed if its process died."""
        return self._threads.submit(self._performed, job)  # pyright: ignore[reportReturnType]

    def close(self) -> None:
        """Gives up what is not finished; allowed twice."""
        with self._lock:
            self._closed = True
            for process in self._processes:
                process.kill()
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):  # what was not sent yet goes nowhere
                    if pipe is not None:
                        pipe.close()
        self._processes.clear()

    def _performed(self, job: Job) -> Ranked | Compiled:
        process = self._process()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(job, process.stdin)
            process.stdin.flush()
            outcome = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            process.kill()
            self._own.process = None
            raise BuildFailed(
                f"a build process must answer; it ended with {process.wait()} over {job}; give it memory"
            ) from error
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _process(self) -> subprocess.Popen[bytes]:
        """The build process of this thread."""
        found: subprocess.Popen[bytes] | None = getattr(self._own, "process", None)
        if found is None:
            with self._lock:
                if self._closed:
                    raise BuildFailed("a build needs an open pool; this one was closed meanwhile; ask again")
                found = subprocess.Popen(
                    _WORKER,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    start_new_session=True,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                )
                self._processes.append(found)
            assert found.stdin is not None
            pickle.dump(settings.current(), found.stdin)
            self._own.process = found
        return found
