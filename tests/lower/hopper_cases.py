"""Problems with Hopper plans for the interpreter: small, but every block runs three tiles of many K steps."""

from dataclasses import dataclass

import numpy as np

from convloom.artifact import MULTIPROCESSORS, WORKSPACE
from convloom.cli.problem_options import defaults_of
from convloom.ir.interpret import GlobalMemory, interpret
from convloom.problem.notation.choose import parse_line
from convloom.problem.numerics import compare_exact
from convloom.runtime.launch_expression import evaluate
from tests.ir.interpret.launching import ADDRESS, Case

PLAN = (
    "hopper block={block}x64 consumers={consumers} stages={stages} g=- m={m} n={n} serial={serial} k={k} a={a} b={b}"
    " row=wgmma.m64n{width}k16.f32.f16.f16.ss store={store} out={out} swap={swap} split={split} walk={walk}"
)


def plan(block, axes, copies, *, consumers=1, stages=2, store=2, out="registers", swap=0, split="none", walk=1):
    """`axes`: m; n; serial; k. `copies`: a; b."""
    m, n, serial, k = axes.split(";")
    a, b = copies.split(";")
    words = {"consumers": consumers, "stages": stages, "store": store, "out": out, "swap": swap, "split": split}
    width = block.split("x")[1]
    return PLAN.format(block=block, m=m, n=n, serial=serial, k=k, a=a, b=b, width=width, walk=walk, **words)


@dataclass(frozen=True)
class Launch:
    """A problem, how it is planned, and how many blocks are present."""

    problem: str
    direction: str
    plan: str
    multiprocessors: int = 2
    tag: str = "axb"
    dtypes: str = "f16"
    bias: str | None = None

    def case(self):
        given = defaults_of(self.direction, self.dtypes, self.tag, self.tag, self.tag, self.bias)
        return Case(parse_line(self.problem, given), self.plan, "interpret")


FORWARD = "mb2ic64ih12iw12oc64oh12ow12_kh3kw3sh1sw1ph1pw1dh0dw0"
GRADIENT = "mb2ic64ih12iw12oc128oh12ow12_kh3kw3sh1sw1ph1pw1dh0dw0"

STRIDED = "mb4ic64ih13iw13oc64oh7ow7_kh3kw3sh2sw2ph1pw1dh0dw0"
PHASES = "mb1ic64ih12iw12oc320oh6ow6_kh3kw3sh2sw2ph1pw1dh0dw0"
WIDE = "mb4ic64ih14iw14oc64oh14ow14_kh3kw3sh1sw1ph1pw1dh0dw0"
TAILS = "mb2ic328ih9iw9oc72oh9ow9_kh1kw1sh1sw1ph0pw0dh0dw0"
DEEP = "mb1ic64id4ih6iw10oc64od4oh6ow10_kd3kh3kw3sd1sh1sw1pd1ph1pw1dd0dh0dw0"
LINE = "mb4ic64iw40oc64ow40_kw9sw1pw4dw0"
PRODUCT = "-t f16 -transA {} -transB {} -g 2 -m 200 -n 136 -k 328"
PIXELS, IMAGES = "m0,m1,m2;n0;k0,k1;k2", "columns;tile"

LAUNCHES = {
    "forward": Launch(FORWARD, "fwd", plan("64x32", PIXELS, IMAGES, stages=3)),
    "two consumers": Launch(FORWARD, "fwd", plan("128x16", PIXELS, IMAGES, consumers=2, stages=4)),
    "two fragments of a consumer": Launch(FORWARD, "fwd", plan("128x16", PIXELS, IMAGES, stages=4, walk=2), 1),
    "three consumers": Launch(FORWARD, "fwd", plan("192x16", PIXELS, IMAGES, consumers=3, stages=3)),
    "forward, exchanged": Launch(
        FORWARD, "fwd", plan("64x48", "n0;m0,m1,m2;k0,k1;k2", "tile;columns", stages=4, store=1, swap=1)
    ),
    "bf16": Launch(FORWARD, "fwd", plan("64x32", PIXELS, IMAGES).replace("f16.f16.ss", "bf16.bf16.ss"), dtypes="bf16"),
    "strided": Launch(STRIDED, "fwd", plan("64x32", PIXELS, IMAGES, stages=3), 1),
    "tails in every direction": Launch(TAILS, "fwd", plan("64x32", "m0;n0;-;k0", "tile;tile")),
    "three dimensions": Launch(DEEP, "fwd", plan("64x32", "m0,m1,m2;n0;k0,k1,k2;k3", IMAGES, stages=5)),
    "one dimension": Launch(LINE, "fwd", plan("64x32", "m0,m1;n0;k0;k1", IMAGES, stages=4), 1),
    "gradient of data": Launch(GRADIENT, "bwd_d", plan("64x64", PIXELS, IMAGES, stages=4), 1),
    "gradient of data, phases": Launch(PHASES, "bwd_d", plan("64x64", "m0,m1;n0;k0,k1;k2", IMAGES), 1),
    "gradient of weights": Launch(GRADIENT, "bwd_w", plan("64x64", "m0;n0,n1,n2;-;k0,k1,k2", "tile;columns")),
    "gradient of weights, K divided": Launch(
        WIDE, "bwd_w", plan("192x64", "m0,m1,m2;n0;-;k0,k1,k2", IMAGES, consumers=3, store=1, split="passes*2")
    ),
    "through shared memory": Launch(
        FORWARD, "fwd", plan("128x32", PIXELS, IMAGES, consumers=2, stages=4, out="shared"), 1
    ),
    "through shared memory, an odd number of chunks": Launch(
        TAILS, "fwd", plan("64x48", "m0;n0;-;k0", "tile;tile", out="shared"), 1
    ),
    "through shared memory, whole spans": Launch(
        FORWARD, "fwd", plan("128x64", PIXELS, IMAGES, stages=3, out="shared", walk=2), 1
    ),
    "through shared memory, with a bias": Launch(
        FORWARD, "fwd", plan("64x32", PIXELS, IMAGES, out="shared"), bias="f32"
    ),
    "turned": Launch(
        FORWARD, "fwd", plan("64x48", "n0;m0,m1,m2;k0,k1;k2", "tile;columns", stages=4, out="turned", swap=1)
    ),
    "turned, two consumers, a bias": Launch(
        TAILS, "fwd", plan("128x16", "n0;m0;-;k0", "tile;tile", consumers=2, out="turned", swap=1), bias="f32"
    ),
    "pieces": Launch(FORWARD, "fwd", plan("128x32", PIXELS, IMAGES, stages=4, out="pieces"), 1),
    "pieces, an odd number of chunks": Launch(TAILS, "fwd", plan("64x48", "m0;n0;-;k0", "tile;tile", out="pieces"), 1),
    "gradient of data, phases, pieces": Launch(
        PHASES, "bwd_d", plan("64x64", "m0,m1;n0;k0,k1;k2", IMAGES, out="pieces"), 1
    ),
    "gradient of weights, through shared memory": Launch(
        GRADIENT, "bwd_w", plan("64x64", "m0;n0,n1,n2;-;k0,k1,k2", "tile;columns", out="shared")
    ),
    "product": Launch(
        PRODUCT.format("false", "true"), "fwd", plan("64x64", "n0;m0;-;k0", "tile;tile", swap=1).replace("g=-", "g=g0")
    ),
    "product, both transposed": Launch(
        PRODUCT.format("true", "false"),
        "fwd",
        plan("64x64", "n0;m0;-;k0", "tile;tile", swap=1, store=2).replace("g=-", "g=g0"),
    ),
}


def run(case, options):
    """(outcomes of all launches, number of wrong elements)."""
    memories, result = case._memories()
    program = case.generated.program
    sizes = {MULTIPROCESSORS: options.multiprocessors}
    count = evaluate(program.workspace_bytes, sizes) // 4
    memories[WORKSPACE] = GlobalMemory(np.zeros(count, np.float32), known=np.zeros(count, bool), address=ADDRESS)
    outcomes = []
    for kernel, source in zip(case.generated.kernels, program.launches, strict=True):
        arguments = {item.name: evaluate(item.expression, sizes) for item in source.scalars if item.kind.value == "i64"}
        used = {buffer.name: memories[buffer.name] for buffer in kernel.buffers}
        blocks = evaluate(source.grid[0], sizes)
        floats = {"alpha": case.operands.alpha, "beta": case.operands.beta}
        outcomes.append(interpret(kernel, used, arguments, floats, blocks, options))
    return outcomes, compare_exact(case.problem, result(), case.expected).mismatches
