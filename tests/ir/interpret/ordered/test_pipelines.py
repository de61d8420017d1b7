"""Persistent kernels of roles: exact results and no finding whatever the order; every planted fault shows."""

import pytest

from convloom.artifact import KernelSource, Language
from convloom.emit.cuda import print_cuda
from convloom.ir.interpret import Options
from convloom.ir.interpret.options import Landing
from convloom.ir.parse import parse_kernel
from convloom.ir.shared_space import shared_bytes
from convloom.ir.text import kernel_text
from convloom.ir.verify import verify
from convloom.runtime.nvrtc import current_nvrtc
from tests.ir.interpret.ordered.faults import EQUIVALENT, FAULTS
from tests.ir.interpret.ordered.pipelines import Pipeline, launch, pipeline

# At least three tiles a block, and more K steps than twice the stages.
SHAPES = {
    "one consumer": Pipeline(),
    "released a step later": Pipeline(overlapped=True, stages=3, k=448, n=32, blocks=1),
    "cooperative": Pipeline(consumers=2, m=384, n=32, blocks=1),
    "stmatrix": Pipeline(matrix_stores=True, n=32, blocks=1),
    "cluster": Pipeline(cluster=2, m=384, n=32),
    "four multiprocessors": Pipeline(m=384, blocks=4),
}
LANDINGS = (Landing.EARLIEST, Landing.LATEST, Landing.SEEDED)


@pytest.mark.parametrize("name", SHAPES)
def test_text_reads_back(name):
    kernel = pipeline(SHAPES[name])
    verify(kernel, "writing it")
    assert parse_kernel(kernel_text(kernel)) == kernel


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("landing", LANDINGS)
def test_right_kernels_are_exact_and_have_no_finding(name, landing):
    shape = SHAPES[name]
    kernel = pipeline(shape)
    for seed in range(2 if landing is Landing.SEEDED and shape.blocks == 1 else 1):
        outcome, exact = launch(kernel, shape, Options(landing=landing, seed=seed, multiprocessors=shape.blocks))
        assert [str(finding) for finding in outcome.findings] == []
        assert exact


SMALL = Pipeline(m=192, n=32, blocks=1)
MUTANTS = [(name, path, kernel) for name, change in FAULTS.items() for path, kernel in change(pipeline(SMALL))]


def test_faults_are_many():
    assert len(FAULTS) >= 25
    assert {name for name, _, _ in MUTANTS} == set(FAULTS)


@pytest.mark.parametrize("number", range(len(MUTANTS)), ids=[f"{name} at {path}" for name, path, _ in MUTANTS])
def test_faults_are_found(number):
    """Each under one of the three moments of landing, in turn; a wrong result counts where order is not the fault."""
    name, path, kernel = MUTANTS[number]
    outcome, exact = launch(kernel, SMALL, Options(landing=LANDINGS[number % 3], seed=number))
    if (name, path) in EQUIVALENT:
        assert exact
        assert len(outcome.findings) == 0
    else:
        assert len(outcome.findings) > 0 or not exact


@pytest.mark.parametrize("landing", LANDINGS)
@pytest.mark.parametrize(
    "name", ["fence between proxies", "short wait for multiplies", "named barrier", "wait for stores"]
)
def test_faults_of_order_are_findings_under_every_landing(name, landing):
    for _, kernel in FAULTS[name](pipeline(SMALL)):
        for seed in range(2):
            outcome, _ = launch(kernel, SMALL, Options(landing=landing, seed=seed))
            assert len(outcome.findings) > 0


def test_deadlocks_name_what_is_waited_for():
    (_, kernel), *_ = FAULTS["bytes expected, more"](pipeline(SMALL))
    outcome, _ = launch(kernel, SMALL)
    text = "; ".join(map(str, outcome.findings))
    assert (
        "the end of a phase of parity 0 of full[0], which is in phase 0 with 0 of 1 arrivals and 16 bytes pending"
        in text
    )
    assert "of parity 0 of empty[0]" in text


EXPECTED = (
    "mbarrier.try_wait.parity.shared::cta.b64",
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
    "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16",
    "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group",
    "setmaxnreg.inc.sync.aligned.u32",
    "const __grid_constant__ tensor_map a_map",
)


@pytest.mark.parametrize("name", ["one consumer", "cooperative", "stmatrix", "cluster"])
def test_cuda_text_compiles(name):
    kernel = pipeline(SHAPES[name])
    text = print_cuda(kernel)
    for words in EXPECTED:
        assert words in text
    assert ("__cluster_dims__(2, 1, 1)" in text) is (name == "cluster")
    grid = ("1", "1", "1")
    nbytes = shared_bytes(kernel)
    source = KernelSource(kernel.name, Language.CUDA, "sm_90a", text, (), (), grid, (kernel.threads, 1, 1), nbytes, ())
    log = current_nvrtc().compile(source).log
    assert "0 bytes spill stores" in log
    assert "setmaxnreg" not in log  # nor any other advice of the assembler about it
    assert "wgmma" not in log
