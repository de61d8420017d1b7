"""Matrices and words for tests of instruction rows, written without the lane maps' own helpers where it matters."""

import numpy as np

from convloom.target.lane_map import to_lanes, to_matrix
from convloom.target.number_format import as_elements, as_words, storage


def random_numbers(rng, dtype, shape, small=True):
    """Small integers, or random normal numbers of the type (integers: their whole range)."""
    if not dtype.is_float:
        low, high = (-8, 9) if small and dtype.name[0] == "s" else (0, 16) if small else _whole_range(dtype)
        return rng.integers(low, high, shape).astype(storage(dtype))
    numbers = rng.integers(-4, 5, shape).astype(np.float64) if small else rng.standard_normal(shape)
    return numbers.astype(np.float32 if dtype.bits < 64 else np.float64).astype(storage(dtype))


def _whole_range(dtype):
    info = np.iinfo(storage(dtype))
    return int(info.min), int(info.max) + 1


def packed(row, name, matrix):
    """Words of an operand from its matrix (.., rows, columns)."""
    fragment = row.fragment(name)
    return as_words(to_lanes(matrix, fragment.layout), row.operand(name).register.word)


def unpacked(row, name, words):
    """The matrix of an operand from its words, in the fragment's storage type."""
    fragment = row.fragment(name)
    return to_matrix(as_elements(words, fragment.dtype), fragment.layout, fragment.shape)
