"""Reported faults of other libraries that need a GPU: more than 2^31 elements, grids beyond 65535, large reductions.

Each comes from a public report (the number in its name); data are small integers, so that every output must be exact.
"""

import numpy as np
import pytest

import convloom
from convloom.problem.data import choose_fill
from convloom.runtime.device import device_named
from tests.device.device_check import CheckedProblem
from tests.device.gpu import needs_gpu
from tests.device.problems import PLAIN, conv_of

pytestmark = needs_gpu
LAST = ("axb", "any", "axb")

CASES = {
    # more than 2^31 input elements; 512 channels are 2^31 exactly, 511 the neighbour below
    "OVF-01": ("mb1ic514ih2048oc1oh2048kh3ph1", "f16", PLAIN),
    "OVF-01 at the border": ("mb1ic512ih2048oc1oh2048kh3ph1", "f16", PLAIN),
    "OVF-01 below": ("mb1ic511ih2048oc1oh2048kh3ph1", "f16", PLAIN),
    "OVF-01 channels last": ("mb1ic514ih2048oc1oh2048kh3ph1", "f16", LAST),
    # 5.5e9 pairs of pixel and tap although each tensor is small; three images stay below 2^32
    "OVF-05": ("mb1ic512id4ih240iw416oc16od4oh240ow416kd3kh3kw3pd1ph1pw1", "f16", LAST),
    "OVF-05 below": ("mb1ic512id3ih240iw416oc16od3oh240ow416kd3kh3kw3pd1ph1pw1", "f16", LAST),
    "OVF-06": ("mb1ic256id19ih146iw258oc256od17oh144ow256kd3kh3kw3", "f16", PLAIN),
    # more than 2^31 output elements
    "OVF-08": ("mb1ic1ih1856oc640oh1856kh3ph1", "bf16", LAST),
    # long depthwise 1-D convolutions; the batches straddle 2^31 elements
    "OVF-13": ("g4mb140000ic4iw4096oc4ow4096kw4pw3", "bf16", PLAIN),
    "OVF-13 below": ("g4mb131071ic4iw4096oc4ow4096kw4pw3", "bf16", PLAIN),
    "OVF-13 at the border": ("g4mb131072ic4iw4096oc4ow4096kw4pw3", "bf16", PLAIN),
    "OVF-13 above": ("g4mb131073ic4iw4096oc4ow4096kw4pw3", "bf16", PLAIN),
    "OVF-13 long kernel": ("g4mb8ic4iw4096oc4ow4096kw4096pw4095", "bf16", PLAIN),
    # the batch must not be a grid axis that ends at 65535
    "OVF-14": ("mb522240ic3id2ih14iw14oc1280od1oh1ow1kd2kh14kw14sd2sh14sw14", "bf16", PLAIN),
    "GRID-02 below": ("mb1ic512ih255iw257oc512oh255ow257kh3kw3ph1pw1", "bf16", LAST),
    "GRID-02": ("mb1ic512ih256oc512oh256kh3ph1", "bf16", LAST),
    "GRID-02 large": ("mb1ic512ih1024oc512oh1024kh3ph1", "bf16", LAST),
    "GRID-03": ("mb1ic64ih800iw750oc64oh800ow750kh3kw3ph1pw1", "f32", LAST),
}


@pytest.mark.parametrize("case", CASES)
def test_every_output_is_exact(case):
    text, dtypes, tags = CASES[case]
    conv = conv_of(text, "fwd", dtypes, tags)
    with CheckedProblem(conv, choose_fill(conv), device_named("cuda")) as made:
        outcome = made.check(convloom.compile(conv, "cuda"))
    assert outcome.reason == ""


@pytest.mark.torch
@pytest.mark.parametrize("channels", [511, 512, 514])
@pytest.mark.parametrize("last", [False, True])
def test_ones_beyond_two_to_the_31st(channels, last):
    """OVF-01: sums of ones, accumulated in f32 and rounded to f16 once."""
    torch = pytest.importorskip("torch")
    side = 2048
    order = {"memory_format": torch.channels_last} if last else {}
    x = torch.empty((1, channels, side, side), dtype=torch.float16, device="cuda", **order).fill_(1)
    w = torch.ones((1, channels, 3, 3), dtype=torch.float16, device="cuda")
    y = convloom.conv(x, w, padding=1).cpu().numpy()
    expected = np.full((side, side), 9.0 * channels)
    expected[0], expected[-1], expected[:, 0], expected[:, -1] = (6.0 * channels,) * 4
    expected[[0, 0, -1, -1], [0, -1, 0, -1]] = 4.0 * channels
    assert np.array_equal(y[0, 0], expected.astype(np.float16))


@pytest.mark.torch
def test_a_product_that_no_tile_divides_stays_in_bounds():
    """ALN-06: M=81920, N=30, K=642 in f16, NaN around every tensor: none is read or written."""
    torch = pytest.importorskip("torch")
    m, n, k = 81920, 30, 642
    generator = torch.Generator("cuda").manual_seed(5)

    def surrounded(rows, columns, values):
        flat = torch.full((rows * columns + 4096,), float("nan"), dtype=torch.float16, device="cuda")
        inside = flat[2048 : 2048 + rows * columns].view(rows, columns)
        if values:
            inside.copy_(torch.randint(-4, 5, (rows, columns), device="cuda", generator=generator))
        return flat, inside

    (_, a), (_, b), (around, c) = surrounded(m, k, True), surrounded(n, k, True), surrounded(m, n, False)
    assert convloom.gemm(a, b.T, out=c) is c
    assert torch.equal(c, (a.double() @ b.double().T).half())
    assert around[:2048].isnan().all()
    assert around[-2048:].isnan().all()
