"""The database of measured plans: the winner of each problem, and every measurement that was made."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from convloom import settings
from convloom.errors import IllegalProblem

_APPLICATION = 0x43564C4D  # "CVLM", the file's application id
_SCHEMA_VERSION = 1
_LOCK_SECONDS = 60.0
_NAME = "tuning.sqlite"

_SCHEMA = """
CREATE TABLE winners (
    key TEXT NOT NULL, device TEXT NOT NULL, generator TEXT NOT NULL, compiler TEXT NOT NULL, policy TEXT NOT NULL,
    plan TEXT NOT NULL, seconds REAL NOT NULL, spread REAL NOT NULL, space TEXT NOT NULL, tried INTEGER NOT NULL,
    date TEXT NOT NULL, PRIMARY KEY (key, device, generator, compiler, policy)
) WITHOUT ROWID;
CREATE TABLE measurements (
    number INTEGER PRIMARY KEY,
    key TEXT NOT NULL, device TEXT NOT NULL, generator TEXT NOT NULL, compiler TEXT NOT NULL, policy TEXT NOT NULL,
    plan TEXT NOT NULL, predicted REAL NOT NULL, verdict TEXT NOT NULL, reason TEXT NOT NULL, seconds REAL, spread REAL,
    date TEXT NOT NULL
);
CREATE INDEX measured_problems ON measurements (key, device);
"""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a measured time belongs to; a row counts only where all of it is equal.

    `key`: the stride key. `device`: its model, and what else changes its speed. `generator`: the versions of the plan
    families (`plan.families.generator_text`). `compiler`: the vendor's, with its version. `policy`: what the caller
    allowed a plan to do.
    """

    key: str
    device: str
    generator: str
    compiler: str
    policy: str


@dataclass(frozen=True, slots=True)
class Winner:
    """The fastest of `tried` verified plans out of a space; seconds of a call, and the quartiles' difference."""

    plan: str
    seconds: float
    spread: float
    space: str
    tried: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """What became of one candidate; `seconds` and `spread` are None unless its result was right and it was timed."""

    plan: str
    predicted: float
    verdict: str
    reason: str = ""
    seconds: float | None = None
    spread: float | None = None


class TuningDatabase:
    """One SQLite file in WAL mode, used by any number of processes and threads; each call is a transaction of its own.

    Every method raises IllegalProblem for a file that is damaged, of another program or of another schema, and where
    the system refuses it. Such a file is left as it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def winner(self, circumstances: Circumstances, space: str, tried: int) -> Winner | None:
        """The stored winner under these circumstances, if it was found among at least `tried` plans of the space."""
        query = (
            "SELECT plan, seconds, spread, space, tried FROM winners WHERE key = ? AND device = ? AND generator = ? "
            "AND compiler = ? AND policy = ? AND space = ? AND tried >= ?"
        )
        if not self.path.exists():
            return None
        with self._opened() as connection:
            row = connection.execute(query, (*astuple(circumstances), space, tried)).fetchone()
        return None if row is None else Winner(*row)

    def store(
        self, circumstances: Circumstances, measurements: tuple[Measurement, ...], winner: Winner | None = None
    ) -> None:
        """Adds measurements; the winner replaces one that was found among as many plans or fewer."""
        date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        where = astuple(circumstances)
        with self._opened() as connection, _transaction(connection):
            connection.executemany(
                "INSERT INTO measurements (key, device, generator, compiler, policy, plan, predicted, verdict, reason, "
                "seconds, spread, date) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(*where, *astuple(item), date) for item in measurements],
            )
            if winner is not None:
                connection.execute(
                    "INSERT INTO winners VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                    "plan = excluded.plan, seconds = excluded.seconds, spread = excluded.spread, "
                    "space = excluded.space, tried = excluded.tried, date = excluded.date "
                    "WHERE excluded.space <> winners.space OR excluded.tried >= winners.tried",
                    (*where, *astuple(winner), date),
                )

    def measurements(self, circumstances: Circumstances) -> tuple[Measurement, ...]:
        """Everything that was measured under these circumstances, in the order of its end."""
        query = (
            "SELECT plan, predicted, verdict, reason, seconds, spread FROM measurements WHERE key = ? AND device = ? "
            "AND generator = ? AND compiler = ? AND policy = ? ORDER BY number"
        )
        if not self.path.exists():
            return ()
        with self._opened() as connection:
            return tuple(Measurement(*row) for row in connection.execute(query, astuple(circumstances)))

    @contextmanager
    def _opened(self) -> Generator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=_LOCK_SECONDS, isolation_level=None)) as connection:
                self._prepare(connection)
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise IllegalProblem(
                f"the tuning database must be a sound file that can be read and written; {self.path} gave {error}; "
                "it was left as it is: move it away, or name another by CONVLOOM_TUNING_DB"
            ) from error

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Makes the tables of a new file; refuses a file that is not ours."""
        if _is_new(connection):
            with _transaction(connection):
                if _is_new(connection):  # nobody else was faster
                    for statement in _SCHEMA.split(";"):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                    connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
        found = _pragma(connection, "application_id"), _pragma(connection, "user_version")
        if found != (_APPLICATION, _SCHEMA_VERSION):
            what = "another version of convloom" if found[0] == _APPLICATION else "another program"
            raise IllegalProblem(
                f"the tuning database must be one of this version of convloom; {self.path} was written by {what}; "
                "it was left as it is: name another by CONVLOOM_TUNING_DB"
            )
        if _pragma(connection, "journal_mode") != "wal":
            with suppress(sqlite3.OperationalError):  # somebody else has it open: whoever opens it next tries again
                connection.execute("PRAGMA journal_mode = WAL")


def _is_new(connection: sqlite3.Connection) -> bool:
    empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    return empty and _pragma(connection, "application_id") == 0


def _pragma(connection: sqlite3.Connection, name: str) -> int | str:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Generator[None]:
    """All or nothing, also where the block is interrupted; waits for other writers."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def current_database() -> TuningDatabase:
    """The database that the settings name."""
    now = settings.current()
    return TuningDatabase(now.tuning_db or now.cache_dir / _NAME)
