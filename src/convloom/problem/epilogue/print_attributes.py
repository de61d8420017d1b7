"""An epilogue as benchdnn's attribute strings, where it has words for it."""

from __future__ import annotations

from convloom.dtypes import F32, S32
from convloom.errors import IllegalProblem
from convloom.problem.epilogue.attributes import DST_SCALE, DST_ZERO, AttributeTexts, Surroundings
from convloom.problem.epilogue.nodes import (
    Accumulator,
    Binary,
    BinaryKind,
    Eltwise,
    EltwiseKind,
    Input,
    Node,
    Old,
)
from convloom.problem.epilogue.record import EVERYWHERE, Epilogue, EpilogueOperand
from convloom.problem.layout_tags import tag_of

_PARAMETERS = {
    EltwiseKind.CLIP: 2,
    EltwiseKind.CLIP_V2: 2,
    EltwiseKind.HARDSIGMOID: 2,
    EltwiseKind.HARDSWISH: 2,
    EltwiseKind.LINEAR: 2,
    EltwiseKind.POW: 2,
    EltwiseKind.ELU: 1,
    EltwiseKind.RELU: 1,
    EltwiseKind.SOFT_RELU: 1,
    EltwiseKind.SWISH: 1,
}


def print_attributes(epilogue: Epilogue, around: Surroundings) -> AttributeTexts:
    """The texts that read back to an equal epilogue; IllegalProblem names what benchdnn has no words for."""
    expression, ending = _without_ending(epilogue)
    scales = [f"{name}:{_valued(epilogue.operands[place], around, F32)}" for place, name in _factors(epilogue)]
    scales += [f"dst:{_valued(ending[DST_SCALE], around, F32)}"] if DST_SCALE in ending else []
    zeros = [
        f"{name}:{_valued(zero, around, S32, weights=name == 'wei')}"
        for name, zero in (("src", epilogue.zero_a), ("wei", epilogue.zero_b))
        if zero is not None
    ]
    zeros += [f"dst:{_valued(ending[DST_ZERO], around, S32)}"] if DST_ZERO in ending else []
    return AttributeTexts("+".join(_steps(expression, epilogue, around)), "+".join(scales), "+".join(zeros))


def _factors(epilogue: Epilogue) -> list[tuple[int, str]]:
    found = [(place, epilogue.operands[place].name.removesuffix("_scale")) for place in epilogue.factors]
    if [name for _, name in found] not in (["src"], ["wei"], ["src", "wei"], []):
        raise _refusal("its factors are no scales of src and wei")
    return found


def _without_ending(epilogue: Epilogue) -> tuple[Node, dict[str, EpilogueOperand]]:
    """The expression without the result's zero point and scale, and these."""
    expression, found = epilogue.expression, dict[str, EpilogueOperand]()
    for kind, name in ((BinaryKind.ADD, DST_ZERO), (BinaryKind.DIV, DST_SCALE)):
        if isinstance(expression, Binary) and expression.kind is kind and isinstance(expression.right, Input):
            operand = epilogue.operands[expression.right.index]
            if operand.name == name:
                found[name] = operand
                expression = expression.left
    return expression, found


def _steps(node: Node, epilogue: Epilogue, around: Surroundings) -> list[str]:
    match node:
        case Accumulator():
            return []
        case Eltwise():
            return [*_steps(node.x, epilogue, around), _eltwise(node)]
        case Binary(right=Old() as old, kind=BinaryKind.ADD):
            words = ["sum", f"{old.scale!r}", f"{old.zero_point}", *([old.dtype.name] if old.dtype else [])]
            return [*_steps(node.left, epilogue, around), ":".join(words)]
        case Binary(right=Input() as operand):
            step = _tensor(node.kind, epilogue.operands[operand.index], around)
            return [*_steps(node.left, epilogue, around), step]
        case _:
            raise _refusal("its expression is no chain of post-ops")


def _eltwise(node: Eltwise) -> str:
    count = _PARAMETERS.get(node.kind, 0)
    return ":".join([node.kind.value, *map(repr, (node.alpha, node.beta)[:count])])


def _tensor(kind: BinaryKind, operand: EpilogueOperand, around: Surroundings) -> str:
    mask = _mask_text(operand.mask, around)
    if kind is BinaryKind.PRELU:
        if operand.layout is not None:
            raise _refusal("a prelu's slopes have a layout of their own")
        return f"prelu:{mask}:{operand.dtype}"
    tag = ""
    if operand.layout is not None:
        shape = operand.shape(around.shape)
        found = tag_of(operand.layout, shape)
        if found is None:
            raise _refusal(f"operand {operand.name} has strides without a tag")
        tag = f":{found}"
    return f"{kind.value}:{operand.dtype}:{mask}{tag}"


def _valued(operand: EpilogueOperand, around: Surroundings, default: object, *, weights: bool = False) -> str:
    mask = ("per_oc" if operand.mask else "common") if weights else _mask_text(operand.mask, around)
    value = "*" if operand.value is None else repr(operand.value)
    if operand.dtype is default:
        return mask if operand.value is None else f"{mask}:{value}"
    return f"{mask}:{value}:{operand.dtype}"


def _mask_text(mask: int, around: Surroundings) -> str:
    known = {EVERYWHERE: "per_tensor", 0: "common", 1 << around.channel: "per_oc"}
    return known.get(mask, str(mask))


def _refusal(reason: str) -> IllegalProblem:
    return IllegalProblem(f"the epilogue cannot be written as benchdnn attributes: {reason}; print its expression")
