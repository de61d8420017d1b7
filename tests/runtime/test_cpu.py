import threading
import time

import numpy as np
import pytest

from convloom import settings
from convloom.artifact import Language, Requirement
from convloom.errors import BuildFailed, IllegalProblem, IllegalType, UnsupportedTarget
from convloom.runtime import c_compiler
from convloom.runtime.cpu import CpuDevice


def aligned(values):
    memory = CpuDevice().allocate(values.nbytes)
    memory.write(values)
    return memory


def run_axpby(built, n, alpha=2.0, beta=0.5):
    x = np.arange(n, dtype=np.float32)
    y = np.linspace(-1, 1, max(n, 1), dtype=np.float32)[:n]
    expected = (alpha * x + beta * y + n % 7).astype(np.float32)
    with aligned(x) as source, aligned(y) as target:
        built.launch([source.handle, target.handle], {"n": n}, {"alpha": alpha, "beta": beta})
        target.read(y)
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 1000, 100_003])
def test_every_block_runs_once(axpby, n):
    built = CpuDevice().build(axpby())
    for _ in range(5):
        run_axpby(built, n)


@pytest.mark.parametrize("label", ["zig", "gcc", "clang", "cc"])
def test_each_compiler_gives_the_same(axpby, label):
    with settings.scoped(cc=(label,)):
        if c_compiler.candidates()[0].command is None:
            pytest.skip(f"{label} is not installed")
        device = CpuDevice()
        run_axpby(device.build(axpby()), 777)
        assert f"compiled by {label} " in device.describe().summary


def test_nan_and_infinity_propagate(axpby):
    built = CpuDevice().build(axpby())
    x = np.array([np.nan, np.inf, -np.inf, 1] * 40, np.float32)
    y = np.zeros_like(x)
    with aligned(x) as source, aligned(y) as target:
        built.launch([source.handle, target.handle], {"n": x.size}, {"alpha": 0.0, "beta": 1.0})
        target.read(y)
    assert np.isnan(y[0::4]).all()
    assert np.isnan(y[1::4]).all()
    assert (y[3::4] == x.size % 7).all()


def test_a_violated_requirement_is_named(axpby):
    built = CpuDevice().build(axpby())
    with pytest.raises(IllegalProblem, match=r"requires x_address % 16 == 0; got x_address = 4100; vector loads"):
        built.launch([4100, 64], {"n": 5}, {"alpha": 1.0, "beta": 0.0})


def test_requirements_hold_for_an_empty_grid_too(axpby):
    built = CpuDevice().build(axpby(requirements=(Requirement("n % 2 == 1", "odd only"),)))
    with pytest.raises(IllegalProblem, match="got n = 0; odd only"):
        built.launch([0, 0], {"n": 0}, {"alpha": 1.0, "beta": 0.0})


@pytest.mark.parametrize(
    ("buffers", "symbols", "floats", "error", "message"),
    [
        ([0], {"n": 1}, {}, IllegalProblem, r"takes 2 buffers \(x, y\); got 1"),
        ([0, 0], {}, {}, IllegalProblem, "needs a value for n"),
        ([0, 0], {"n": 1}, {"alpha": 1.0}, IllegalProblem, "needs a value for beta"),
        ([0, 0], {"n": 1.5}, {}, IllegalType, "must be integers"),
        ([None, 0], {"n": 1}, {}, IllegalType, "must be an address"),
    ],
)
def test_wrong_arguments(axpby, buffers, symbols, floats, error, message):
    with pytest.raises(error, match=message):
        CpuDevice().build(axpby()).launch(buffers, symbols, floats)


def test_streams_are_refused(axpby):
    with pytest.raises(IllegalProblem, match="no streams; got 7"):
        CpuDevice().build(axpby()).launch([0, 0], {"n": 1}, {"alpha": 1.0, "beta": 1.0}, stream=7)


def test_another_language_is_refused(axpby):
    with pytest.raises(UnsupportedTarget, match="builds c; got cuda"):
        CpuDevice().build(axpby(Language.CUDA))


def test_a_broken_text_reports_the_log(axpby):
    with pytest.raises(BuildFailed, match=r"(?s)kernel axpby.*error"):
        CpuDevice().build(axpby(text="void NAME( { nonsense"))
    with pytest.raises(BuildFailed, match="define its entry point"):
        CpuDevice().build(axpby(text="void other(void) {}"))


def test_a_failed_build_can_be_repeated(axpby):
    device = CpuDevice()
    for _ in range(2):
        with pytest.raises(BuildFailed):
            device.build(axpby(text="nonsense"))


def test_an_unknown_compiler_is_an_error_and_no_fallback(axpby):
    with settings.scoped(cc=("no-such-compiler",)), pytest.raises(UnsupportedTarget, match="no-such-compiler"):
        CpuDevice().build(axpby())


def test_describe_names_what_was_passed_over(monkeypatch):
    monkeypatch.setattr(c_compiler, "ziglang_command", lambda: None)
    with settings.scoped():
        description = CpuDevice().describe()
    assert any(line.startswith("passed over zig: ") for line in description.details)
    monkeypatch.setenv("PATH", "")
    description = CpuDevice().describe()
    assert not description.found
    assert "pip install" in description.remedy


def test_the_wheel_alone_is_enough(axpby, monkeypatch):
    if c_compiler.ziglang_command() is None:
        pytest.skip("the ziglang wheel is not installed")
    monkeypatch.setenv("PATH", "")
    device = CpuDevice()
    run_axpby(device.build(axpby(name="alone")), 100)
    assert "compiled by zig " in device.describe().summary


def test_sixteen_threads_compile_once(axpby, monkeypatch):
    calls = []
    original = c_compiler.CCompiler.compile

    def counted(self, source):
        calls.append(source.name)
        time.sleep(0.05)
        return original(self, source)

    monkeypatch.setattr(c_compiler.CCompiler, "compile", counted)
    device = CpuDevice()
    barrier = threading.Barrier(16)
    built, failures = [], []

    def work(number):
        try:
            barrier.wait()
            for kernel in range(4):
                built.append(device.build(axpby(name=f"axpby{kernel}")))
                run_axpby(built[-1], 500 + number)
        except BaseException as error:  # noqa: BLE001 (shown by the assertion)
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(name for name in calls if name.startswith("axpby")) == [f"axpby{n}" for n in range(4)]
    assert len({id(item) for item in built}) == 4


def test_launch_overhead_stays_small(axpby):
    built = CpuDevice().build(axpby())
    with aligned(np.ones(100, np.float32)) as x, aligned(np.ones(100, np.float32)) as y:
        times = []
        for _ in range(300):
            start = time.perf_counter()
            built.launch([x.handle, y.handle], {"n": 100}, {"alpha": 1.0, "beta": 0.0})
            times.append(time.perf_counter() - start)
    assert sorted(times)[150] < 100e-6


def test_memory_helpers_check_and_copy():
    device = CpuDevice()
    with device.allocate(16) as memory:
        assert memory.handle % 64 == 0
        memory.fill(0xFF)
        read = np.zeros(4, np.int32)
        memory.read(read)
        assert (read == -1).all()
        with pytest.raises(IllegalProblem, match="16 bytes; got 40"):
            memory.write(np.zeros(10, np.int32))
        with pytest.raises(IllegalProblem, match="contiguous"):
            memory.write(np.zeros((2, 2), np.int32).T[:, ::-1])
    memory.free()
