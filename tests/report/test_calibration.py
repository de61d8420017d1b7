"""What a benchmark's record says about the cost model."""

import json

import pytest

from convloom.errors import IllegalProblem
from convloom.report.calibration import (
    Calibration,
    Point,
    calibration_lines,
    calibrations,
    plan_kind,
    rank_correlation,
    read_calibrations,
)

HOPPER = "hopper block=64x192x64 stages=6 row=wgmma.m64n192k16.f32.f16.f16.ss store=2"
TILED = "tiled block=8x8x32 row=fma stages=1"


def candidate(plan, predicted, seconds, outcome="measured"):
    return {"plan": plan, "predicted": predicted, "seconds": seconds, "outcome": outcome}


ROWS = [
    {
        "name": "a",
        "direction": "fwd",
        "candidates": [
            candidate(TILED, 1.0, 4.0),
            candidate(HOPPER, 2.0, 2.0),
            candidate(TILED, 3.0, 6.0),
            candidate(TILED, 0.5, None, "wrong"),
        ],
    },
    {"name": "b", "direction": "bwd_d", "candidates": [candidate(HOPPER, 1.0, 1.0), candidate(HOPPER, 2.0, 2.0)]},
    {"name": "c", "direction": "fwd", "candidates": []},
]


def test_regret_is_what_the_models_first_choice_costs():
    first, second = calibrations(ROWS)
    assert (first.name, first.regret) == ("a fwd", 2.0)
    assert (second.name, second.regret) == ("b bwd_d", 1.0)
    assert first.rank_correlation == pytest.approx(0.5)
    assert second.rank_correlation == pytest.approx(1.0)


def test_lines():
    lines = list(calibration_lines(calibrations(ROWS)))
    assert lines == [
        "the model's first choice against the best of those measured: 1.414 times as long (geometric mean of 2 "
        "problems, 2 to 3 candidates each), at worst 2.000 (a fwd); right in 1",
        "rank correlation within a problem: median 0.75, least 0.50",
        "hopper wgmma.f32.f16.f16.ss: predicted / measured 1.000 (geometric mean of 3 plans, 1.000 to 1.000), "
        "rank correlation over all 1.00",
        "tiled fma: predicted / measured 0.354 (geometric mean of 2 plans, 0.250 to 0.500), "
        "rank correlation over all 1.00",
    ]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([(1, 10), (2, 20), (3, 1000)], 1.0),
        ([(1, 3), (2, 2), (3, 1)], -1.0),
        ([(1, 1), (1, 2), (2, 3)], 0.866025),  # ties share the mean of their ranks
        ([(1, 1)], None),
        ([], None),
        ([(1, 1), (1, 2)], None),
    ],
)
def test_rank_correlation(pairs, expected):
    found = rank_correlation(pairs)
    assert found == (expected if expected is None else pytest.approx(expected, abs=1e-6))


def test_one_candidate_has_no_order():
    alone = Calibration("x", (Point("tiled fma", 1.0, 2.0),))
    assert (alone.regret, alone.rank_correlation) == (1.0, None)
    assert list(calibration_lines([alone]))[1].startswith("tiled fma: predicted / measured 0.500")


def test_kinds_of_plans():
    assert plan_kind(HOPPER) == "hopper wgmma.f32.f16.f16.ss"
    assert plan_kind(TILED) == "tiled fma"


def test_a_record_is_read(tmp_path):
    file = tmp_path / "times.json"
    file.write_text(json.dumps({"rows": ROWS}))
    assert read_calibrations(file) == calibrations(ROWS)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": 3}', '{"rows": [{"name": "a"}]}', "\x00"])
def test_other_files_are_refused(tmp_path, text):
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(IllegalProblem, match="bench --json"):
        read_calibrations(file)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(IllegalProblem, match="FileNotFoundError"):
        read_calibrations(tmp_path / "none.json")


def test_nothing_measured_is_said():
    assert list(calibration_lines([])) == [
        "no candidates were measured; measure some with `bench --pick measured --json`"
    ]
