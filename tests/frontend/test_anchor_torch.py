"""PyTorch as the anchor: on the processor for real, on a GPU by what it is asked to do."""

from types import SimpleNamespace

import pytest

from convloom.errors import IllegalProblem, UnsupportedTarget
from convloom.frontend import anchor_torch
from convloom.frontend.anchor_torch import EventTimer, TorchAnchor
from convloom.frontend.bench import BenchVerdict, bench_line
from convloom.frontend.choose_anchor import AnchorName, anchor_named
from convloom.problem.notation.choose import parse_problem
from convloom.runtime.device import device_named
from tests.frontend.test_bench import QUICK, SMALL, line_of

GEMM = "-t f32 -transA true -transB false -g 2 -m 9 -n 7 -k 12"


@pytest.fixture(scope="module")
def anchor():
    pytest.importorskip("torch")
    return TorchAnchor("cpu")


@pytest.mark.torch
@pytest.mark.parametrize("direction", ["fwd", "bwd_d", "bwd_w"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_convolutions_agree(anchor, direction, last, dtype):
    tags = {"stag": "axb", "wtag": "axb", "dtag": "axb"} if last else {}
    row = bench_line(line_of(SMALL, direction=direction, dtypes=dtype, **tags), device_named("cpu"), anchor, QUICK)
    assert (row.verdict, row.reason) == (BenchVerdict.MEASURED, "")


@pytest.mark.torch
@pytest.mark.parametrize("text", [GEMM, "mb2ic4iw9oc6ow9kw3pw1", "g2mb1ic4id5oc6od5kd3pd1"])
def test_products_and_other_ranks_agree(anchor, text):
    row = bench_line(line_of(text), device_named("cpu"), anchor, QUICK)
    assert (row.verdict, row.reason) == (BenchVerdict.MEASURED, "")


@pytest.mark.torch
@pytest.mark.parametrize("direction", ["fwd", "bwd_d", "bwd_w"])
def test_the_anchor_computes_what_we_do(anchor, direction):
    problem = parse_problem(SMALL, direction=direction)
    from convloom.problem.data import DataKind, make_operands
    from convloom.problem.numerics import compare
    from convloom.problem.reference import reference

    operands = make_operands(problem, DataKind.REAL)
    found = anchor.logical(problem, anchor.call(problem, anchor.place(problem, operands))())
    expected = reference(problem, operands, magnitude=True)
    assert compare(problem, found, expected).passed
    ours = anchor.reference(problem, operands)
    assert abs(ours.value - expected.value).max() < 1e-12
    assert abs(ours.magnitude - expected.magnitude).max() < 1e-12
    assert ours.length == expected.length


@pytest.mark.torch
@pytest.mark.parametrize(
    ("dtypes", "tags", "text", "reason"),
    [
        ("s8:s8:s32", {}, SMALL, "s8:s8:s32; --anchor-dt"),
        ("f16:f16:f32", {}, SMALL, "f16:f16:f32; --anchor-dt"),
        ("f32", {"stag": "aBx2b"}, SMALL, "blocked"),
        ("f32", {}, "mb1ic4ih9oc4oh10kh3ph1", "both sides"),
    ],
)
def test_what_pytorch_cannot_do_is_refused(anchor, dtypes, tags, text, reason):
    assert reason in anchor.refusal(parse_problem(text, dtypes=dtypes, **tags))


@pytest.mark.torch
def test_integers_beside_another_type_of_the_anchor():
    pytest.importorskip("torch")
    from convloom.dtypes import F32

    row = bench_line(line_of(SMALL, dtypes="s8:s8:s32"), device_named("cpu"), TorchAnchor("cpu", F32), QUICK)
    assert (row.verdict, row.reason, row.bound_ratio) == (BenchVerdict.MEASURED, "", 0.0)
    assert row.peaks.dtype is F32


# --- without PyTorch ------------------------------------------------------------------------------------------------


class FakeCuda:
    """As much of PyTorch as the timer touches; writes down the order of what it is asked for."""

    def __init__(self):
        self.events = []
        self.float32 = "float32"
        self.cuda = SimpleNamespace(Event=self._event)

    def ones(self, count, dtype, device):
        assert (count * 4, dtype, device) == (anchor_torch.FLUSH_BYTES, "float32", "cuda:0")
        return SimpleNamespace(sum=lambda: self.events.append("read"))

    def _event(self, enable_timing):
        assert enable_timing
        return SimpleNamespace(
            record=lambda: self.events.append("record"),
            synchronize=lambda: self.events.append("synchronize"),
            elapsed_time=lambda stop: 0.25,
        )


def test_a_gpu_is_timed_by_events_around_the_call_alone():
    fake = FakeCuda()
    timer = EventTimer(fake, "cuda:0")
    timer.cool()
    assert timer.seconds(lambda: fake.events.append("call")) == 0.25e-3
    assert fake.events == [*["read"] * 4, "record", "call", "record", "synchronize"]


def test_the_flags_of_the_comparison():
    matmul, cudnn = SimpleNamespace(), SimpleNamespace()
    fake = SimpleNamespace(backends=SimpleNamespace(cudnn=cudnn, cuda=SimpleNamespace(matmul=matmul)))
    anchor_torch._set_flags(fake, False)
    assert vars(cudnn) == {"benchmark": True, "allow_tf32": False}
    assert vars(matmul) == {
        "allow_tf32": False,
        "allow_fp16_reduced_precision_reduction": False,
        "allow_bf16_reduced_precision_reduction": False,
    }


def test_an_anchor_that_is_not_installed_is_named_with_a_remedy(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(UnsupportedTarget, match=r"pip install 'convloom\[torch\]'"):
        anchor_named(AnchorName.TORCH, "cpu")


@pytest.mark.parametrize(
    ("name", "device", "tf32", "words"),
    [
        (AnchorName.TORCH, "opencl", False, "cpu and cuda"),
        (AnchorName.NUMPY, "cuda", False, "NumPy runs on cpu"),
        (AnchorName.NUMPY, "cpu", True, "--tf32"),
    ],
)
def test_combinations_that_cannot_be(name, device, tf32, words):
    with pytest.raises(IllegalProblem, match=words):
        anchor_named(name, device, tf32=tf32)


def bare_anchor(torch, on_gpu=True):
    """An anchor on a made-up PyTorch."""
    found = object.__new__(TorchAnchor)
    found._torch, found._on_gpu = torch, on_gpu
    return found


def test_kernels_of_a_gpu_are_named_by_the_profiler():
    """What the host does in between (launches) is in its list too, and is no kernel."""
    done = []
    gpu, host = object(), object()
    events = [
        SimpleNamespace(name="cudaLaunchKernel", device_type=host),
        SimpleNamespace(name="nchwToNhwc", device_type=gpu),
        SimpleNamespace(name="sm90_xmma_fprop", device_type=gpu),
    ]

    class Profile:
        def __init__(self, activities):
            assert activities == ["cuda activity"]

        def __enter__(self):
            return self

        def __exit__(self, *_):
            done.append("profiled")

        def events(self):
            return events

    fake = SimpleNamespace(
        profiler=SimpleNamespace(profile=Profile, ProfilerActivity=SimpleNamespace(CUDA="cuda activity")),
        cuda=SimpleNamespace(synchronize=lambda: done.append("waited")),
        autograd=SimpleNamespace(DeviceType=SimpleNamespace(CUDA=gpu)),
    )
    assert bare_anchor(fake).kernels(lambda: done.append("called")) == ("nchwToNhwc", "sm90_xmma_fprop")
    assert done == ["called", "waited", "profiled"]
    assert bare_anchor(None, on_gpu=False).kernels(lambda: pytest.fail("nothing to profile")) == ()


@pytest.mark.parametrize(("dtype", "floating", "bits"), [("f16", True, "nan"), ("u8", False, 255), ("s8", False, -1)])
def test_poison_sets_what_no_result_holds(dtype, floating, bits):
    filled = []
    result = SimpleNamespace(is_floating_point=lambda: floating, dtype=dtype, fill_=filled.append)
    bare_anchor(SimpleNamespace(uint8="u8")).poison(result)
    assert str(filled[0]) == str(bits)
