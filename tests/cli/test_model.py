"""`convloom model` on small networks: the table, the exit status, the chart, an interrupt."""

import numpy as np
import pytest
from typer.testing import CliRunner

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from convloom.cli import app
from convloom.frontend import onnx_layers
from tests.frontend.networks import tiny_network


@pytest.fixture(scope="module")
def network_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("network") / "tiny.onnx"
    onnx.save(tiny_network(spatial=(12, 10)), path)
    return path


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*arguments):
    return CliRunner().invoke(app, ["model", *map(str, arguments)])


def test_every_layer_passes(network_file, tmp_path):
    result = run(network_file, "--chart", tmp_path / "chart.png")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "4 passed, 0 failed, 0 skipped"
    assert "mb1ic3ih12iw10oc8oh6ow5" in result.stdout
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_is_the_input(network_file, tmp_path):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(1).integers(0, 256, (20, 30, 3), np.uint8)
    image.fromarray(pixels).save(tmp_path / "a.png")
    result = run(network_file, "--input", tmp_path / "a.png")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "tiny-layers.png").is_file()


def test_a_wrong_layer_ends_with_1(network_file, monkeypatch):
    original = onnx_layers.run_on_device

    def disturbed(kernel, operands, **options):
        done = original(kernel, operands, **options)
        if done.result.ndim == 2:
            done.result[0, 3] += 1e-3
        return done

    monkeypatch.setattr(onnx_layers, "run_on_device", disturbed)
    result = run(network_file)
    assert result.exit_code == 1
    assert "1 elements wrong, the first at (0, 3)" in " ".join(result.stdout.split())
    assert result.stdout.splitlines()[-1] == "3 passed, 1 failed, 0 skipped"


def test_an_interrupt_keeps_the_rows_so_far(network_file, monkeypatch):
    original = onnx_layers.judge_node
    judged = []

    def interrupted(*arguments):
        if len(judged) == 2:
            raise KeyboardInterrupt
        judged.append(1)
        return original(*arguments)

    monkeypatch.setattr(onnx_layers, "judge_node", interrupted)
    result = run(network_file)
    assert result.exit_code == 1
    assert "interrupted after 2 of 4 layers" in result.stderr
    assert result.stdout.splitlines()[-1] == "2 passed, 0 failed, 0 skipped"


def test_a_file_that_is_missing(tmp_path):
    result = run(tmp_path / "none.onnx")
    assert result.exit_code == 2
    assert "must be a readable file" in result.stderr


def refused(*arguments):
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    return " ".join(result.stderr.split())


def test_files_that_are_no_network(tmp_path):
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "noise.onnx").write_bytes(b"\x8b\x00noise")
    assert "names no operator set" in refused(tmp_path / "empty.onnx")
    assert "must be an ONNX model" in refused(tmp_path / "noise.onnx")


def one_node(path, operator, shapes):
    inputs = [onnx.helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()]
    result = onnx.helper.make_tensor_value_info("y", 1, None)
    graph = onnx.helper.make_graph([onnx.helper.make_node(operator, list(shapes), ["y"])], "g", inputs, [result])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def test_a_network_without_products(tmp_path):
    path = one_node(tmp_path / "relu.onnx", "Relu", {"x": (1, 3)})
    assert "must have a node among Conv, ConvTranspose, Gemm, MatMul" in refused(path)


def test_a_network_that_onnx_runtime_refuses(tmp_path):
    path = one_node(tmp_path / "bad.onnx", "MatMul", {"a": (3, 3), "b": (4, 3)})
    assert "ONNX Runtime must be able to run the network; it says: " in refused(path)


@pytest.mark.parametrize("name", ["chart.foo", "chart", ""])
def test_a_chart_needs_a_known_suffix(network_file, name):
    assert "must end with one of .png, .svg, .pdf" in refused(network_file, "--chart", name)


def test_a_chart_that_cannot_be_written(network_file, tmp_path):
    (tmp_path / "file").touch()
    assert "must be a file that can be written" in refused(network_file, "--chart", tmp_path / "file" / "a.png")
