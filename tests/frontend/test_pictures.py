"""Pictures and random numbers as inputs of a network."""

import numpy as np
import pytest

pytest.importorskip("onnx")
Image = pytest.importorskip("PIL.Image")

from convloom.errors import IllegalProblem
from convloom.frontend.onnx_network import Network, NetworkInput
from convloom.frontend.pictures import DEVIATION, MEAN, picture_feeds, random_feeds


def network_with(*sizes, dtype=np.float32):
    return Network((), (NetworkInput("x", sizes, np.dtype(dtype)),), 0, {}, None)


@pytest.fixture
def picture(tmp_path):
    pixels = np.zeros((50, 100, 3), np.uint8)
    pixels[..., 0] = 255
    Image.fromarray(pixels).save(tmp_path / "red.png")
    return tmp_path / "red.png"


def test_free_sides_keep_the_proportions(picture):
    array = picture_feeds(network_with(None, 3, None, None), picture)["x"]
    assert array.shape == (1, 3, 736, 1472)
    expected = (np.array((1.0, 0.0, 0.0)) - MEAN) / DEVIATION
    assert np.allclose(array[0, :, 5, 7], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ((1, 3, 64, 32), (1, 3, 64, 32)),
        ((1, 64, 32, 3), (1, 64, 32, 3)),
        ((1, 1, 64, 32), (1, 1, 64, 32)),
    ],
)
def test_fixed_sides_and_channels(picture, sizes, shape):
    array = picture_feeds(network_with(*sizes), picture)["x"]
    assert array.shape == shape
    assert array.dtype == np.float32
    assert array.flags.c_contiguous


def test_a_network_that_takes_no_picture(picture):
    with pytest.raises(IllegalProblem, match="rank 4"):
        picture_feeds(network_with(1, 77), picture)


def test_a_file_that_is_no_picture(tmp_path):
    (tmp_path / "a.png").write_text("no")
    with pytest.raises(IllegalProblem, match="picture"):
        picture_feeds(network_with(1, 3, 8, 8), tmp_path / "a.png")


def test_random_numbers_are_repeatable():
    network = network_with(None, 3, 16, None)
    first, second = random_feeds(network)["x"], random_feeds(network)["x"]
    assert np.array_equal(first, second)
    assert first.shape == (1, 3, 16, 224)
    assert random_feeds(network_with(2, dtype=np.int64))["x"].tolist() == [0, 0]
