"""Clocks by a made-up management library: what it is asked, and that its absence or refusal is no error."""

import ctypes

import pytest

from convloom.runtime.clocks import open_clocks

MOST, NOW = 1980, 1755


class Library:
    def __init__(self, init=0, found=0, most=0, now=0):
        self.results = {"init": init, "found": found, "most": most, "now": now}
        self.asked = None

    def nvmlInit_v2(self):
        return self.results["init"]

    def nvmlDeviceGetHandleByIndex_v2(self, number, handle):
        self.asked = number
        return self.results["found"]

    def nvmlDeviceGetMaxClockInfo(self, handle, kind, value):
        value._obj.value = MOST
        assert kind == 1
        return self.results["most"]

    def nvmlDeviceGetClockInfo(self, handle, kind, value):
        assert isinstance(handle, ctypes.c_void_p)
        value._obj.value = NOW
        return self.results["now"]


@pytest.mark.parametrize(
    ("ordinal", "environment", "number"),
    [(0, {}, 0), (1, {}, 1), (0, {"CUDA_VISIBLE_DEVICES": "3"}, 3), (1, {"CUDA_VISIBLE_DEVICES": "3,5"}, 5)],
)
def test_the_clock_of_the_device_that_cuda_means(ordinal, environment, number):
    library = Library()
    clocks = open_clocks(ordinal, environment, lambda name: library)
    assert library.asked == number
    assert (clocks.most, clocks.now()) == (MOST, NOW)


@pytest.mark.parametrize("visible", ["GPU-8932f937", "MIG-1", "", "3"])
def test_a_device_that_cannot_be_numbered_has_no_clock(visible):
    assert open_clocks(1, {"CUDA_VISIBLE_DEVICES": visible}, lambda name: Library()) is None


@pytest.mark.parametrize("refusal", ["init", "found", "most"])
def test_a_library_that_refuses_tells_nothing(refusal):
    assert open_clocks(0, {}, lambda name: Library(**{refusal: 3})) is None


def test_a_clock_that_is_not_told():
    assert open_clocks(0, {}, lambda name: Library(now=3)).now() is None


def test_no_library():
    def missing(name):
        raise OSError(name)

    assert open_clocks(0, {}, missing) is None
