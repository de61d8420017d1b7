"""The table and the picture of a network's layers."""

from io import StringIO

import pytest
from rich.console import Console

from convloom.frontend.layer_result import LayerResult, Verdict
from convloom.report.layers import closing_line, draw_layers, layer_table, summary

RESULTS = [
    LayerResult("Conv.0", "Conv", "mb1ic3oc8", Verdict.PASSED, 0.0015, 0.002, 1e-6, 0.125),
    LayerResult("Gemm.1", "Gemm", "m1n5k6", Verdict.MISMATCH, 0.0025, None, 3.0, 41.0, "element (0, 3)"),
    LayerResult("Conv.2", "Conv", "", Verdict.SKIPPED, reason="rank 6"),
]


def rendered(table):
    stream = StringIO()
    Console(file=stream, width=160).print(table)
    return stream.getvalue()


def test_every_layer_is_a_row_with_its_figures():
    lines = {
        line.split()[1]: line
        for line in rendered(layer_table(RESULTS)).splitlines()
        if ".0" in line or ".1" in line or ".2" in line
    }
    assert all(text in lines["Conv.0"] for text in ("1.500", "2.000", "1.0e-06", "0.125", "passed"))
    assert all(text in lines["Gemm.1"] for text in ("41.000", "mismatch: element (0, 3)"))
    assert "skipped: rank 6" in lines["Conv.2"]


def test_closing_line_counts_each_verdict():
    assert closing_line(RESULTS) == "1 passed, 1 failed, 1 skipped"
    assert closing_line([]) == "0 passed, 0 failed, 0 skipped"


def test_summary_names_the_worst_layer():
    text = summary(RESULTS)
    assert "2 layers in 4.0 ms" in text
    assert "ONNX Runtime, node by node: 2.0 ms" in text
    assert "41.000 of its bound, in Gemm.1" in text
    assert summary(RESULTS[2:]) == ""


@pytest.mark.parametrize("results", [RESULTS, []], ids=["some", "none"])
def test_the_chart_is_a_picture(tmp_path, results):
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")
    draw_layers(results, tmp_path / "deep" / "chart.png")
    picture = image.open(tmp_path / "deep" / "chart.png")
    assert picture.width > 1000
    colours = {colour for _, colour in picture.convert("RGB").getcolors(1 << 24)}
    assert ((0xC5, 0x30, 0x30) in colours) is bool(results)
