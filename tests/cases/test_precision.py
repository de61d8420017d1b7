"""Cases PREC: no hidden narrow arithmetic, one rounding to nearest even."""

import ml_dtypes
import numpy as np

import convloom


def test_prec_01_f32_is_f32():
    """PREC-01: an identity of weights gives every integer of 12 bits and more back."""
    x = (2049 + np.arange(64 * 32) % 2048).astype(np.float32).reshape(1, 64, 4, 8)
    w = np.eye(64, dtype=np.float32).reshape(64, 64, 1, 1)
    assert np.array_equal(convloom.conv(x, w), x)


def test_prec_02_identity_times_a_ramp():
    """PREC-02: a product of 46 x 46 with the identity keeps the last bit above 2048."""
    ramp = np.arange(46 * 46, dtype=np.float32).reshape(46, 46)
    assert np.array_equal(convloom.gemm(np.eye(46, dtype=np.float32), ramp), ramp)


def test_prec_04_a_large_window_in_f16():
    """PREC-04: 23 x 23 taps of one channel whose sum is 175."""
    x, w = np.zeros((1, 1, 48, 50), np.float16), np.zeros((1, 1, 23, 23), np.float16)
    w.reshape(-1)[: 7 * 5] = 5
    x[...] = 1
    assert (convloom.conv(x, w) == 175).all()


def test_prec_10_rounding_to_bf16():
    """PREC-10: to nearest, ties to even; a NaN whose payload is in the low half stays NaN."""
    x = np.array([0.2691408770292272, 3.14, 1.00390625, 0], np.float32)
    x.view(np.uint32)[3] = 0x7F800001
    out = np.zeros((1, 1, 1, 4), ml_dtypes.bfloat16)
    convloom.conv(x.reshape(1, 1, 1, 4), np.ones((1, 1, 1, 1), np.float32), out=out)
    found = out.astype(np.float32).reshape(-1)
    assert found[:3].tolist() == [0.26953125, 3.140625, 1.0]
    assert np.isnan(found[3])
