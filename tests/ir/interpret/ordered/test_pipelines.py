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
from tests.ir.interpret.ordered.persistence import broken_laws, check_persistent, rings
from tests.ir.interpret.ordered.pipelines import Pipeline, launch, operands, pipeline

# All obey the law of `persistence`: three tiles a block or more, and more K steps than twice the stages.
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


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_large_enough_to_prove_something(name):
    shape = SHAPES[name]
    kernel = pipeline(shape)
    outcome, _ = launch(kernel, shape, Options(counted=True, multiprocessors=shape.blocks))
    assert [ring.stages for ring in rings(kernel)] == [shape.stages] * 2  # of producer and consumers
    assert broken_laws(kernel, outcome.counts) == []


@pytest.mark.parametrize(
    ("shape", "law"),
    [(Pipeline(m=128, n=32, blocks=1), "2 tiles of a block"), (Pipeline(k=256, n=32, blocks=1), "4 K steps")],
)
def test_shapes_that_prove_too_little_are_told(shape, law):
    kernel = pipeline(shape)
    outcome, exact = launch(kernel, shape, Options(counted=True))
    assert exact
    assert len(outcome.findings) == 0
    assert all(law in words for words in broken_laws(kernel, outcome.counts))
    assert len(broken_laws(kernel, outcome.counts)) == 2  # for either role


def test_the_check_of_persistent_kernels():
    shape = SHAPES["one consumer"]
    check_persistent(pipeline(shape), lambda: operands(shape)[0], {}, {}, shape.blocks, shape.blocks)
    small = Pipeline(k=256, n=32, blocks=1)
    with pytest.raises(AssertionError, match="4 K steps"):
        check_persistent(pipeline(small), lambda: operands(small)[0], {}, {}, 1, 1)
    (_, faulty), *_ = FAULTS["fence between proxies"](pipeline(shape))
    with pytest.raises(AssertionError, match="fence missing"):
        check_persistent(faulty, lambda: operands(shape)[0], {}, {}, shape.blocks, shape.blocks)


@pytest.mark.parametrize("multiprocessors", [1, 2, 3, 4])
def test_any_number_of_multiprocessors_gives_the_same(multiprocessors):
    shape = Pipeline(m=192 * 4, n=32, k=320, blocks=4)
    outcome, exact = launch(pipeline(shape), shape, Options(multiprocessors=multiprocessors, landing=Landing.SEEDED))
    assert exact
    assert len(outcome.findings) == 0


# --- counts ---------------------------------------------------------------------------------------------------------


def counted(shape):
    outcome, exact = launch(pipeline(shape), shape, Options(counted=True))
    assert exact
    assert len(outcome.findings) == 0
    return outcome.counts


def sites(counts, buffer, *, written):
    return [site for site in counts.sites.values() if site.buffer == buffer and site.written is written]


def summed(found, name):
    return sum(getattr(site, name) for site in found)


@pytest.mark.parametrize("name", ["one consumer", "cooperative", "cluster"])
def test_bytes_of_copies_and_multiplies_are_counted(name):
    shape = SHAPES[name]
    counts = counted(shape)
    rounds = shape.tiles * (shape.k // 64)
    a, b = 2 * shape.block_m * 64, 2 * shape.block_n * 64
    for buffer, size, sent in (("a", a, 1), ("b", b, shape.cluster)):
        (loaded,) = sites(counts, buffer, written=False)
        assert loaded.moved_bytes == rounds * size // sent  # a multicast copy is read once and written everywhere
        assert loaded.units * 32 == loaded.moved_bytes
        assert summed(sites(counts, f"{buffer}_tile", written=True), "moved_bytes") == rounds * size
        read = sites(counts, f"{buffer}_tile", written=False)
        assert summed(read, "moved_bytes") == rounds * size * (shape.consumers if buffer == "b" else 1)
        assert summed(read, "units") * 128 == summed(read, "moved_bytes")  # swizzled tiles: no bank conflict
    (stored,) = sites(counts, "c", written=True)
    assert stored.moved_bytes == 2 * shape.m * shape.n
    assert counts.operations["multiply-add"] == shape.m * shape.n * shape.k
    assert counts.rows[f"wgmma.m64n{shape.block_n}k16.f32.f16.f16.ss"] == rounds * 4 * shape.consumers


@pytest.mark.parametrize(("matrix_stores", "bytes_each"), [(False, 4), (True, 16)])
def test_bank_conflicts_of_stores_of_roles_are_counted(matrix_stores, bytes_each):
    """Rows of 64 bytes: every second one begins in the same bank, so that eight rows take four wavefronts."""
    counts = counted(Pipeline(m=192, n=32, blocks=1, matrix_stores=matrix_stores))
    written = sites(counts, "c_tile", written=True)
    assert summed(written, "moved_bytes") == 2 * 192 * 32
    assert summed(written, "accesses") * bytes_each == 2 * 192 * 32
    assert {site.excess for site in written} == {4.0}


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
