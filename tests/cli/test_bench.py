"""`convloom bench` end to end on the processor."""

import json

import pytest
from typer.testing import CliRunner

from convloom.cli import app
from convloom.cli import bench as bench_command

LINES = '# two layers and a product\nmb1ic4ih6oc4oh6kh3ph1n"layer"\n-t f32 -transA false -transB true -m 8 -n 8 -k 8\n'


def run(*arguments):
    result = CliRunner().invoke(app, ["bench", *map(str, arguments), "--rounds", "2", "--seconds", "0"])
    return result.exit_code, result.output


@pytest.fixture
def batch(tmp_path):
    file = tmp_path / "list.txt"
    file.write_text(LINES)
    return file


def test_table_json_and_picture(batch, tmp_path):
    record, picture = tmp_path / "new" / "times.json", tmp_path / "times.svg"
    status, text = run("--batch", batch, "--dir", "fwd", "--dir", "bwd_w", "--json", record, "--plot", picture)
    assert status == 0
    assert text.splitlines()[-1] == "3 measured, 0 failed, 0 skipped"
    assert "list.txt                 bwd_w geometric mean of the ratios" in text
    assert "A/A: our call against itself" in text
    content = json.loads(record.read_text())
    assert [(row["name"], row["direction"]) for row in content["rows"]] == [
        ("layer", "fwd"),
        ("gemm m8n8k8", "gemm"),
        ("layer", "bwd_w"),
    ]
    row = content["rows"][0]
    assert len(row["ours"]["seconds"]) == 2
    assert row["ratio"] == row["theirs"]["median"] / row["ours"]["median"]
    assert row["bytes"] == 4 * (4 * 36 + 4 * 4 * 9 + 4 * 36)
    assert [item["problems"] for item in content["files"]] == [1, 1, 1]
    assert "NumPy" in content["environment"]["anchor"]
    assert "<svg" in picture.read_text()


def test_skipped_problems_are_listed_and_do_not_fail(batch):
    status, text = run("--batch", batch, "--dt", "f16")
    assert status == 0
    assert "layer                    fwd   skipped: NumPy multiplies fast" in text
    assert text.splitlines()[-1] == "1 measured, 0 failed, 1 skipped"


def test_a_failure_is_listed_and_ends_with_1(batch, monkeypatch):
    def broken(line, *rest, **options):
        row = bench_line(line, *rest, **options)
        return row if line.problem.name else bench_command.BenchRow(line, bench_command.BenchVerdict.FAILED, "no luck")

    bench_line = bench_command.bench_line
    monkeypatch.setattr(bench_command, "bench_line", broken)
    status, text = run("--batch", batch)
    assert status == 1
    assert "failed: no luck" in text
    assert text.splitlines()[-1] == "1 measured, 1 failed, 0 skipped"


def test_ctrl_c_keeps_what_is_measured(batch, tmp_path, monkeypatch):
    def interrupted(line, *rest, **options):
        if not line.problem.name:
            raise KeyboardInterrupt
        return bench_line(line, *rest, **options)

    bench_line = bench_command.bench_line
    monkeypatch.setattr(bench_command, "bench_line", interrupted)
    status, text = run("--batch", batch, "--json", tmp_path / "times.json")
    assert status == 1
    assert "interrupted after 1 of 2 problems" in text
    assert text.splitlines()[-1] == "1 measured, 0 failed, 0 skipped"
    assert len(json.loads((tmp_path / "times.json").read_text())["rows"]) == 1


def test_a_bad_picture_is_refused_before_anything_is_measured(batch):
    status, text = run("--batch", batch, "--plot", "times.gif")
    assert status == 2
    assert ".png" in text


def test_an_unwritable_record_is_refused_in_one_message(batch, tmp_path):
    (tmp_path / "file").write_text("")
    status, text = run("--batch", batch, "--json", tmp_path / "file" / "times.json")
    assert status == 2
    assert "must be a file that can be written" in text
