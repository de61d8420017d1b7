"""Inputs for a network: a picture from a file, or random numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convloom.errors import IllegalProblem
from convloom.frontend.onnx_network import Network, NetworkInput, optional_package

SHORT_SIDE = 736  # pixels, what text detectors of the PP-OCR family scale to
SIDE_MULTIPLE = 32  # five halvings, as most networks have
FREE_SIDE = 224  # pixels of a free side for random data
MEAN = np.array((0.485, 0.456, 0.406), np.float32)  # ImageNet's statistics, which nearly every network is trained on
DEVIATION = np.array((0.229, 0.224, 0.225), np.float32)


def random_feeds(network: Network, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Standard normal numbers for floating inputs, zeros for others; free sizes become 1, 3, or a side."""
    generator = np.random.default_rng(seed)
    return {item.name: _random_tensor(item, generator) for item in network.inputs}


def picture_feeds(network: Network, path: Path) -> dict[str, NDArray[Any]]:
    """The picture as the network's only input, NCHW or NHWC, normalised with ImageNet's statistics.

    Free sides keep the picture's proportions, the shorter one SHORT_SIDE, both rounded to SIDE_MULTIPLE. Raises
    IllegalProblem if the network's inputs cannot be one picture, or the file is none.
    """
    item = _picture_input(network)
    channels_last = item.sizes[1] not in (1, 3) and item.sizes[3] in (1, 3)
    height, width = item.sizes[1:3] if channels_last else item.sizes[2:4]
    channels = item.sizes[3] if channels_last else item.sizes[1]
    pixels = _read_pixels(path, height, width, gray=channels == 1)
    array = pixels if channels_last else pixels.transpose(2, 0, 1)
    return {item.name: np.ascontiguousarray(array[np.newaxis], dtype=item.dtype)}


def _random_tensor(item: NetworkInput, generator: np.random.Generator) -> NDArray[Any]:
    defaults = (1, 3, *(FREE_SIDE,) * max(len(item.sizes) - 2, 0))
    shape = tuple(size if size is not None else default for size, default in zip(item.sizes, defaults, strict=False))
    if item.dtype.kind == "f":
        return generator.standard_normal(shape).astype(item.dtype)
    return np.zeros(shape, item.dtype)


def _picture_input(network: Network) -> NetworkInput:
    if len(network.inputs) != 1 or len(network.inputs[0].sizes) != 4 or network.inputs[0].dtype.kind != "f":
        found = ", ".join(f"{item.name} {item.dtype} {item.sizes}" for item in network.inputs)
        raise IllegalProblem(
            f"a picture needs a network with one floating input of rank 4; it has {found}; use --input random"
        )
    return network.inputs[0]


def _read_pixels(path: Path, height: int | None, width: int | None, *, gray: bool) -> NDArray[np.float32]:
    image_module = optional_package("PIL.Image")
    try:
        image = image_module.open(path).convert("L" if gray else "RGB")
    except OSError as error:  # also Pillow's UnidentifiedImageError
        raise IllegalProblem(f"an input must be a readable picture; got {path} ({error}); correct the path") from error
    size = _target_size(image.width, image.height, width, height)
    pixels = np.asarray(image.resize(size, image_module.Resampling.BILINEAR), np.float32) / 255
    mean, deviation = (MEAN.mean(keepdims=True), DEVIATION.mean(keepdims=True)) if gray else (MEAN, DEVIATION)
    return ((np.atleast_3d(pixels) - mean) / deviation).astype(np.float32)


def _target_size(width: int, height: int, fixed_width: int | None, fixed_height: int | None) -> tuple[int, int]:
    """(width, height) in pixels that a picture is scaled to."""
    scale = SHORT_SIDE / min(width, height)
    return fixed_width or _rounded(width * scale), fixed_height or _rounded(height * scale)


def _rounded(length: float) -> int:
    return max(round(length / SIDE_MULTIPLE), 1) * SIDE_MULTIPLE
