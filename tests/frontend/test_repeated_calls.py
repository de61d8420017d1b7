"""A repeated call skips checks only where nothing that they look at has changed."""

import sys

import numpy as np
import pytest

import convloom
from convloom.errors import IllegalProblem, IllegalType
from convloom.frontend import call
from convloom.frontend.repeat import Repeat
from convloom.problem.conv_arguments import conv_problem
from convloom.runtime.interface import Built

SHAPES = (1, 3, 6, 5), (4, 3, 3, 3)


def whole(shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def expected(x, w):
    out = np.zeros((x.shape[0], w.shape[0], x.shape[2] - 2, x.shape[3] - 2), np.float64)
    for i in range(3):
        for j in range(3):
            part = x[:, :, i : i + out.shape[2], j : j + out.shape[3]].astype(np.float64)
            out += np.einsum("nchw,kc->nkhw", part, w[:, :, i, j].astype(np.float64))
    return out


@pytest.fixture
def kernel():
    problem = conv_problem(batch=1, in_channels=3, out_channels=4, in_spatial=(6, 5), kernel=(3, 3))
    return convloom.compile(problem)


@pytest.fixture
def arithmetic(monkeypatch):
    """Counts launches whose arithmetic is done anew."""
    done, original = [], Built.launcher

    def counted(self, *arguments):
        done.append(self.source.name)
        return original(self, *arguments)

    monkeypatch.setattr(Built, "launcher", counted)
    return done


WAYS = {
    "kernel": lambda kernel, x, w, out=None: kernel(x, w, out=out),
    "conv": lambda kernel, x, w, out=None: convloom.conv(x, w, out=out),
}


@pytest.fixture(params=WAYS)
def way(request, kernel):
    call._repeats.clear()
    kernel._repeats.clear()
    return lambda *arguments, **options: WAYS[request.param](kernel, *arguments, **options)


def test_equal_calls_prepare_one_launch_and_read_their_own_arrays(way, arithmetic):
    w = whole(SHAPES[1], 1)
    space = np.zeros(4096, np.uint8)
    start = -space.ctypes.data % 128
    for seed in range(4):  # one place, so that the alignment is the same
        x = space[start : start + 360].view(np.float32).reshape(SHAPES[0])
        x[...] = whole(SHAPES[0], seed)
        assert np.array_equal(way(x, w), expected(x, w))
    out = np.empty((1, 4, 4, 3), np.float32)
    for _ in range(2):
        way(x, w, out=out)
    arithmetic.clear()
    for seed in range(4):
        x[...] = whole(SHAPES[0], seed)
        assert way(x, w, out=out) is out
        assert np.array_equal(out, expected(x, w))
    assert arithmetic == []


def test_other_strides_are_seen(way, kernel):
    w = whole(SHAPES[1], 1)
    way(whole(SHAPES[0], 2), w)
    for x in (whole((1, 3, 6, 10), 3)[..., ::2], whole((1, 6, 5, 3), 4).transpose(0, 3, 1, 2)):
        for _ in range(2):
            assert np.array_equal(convloom.conv(x, w), expected(x, w))
            with pytest.raises(IllegalProblem, match="strides"):
                kernel(x, w)


@pytest.mark.parametrize("given", [False, True])
def test_what_was_refused_is_refused_after_a_good_call(way, kernel, given):
    x, w = whole(SHAPES[0]), whole(SHAPES[1])
    out = np.empty((1, 4, 4, 3), np.float32)
    for _ in range(2):
        way(x, w, out=out if given else None)
    locked = out.copy()
    locked.flags.writeable = False
    wrong = [
        ({"out": locked}, IllegalProblem, "writable"),
        ({"out": np.empty((1, 4, 4, 4), np.float32)}, IllegalProblem, "shape|extent|must"),
        ({"x": x[:, :2]}, IllegalProblem, "channels|must"),
        ({"w": w.astype(">f4")}, IllegalType, "byte order"),
        ({"w": w.astype(complex)}, IllegalType, "complex"),
        ({"w": np.ma.masked_array(w)}, IllegalType, "mask"),
        ({"x": x.tolist()}, IllegalType, "array"),
        ({"x": np.zeros(400, np.uint8)[1:361].view(np.float32).reshape(SHAPES[0])}, IllegalProblem, "multiple"),
    ]
    for change, kind, words in wrong:
        arguments = {"x": x, "w": w, "out": out if given else None} | change
        with pytest.raises(kind, match=words):
            way(arguments["x"], arguments["w"], out=arguments["out"])


def test_overlap_is_looked_at_in_every_call(way):
    space = np.zeros(400, np.float32)
    x, w = space[:90].reshape(SHAPES[0]), whole(SHAPES[1], 1)
    apart = space[100:148].reshape(1, 4, 4, 3)
    for _ in range(2):
        way(x, w, out=apart)
        with pytest.raises(IllegalProblem, match="must not share memory"):
            way(x, w, out=space[89:137].reshape(1, 4, 4, 3))


def test_values_that_are_equal_but_of_other_types_are_not_taken_for_each_other():
    x, w = whole(SHAPES[0]), whole(SHAPES[1])
    for _ in range(2):
        convloom.conv(x, w, deterministic=True, stride=1, max_workspace=1)
    with pytest.raises(IllegalType, match="deterministic"):
        convloom.conv(x, w, deterministic=1, max_workspace=1)
    with pytest.raises(IllegalType, match="max_workspace"):
        convloom.conv(x, w, deterministic=True, max_workspace=1.0)
    with pytest.raises(IllegalType, match="stride"):
        convloom.conv(x, w, stride=1.0, deterministic=True, max_workspace=1)
    with pytest.raises(IllegalType, match="plan"):
        convloom.conv(x, w, plan=[])
    with pytest.raises(IllegalProblem, match="no streams"):
        convloom.conv(x, w, deterministic=True, max_workspace=1, stream=7)


def test_factors_are_those_of_the_call():
    x, w = whole(SHAPES[0]), whole(SHAPES[1])
    for alpha in (2.0, 3.0, 2.0):
        out = np.full((1, 4, 4, 3), 1.0, np.float32)
        convloom.conv(x, w, out=out, alpha=alpha, beta=1.0)
        assert np.array_equal(out, alpha * expected(x, w) + 1)


@pytest.mark.torch
def test_what_pytorch_adds_is_looked_at_in_every_call(way):
    torch = pytest.importorskip("torch")
    x, w = torch.tensor(whole(SHAPES[0])), torch.nn.Parameter(torch.tensor(whole(SHAPES[1], 1)))
    plain = expected(x.numpy(), w.detach().numpy())
    with torch.no_grad():
        for _ in range(2):
            assert np.array_equal(way(x, w).numpy(), plain)
    with pytest.raises(IllegalProblem, match="requires_grad"):
        way(x, w)
    w = w.detach()
    for _ in range(2):
        way(x, w)
    negative = torch.complex(x, -x).conj().imag  # a view of the same values, negated when read
    assert negative.is_neg()
    with pytest.raises(IllegalProblem, match="negated"):
        way(negative, w)
    with pytest.raises(IllegalType, match="dense"):
        way(x.to_sparse(), w)
    with pytest.raises(ValueError, match="device"):
        way(x.to("meta"), w)
    assert np.array_equal(way(x.numpy(), w), plain)  # arrays of two families


def python_calls(function):
    """Python functions entered by a call."""
    entered = []
    sys.setprofile(lambda frame, event, _: entered.append(frame.f_code.co_qualname) if event == "call" else None)
    try:
        function()
    finally:
        sys.setprofile(None)
    return entered[1:]


@pytest.mark.torch
def test_a_repeated_call_enters_few_functions(way):
    torch = pytest.importorskip("torch")
    x, w = torch.tensor(whole(SHAPES[0])), torch.tensor(whole(SHAPES[1], 1))
    for _ in range(8):
        way(x, w)
    entered = min((python_calls(lambda: way(x, w)) for _ in range(8)), key=len)
    assert f"{Repeat.__name__}.__call__" in entered
    assert len(entered) <= 32, entered
