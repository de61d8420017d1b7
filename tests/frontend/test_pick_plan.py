"""`pick="measured"`: the fastest of the first candidates on the device, verified, remembered; elsewhere refused."""

import sqlite3
from contextlib import closing
from importlib import import_module

import numpy as np
import pytest

import convloom
from convloom import settings
from convloom.compiler import prepare
from convloom.errors import BuildFailed, IllegalProblem, NotYetSupported, UnsupportedTarget
from convloom.frontend import pick_plan
from convloom.frontend.device_stand import DeviceStand
from convloom.frontend.device_target import target_for
from convloom.frontend.pick_plan import Picker, begin_ahead
from convloom.frontend.problem_check import check_problem
from convloom.frontend.race import Outcome
from convloom.plan import families
from convloom.plan.choose import choose_plan
from convloom.plan.families import plan_text
from convloom.problem.data import DataKind
from convloom.problem.notation.choose import parse_problem
from convloom.runtime.device import device_named
from convloom.runtime.pair_timing import Effort
from convloom.tune.build_pool import BuildPool
from convloom.tune.database import current_database
from convloom.tune.pick import MODEL, parse_pick

LINE = "mb1ic4ih6oc4oh6kh3ph1"
QUICK = Effort(least=1, most=1, budget=0.0, warm_up=0)
compile_module = import_module("convloom.frontend.compile")


@pytest.fixture(autouse=True)
def own_database(tmp_path):
    """Kernels of this process are forgotten, so that each test measures or looks up."""
    compile_module._kernels.clear()
    with settings.scoped(tuning_db=tmp_path / "tuning.sqlite"):
        yield
    compile_module._kernels.clear()


def rows(table):
    with closing(sqlite3.connect(current_database().path)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f"SELECT * FROM {table}")]


def finished(problem, pick="measured:3", **keywords):
    device = device_named("cpu")
    picker = Picker(device, parse_pick(pick), effort=QUICK, **keywords)
    return picker.finish(picker.begin(problem), lambda: DeviceStand(problem, device))


def test_the_fastest_is_taken_and_remembered(monkeypatch):
    problem = parse_problem(LINE)
    kernel = convloom.compile(problem, pick="measured:3")
    assert check_problem(kernel, DataKind.INT).passed
    assert convloom.compile(problem, pick="measured:3") is kernel
    (winner,), measured = rows("winners"), rows("measurements")
    assert len(measured) == 3
    assert winner["plan"] == kernel.plan
    assert winner["seconds"] == min(row["seconds"] for row in measured)
    assert (winner["space"], winner["tried"], winner["generator"]) == ("outlines", 3, families.generator_text())
    assert "clang" in winner["compiler"] or "gcc" in winner["compiler"].lower()
    compile_module._kernels.clear()
    monkeypatch.setattr(pick_plan, "race", lambda *_: pytest.fail("measured again"))
    assert convloom.compile(problem, pick="measured:2").plan == kernel.plan


def test_all_candidates_are_told_also_later():
    problem = parse_problem(LINE)
    first, later = finished(problem), finished(problem)
    assert (first.known, later.known) == (False, True)
    assert len(first.tried) == 3
    assert later.tried == first.tried
    assert first.tuning_seconds > 0
    assert later.tuning_seconds == 0
    assert all(item.outcome is Outcome.MEASURED and item.predicted > 0 for item in first.tried)


def test_another_version_of_a_family_is_measured_anew(monkeypatch):
    problem = parse_problem(LINE)
    finished(problem)
    monkeypatch.setitem(families.VERSIONS, "tiled", families.VERSIONS["tiled"] + 1)
    assert not finished(problem).known
    assert len(rows("winners")) == 2
    monkeypatch.undo()


def test_more_candidates_than_before_are_measured():
    problem = parse_problem(LINE)
    finished(problem, "measured:2")
    assert not finished(problem, "measured:4").known
    assert finished(problem, "measured:3").known


def test_a_stored_plan_that_is_no_longer_legal_does_not_match():
    problem = parse_problem(LINE)
    finished(problem)
    with closing(sqlite3.connect(current_database().path)) as connection:
        connection.execute("UPDATE winners SET plan = replace(plan, 'chunk=1x', 'chunk=3x')")
        connection.commit()
    assert not finished(problem).known


@pytest.mark.parametrize("direction", ["fwd", "bwd_d", "bwd_w", "bwd_wb"])
def test_directions(direction):
    problem = parse_problem("mb2ic4ih9oc6oh5kh3sh2ph1", direction=direction)
    picked = finished(problem)
    assert [item.outcome for item in picked.tried] == [Outcome.MEASURED] * 3
    assert check_problem(picked.kernel, DataKind.INT).passed


def test_an_epilogue_with_operands():
    kernel = convloom.compile(
        parse_problem(LINE),
        epilogue=lambda x, r: convloom.relu(x + r),
        operands={"r": "f32"},
        pick="measured:2",
    )
    assert check_problem(kernel, DataKind.INT).passed
    assert len(rows("measurements")) == 2


def test_a_wrong_candidate_does_not_win(monkeypatch):
    problem = parse_problem(LINE)
    model = plan_text(choose_plan(prepare(problem).contraction, target_for(device_named("cpu"))))
    right = DeviceStand.fault
    monkeypatch.setattr(DeviceStand, "fault", lambda s, k: "wrong" if k.plan == model else right(s, k))
    picked = finished(problem)
    assert picked.kernel.plan != model
    assert [item.outcome for item in picked.tried] == [Outcome.WRONG, Outcome.MEASURED, Outcome.MEASURED]
    assert model not in [row["plan"] for row in rows("winners")]
    assert [row["verdict"] for row in rows("measurements")] == ["wrong", "measured", "measured"]


def test_a_kernel_that_writes_nothing_is_wrong(monkeypatch):
    """The result of the candidate before is poisoned away."""
    problem = parse_problem(LINE)
    with DeviceStand(problem, device_named("cpu")) as stand:
        kernel = convloom.compile(problem)
        assert stand.fault(kernel) == ""
        monkeypatch.setattr(type(kernel), "run", lambda *_: None)
        assert "nan instead of" in stand.fault(kernel)


def test_where_no_candidate_is_right_nothing_wins(monkeypatch):
    monkeypatch.setattr(DeviceStand, "fault", lambda *_: "wrong")
    with pytest.raises(BuildFailed, match="needs one candidate whose result is right"):
        finished(parse_problem(LINE))
    assert rows("winners") == []
    assert len(rows("measurements")) == 3


def test_ctrl_c_in_a_race_stores_nothing_and_leaves_the_database_sound(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    problem = parse_problem(LINE)
    with monkeypatch.context() as changed:
        changed.setattr(DeviceStand, "fault", interrupted)
        with pytest.raises(KeyboardInterrupt):
            finished(problem)
    assert not finished(problem).known


def test_candidates_are_compiled_in_processes():
    problems = [parse_problem(LINE), parse_problem("mb1ic8ih5oc8oh5kh3ph1")]
    device = device_named("cpu")
    with BuildPool(2) as pool:
        picker = Picker(device, parse_pick("measured:2"), pool=pool, effort=QUICK)
        for problem, pending in begin_ahead([(problem, problem) for problem in problems], picker, 1):
            picked = picker.finish(pending, lambda p=problem: DeviceStand(p, device))
            assert picked.kernel.problem == problem
            assert len(picked.tried) == 2
            assert picked.compile_seconds > 0


def test_the_models_pick_in_processes():
    problem = parse_problem(LINE)
    with BuildPool(1) as pool:
        picker = Picker(device_named("cpu"), MODEL, pool=pool)
        picked = picker.finish(picker.begin(problem), lambda: pytest.fail("nothing is measured"))
    assert picked.kernel.plan == convloom.compile(problem).plan
    assert picked.tried == ()


def test_a_picked_kernel_has_a_general_variant():
    kernel = finished(parse_problem(LINE)).kernel
    assert kernel._variant("general").label == "general"
    assert kernel.variants[0].label == "preferred"


def test_an_empty_result_has_nothing_to_pick():
    kernel = convloom.compile(parse_problem("mb0ic4ih5oc4oh5kh1"), pick="measured")
    assert kernel.plan == ""
    assert kernel(np.zeros((0, 4, 5, 5), np.float32), np.zeros((4, 4, 1, 1), np.float32)).shape == (0, 4, 5, 5)


@pytest.mark.parametrize("pick", ["fast", "measured:0", ""])
def test_words_that_mean_no_pick(pick):
    with pytest.raises(IllegalProblem, match="pick"):
        convloom.compile(parse_problem(LINE), pick=pick)
    with pytest.raises(TypeError, match="pick"):
        convloom.compile(parse_problem(LINE), pick=3)


def test_a_given_plan_is_not_picked():
    problem = parse_problem(LINE)
    with pytest.raises(IllegalProblem, match="leave one of them out"):
        convloom.compile(problem, plan=convloom.compile(problem).plan, pick="measured")


def test_dims_are_not_measured():
    n = convloom.dim("n", hint=4)
    problem = convloom.gemm_problem(m=n, n=8, k=8)
    with pytest.raises(NotYetSupported, match="a measured pick needs sizes; got the dims n"):
        convloom.compile(problem, pick="measured")


def test_the_interpreter_keeps_no_time():
    with pytest.raises(UnsupportedTarget, match="needs a device that keeps time; got interpret"):
        convloom.compile(parse_problem(LINE), "interpret", pick="measured")


@pytest.mark.opencl
def test_opencl_measures_too():
    try:
        device = device_named("opencl")
    except UnsupportedTarget as error:
        pytest.skip(str(error))
    kernel = convloom.compile(parse_problem(LINE), device, pick="measured:2")
    assert check_problem(kernel, DataKind.INT).passed
    assert [row["verdict"] for row in rows("measurements")] == ["measured", "measured"]
