"""The guards of this folder notice what they are there for."""

import numpy as np
import pytest

from tests.cases.guard_pages import run_guarded
from tests.cases.memory import Guarded, at_offsets, sparse


def test_a_write_into_a_gap_is_noticed():
    memory = Guarded((3, 4), np.float32, strides=(6, 1))
    memory.array[...] = 1
    assert memory.surroundings_unchanged
    assert not memory.unchanged
    np.ndarray((1,), np.float32, memory.array.base, 256 + 4 * 4)[...] = 1
    assert not memory.surroundings_unchanged


def test_negative_and_zero_strides_lie_inside():
    memory = Guarded((3, 4), np.float16, strides=(0, -2))
    memory.array[0] = np.arange(4)
    assert np.array_equal(memory.array, np.tile(np.arange(4), (3, 1)))
    assert memory.surroundings_unchanged


@pytest.mark.parametrize("offset", [-1, 5])
def test_a_read_beyond_the_end_ends_the_process(offset):
    out = np.zeros(5, np.float32)
    read = "out.__setitem__(0, __import__('ctypes').c_float.from_address(x.ctypes.data + 4 * {}).value)"
    for result in run_guarded(read.format(4), x=np.arange(5, dtype=np.float32), out=out):
        assert result[0] == 4
    with pytest.raises(AssertionError, match="exit -11"):
        run_guarded(read.format(offset), x=np.arange(5, dtype=np.float32), out=out)


def test_sparse_memory_holds_far_elements():
    storage = sparse(2**31 + 10, np.int8)
    far = at_offsets(storage, 2**31, (2, 2), (-(2**30), 1))
    far[...] = [[1, 2], [3, 4]]
    assert storage[2**31 : 2**31 + 2].tolist() == [1, 2]
    assert storage[2**30 : 2**30 + 2].tolist() == [3, 4]
