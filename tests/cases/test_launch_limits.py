"""Grids: many output positions in any one dimension fit the limits of a device."""

import pytest

from convloom import Gemm, TensorSpec, conv_problem, dim
from convloom.artifact import MULTIPROCESSORS
from convloom.dtypes import F32
from convloom.problem.layout import dense
from convloom.runtime.launch_expression import evaluate
from tests.cases.convolution import ConvCase, Op, check
from tests.cases.sources import GPU, gpu_source

BFLOATS = ("bf16", "bf16", "bf16")

IMAGES = {
    "GRID-02-below": (512, (255, 257), BFLOATS),
    "GRID-02": (512, (256, 256), BFLOATS),
    "GRID-02-large": (512, (1024, 1024), BFLOATS),
    "GRID-03": (64, (800, 750), ("f32", "f32", "f32")),
}


def pointwise_neighbourhood(name: str, channels: int) -> ConvCase:
    _, spatial, types = IMAGES[name]
    return ConvCase(name, Op.CONV, 1, channels, channels, spatial, (3, 3), spatial, padding=1, types=types, last=True)


def assert_launchable(source, sizes):
    """The limits of CUDA: 2**31 - 1 blocks along x, 65535 along y and z, 1024 threads in a block."""
    x, y, z = (evaluate(text, sizes | {MULTIPROCESSORS: GPU.processors}) for text in source.grid)
    assert 1 <= x < 2**31
    assert 1 <= y < 2**16
    assert 1 <= z < 2**16
    assert 1 <= source.block[0] * source.block[1] * source.block[2] <= GPU.max_threads


@pytest.mark.parametrize("name", IMAGES)
def test_a_large_image_fits_the_grid_of_a_gpu(name):
    assert_launchable(gpu_source(pointwise_neighbourhood(name, IMAGES[name][0]).problem()), {})


@pytest.mark.parametrize("extent", [1, 255, 65535, 65536, 2**20], ids=lambda extent: f"GRID-02-any-{extent}")
def test_an_image_of_any_size_fits_the_grid_of_a_gpu(extent, any_image):
    assert_launchable(any_image, {"n": extent, "h": 16, "w": 16})
    assert_launchable(any_image, {"n": 1, "h": 16, "w": extent})
    assert_launchable(any_image, {"n": 1, "h": extent, "w": 1})


@pytest.fixture(scope="module")
def any_image():
    problem = conv_problem(
        batch=dim("n"), in_channels=64, out_channels=64, in_spatial=(dim("h"), dim("w")), kernel=(3, 3), padding=1
    )
    return gpu_source(problem)


@pytest.mark.parametrize("name", IMAGES)
def test_images_of_that_size_are_right(name, device):
    """With one or two channels, so that a processor can do it; tests/device has the reported channels on a GPU."""
    check(pointwise_neighbourhood(name, 1 if name == "GRID-02-large" else 2), device)


@pytest.mark.parametrize("m", [1, 2, 9, 33], ids=lambda m: f"GRID-03-small-{m}")
def test_results_smaller_than_any_tile_have_a_plan(m):
    for n in (1, 3, 9):
        specs = [TensorSpec(F32, dense(shape)) for shape in ((m, 1000), (1000, n), (m, n))]
        assert_launchable(gpu_source(Gemm((), m, n, 1000, *specs)), {})
