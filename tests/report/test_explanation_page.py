"""The page with pictures: whole, self-contained, and true to the plan and the IR."""

import re
import xml.dom.minidom
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from typer.testing import CliRunner

from convloom.cli import app
from convloom.compiler import generate, plan_for, prepare
from convloom.dtypes import F16, F32
from convloom.expr import const
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Buffer, Constant, Kernel, Read, Scope
from convloom.ir.symbols import thread_id
from convloom.plan.tiled import parse_plan
from convloom.problem.notation.choose import parse_problem
from convloom.report.draw_banks import draw_layouts
from convloom.report.draw_roofline import Roofline, roofline, roofline_words
from convloom.report.draw_tile import owners
from convloom.report.shared_accesses import shared_accesses
from convloom.target.arch import target_named

LAYER = "mb4ic64ih14oc64oh14kh3ph1"
LAST = {"stag": "axb", "wtag": "axb", "dtag": "axb"}
PICTURES = ["Tile", "Shared memory", "Accesses to shared memory", "Pipeline", "Roofline"]


def generated(target="sm_80", dtypes="f16", **tags):
    contraction, machine = prepare(parse_problem(LAYER, dtypes=dtypes, **tags)).contraction, target_named(target)
    return generate(contraction, machine, plan_for(contraction, machine))


def page(tmp_path, *arguments):
    file = tmp_path / "new" / "page.html"
    result = CliRunner().invoke(app, ["explain", LAYER, *arguments, "--html", str(file)])
    assert result.exit_code == 0, result.output
    return file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--target", "sm_80", "--dt", "f16", "--stag", "nhwc", "--wtag", "ohwi", "--dtag", "nhwc"),
        ("--target", "sm_80"),
    ],
)
def test_a_gpu_has_all_pictures_and_nothing_is_loaded(tmp_path, arguments):
    text = page(tmp_path, *arguments)
    assert re.findall("<h2>(.*?)</h2>", text) == PICTURES
    drawings = re.findall("<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) == 5
    for drawing in drawings:
        xml.dom.minidom.parseString(drawing)
    without_names = text.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|<script|<link|@import|url\(|src=", without_names)
    assert "prefers-color-scheme: dark" in text
    HTMLParser().feed(text)


def test_a_processor_has_no_banks(tmp_path):
    text = page(tmp_path)
    assert re.findall("<h2>(.*?)</h2>", text) == ["Tile", "Shared memory", "Pipeline", "Roofline"]
    assert "a processor has no banks" in text


def test_plans_of_roles_have_a_roofline(tmp_path):
    text = page(tmp_path, "--target", "sm_90a", "--dt", "f16", "--stag", "axb", "--wtag", "axb", "--dtag", "axb")
    assert "plan          hopper " in text
    assert "Roofline" in re.findall("<h2>(.*?)</h2>", text)


def test_words_of_the_problem_are_escaped(tmp_path):
    assert "where a is src" in page(tmp_path)
    assert "<=" not in re.search("<pre>(.*?)</pre>", page(tmp_path), re.DOTALL)[1]


@pytest.mark.parametrize(("target", "dtypes"), [("sm_80", "f16"), ("sm_80", "f32"), ("cpu", "f32")])
def test_every_element_of_the_tile_is_held_by_a_thread_that_holds_as_many_as_the_others(target, dtypes):
    made = generated(target, dtypes, **LAST)
    held = owners(made.contraction, made.plan)
    threads, counts = np.unique(held, return_counts=True)
    assert threads.tolist() == list(range(made.plan.group_threads))
    assert set(counts) == {made.plan.block_m * made.plan.block_n // made.plan.group_threads}


def test_a_fragment_of_the_accumulator_lies_as_the_instruction_says():
    made = generated(**LAST)
    assert made.plan.row.startswith("mma.m16n8k16")
    assert owners(made.contraction, made.plan)[0, :8].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert owners(made.contraction, made.plan)[8, :8].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert owners(made.contraction, made.plan)[1, 0] == 4


def kernel_of(index, dtype=F32, lanes=1):
    """Stores to shared memory at an index of the thread, and reads there."""
    builder = IrBuilder()
    shared = builder.allocate(Buffer("tile", dtype, Scope.SHARED, 4096))
    kept = builder.allocate(Buffer("kept", dtype, Scope.REGISTER, lanes))
    builder.write(shared, index, Constant(0.0, dtype, lanes))
    builder.barrier()
    builder.write(kept, const(0), Read(shared, index, lanes))
    return Kernel("k", (), (), 32, const(1), 32, builder.body)


@pytest.mark.parametrize(
    ("step", "dtype", "lanes", "wavefronts", "fewest"),
    [
        (1, F32, 1, 1, 1),
        (2, F32, 1, 2, 1),
        (32, F32, 1, 32, 1),
        (33, F32, 1, 1, 1),
        (4, F32, 4, 4, 4),
        (1, F16, 1, 1, 1),
    ],
)
def test_conflicts_at_banks_are_counted(step, dtype, lanes, wavefronts, fewest):
    found = shared_accesses(kernel_of(thread_id(32) * step, dtype, lanes))
    assert [access.what for access in found] == ["store", "load"]
    for access in found:
        assert (access.wavefronts, access.fewest) == (wavefronts, fewest)
        assert access.conflicts is (wavefronts > fewest)
        assert access.addresses == tuple(thread * step * dtype.nbytes for thread in range(32))


def test_accesses_of_a_generated_kernel_are_all_met():
    names = {access.what for access in shared_accesses(generated(**LAST).kernel)}
    assert any(name.startswith("cp.async") for name in names)
    assert any(name.startswith("ldmatrix") for name in names)


def test_layouts_show_the_bank_of_each_number():
    made = generated(**LAST)
    text = draw_layouts(made.contraction, made.plan)
    notes = dict(re.findall(r"<title>(row \d+, k \d+): bank (\d+)</title>", text))
    assert len(notes) > 100
    plan = made.plan
    assert plan.a.swizzle == 8
    place = 3 * plan.block_k + (5 // 8 ^ 3 % 8) * 8 + 5 % 8  # pieces of 16 bytes, exchanged by the row
    assert f"<title>row 3, k 5: bank {place * 2 // 4 % 32}</title>" in text


def test_the_roofline_takes_the_peak_of_what_multiplies():
    problem, target = parse_problem(LAYER, dtypes="f16", **LAST), target_named("sm_90a")
    found = roofline(problem, generated("sm_90a", **LAST), target)
    assert found.peak == pytest.approx(2 * 1750 * 132 * 1.75e9)  # wgmma
    tiled = roofline(problem, generated("sm_80", **LAST), target)
    assert tiled.peak == pytest.approx(2 * 1024 * 132 * 1.75e9)  # mma.sync
    assert found.ops == problem.ops
    assert found.predicted > found.least_seconds


def test_words_of_the_roofline_name_what_bounds():
    found = Roofline(1e12, 1e9, ops=10**6, nbytes=10**6, predicted=2e-3)
    assert "least time 1e+03 us, bound by memory" in roofline_words(found)
    assert "50% of the roofline" in roofline_words(found)
    assert "bound by arithmetic" in roofline_words(replace(found, nbytes=1, predicted=None))


def test_stages_are_in_the_timeline(tmp_path):
    plan = plan_for(generated(**LAST).contraction, target_named("sm_80"))
    text = page(tmp_path, "--target", "sm_80", "--dt", "f16", "--stag", "axb", "--wtag", "axb", "--dtag", "axb")
    assert parse_plan(re.search(r"plan +(tiled .*)", text)[1]).stages == plan.stages
    assert len(set(re.findall(r">slot (\d+)<", text))) == plan.stages
