"""Faults planted into generated kernels of the Hopper family: each is found, or is known to change nothing."""

from dataclasses import replace
from functools import cache
from itertools import islice

import pytest

from convloom.frontend.compile import compile
from convloom.frontend.interpret_device import InterpretBuilt, InterpretDevice, InterpretedFault
from convloom.frontend.problem_check import check_problem
from convloom.ir.interpret import Options
from convloom.ir.interpret.options import Landing
from convloom.ir.parse import parse_kernel
from convloom.ir.text import kernel_text
from convloom.problem.data import DataKind
from convloom.problem.notation.choose import parse_line
from tests.ir.interpret.ordered.faults import FAULTS
from tests.ir.interpret.ordered.persistence import broken_laws
from tests.notations import defaults

# At least three tiles of each of two blocks, and more K steps than twice the stages: the law of persistent kernels.
PRODUCT = "gemm -transA false -transB true -transO false -g 1 -m 384 -n 32 -k 320"
PLAN = (
    "hopper block={block}x64 consumers={consumers} stages={stages} g=- m={m} n={n} serial={serial} k={k} a={a} b=tile"
    " row=wgmma.m64n32k16.f32.f16.f16.ss store=1 out={out} swap={swap}"
)
CASES = {
    "product": (
        PRODUCT,
        None,
        PLAN.format(
            block="64x32", consumers=1, stages=2, m="n0", n="m0", serial="-", k="k0", a="tile", out="registers", swap=1
        ),
    ),
    "images, two consumers": (
        "mb4ic64ih12iw12oc64oh12ow12_kh3kw3sh1sw1ph1pw1dh0dw0",
        "axb",
        PLAN.format(
            block="128x32", consumers=2, stages=3, m="m0,m1,m2", n="n0", serial="k0,k1", k="k2", a="columns",
            out="registers", swap=0,
        ),
    ),
    "through shared memory": (
        "mb4ic64ih12iw12oc64oh12ow12_kh3kw3sh1sw1ph1pw1dh0dw0",
        "axb",
        PLAN.replace("store=1", "store=2").format(
            block="128x32", consumers=2, stages=3, m="m0,m1,m2", n="n0", serial="k0,k1", k="k2", a="columns",
            out="shared", swap=0,
        ),
    ),
}  # fmt: skip
ALL_FAULTS = ("product", "images, two consumers")
FENCES = ("fence of barrier initialisation", "fence of registers", "fence between proxies")
# With three stages the next one was filled, and is given back, a step later: to wait for it, or to give it back in
# place of the one before, is as safe as what is right.
EQUIVALENT = {("images, two consumers", "stage of a wait"), ("images, two consumers", "stage given back")}
LANDINGS = tuple(Landing)


class Changing(InterpretDevice):
    """Launches a changed kernel in place of the one that was built."""

    def __init__(self, options, kernel=None):
        super().__init__(options)
        self.kernel = kernel

    def _build(self, source):
        text = source.text if self.kernel is None else kernel_text(self.kernel)
        return InterpretBuilt(replace(source, text=text), self)


def launched(name, options, kernel=None):
    """(what shows that it is wrong, the built kernel of the launch)."""
    line, tag, plan = CASES[name]
    made = compile(parse_line(line, defaults("fwd", "f16", *filter(None, [tag]))), Changing(options, kernel), plan)
    try:
        reason = check_problem(made, DataKind.INT).reason
    except InterpretedFault as fault:
        reason = str(fault)
    return reason, made.variants[0].launches[0].built


@cache
def generated(name):
    _, built = launched(name, Options())
    return parse_kernel(built.source.text)


@cache
def planted():
    return [
        (case, name, path, kernel)
        for case in ALL_FAULTS
        for name, change in FAULTS.items()
        if (case, name) not in EQUIVALENT
        for path, kernel in islice(change(generated(case)), None if case == "product" else 1)
    ]


@pytest.mark.parametrize("landing", LANDINGS)
@pytest.mark.parametrize("name", CASES)
def test_the_kernel_itself_has_no_fault(name, landing):
    reason, built = launched(name, Options(landing=landing, seed=3, counted=True, multiprocessors=2))
    assert reason == ""
    assert broken_laws(generated(name), built.last.counts) == []


IDS = [f"{name} at {path} of {case}" for case, name, path, _ in planted()]


@pytest.mark.parametrize("number", range(len(planted())), ids=IDS)
def test_planted_faults_are_found(number):
    case, _, _, kernel = planted()[number]
    reason, _ = launched(case, Options(landing=LANDINGS[number % 3], seed=number, multiprocessors=2), kernel)
    assert reason != ""


@pytest.mark.parametrize("landing", LANDINGS)
@pytest.mark.parametrize("fence", FENCES)
def test_missing_fences_are_found_where_results_leave_by_tensor_stores(fence, landing):
    dropped = list(FAULTS[fence](generated("through shared memory")))
    assert dropped
    for _, kernel in dropped:
        reason, _ = launched("through shared memory", Options(landing=landing, multiprocessors=2), kernel)
        assert reason != ""


@pytest.mark.parametrize("name", ALL_FAULTS)
def test_faults_are_many(name):
    assert len({fault for case, fault, _, _ in planted() if case == name}) > 15
