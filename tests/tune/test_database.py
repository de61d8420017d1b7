"""The database of measured plans: what matches, many writers, files that are not ours."""

import multiprocessing
import os
import signal
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from convloom import settings
from convloom.errors import IllegalProblem
from convloom.tune.database import Circumstances, Measurement, TuningDatabase, Winner, current_database

HERE = Circumstances("key", "device", "hopper=1 tiled=1", "compiler 1", "")
FIRST = Winner("tiled a", 2e-6, 1e-8, "outlines", 8)
RIGHT = Measurement("tiled a", 1e-6, "measured", "", 2e-6, 1e-8)
WRONG = Measurement("tiled b", 3e-6, "wrong", "1 elements wrong")


@pytest.fixture
def database(tmp_path):
    return TuningDatabase(tmp_path / "new" / "tuning.sqlite")


def test_a_winner_and_all_measurements_are_kept(database):
    assert database.winner(HERE, "outlines", 1) is None
    assert not database.path.exists()  # a question makes no file
    database.store(HERE, (RIGHT, WRONG), FIRST)
    assert database.winner(HERE, "outlines", 8) == FIRST
    assert database.measurements(HERE) == (RIGHT, WRONG)
    with closing(sqlite3.connect(database.path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("SELECT date FROM winners").fetchone()[0].startswith("20")


@pytest.mark.parametrize("field", ["key", "device", "generator", "compiler", "policy"])
def test_rows_of_other_circumstances_are_kept_and_do_not_match(database, field):
    other = replace(HERE, **{field: "other"})
    database.store(HERE, (RIGHT,), FIRST)
    assert database.winner(other, "outlines", 1) is None
    database.store(other, (WRONG,), replace(FIRST, plan="tiled c"))
    assert database.winner(HERE, "outlines", 1) == FIRST
    assert database.measurements(HERE) == (RIGHT,)
    assert database.measurements(other) == (WRONG,)


def test_a_winner_among_fewer_does_not_answer_for_more_and_does_not_replace(database):
    database.store(HERE, (), FIRST)
    assert database.winner(HERE, "outlines", 9) is None
    assert database.winner(HERE, "another space", 1) is None
    database.store(HERE, (), replace(FIRST, plan="hasty", tried=4))
    assert database.winner(HERE, "outlines", 1) == FIRST
    better = replace(FIRST, plan="tiled d", seconds=1e-6, tried=16)
    database.store(HERE, (), better)
    assert database.winner(HERE, "outlines", 9) == better


def test_measurements_without_a_winner(database):
    database.store(HERE, (WRONG,))
    assert database.winner(HERE, "outlines", 1) is None
    assert database.measurements(HERE) == (WRONG,)


def test_a_failing_transaction_leaves_nothing(database):
    database.store(HERE, (RIGHT,), FIRST)
    broken = replace(FIRST, plan=None)
    with pytest.raises(IllegalProblem, match="NOT NULL"):
        database.store(HERE, (WRONG,), broken)
    assert database.measurements(HERE) == (RIGHT,)


def write_many(path, name, count):
    database = TuningDatabase(path)
    for number in range(count):
        database.store(replace(HERE, key=f"{name} {number}"), (RIGHT, WRONG), FIRST)


def test_many_processes_write(database):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_many, args=(database.path, name, 20)) for name in range(5)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 5
    for name in range(5):
        for number in range(20):
            where = replace(HERE, key=f"{name} {number}")
            assert database.winner(where, "outlines", 8) == FIRST
            assert database.measurements(where) == (RIGHT, WRONG)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a system that kills")
def test_a_killed_writer_loses_nothing_that_was_stored(database):
    context = multiprocessing.get_context("spawn")
    writer = context.Process(target=write_many, args=(database.path, "w", 100000))
    writer.start()
    while database.winner(replace(HERE, key="w 10"), "outlines", 1) is None:
        assert writer.is_alive()
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    database.store(HERE, (RIGHT,), FIRST)
    for number in range(11):
        assert database.measurements(replace(HERE, key=f"w {number}")) == (RIGHT, WRONG)
    with closing(sqlite3.connect(database.path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        pairs = "SELECT key FROM measurements GROUP BY key HAVING count(*) <> 2 AND key LIKE 'w %'"
        assert connection.execute(pairs).fetchall() == []  # a transaction is there or not


def refused(database, words):
    before = database.path.read_bytes()
    for use in (lambda: database.winner(HERE, "outlines", 1), lambda: database.store(HERE, (RIGHT,), FIRST)):
        with pytest.raises(IllegalProblem, match=words) as caught:
            use()
        assert "CONVLOOM_TUNING_DB" in str(caught.value)
        assert str(database.path) in str(caught.value)
    assert database.path.read_bytes() == before


def test_a_file_that_is_no_database(database):
    database.path.parent.mkdir()
    database.path.write_text("notes that somebody needs\n" * 100)
    refused(database, "not a database")


def test_a_damaged_file(database):
    for number in range(50):
        database.store(replace(HERE, key=f"{number}" * 100), (RIGHT,) * 20, FIRST)
    content = bytearray(database.path.read_bytes())
    content[100:] = b"\x5a" * (len(content) - 100)
    database.path.write_bytes(content)
    refused(database, "malformed|corrupt|damaged")


def test_a_truncated_file(database):
    for number in range(50):
        database.store(replace(HERE, key=f"{number}" * 100), (RIGHT,) * 20, FIRST)
    database.path.write_bytes(database.path.read_bytes()[: 3 * 4096])
    refused(database, "malformed|corrupt|damaged")


def test_a_database_of_another_program(database):
    database.path.parent.mkdir()
    with closing(sqlite3.connect(database.path)) as connection:
        connection.execute("CREATE TABLE winners (name TEXT)")
        connection.commit()
    refused(database, "another program")


def test_a_database_of_another_schema(database):
    database.store(HERE, (RIGHT,), FIRST)
    with closing(sqlite3.connect(database.path)) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    refused(database, "another version of convloom")


def test_a_place_where_no_file_can_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(IllegalProblem, match="must be a sound file"):
        TuningDatabase(tmp_path / "file" / "tuning.sqlite").store(HERE, (RIGHT,), FIRST)


def test_the_settings_name_the_file(tmp_path):
    with settings.scoped(cache_dir=tmp_path):
        assert current_database().path == tmp_path / "tuning.sqlite"
        with settings.scoped(tuning_db=tmp_path / "mine"):
            assert current_database().path == tmp_path / "mine"
