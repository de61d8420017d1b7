"""The main program of a build process: reads jobs from standard input, writes their outcomes to standard output.

Started by `build_pool` as a program of its own. A copy of the caller's process would have its GPU context, or would
run the caller's main script again.
"""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import asdict

from convloom import settings
from convloom.tune.build_jobs import Compiled, Ranked, perform


def serve() -> None:
    """Jobs until the input ends; what a job raises is its outcome."""
    requests = sys.stdin.buffer
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as replies:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever prints must not get among the outcomes
        with settings.scoped(**asdict(pickle.load(requests))):
            while True:
                try:
                    job = pickle.load(requests)
                except EOFError:
                    return
                outcome: Ranked | Compiled | Exception
                try:
                    outcome = perform(job)
                except Exception as error:  # noqa: BLE001 - raised again where the job came from
                    outcome = error
                pickle.dump(outcome, replies)
                replies.flush()


if __name__ == "__main__":
    serve()
