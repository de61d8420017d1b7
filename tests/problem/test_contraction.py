"""Contractions against the reference: every view, direction and phase, by evaluating all points."""

import numpy as np
import pytest

from convloom.compiler import contract, prepare
from convloom.expr import const, sym
from convloom.problem.contract_conv import contract_conv, residue_of
from convloom.problem.contraction import AxisKind, exchange, used_axes
from convloom.problem.conv import Direction
from convloom.problem.conv_arguments import conv_problem
from convloom.problem.data import make_operands
from convloom.problem.gemm import Gemm
from convloom.problem.geometry import Window
from convloom.problem.layout_memory import buffer_origin, buffer_size, pack, unpack
from convloom.problem.reference import Arithmetic, Operands, reference, result_shape
from convloom.problem.stride_key import key_text, parse_key
from convloom.view import Axis, strided
from tests.problem.drawing import draw
from tests.problem.evaluation import Memory, evaluate_contraction


def tensors(problem):
    """(name, layout) of a, b and the result, as the contraction names them."""
    if isinstance(problem, Gemm):
        return [("a", problem.a.layout), ("b", problem.b.layout), ("c", problem.c.layout)]
    return [(role.value, problem.spec(role).layout) for role in problem.roles]


def packed(problem, operands):
    """The operands as flat integer buffers by tensor name."""
    found = {}
    for (name, layout), array in zip(tensors(problem)[:2], (operands.a, operands.b), strict=True):
        found[name] = Memory(pack(array.astype(np.int64), layout), buffer_origin(layout, array.shape))
    if operands.bias is not None:
        found["bias"] = Memory(operands.bias.astype(np.int64), 0)
    return found


def check(problem, contraction, names=None, static=None, sizes=None):
    """Evaluates the contraction on the data of the static problem: all elements written once, equal to the reference."""
    static, names = static or problem, names or {}
    operands = make_operands(static)
    memories = packed(static, operands)
    memories = {role: memories[names.get(role, role)] for role in {**memories, **names} if role in names or not names}
    layout, shape = tensors(static)[2][1], result_shape(static)
    size, origin = buffer_size(layout, shape), buffer_origin(layout, shape)
    found, written = evaluate_contraction(contraction, memories, sizes or {}, size, origin)
    plain = Operands(operands.a, operands.b, operands.bias)
    expected = reference(static, plain, Arithmetic.EXACT).value
    assert np.array_equal(unpack(found, layout, shape), expected)
    assert (unpack(written, layout, shape) == 1).all()
    assert written.sum() == expected.size


def inputs_of(form):
    return {role: tensor for role, tensor in form.tensors if role != "c"}


@pytest.mark.parametrize("seed", range(150))
def test_contraction_equals_reference(seed):
    drawn = draw(seed)
    check(drawn.static, contract(drawn.static))
    check(drawn.dynamic, contract(drawn.dynamic), static=drawn.static, sizes=drawn.values)


@pytest.mark.parametrize("seed", range(150))
def test_normal_form_and_key_equal_reference(seed):
    drawn = draw(seed)
    for problem, sizes in ((drawn.static, {}), (drawn.dynamic, drawn.values)):
        form = prepare(problem)
        check(problem, form.contraction, inputs_of(form), drawn.static, sizes)
        check(problem, parse_key(key_text(form.contraction)), inputs_of(form), drawn.static, sizes)
