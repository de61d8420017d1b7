"""Facts about machines: names, lanes, rates."""

import pytest

from convloom.dtypes import F16, F32, F64, S32
from convloom.errors import UnsupportedTarget
from convloom.target.arch import CPU, OPENCL, SM_80, SM_90A, TARGETS, target_named


@pytest.mark.parametrize("name", TARGETS)
def test_known_names(name):
    assert target_named(name) is TARGETS[name]
    assert target_named(name).name == name


@pytest.mark.parametrize("name", ["sm_75", "sm_86", "sm_89", "sm_100a", "sm_120", "sm_120f"])
def test_other_nvidia_machines_are_planned_like_a_known_one(name):
    target = target_named(name)
    assert (target.name, target.arch) == (name, name)
    assert target.max_threads == SM_80.max_threads


@pytest.mark.parametrize("name", ["", "sm_", "sm_70", "sm_9x", "gfx942", "CPU"])
def test_unknown_names_list_the_known(name):
    with pytest.raises(UnsupportedTarget, match=r"cpu.*sm_90a.*got"):
        target_named(name)


def test_lanes():
    assert [CPU.math_lanes(dtype) for dtype in (F32, S32, F64)] == [16, 16, 8]
    assert [SM_90A.math_lanes(dtype) for dtype in (F32, S32, F64)] == [1, 1, 1]
    assert OPENCL.math_lanes(F32) == 1


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_limits_and_rates_are_sane(target):
    for dtype in (F32, F64, S32):
        assert target.multiply_add_rate(dtype) > 0
    assert target.access_bits in (128, 256, 512)
    assert target.max_threads & (target.max_threads - 1) == 0
    assert target.max_shared_bytes >= 16 * 1024
    with pytest.raises(KeyError):
        target.multiply_add_rate(F16)
