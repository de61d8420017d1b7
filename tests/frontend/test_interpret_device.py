"""The interpret device: the path of every other device, on memory whose every access is checked."""

from dataclasses import replace

import numpy as np
import pytest

import convloom
from convloom.artifact import Language
from convloom.errors import IllegalProblem
from convloom.frontend.interpret_device import InterpretDevice, InterpretedFault
from convloom.frontend.problem_check import check_problem
from convloom.ir.interpret import FindingKind, Options
from convloom.ir.interpret.options import Landing
from convloom.problem.conv import Direction
from convloom.problem.data import DataKind
from convloom.problem.notation import parse_problem
from convloom.runtime.device import describe_devices, device_named
from convloom.settings import scoped

LINE = "mb2ic5ih7oc9oh4kh3sh2ph1"


@pytest.mark.parametrize("direction", list(Direction))
def test_problems_pass_their_check(direction):
    kernel = convloom.compile(parse_problem(LINE, direction=direction), device="interpret")
    assert check_problem(kernel, DataKind.INT).passed
    assert check_problem(kernel, DataKind.REAL).passed


def test_its_source_is_the_text_of_the_ir():
    kernel = convloom.compile(parse_problem(LINE), device="interpret")
    assert kernel.variants[0].source.language is Language.IR
    assert kernel.source.startswith("kernel ")


def test_it_is_named_and_described():
    assert isinstance(device_named("interpret"), InterpretDevice)
    found = {item.name: item for item in describe_devices()}["interpret"]
    assert found.found
    assert "data race" in found.details[0]


def test_numpy_arrays_are_taken_where_they_lie():
    random = np.random.default_rng(0)
    src, wei = random.integers(-4, 5, (2, 5, 7, 7)), random.integers(-4, 5, (9, 5, 3, 3))
    src, wei = src.astype(np.float32), wei.astype(np.float32)
    kernel = convloom.compile(parse_problem(LINE), device="interpret")
    expected = convloom.conv(src, wei, stride=2, padding=1)
    assert np.array_equal(kernel(src, wei), expected)
    out = np.zeros_like(expected)
    assert kernel(src, wei, out=out) is out
    assert np.array_equal(out, expected)


def faulty(kernel, old, new):
    """The kernel's source with one piece of text replaced, built on a device of its own."""

    source = kernel.variants[0].source
    assert old in source.text
    return replace(source, text=source.text.replace(old, new))


def test_a_fault_is_an_error_that_lists_what_was_found():
    kernel = convloom.compile(parse_problem(LINE), device="interpret")
    device = InterpretDevice()
    built = device.build(faulty(kernel, "    barrier\n", ""))
    with _memories(device, built) as buffers, pytest.raises(InterpretedFault, match="data race: shared") as caught:
        built.launch(buffers, {})
    assert caught.value.findings.kinds() == {FindingKind.RACE}


def test_a_fault_is_kept_as_a_text_that_repeats_it(tmp_path):
    kernel = convloom.compile(parse_problem(LINE), device="interpret")
    device = InterpretDevice()
    built = device.build(faulty(kernel, "    barrier\n", ""))
    with scoped(dump=tmp_path), _memories(device, built) as buffers, pytest.raises(InterpretedFault) as caught:
        built.launch(buffers, {})
    (file,) = tmp_path.glob("*.faulty.ir")
    assert file.read_text() == caught.value.text == built.source.text
    again = device.build(replace(built.source, text=file.read_text()))
    with _memories(device, again) as buffers, pytest.raises(InterpretedFault, match="data race: shared"):
        again.launch(buffers, {})


def test_checks_are_options_of_the_device_or_settings():
    kernel = convloom.compile(parse_problem(LINE), device="interpret")
    source = faulty(kernel, "    barrier\n", "")
    device = InterpretDevice(Options(races=False))
    built = device.build(source)
    with _memories(device, built) as buffers:
        built.launch(buffers, {})
    device = InterpretDevice()
    built = device.build(source)
    with scoped(interpret_checks=frozenset(("known",))), _memories(device, built) as buffers:
        assert not device.options().races
        assert device.options().known
        built.launch(buffers, {})


class _memories:
    """Known memory of ample size for every buffer of a kernel."""

    def __init__(self, device, built):
        self.parts = [device.allocate(1 << 14) for _ in built.source.buffers]

    def __enter__(self):
        for part in self.parts:
            part.fill(0)
        return [part.handle for part in self.parts]

    def __exit__(self, *_):
        for part in self.parts:
            part.free()


def test_declared_memory_bounds_every_access():
    kernel = convloom.compile(parse_problem(LINE), device="interpret")
    device = InterpretDevice()
    built = device.build(kernel.variants[0].source)
    memories = _memories(device, built)
    with memories as buffers:
        memories.parts[0].declare(0, 64, known=True)
        with pytest.raises(InterpretedFault, match="access out of bounds: global"):
            built.launch(buffers, {})


def test_undeclared_contents_are_unknown():
    kernel = convloom.compile(parse_problem(LINE), device="interpret")
    device = InterpretDevice()
    built = device.build(kernel.variants[0].source)
    memories = _memories(device, built)
    with memories as buffers:
        memories.parts[0].declare(0, 1 << 14, known=False)
        with pytest.raises(InterpretedFault, match="read of memory that nobody wrote: global"):
            built.launch(buffers, {})


def test_foreign_addresses_and_streams_are_refused():
    device = InterpretDevice()
    built = device.build(convloom.compile(parse_problem(LINE), device="interpret").variants[0].source)
    with pytest.raises(IllegalProblem, match="memory that it allocated"):
        built.launch([1, 2, 3], {})
    with _memories(device, built) as buffers, pytest.raises(IllegalProblem, match="no streams"):
        built.launch(buffers, {}, stream=7)


def test_dynamic_sizes():
    n = convloom.dim("n")
    problem = parse_problem(LINE)

    from convloom.problem.conv import TensorSpec
    from convloom.problem.layout import dense

    def spec(old, shape):
        return TensorSpec(old.dtype, dense(shape, range(len(shape))))

    dynamic = replace(problem, batch=n, src=spec(problem.src, (n, 5, 7, 7)), dst=spec(problem.dst, (n, 9, 4, 4)))
    kernel = convloom.compile(dynamic, device="interpret")
    for count in (1, 3, 7):
        src = np.arange(count * 5 * 49, dtype=np.float32).reshape(count, 5, 7, 7) % 7
        wei = np.arange(9 * 5 * 9, dtype=np.float32).reshape(9, 5, 3, 3) % 5
        assert np.array_equal(kernel(src, wei), convloom.conv(src, wei, stride=2, padding=1))


def test_an_order_by_seed_is_a_setting():
    kernel = convloom.compile(parse_problem(LINE), device="interpret")
    device = InterpretDevice()
    assert device.options().group_threads == 0
    with scoped(interpret_multiprocessors=4):
        assert device.options().multiprocessors == 4
    with scoped(interpret_order=3):
        options = device.options()
        assert (options.group_threads, options.seed, options.landing) == (32, 3, Landing.SEEDED)
        assert check_problem(kernel, DataKind.INT).passed
