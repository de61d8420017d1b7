"""`convloom run` and `convloom check`: what they print and how they end."""

import pytest
from typer.testing import CliRunner

from convloom.cli import app
from convloom.frontend import compile_ahead, problem_check

SMALL = "mb1ic3ih7oc4oh7kh3ph1"


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def broken_kernels(monkeypatch):
    """Every result gets one wrong element."""
    original = problem_check.run_on_device

    def disturbed(*arguments, **options):
        done = original(*arguments, **options)
        done.result.flat[-1] += 1
        return done

    monkeypatch.setattr(problem_check, "run_on_device", disturbed)


@pytest.mark.parametrize("data", ["int", "real"])
@pytest.mark.parametrize("direction", ["fwd", "bwd_d", "bwd_w"])
def test_a_right_result(direction, data):
    result = run("run", SMALL, "--dir", direction, "--data", data)
    assert result.exit_code == 0, result.output
    assert "GFLOP/s" in result.stdout
    assert ("must be 0" if data == "int" else "of its bound") in result.stdout
    assert result.stdout.splitlines()[-1] == "passed"


def test_other_notations_types_and_layouts():
    assert run("run", "gemm -m 20 -n 9 -k 33", "--data", "int").exit_code == 0
    result = run("run", SMALL, "--dt", "f16:f16:f32", "--stag", "nhwc", "--dtag", "nhwc", "--data", "int")
    assert result.exit_code == 0, result.output


def test_a_plan_given_as_text_is_used():
    plan = run("emit", SMALL, "--stage", "plan").stdout.strip()
    result = run("run", SMALL, "--plan", plan)
    assert result.exit_code == 0, result.output
    assert plan in result.stdout


@pytest.mark.usefixtures("broken_kernels")
def test_a_wrong_result_ends_with_1():
    result = run("run", SMALL, "--data", "int")
    assert result.exit_code == 1
    assert "failed: 1 elements wrong, the first at (0, 3, 6, 6)" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run", "mb1ic3"], "oc"),
        (["run", SMALL, "--dir", "up"], "direction"),
        (["run", SMALL, "--dt", "f33"], "f33"),
        (["run", SMALL, "--device", "tpu"], "tpu"),
        (["run", SMALL, "--plan", "nonsense"], "plan"),
        (["check", "--batch", "none.txt"], "none.txt"),
    ],
)
def test_faults_end_with_2_and_name_what_is_wrong(arguments, named):
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert named in result.stderr
    assert "Traceback" not in result.output


@pytest.fixture
def batch(tmp_path):
    path = tmp_path / "some.txt"
    path.write_text(f"# comment\n\n{SMALL}\nic8oc8_ih12oh12kh1\nmb64ic64ih56oc64oh56kh3ph1\n")
    return path


def test_a_batch_is_counted_and_skips_are_listed(batch):
    result = run("check", "--batch", batch, "--max-mops", 1)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[-1] == "2 passed, 0 failed, 1 skipped"
    assert any(line.startswith("skipped some.txt:5 mb64ic64ih56oc64oh56kh3ph1") for line in lines)


def test_several_batches(batch):
    assert (
        run("check", "--batch", batch, "--batch", batch, "--max-mops", 1).stdout.splitlines()[-1].startswith("4 passed")
    )


@pytest.mark.usefixtures("broken_kernels")
def test_a_failing_batch_ends_with_1_and_names_the_lines(batch):
    result = run("check", "--batch", batch, "--max-mops", 1)
    assert result.exit_code == 1
    assert "failed some.txt:3" in result.stdout
    assert result.stdout.splitlines()[-1] == "0 passed, 2 failed, 1 skipped"


def test_too_many_zeros_count_as_failed(batch, monkeypatch):
    monkeypatch.setattr(problem_check, "nonzero_share", lambda problem, result: 0.29)
    result = run("check", "--batch", batch, "--max-mops", 1)
    assert result.exit_code == 1
    assert "only 29.0% of the outputs are non-zero" in result.stdout


def test_nothing_checked_is_no_success(batch):
    result = run("check", "--batch", batch, "--max-mops", 0)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == "0 passed, 0 failed, 3 skipped"
    assert "nothing was checked: --max-mops 0 skips every problem" in result.stderr


def test_check_keeps_to_what_the_caller_allows(batch, monkeypatch):
    seen = []
    original = compile_ahead.compile

    def noted(*arguments, **options):
        seen.append(options)
        return original(*arguments, **options)

    monkeypatch.setattr(compile_ahead, "compile", noted)
    options = ("--dir", "bwd_w", "--deterministic", "--max-workspace", 0)
    assert run("check", "--batch", batch, "--max-mops", 1, *options).exit_code == 0
    assert seen == [{"deterministic": True, "max_workspace": 0}] * 2


@pytest.mark.parametrize(
    ("attributes", "code"), [("relu", 0), ("linear:1:-900+relu", 1), ("mul:f32:per_oc+clip:-1:1", 0), ("linear:0:1", 1)]
)
def test_epilogues_that_hide_the_sums_fail(batch, attributes, code):
    result = run("check", "--batch", batch, "--max-mops", 1, "--attr-post-ops", attributes)
    assert result.exit_code == code, result.stdout
    assert ("of the outputs are non-zero, or other than without any products" in result.stdout) == bool(code)
