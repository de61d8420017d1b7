"""Cases EPI: what is fused behind the sum, in its order and types."""

import numpy as np

import convloom
from convloom.dtypes import F16, F32
from convloom.problem.conv_arguments import conv_problem
from convloom.problem.gemm_arguments import gemm_problem


def integers(*shape, dtype=np.float32, seed=0, limit=4):
    return np.random.default_rng(seed).integers(-limit, limit + 1, shape).astype(dtype)


def square(channels, out_channels, size, kernel, padding, types, bias=None):
    return conv_problem(
        batch=1, in_channels=channels, out_channels=out_channels, in_spatial=(size, size), kernel=(kernel, kernel),
        padding=padding, dtypes=types, bias=bias,
    )  # fmt: skip


def convolved(x, w, padding):
    return convloom.conv(x.astype(np.float64), w.astype(np.float64), padding=padding)


def test_epi_03_the_activation_comes_after_the_residual():
    """EPI-03: relu(conv + bias + z), and the other order where that is asked for."""
    problem = square(8, 8, 9, 3, 1, (F16, F16, F16), F16)
    x, w, bias = (
        integers(1, 8, 9, 9, dtype=np.float16),
        integers(8, 8, 3, 3, dtype=np.float16, limit=1),
        integers(8, dtype=np.float16),
    )
    z = (-40 - np.arange(648).reshape(1, 8, 9, 9) % 50).astype(np.float16)
    sums = convolved(x, w, 1) + bias.reshape(8, 1, 1)
    operands = {"z": "f16"}
    after = convloom.compile(problem, epilogue=lambda acc, z: convloom.relu(acc + z), operands=operands)
    before = convloom.compile(problem, epilogue=lambda acc, z: convloom.relu(acc) + z, operands=operands)
    assert np.array_equal(after(x, w, bias, operands=(z,)), np.maximum(sums + z, 0).astype(np.float16))
    assert np.array_equal(before(x, w, bias, operands=(z,)), (np.maximum(sums, 0) + z).astype(np.float16))
    assert (after(x, w, bias, operands=(z,)) != before(x, w, bias, operands=(z,))).any()


def test_epi_05_what_is_between_is_a_result_too():
    """EPI-05: u = conv + z and relu(u), both wanted: each is right, and neither call changes what the other reads."""
    problem = square(8, 8, 9, 3, 1, (F32, F32, F32))
    x, w, z = integers(1, 8, 9, 9), integers(8, 8, 3, 3, limit=1), integers(1, 8, 9, 9, seed=1, limit=60)
    given = x.copy(), w.copy(), z.copy()
    between = convloom.compile(problem, epilogue=lambda acc, z: acc + z, operands={"z": "f32"})
    last = convloom.compile(problem, epilogue=lambda acc, z: convloom.relu(acc + z), operands={"z": "f32"})
    u, a = between(x, w, operands=(z,)), last(x, w, operands=(z,))
    assert np.array_equal(u, convolved(x, w, 1) + z)
    assert np.array_equal(a, np.maximum(u, 0))
    assert (u < 0).any()
    assert all(np.array_equal(now, before) for now, before in zip((x, w, z), given, strict=True))


def test_epi_07_wide_bias_of_narrow_operands():
    """EPI-07: an f32 bias is added in f32, before the one rounding to f16."""
    problem = square(8, 8, 10, 3, 1, (F16, F16, F16), F32)
    x, w = integers(1, 8, 10, 10, dtype=np.float16), integers(8, 8, 3, 3, dtype=np.float16)
    bias = np.linspace(2048, 2049, 8, dtype=np.float32)
    expected = (convolved(x, w, 1) + bias.reshape(8, 1, 1).astype(np.float64)).astype(np.float16)
    assert np.array_equal(convloom.compile(problem)(x, w, bias), expected)
    twice = (convolved(x, w, 1) + bias.astype(np.float16).reshape(8, 1, 1).astype(np.float64)).astype(np.float16)
    assert not np.array_equal(expected, twice)


def test_epi_08_one_channel_with_bias():
    """EPI-08: 1 channel, kernel 2, with and without a bias."""
    x, w, bias = integers(1, 1, 4, 4), integers(1, 1, 2, 2), integers(1)
    plain = convolved(x, w, 0)
    assert np.array_equal(convloom.conv(x, w), plain)
    assert np.array_equal(convloom.conv(x, w, bias), plain + bias.reshape(1, 1, 1))


def test_epi_09_operands_broadcast_along_any_dimension():
    """EPI-09: what is added has strides (0, 0, 1), (0, 1, 0) and (0, 0, 0)."""
    a, b = integers(3, 128, 64, dtype=np.float16, limit=2), integers(3, 64, 64, dtype=np.float16, limit=2)
    problem = gemm_problem(batch=(3,), m=128, n=64, k=64, dtypes=(F16, F16, F16))
    product = a.astype(np.float32) @ b.astype(np.float32)
    for mask, shape in ((4, (1, 1, 64)), (2, (1, 128, 1)), (0, (1, 1, 1))):
        kernel = convloom.compile(problem, epilogue=lambda acc, z: acc + z, operands={"z": ("f16", mask)})
        z = integers(*shape, dtype=np.float16, seed=mask)
        assert np.array_equal(kernel(a, b, operands=(z,)), (product + z).astype(np.float16))
