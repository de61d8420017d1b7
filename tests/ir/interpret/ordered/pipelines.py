"""Hand-written kernels for sm_90a: a persistent GEMM of roles around a ring of stages, and what launches it."""

from dataclasses import dataclass

import numpy as np

from convloom.dtypes import B32, B64, F16, F32
from convloom.expr import all_of, const, maximum
from convloom.ir.build import IrBuilder
from convloom.ir.interpret import GlobalMemory, Options, interpret
from convloom.ir.ops import (
    Address,
    Buffer,
    Convert,
    Descriptor,
    Kernel,
    MapParameter,
    Numbers,
    Pack,
    Read,
    Registers,
    Scope,
)
from convloom.ir.symbols import BLOCK_ID, thread_id
from convloom.target.catalogue import row_named
from convloom.target.nvidia_wgmma import wgmma
from convloom.target.swizzle import Swizzle

BLOCK_K = 64  # f16 numbers: 128 bytes, one swizzle span
GROUP = 128


@dataclass(frozen=True)
class Pipeline:
    """A (m, k) and B (n, k), both with k contiguous; C (m, n). Each consumer warpgroup computes 64 x block_n."""

    m: int = 192
    n: int = 64
    k: int = 320
    block_n: int = 32
    consumers: int = 1
    stages: int = 2
    blocks: int = 2
    cluster: int = 1  # blocks of a cluster share B
    overlapped: bool = False  # a stage is released one step later
    matrix_stores: bool = False  # results go to shared memory by stmatrix

    @property
    def block_m(self):
        return 64 * self.consumers

    @property
    def threads(self):
        return GROUP * (1 + self.consumers)

    @property
    def tiles(self):
        return self.m // self.block_m * (self.n // self.block_n)


class _Writer:
    """Writes the kernel of a pipeline, role by role."""

    def __init__(self, shape):
        self.shape = shape
        self.ir = IrBuilder()
        self.tid = thread_id(shape.threads)
        a, b = (Buffer(name, F16, Scope.GLOBAL) for name in "ab")
        c = Buffer("c", F16, Scope.GLOBAL, written=True)
        self.buffers = (a, b, c)
        rows = shape.block_n // shape.cluster
        self.maps = (
            _tiled("a_map", a, (shape.k, shape.m), (BLOCK_K, shape.block_m), Swizzle.B128),
            _tiled("b_map", b, (shape.k, shape.n), (BLOCK_K, rows), Swizzle.B128),
            _tiled("c_map", c, (shape.n, shape.m), (shape.block_n, 64), Swizzle.NONE),
        )
        self.steps = shape.k // BLOCK_K
        self.a_size, self.b_size = shape.block_m * BLOCK_K, shape.block_n * BLOCK_K

    def kernel(self):
        shape, ir = self.shape, self.ir
        self.a = self._shared("a_tile", F16, shape.stages * self.a_size)
        self.b = self._shared("b_tile", F16, shape.stages * self.b_size)
        self.out = self._shared("c_tile", F16, shape.block_m * shape.block_n)
        self.full, self.empty = (self._shared(name, B64, shape.stages) for name in ("full", "empty"))
        self._initialise()
        role = ir.let("role", self.tid // GROUP)
        with ir.condition(role.eq(0)):
            ir.instruct(row_named("setmaxnreg.dec"), registers=const(40))
            with ir.condition(self.tid.eq(0)):
                self._produce()
        with ir.condition(role.ge(1)):
            ir.instruct(row_named("setmaxnreg.inc"), registers=const(232))
            self._consume(ir.let("consumer", maximum(role - 1, 0), below=const(shape.consumers)))
        if shape.cluster > 1:
            self._meet_cluster()
        made = (shape.threads, const(shape.blocks), 32, ir.body, self.maps, shape.cluster)
        return Kernel("pipeline", self.buffers, (), *made)

    def _shared(self, name, dtype, size):
        return self.ir.allocate(Buffer(name, dtype, Scope.SHARED, size, alignment=1024 if dtype is F16 else 0))

    def _initialise(self):
        ir, shape = self.ir, self.shape
        with ir.condition(self.tid.eq(0)):
            for stage in range(shape.stages):
                ir.instruct(row_named("mbarrier.init"), barrier=Address(self.full, const(stage)), count=const(1))
                count = const(shape.consumers * shape.cluster)
                ir.instruct(row_named("mbarrier.init"), barrier=Address(self.empty, const(stage)), count=count)
            ir.instruct(row_named("fence.mbarrier_init"))
        if shape.cluster > 1:
            self._meet_cluster()
        else:
            ir.barrier()

    def _meet_cluster(self):
        self.ir.instruct(row_named("barrier.cluster.arrive"))
        self.ir.instruct(row_named("barrier.cluster.wait"))

    def _tiles(self):
        """Tiles of this block: those of a cluster lie below each other."""
        shape = self.shape
        return shape.tiles // shape.blocks

    def _place(self, turn):
        shape, ir = self.shape, self.ir
        rank = BLOCK_ID % shape.cluster
        pair = BLOCK_ID // shape.cluster + turn * (shape.blocks // shape.cluster)
        columns = shape.n // shape.block_n
        row = ir.let("row", (pair // columns * shape.cluster + rank) * shape.block_m, below=const(shape.m))
        return row, ir.let("column", pair % columns * shape.block_n)

    def _ring(self, turn, step, lead):
        """(stage, parity) of a step of a tile; `lead` 1: of empty barriers, whose first phase is over at once."""
        number = turn * self.steps + step
        stage = self.ir.let("stage", number % self.shape.stages)
        return stage, self.ir.let("parity", (number // self.shape.stages + lead) % 2)

    def _wait(self, barrier, stage, parity):
        self.ir.instruct(row_named("mbarrier.wait.parity"), barrier=Address(barrier, stage), parity=parity)

    def _produce(self):
        ir = self.ir
        with ir.loop("turn", self._tiles()) as turn:
            row, column = self._place(turn)
            with ir.loop("step", self.steps) as step:
                stage, parity = self._ring(turn, step, 1)
                self._wait(self.empty, stage, parity)
                nbytes = const(2 * (self.a_size + self.b_size))
                full = Address(self.full, stage)
                ir.instruct(row_named("mbarrier.arrive.expect_tx"), barrier=full, nbytes=nbytes)
                ir.instruct(
                    row_named("cp.async.bulk.tensor.2d.tile.load"),
                    destination=Address(self.a, stage * self.a_size),
                    map=self.maps[0],
                    coordinates=Numbers((step * BLOCK_K, row)),
                    barrier=full,
                )
                self._load_b(stage, step, column, full)

    def _load_b(self, stage, step, column, full):
        shape = self.shape
        common = {"map": self.maps[1], "barrier": full}
        if shape.cluster == 1:
            self.ir.instruct(
                row_named("cp.async.bulk.tensor.2d.tile.load"),
                destination=Address(self.b, stage * self.b_size),
                coordinates=Numbers((step * BLOCK_K, column)),
                **common,
            )
            return
        part = self.b_size // shape.cluster
        rank = BLOCK_ID % shape.cluster
        self.ir.instruct(
            row_named("cp.async.bulk.tensor.2d.tile.load.multicast"),
            destination=Address(self.b, stage * self.b_size + rank * part),
            coordinates=Numbers((step * BLOCK_K, column + rank * (shape.block_n // shape.cluster))),
            mask=const(2**shape.cluster - 1),
            **common,
        )

    def _consume(self, consumer):
        ir, shape = self.ir, self.shape
        acc = ir.allocate(Buffer("acc", F32, Scope.REGISTER, shape.block_n // 2))
        first = (self.tid % GROUP).eq(0)
        with ir.loop("turn", self._tiles()) as turn:
            row, column = self._place(turn)
            with ir.loop("step", self.steps) as step:
                stage, parity = self._ring(turn, step, 0)
                self._wait(self.full, stage, parity)
                self._multiply(acc, stage, step, consumer)
                self._release(turn, step, stage, first)
            if shape.overlapped:
                ir.instruct(row_named("wgmma.wait_group"), pending=const(0))
                last = ir.let("last", (turn * self.steps + self.steps - 1) % shape.stages)
                with ir.condition(first):
                    self._give_back(last)
            self._store(acc, turn, row, column, consumer, first)
        with ir.condition(first):
            ir.instruct(row_named("cp.async.bulk.wait_group"), pending=const(0))

    def _multiply(self, acc, stage, step, consumer):
        ir, shape = self.ir, self.shape
        ir.instruct(row_named("wgmma.fence"))
        for part in range(BLOCK_K // 16):
            a_place = stage * self.a_size + consumer * (64 * BLOCK_K) + part * 16
            ir.instruct(
                wgmma(shape.block_n, F16, F16),
                d=Registers(acc, const(0), shape.block_n // 2),
                a=Descriptor(self.a, a_place, 16, 1024, Swizzle.B128),
                b=Descriptor(self.b, stage * self.b_size + part * 16, 16, 1024, Swizzle.B128),
                accumulate=const(1) if part else step.gt(0),
                sign_a=const(1),
                sign_b=const(1),
                major_a=const(0),
                major_b=const(0),
            )
        ir.instruct(row_named("wgmma.commit_group"))
        ir.instruct(row_named("wgmma.wait_group"), pending=const(1 if shape.overlapped else 0))

    def _release(self, turn, step, stage, first):
        ir, shape = self.ir, self.shape
        if not shape.overlapped:
            with ir.condition(first):
                self._give_back(stage)
            return
        before = ir.let("before", (turn * self.steps + step + shape.stages - 1) % shape.stages)
        with ir.condition(all_of(first, step.gt(0))):
            self._give_back(before)

    def _give_back(self, stage):
        ir = self.ir
        if self.shape.cluster == 1:
            ir.instruct(row_named("mbarrier.arrive"), barrier=Address(self.empty, stage))
            return
        remote = ir.allocate(Buffer(ir.unique("remote"), B32, Scope.REGISTER, 1))
        for rank in range(self.shape.cluster):
            ir.instruct(
                row_named("mapa"),
                d=Registers(remote, const(0), 1),
                address=Address(self.empty, stage),
                rank=const(rank),
            )
            ir.instruct(row_named("mbarrier.arrive.cluster"), barrier=Registers(remote, const(0), 1))

    def _store(self, acc, turn, row, column, consumer, first):
        ir, shape = self.ir, self.shape
        mine = consumer * (64 * shape.block_n)
        with ir.condition(first):
            ir.instruct(row_named("cp.async.bulk.wait_group.read"), pending=const(0))
        self._meet(consumer)
        if shape.matrix_stores:
            self._store_matrices(acc, mine)
        else:
            self._store_pairs(acc, mine)
        ir.instruct(row_named("fence.proxy.async.shared"))
        self._meet(consumer)
        with ir.condition(first):
            ir.instruct(
                row_named("cp.async.bulk.tensor.2d.tile.store"),
                map=self.maps[2],
                coordinates=Numbers((column, row + consumer * 64)),
                source=Address(self.out, mine),
            )
            ir.instruct(row_named("cp.async.bulk.commit_group"))

    def _store_matrices(self, acc, mine):
        """Lane 8q + r addresses row r of matrix q: 8 rows down for odd q, 8 columns right for q of 2 and 3."""
        ir, shape = self.ir, self.shape
        words = ir.allocate(Buffer("words", B32, Scope.REGISTER, 4))
        lane = self.tid % 32
        row = self.tid // 32 % 4 * 16 + lane // 8 % 2 * 8 + lane % 8
        place = ir.let("place", row * shape.block_n + lane // 16 * 8)
        for pair in range(shape.block_n // 16):
            for number in range(4):
                packed = Pack(Convert(Read(acc, const(8 * pair + 2 * number), 2), F16))
                ir.write(words, const(number), packed)
            target = Address(self.out, mine + place + 16 * pair)
            ir.instruct(row_named("stmatrix.x4"), address=target, a=Registers(words, const(0), 4))

    def _store_pairs(self, acc, mine):
        ir, shape = self.ir, self.shape
        lane = self.tid % 32
        place = ir.let("place", (self.tid // 32 % 4 * 16 + lane // 4) * shape.block_n + lane % 4 * 2)
        for column_block in range(shape.block_n // 8):
            for half in range(2):
                value = Convert(Read(acc, const(4 * column_block + 2 * half), 2), F16)
                ir.write(self.out, mine + place + (8 * half * shape.block_n + 8 * column_block), value)

    def _meet(self, consumer):
        """A barrier's number is part of the instruction: one branch each."""
        for number in range(self.shape.consumers):
            with self.ir.condition(consumer.eq(number)):
                self.ir.instruct(row_named("bar.sync"), barrier=const(1 + number), threads=const(GROUP))


def _tiled(name, buffer, sizes, box, swizzle):
    sizes = tuple(map(const, sizes))
    strides = (sizes[0] * 2,)
    return MapParameter(name, buffer, sizes, strides, (1, 1), swizzle, box=box)


def pipeline(shape):
    return _Writer(shape).kernel()


def operands(shape, seed=0):
    """(memories of a launch, expected result)."""
    random = np.random.default_rng(seed)
    a = random.integers(-2, 3, (shape.m, shape.k)).astype(np.float16)
    b = random.integers(-2, 3, (shape.n, shape.k)).astype(np.float16)
    c = np.zeros(shape.m * shape.n, np.float16)
    memories = {
        "a": GlobalMemory(a.reshape(-1), address=1 << 20),
        "b": GlobalMemory(b.reshape(-1), address=1 << 20),
        "c": GlobalMemory(c, known=np.zeros(c.size, bool), address=1 << 20),
    }
    return memories, (a.astype(np.float64) @ b.astype(np.float64).T).astype(np.float16)


def launch(kernel, shape, options=None, seed=0):
    """(outcome, whether the result is exact)."""
    memories, expected = operands(shape, seed)
    outcome = interpret(kernel, memories, {}, {}, shape.blocks, options or Options())
    return outcome, bool((memories["c"].values.reshape(shape.m, shape.n) == expected).all())
