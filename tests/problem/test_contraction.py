"""Contractions against the reference: every view, direction and phase, by evaluating all points."""

import numpy as np
import pytest

from convloom.compiler import contract, prepare
from convloom.expr import const, sym
from convloom.problem.contract_conv import contract_conv
from convloom.problem.contraction import AxisKind, exchange, used_axes
from convloom.problem.conv import Direction
from convloom.problem.conv_arguments import conv_problem
from convloom.problem.data import make_operands
from convloom.problem.gemm import Gemm
from convloom.problem.geometry import Window
from convloom.problem.layout_memory import buffer_origin, buffer_size, pack, unpack
from convloom.problem.reference import Arithmetic, Operands, reference, result_shape
from convloom.problem.stride_key import key_text, parse_key
from convloom.problem.taps import residue_of
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
    """The contraction on data of the static problem: all elements written once, equal to the reference."""
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


@pytest.mark.parametrize("seed", range(80))
def test_contraction_equals_reference(seed):
    drawn = draw(seed)
    check(drawn.static, contract(drawn.static))
    check(drawn.dynamic, contract(drawn.dynamic), static=drawn.static, sizes=drawn.values)


@pytest.mark.parametrize("seed", range(80))
def test_normal_form_and_key_equal_reference(seed):
    drawn = draw(seed)
    for problem, sizes in ((drawn.static, {}), (drawn.dynamic, drawn.values)):
        form = prepare(problem)
        check(problem, form.contraction, inputs_of(form), drawn.static, sizes)
        check(problem, parse_key(key_text(form.contraction)), inputs_of(form), drawn.static, sizes)


# --- source document 000, exactly -----------------------------------------------------------------------------------

MB, IC, IW, OC, OW, KW, SW, DW, PW = 2, 3, 10, 4, 4, 3, 2, 2, 1


def one_dimensional(direction):
    return conv_problem(
        direction=direction,
        batch=MB,
        in_channels=IC,
        out_channels=OC,
        in_spatial=(IW,),
        out_spatial=(OW,),
        kernel=(KW,),
        stride=SW,
        dilation=DW,
        padding=(PW,),
    )


def kinds(contraction):
    """Names of the axes longer than 1 by kind."""
    return {
        kind.value: {axis.name for axis in contraction.of_kind(kind) if axis.extent is not const(1)}
        for kind in AxisKind
    }


def test_forward_mapping_of_the_source_document():
    contraction = contract_conv(one_dimensional(Direction.FWD))
    assert kinds(contraction) == {"g": set(), "m": {"n", "ow"}, "n": {"oc"}, "k": {"ic", "kw"}}
    assert [operand.name for operand in contraction.operands] == ["src", "wei", "dst"]
    for mb, oc, ow, ic, kw in np.ndindex(MB, OC, OW, IC, KW):
        at = {"n": mb, "g": 0, "oc": oc, "ic": ic, "ow": ow, "kw": kw}
        src, wei, dst = (
            operand.view.access({axis.name: at[axis.name] for axis in operand.view.axes})
            for operand in contraction.operands
        )
        iw = ow * SW + kw * DW - PW
        assert all(condition is const(1) for condition in src.conditions) == (0 <= iw < IW)
        assert src.offset is const(mb * IC * IW + ic * IW + iw)
        assert wei.offset is const(oc * IC * KW + ic * KW + kw)
        assert dst.offset is const(mb * OC * OW + oc * OW + ow)
        assert wei.conditions == dst.conditions == ()


def test_backward_by_weights_mapping():
    contraction = contract_conv(one_dimensional(Direction.BWD_W))
    assert kinds(contraction) == {"g": set(), "m": {"ic", "kw"}, "n": {"oc"}, "k": {"n", "ow"}}
    assert [operand.name for operand in contraction.operands] == ["src", "dst", "wei"]


def test_backward_by_data_is_a_family():
    contraction = contract_conv(one_dimensional(Direction.BWD_D))
    assert kinds(contraction) == {"g": set(), "m": {"n", "tw"}, "n": {"ic"}, "k": {"oc", "kw"}}
    assert [operand.name for operand in contraction.operands] == ["dst", "wei", "src"]
    values = {parameter.symbol.name: parameter.values for parameter in contraction.phases}
    # All taps reach odd positions (D = 2): the even ones are a phase of their own, without a tap, which comes last.
    assert values["residue_w"] == (1, 0)
    assert values["taps_w"] == (3, 0)


def test_groups_and_shared_operands_decide_the_kinds():
    grouped = conv_problem(batch=2, in_channels=6, out_channels=9, groups=3, in_spatial=(5,), kernel=(2,))
    assert kinds(contract_conv(grouped)) == {"g": {"g"}, "m": {"n", "ow"}, "n": {"oc"}, "k": {"ic", "kw"}}
    depthwise = conv_problem(batch=2, in_channels=6, out_channels=6, groups=6, in_spatial=(5,), kernel=(2,))
    assert kinds(contract_conv(depthwise)) == {"g": {"g"}, "m": {"n", "ow"}, "n": set(), "k": {"kw"}}


@pytest.mark.parametrize("stride", [2, 3, 4, 6])
@pytest.mark.parametrize("dilation", [1, 2, 3, 4])
@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
def test_residues_list_exactly_the_taps(stride, dilation, kernel):
    """Equation: t * S + r + P = oh * S + kh * D, for each t and r."""
    for pad in (-3, 0, 2):
        window = Window(kernel, stride, dilation, pad)
        for r in range(stride):
            found = residue_of(window, r)
            step, back = stride // np.gcd(stride, dilation), dilation // np.gcd(stride, dilation)
            listed = {(found.first + step * j, found.shift - back * j) for j in range(found.taps)}
            reach = range(-40, 40)
            wanted = {(k, o) for k in range(kernel) for o in reach if r + pad == o * stride + k * dilation}
            assert listed == wanted


def test_phases_come_longest_first():
    drawn = [draw(seed).static for seed in range(60)]
    families = [contract(problem) for problem in drawn if getattr(problem, "direction", None) is Direction.BWD_D]
    families = [family for family in families if family.phases]
    assert len(families) > 5
    for family in families:
        taps = [parameter.values for parameter in family.phases if parameter.symbol.name.startswith("taps")]
        lengths = [int(np.prod(phase)) for phase in zip(*taps, strict=True)]
        assert lengths == sorted(lengths, reverse=True)


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("empty", ["batch", "in_channels", "out_channels"])
def test_empty_sizes(direction, empty):
    sizes = {"batch": 2, "in_channels": 3, "out_channels": 4, empty: 0}
    problem = conv_problem(direction=direction, in_spatial=(5,), kernel=(3,), stride=2, padding=1, **sizes)
    check(problem, contract(problem))
    form = prepare(problem)
    check(problem, form.contraction, inputs_of(form))


def test_exchange_twice_is_the_identity():
    contraction = contract(draw(3).static)
    assert exchange(exchange(contraction)) == contraction
    assert exchange(contraction).a is contraction.b


def test_used_axes_ignore_strides_of_zero_and_extents_of_one():
    axes = (Axis("x", const(4)), Axis("y", const(1)), Axis("z", sym("z", lo=0)))
    assert used_axes(strided(axes, (0, 5, 1))) == {"z"}
    assert used_axes(strided(axes, (3, 5, 1))) == {"x", "z"}
