"""Scratch memory: lent in turn on one stream, never shared by calls that may overlap, never over the limit."""

from types import SimpleNamespace

import pytest

from convloom.runtime.device import device_named
from convloom.runtime.workspace import WorkspacePool


def pool():
    """A pool, and the sizes that it has allocated."""
    sizes = []

    def allocate(nbytes):
        sizes.append(nbytes)
        return SimpleNamespace(handle=len(sizes), nbytes=nbytes)

    return WorkspacePool(allocate), sizes


def test_one_stream_takes_the_same_memory_in_turn():
    lender, sizes = pool()
    for nbytes in (1000, 10, 1000, 1024):
        with lender.lend(nbytes, None, "a") as handle:
            assert handle == 1
    assert sizes == [1024]


def test_memory_that_is_lent_is_not_lent_again():
    lender, sizes = pool()
    with lender.lend(100, None, "a") as first, lender.lend(100, None, "a") as second:
        assert first != second
    with lender.lend(100, None, "b") as other:
        assert other not in (first, second)
    assert len(sizes) == 3


def test_all_memory_of_a_stream_is_less_than_twice_the_largest():
    lender, sizes = pool()
    for nbytes in range(1, 3000, 7):
        with lender.lend(nbytes, None, "a"):
            pass
    assert sum(sizes) < 2 * max(sizes)


def test_limits_are_kept():
    lender, sizes = pool()
    with lender.lend(700, 800, "a"):
        pass
    with lender.lend(900, None, "a"):
        pass
    with lender.lend(100, 750, "a"):
        pass
    assert sizes == [800, 1024, 128]


def test_memory_comes_back_after_an_error():
    lender, sizes = pool()
    with pytest.raises(KeyError), lender.lend(10, None, "a"):
        raise KeyError
    with lender.lend(10, None, "a"):
        assert len(sizes) == 1


def test_the_cpu_lends_aligned_memory():
    with device_named("cpu").lend(1000) as handle:
        assert handle % 64 == 0
