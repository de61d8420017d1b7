"""One problem of a benchmark: verified before it is timed, faults and refusals kept in the row."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from convloom import settings
from convloom.errors import Infeasible
from convloom.frontend.anchor import pads_alike
from convloom.frontend.anchor_numpy import NumpyAnchor, product_sizes
from convloom.frontend.bench import AnchorStand, BenchVerdict, bench_line
from convloom.frontend.compile import compile
from convloom.frontend.pick_plan import Picked, Picker
from convloom.frontend.race import Outcome
from convloom.problem.notation import BatchLine
from convloom.problem.notation.choose import parse_problem
from convloom.runtime.device import device_named
from convloom.runtime.pair_timing import Effort
from convloom.tune.pick import parse_pick

SMALL = "mb2ic6ih9oc4oh5kh3sh2ph1"
QUICK = Effort(least=2, most=2, warm_up=1)


def line_of(text, **defaults):
    return BatchLine(Path("list.txt"), 1, text, parse_problem(text, **defaults))


@pytest.fixture(scope="module")
def anchor():
    return NumpyAnchor("cpu")


@pytest.mark.parametrize("direction", ["fwd", "bwd_d", "bwd_w"])
@pytest.mark.parametrize("tag", ["any", "axb", "aBx2b"])
def test_a_right_result_is_timed(anchor, direction, tag):
    row = bench_line(line_of(SMALL, direction=direction, stag=tag), device_named("cpu"), anchor, QUICK)
    assert (row.verdict, row.reason) == (BenchVerdict.MEASURED, "")
    assert 0 <= row.bound_ratio <= 1
    assert row.pair.ratio > 0
    assert row.compile_seconds > 0
    assert [name.split("_")[0] for name in row.kernels] == ["tiled"]
    assert (row.anchor_kernels, row.clock_mhz) == ((), None)
    assert row.roofline_share(row.pair.ours) > 0


class Wrong:
    """A kernel that writes one element wrong."""

    plan = "wrong"

    def __init__(self, problem, device):
        self.kernel = compile(problem, device)
        self.variants = self.kernel.variants

    def __call__(self, first, second, out):
        self.kernel(first, second, out=out)
        out[0, 1, 2, 3] += 1


def choosing(kind):
    """A choice of a made-up kernel."""
    return lambda stand: Picked(kind(line_of(SMALL).problem, device_named("cpu")))


def test_a_wrong_result_has_no_time(anchor):
    row = bench_line(line_of(SMALL), device_named("cpu"), anchor, QUICK, choosing(Wrong))
    assert row.verdict is BenchVerdict.FAILED
    assert row.pair is None
    assert "1 elements wrong, the first at (0, 1, 2, 3)" in row.reason


def test_an_element_that_nobody_writes_is_wrong(anchor):
    class Idle(Wrong):
        def __call__(self, first, second, out):
            pass

    row = bench_line(line_of(SMALL), device_named("cpu"), anchor, QUICK, choosing(Idle))
    assert row.verdict is BenchVerdict.FAILED
    assert "nan instead of" in row.reason


def test_a_measured_pick_is_verified_on_the_anchors_tensors(anchor, tmp_path, monkeypatch):
    device, line = device_named("cpu"), line_of(SMALL)
    first = []
    right = AnchorStand.compare

    def compared(stand, kernel):
        """The first candidate's result is said to be wrong."""
        first.append(kernel.plan)
        found = right(stand, kernel)
        return replace(found, mismatches=1) if kernel.plan == first[0] else found

    monkeypatch.setattr(AnchorStand, "compare", compared)
    with settings.scoped(tuning_db=tmp_path / "tuning.sqlite"):
        picker = Picker(device, parse_pick("measured:3"), effort=QUICK)
        pending = picker.begin(line.problem)
        row = bench_line(line, device, anchor, QUICK, lambda stand: picker.finish(pending, stand))
    assert row.verdict is BenchVerdict.MEASURED
    assert [item.outcome for item in row.tried] == [Outcome.WRONG, Outcome.MEASURED, Outcome.MEASURED]
    assert [item.plan for item in row.wrong] == [first[0]]
    assert row.plan in [item.plan for item in row.tried[1:]]
    assert row.tuning_seconds > 0


@pytest.mark.parametrize("error", [Infeasible("no plan"), RuntimeError("driver"), MemoryError()])
def test_what_goes_wrong_is_in_the_row(anchor, error):
    def broken(stand):
        raise error

    row = bench_line(line_of(SMALL), device_named("cpu"), anchor, QUICK, broken)
    assert row.verdict is BenchVerdict.FAILED
    assert row.reason.startswith(type(error).__name__)


@pytest.mark.parametrize(
    ("text", "dtypes", "reason"),
    [(SMALL, "f16", "f32 and f64"), ("mb0ic4ih5oc4oh5kh1", "f32", "empty"), (SMALL, "f16:f16:f32", "f32 and f64")],
)
def test_what_the_anchor_cannot_do_is_skipped(anchor, text, dtypes, reason):
    row = bench_line(line_of(text, dtypes=dtypes), device_named("cpu"), anchor, QUICK)
    assert row.verdict is BenchVerdict.SKIPPED
    assert reason in row.reason


@pytest.mark.parametrize("direction", ["fwd", "bwd_d", "bwd_w"])
def test_the_product_of_a_convolution_has_its_operations(direction):
    conv = parse_problem("g2mb3ic6ih8oc4oh8kh1", direction=direction)
    assert 2 * np.prod(product_sizes(conv)) == conv.ops


@pytest.mark.parametrize(
    ("text", "alike"),
    [
        ("mb1ic1ih9oc1oh9kh3ph1", True),
        ("mb1ic1ih8oc1oh4kh3sh2ph1", True),  # the last column of the right pad is not needed
        ("mb1ic1ih9oc1oh10kh3ph1", False),
    ],
)
def test_whether_both_sides_are_padded_alike(text, alike):
    assert pads_alike(parse_problem(text)) is alike
