"""Launches a (possibly changed) kernel of a problem under the interpreter and compares with the exact reference."""

from dataclasses import dataclass, field

import numpy as np

from convloom.compiler import generate, prepare
from convloom.ir.interpret import GlobalMemory, Options, interpret
from convloom.plan.families import parse_plan
from convloom.problem.data import DataKind, make_operands
from convloom.problem.layout_memory import buffer_origin, buffer_size, pack, unpack
from convloom.problem.numerics import compare_exact
from convloom.problem.reference import Arithmetic, operand_shapes, reference, result_shape
from convloom.runtime.launch_expression import evaluate
from convloom.target.arch import target_named
from tests.plan.dividing import undivided

GUARD = 64  # poisoned elements on either side of every tensor
ADDRESS = 1 << 20


@dataclass
class Case:
    """A problem of constant sizes with its kernel, data and expected result."""

    problem: object
    plan: str | None = None
    target: str = "interpret"
    cleared: bool = False  # the result holds zeros before the launch
    kernel: object = field(init=False)

    def __post_init__(self):
        self.form = prepare(self.problem)
        machine = target_named(self.target)
        plan = undivided(self.form.contraction, machine) if self.plan is None else parse_plan(self.plan)
        self.generated = generate(self.form.contraction, machine, plan)
        self.kernel = self.generated.kernel
        self.operands = make_operands(self.problem, DataKind.INT, seed=1)
        self.expected = reference(self.problem, self.operands, Arithmetic.EXACT)

    def launch(self, kernel=None, options=None):
        """(outcome, number of wrong elements)."""
        memories, result = self._memories()
        source = self.generated.source
        arguments = {item.name: evaluate(item.expression, {}) for item in source.scalars if item.kind.value == "i64"}
        floats = {"alpha": self.operands.alpha, "beta": self.operands.beta}
        blocks = evaluate(source.grid[0], {})
        outcome = interpret(kernel or self.kernel, memories, arguments, floats, blocks, options or Options())
        return outcome, compare_exact(self.problem, result(), self.expected).mismatches

    def found(self, kernel, options=None):
        """What shows that a changed kernel is wrong: kinds of findings, or `result`; empty if nothing does."""
        outcome, wrong = self.launch(kernel, options)
        return {kind.name for kind in outcome.findings.kinds()} | ({"result"} if wrong else set())

    def _memories(self):
        problem, operands = self.problem, self.operands
        roles = ["a", "b", "c"] if hasattr(problem, "k") else [role.value for role in problem.roles]
        specs = [problem.a, problem.b, problem.c] if hasattr(problem, "k") else [problem.spec(r) for r in problem.roles]
        shapes = [*operand_shapes(problem), result_shape(problem)]
        old = np.zeros(shapes[2]) if self.cleared else operands.old
        arrays = [operands.a, operands.b, old]
        tensors = {
            name: guarded(spec.dtype, spec.layout, shape, array)
            for name, spec, shape, array in zip(roles, specs, shapes, arrays, strict=True)
        }
        if operands.bias is not None:
            tensors["bias"] = GlobalMemory(operands.bias.astype(problem.bias.numpy), address=ADDRESS)
        result = tensors[roles[2]]
        size = buffer_size(specs[2].layout, shapes[2])

        def logical():
            return unpack(result.values[GUARD : GUARD + size], specs[2].layout, shapes[2])

        return {buffer: tensors[name] for buffer, name in self.form.tensors}, logical


def guarded(dtype, layout, shape, array):
    """A tensor's memory with unknown, forbidden elements around it; all unknown without an array."""
    size, origin = buffer_size(layout, shape), buffer_origin(layout, shape)
    values = np.full(size + 2 * GUARD, 99, dtype.numpy)
    known = np.zeros(values.size, bool)
    inner = slice(GUARD, GUARD + size)
    if array is not None:
        values[inner], known[inner] = pack(array.astype(dtype.numpy), layout), True
    address = ADDRESS + origin * dtype.nbytes
    return GlobalMemory(values, GUARD + origin, known, address, range(GUARD, GUARD + size))
