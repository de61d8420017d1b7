"""`convloom model`: every convolution and matrix product of a real network, checked against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from convloom.cli.console import MISMATCH, errors, output
from convloom.frontend.layer_result import LayerResult, Verdict
from convloom.frontend.onnx_layers import check_layer, compile_layers
from convloom.frontend.onnx_network import Network, Observation, load_network, observe
from convloom.frontend.pictures import picture_feeds, random_feeds
from convloom.report.layers import check_chart_path, closing_line, draw_layers, layer_table, summary
from convloom.report.problem_text import problem_text
from convloom.runtime.device import device_named
from convloom.runtime.interface import Device


def model(
    network: Annotated[Path, typer.Argument(metavar="NET.onnx", help="An ONNX network.")],
    input: Annotated[str, typer.Option(help="A picture's file, or `random`.")] = "random",
    device: Annotated[str, typer.Option(help="Where the kernels run.")] = "cpu",
    chart: Annotated[
        Path | None,
        typer.Option(help="Where the bar chart goes (PNG, SVG or PDF by suffix); NET-layers.png by default."),
    ] = None,
) -> None:
    """Run every Conv, ConvTranspose, Gemm and MatMul node on generated kernels, fed with the network's real tensors.

    Each is compared with ONNX Runtime's output of that node; exit status 1 if one is outside its bound.
    """
    picture = Path(f"{network.stem}-layers.png") if chart is None else chart
    check_chart_path(picture)
    loaded = load_network(network)
    feeds = random_feeds(loaded) if input == "random" else picture_feeds(loaded, Path(input))
    console = output()
    with console.status("ONNX Runtime computes the tensors around each node"):
        observation = observe(loaded, feeds)
    results = _check_all(loaded, observation, device_named(device))
    console.print(layer_table(results))
    for line in (
        summary(results),
        _nested_line(loaded),
        _chart_line(results, picture),
        closing_line(results),
    ):
        if line:
            console.print(line)
    if len(results) < len(loaded.nodes) or any(result.verdict is Verdict.MISMATCH for result in results):
        raise typer.Exit(MISMATCH)


def _check_all(network: Network, observation: Observation, device: Device) -> list[LayerResult]:
    """Results of all nodes, or of those before Ctrl-C. Kernels are compiled first, so that times are undisturbed."""
    results: list[LayerResult] = []
    total = len(network.nodes)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors(), transient=True) as progress:
        try:
            layers = list(progress.track(compile_layers(network, observation, device), total, description="compile"))
            for layer in progress.track(layers, total, description="run"):
                results.append(check_layer(layer, observation, problem_text))
        except KeyboardInterrupt:
            progress.stop()
            errors().print(f"interrupted after {len(results)} of {total} layers; the table has these")
    return results


def _nested_line(network: Network) -> str:
    return f"{network.nested} nodes inside control flow were not run" if network.nested else ""


def _chart_line(results: list[LayerResult], path: Path) -> str:
    draw_layers(results, path)
    return f"chart: {path}"
