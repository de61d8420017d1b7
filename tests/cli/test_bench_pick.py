"""`convloom bench --pick` and `convloom calibration` end to end on the processor; Ctrl-C in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from convloom import settings
from convloom.cli import app
from convloom.frontend.bench import AnchorStand
from convloom.problem.numerics import Comparison

LINES = 'mb1ic4ih6oc4oh6kh3ph1n"layer"\nmb1ic8ih5oc8oh5kh3ph1n"second"\n'
QUICK = ("--rounds", "2", "--seconds", "0")


@pytest.fixture
def batch(tmp_path):
    file = tmp_path / "list.txt"
    file.write_text(LINES)
    with settings.scoped(tuning_db=tmp_path / "tuning.sqlite"):
        yield file


def run(*arguments):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    return result.exit_code, result.output


def test_candidates_are_in_the_record_and_calibration_reads_it(batch, tmp_path):
    record = tmp_path / "times.json"
    status, text = run("bench", "--batch", batch, "--pick", "measured:3", "--json", record, *QUICK)
    assert status == 0
    assert "pick     measured:3" in text
    assert "the model's first choice against the best of those measured" in text
    assert ", tuning " in text
    content = json.loads(record.read_text())
    assert content["environment"]["pick"] == "measured:3"
    for row in content["rows"]:
        measured = [item for item in row["candidates"] if item["outcome"] == "measured"]
        assert len(measured) == 3
        assert row["plan"] == min(measured, key=lambda item: item["seconds"])["plan"]
        assert all(item["predicted"] > 0 and item["spread"] >= 0 for item in measured)
        assert row["tuning_seconds"] > 0
        assert row["known"] is False
    status, told = run("calibration", record)
    assert status == 0
    assert "geometric mean of 2 problems, 3 to 3 candidates each" in told
    assert "tiled fma: predicted / measured" in told
    status, text = run("bench", "--batch", batch, "--pick", "measured:3", "--json", record, *QUICK)
    assert status == 0
    assert "2 plans were known to the tuning database" in text
    again = json.loads(record.read_text())
    assert [row["candidates"] for row in again["rows"]] == [row["candidates"] for row in content["rows"]]
    assert [row["known"] for row in again["rows"]] == [True, True]


def test_the_models_pick_measures_no_candidates(batch, tmp_path):
    record = tmp_path / "times.json"
    status, text = run("bench", "--batch", batch, "--json", record, *QUICK)
    assert status == 0
    assert "pick     model" in text
    assert "first choice" not in text
    assert [row["candidates"] for row in json.loads(record.read_text())["rows"]] == [[], []]
    assert not (tmp_path / "tuning.sqlite").exists()


def test_a_wrong_candidate_is_told_and_ends_with_1(batch, monkeypatch):
    plans = []
    right = AnchorStand.compare

    def compared(stand, kernel):
        plans.append(kernel.plan)
        return Comparison(1.0, 9.0, 1, (0,), 2.0, 3.0) if kernel.plan == plans[0] else right(stand, kernel)

    monkeypatch.setattr(AnchorStand, "compare", compared)
    status, text = run("bench", "--batch", batch, "--pick", "measured:2", *QUICK)
    assert status == 1
    assert "layer fwd: a candidate is wrong: 1 elements wrong, the first at (0,): 2 instead of 3; in the plan" in text
    assert text.splitlines()[-1] == "2 measured, 0 failed, 0 skipped"


def test_skipped_lines_do_not_shift_the_picks(batch):
    batch.write_text("-t f16 -transA false -transB true -m 8 -n 8 -k 8\n" + LINES)
    status, text = run("bench", "--batch", batch, "--pick", "measured:2", *QUICK)
    assert status == 0
    assert text.splitlines()[-1] == "2 measured, 0 failed, 1 skipped"


@pytest.mark.parametrize("pick", ["quick", "measured:0", "measured:9999"])
def test_a_bad_pick_is_refused(batch, pick):
    status, text = run("bench", "--batch", batch, "--pick", pick)
    assert status == 2
    assert "measure" in text


def test_a_damaged_database_is_refused_and_left_alone(batch, tmp_path):
    (tmp_path / "tuning.sqlite").write_text("notes\n" * 1000)
    status, text = run("bench", "--batch", batch, "--pick", "measured:2", *QUICK)
    assert status == 1
    assert "the tuning database must be a sound file" in text
    assert (tmp_path / "tuning.sqlite").read_text() == "notes\n" * 1000


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_keeps_what_was_measured_and_leaves_no_process(tmp_path):
    batch, record, database = tmp_path / "list.txt", tmp_path / "times.json", tmp_path / "tuning.sqlite"
    batch.write_text("".join(f'mb1ic{4 + number}ih6oc4oh6kh3ph1n"{number}"\n' for number in range(40)))
    command = [sys.executable, "-m", "convloom", "bench", "--batch", batch, "--pick", "measured:2", *QUICK]
    environment = {
        **os.environ,
        "CONVLOOM_TUNING_DB": str(database),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONUNBUFFERED": "1",
    }
    process = subprocess.Popen(
        [*command, "--json", record], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    for line in process.stdout:
        if line.startswith("1 "):  # the second problem is done
            break
    workers = children(process.pid)
    process.send_signal(signal.SIGINT)
    text, told = process.communicate(timeout=60)
    assert process.returncode == 1, told
    assert "interrupted after" in told
    rows = json.loads(record.read_text())["rows"]
    assert 2 <= len(rows) < 40
    assert all(row["verdict"] == "measured" for row in rows)
    deadline = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{worker}") for worker in workers):
        assert time.monotonic() < deadline, "build processes outlive the command"
        time.sleep(0.1)
    assert f"{len(rows)} measured, 0 failed, 0 skipped" in text


def children(parent):
    """Processes that this one started (where /proc tells)."""
    try:
        with open(f"/proc/{parent}/task/{parent}/children") as file:
            return file.read().split()
    except OSError:
        return []
