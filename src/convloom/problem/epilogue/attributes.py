"""benchdnn's attributes as an epilogue: post-ops in order, scales, zero points; and the epilogue as attributes.

    post-ops     relu:0.5+add:f32:per_oc+sum:0.25:1:s8+prelu:per_oc+mul:bf16:per_tensor:axb+linear:2:1+clip:0:6
    scales       src:common:0.25+wei:per_oc+dst:common:2        ARG:MASK[:VALUE[:TYPE]], types f32 unless given
    zero points  src:common:1+wei:common:-1+dst:per_dim_1       the same, s32 unless given

`src` and `wei` are the two operands that are multiplied, `dst` the result, whatever the direction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from convloom.dtypes import F32, S32, DType, dtype_named
from convloom.errors import IllegalProblem, NotYetSupported
from convloom.expr import Expr
from convloom.problem.epilogue.nodes import (
    ACCUMULATOR,
    Binary,
    BinaryKind,
    Eltwise,
    EltwiseKind,
    Input,
    Node,
    Old,
    number,
)
from convloom.problem.epilogue.record import EVERYWHERE, Epilogue, EpilogueOperand
from convloom.problem.layout_tags import TensorKind, layout_from_tag

DST_SCALE, DST_ZERO = "dst_scale", "dst_zero_point"
SCALES = {"src": "src_scale", "wei": "wei_scale", "dst": DST_SCALE}
ZEROS = {"src": "src_zero_point", "wei": "wei_zero_point", "dst": DST_ZERO}
_ELTWISE = {kind.value: kind for kind in EltwiseKind}
_BINARY = {kind.value: kind for kind in BinaryKind if kind is not BinaryKind.PRELU}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What masks and tags refer to: the result's shape, its channel dimension, and that of the second operand."""

    shape: tuple[Expr, ...]
    channel: int
    weights_channel: int | None  # None: one dimension does not hold the result's channels (groups)


@dataclass(frozen=True, slots=True)
class AttributeTexts:
    """The three attribute strings, empty where there is none."""

    post_ops: str = ""
    scales: str = ""
    zero_points: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is said."""
        return not (self.post_ops or self.scales or self.zero_points)


NO_ATTRIBUTES = AttributeTexts()


@dataclass(slots=True)
class _Builder:
    """Collects operands while texts are read."""

    around: Surroundings
    operands: list[EpilogueOperand] = field(default_factory=list[EpilogueOperand])

    def declare(self, operand: EpilogueOperand) -> int:
        """Adds an operand; its number."""
        self.operands.append(operand)
        return len(self.operands) - 1


def parse_attributes(texts: AttributeTexts, around: Surroundings) -> Epilogue:
    """The epilogue: scales of the factors, (bias,) post-ops in their order, the result's scale and zero point.

    IllegalProblem quotes the part that is wrong; NotYetSupported names what benchdnn has and convloom has not.
    """
    builder = _Builder(around)
    scales, zeros = _arguments(texts.scales), _arguments(texts.zero_points)
    factors = tuple(builder.declare(_scale(name, scales[name], around)) for name in ("src", "wei") if name in scales)
    expression: Node = ACCUMULATOR
    for step in filter(None, texts.post_ops.strip("'\"").split("+")):
        expression = _step(step, expression, builder)
    if "dst" in scales:
        place = builder.declare(_scale("dst", scales["dst"], around))
        expression = Binary(BinaryKind.DIV, expression, Input(place))
    if "dst" in zeros:
        operand = _valued(ZEROS["dst"], zeros["dst"], _mask(zeros["dst"][0], around), S32)
        expression = Binary(BinaryKind.ADD, expression, Input(builder.declare(operand)))
    zero_a = _valued(ZEROS["src"], zeros["src"], _mask(zeros["src"][0], around), S32) if "src" in zeros else None
    zero_b = _weights_zero(zeros["wei"], around) if "wei" in zeros else None
    return Epilogue(tuple(builder.operands), factors, expression, zero_a, zero_b)


def _arguments(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for part in filter(None, text.strip("'\"").split("+")):
        name, *words = part.split(":")
        if name not in SCALES or not words:
            raise IllegalProblem(
                f"scales and zero points are written src|wei|dst:MASK[:VALUE[:TYPE]], joined by +; got {part!r}; "
                "write e.g. src:common:0.25+wei:per_oc"
            )
        if len(words) > 3:
            raise NotYetSupported(
                f"scales by groups along the sum are not supported; got {part!r}; leave the groups out"
            )
        found[name] = words
    return found


def _scale(name: str, words: list[str], around: Surroundings) -> EpilogueOperand:
    mask = _mask(words[0], around)
    if name == "wei" and mask:
        mask = 1 << around.channel  # any mask of weights means their outputs, with or without groups
    if name == "src" and mask:
        raise IllegalProblem(f"the scale of src is one number; got mask {words[0]}; use src:common")
    return _valued(SCALES[name], words, mask, F32)


def _weights_zero(words: list[str], around: Surroundings) -> EpilogueOperand:
    mask = 0
    if _mask(words[0], around):
        if around.weights_channel is None:
            raise NotYetSupported("zero points of weights per channel need one group; got several; use wei:common")
        mask = 1 << around.weights_channel
    return _valued(ZEROS["wei"], words, mask, S32)


def _valued(name: str, words: list[str], mask: int, default: DType) -> EpilogueOperand:
    value = number(float(words[1])) if len(words) > 1 and words[1] not in ("", "*") else None
    return EpilogueOperand(name, dtype_named(words[2]) if len(words) > 2 else default, mask, value=value)


def _mask(text: str, around: Surroundings) -> int:
    rank = len(around.shape)
    named = {"common": 0, "host_scalar": 0, "per_oc": 1 << around.channel, "per_tensor": EVERYWHERE}
    if text in named:
        return named[text]
    bits = text.removeprefix("per_dim_")
    if bits != text and bits.isdecimal() and all(int(bit) < rank for bit in bits):
        return sum(1 << int(bit) for bit in set(bits))
    if not text.isdecimal() or int(text) >= 1 << rank:
        raise IllegalProblem(
            f"a mask is common, per_oc, per_tensor, per_dim_.. or a number below {1 << rank}; got {text!r}; use one"
        )
    return EVERYWHERE if int(text) == (1 << rank) - 1 else int(text)


# --- post-ops -------------------------------------------------------------------------------------------------------


def _step(text: str, x: Node, builder: _Builder) -> Node:
    name, *words = text.split(":")
    reader = _READERS.get(name)
    if reader is not None:
        return reader(text, words, x, builder)
    if name in _ELTWISE:
        return _eltwise(name, text, words, x)
    if name in _BINARY:
        return _binary(name, text, words, x, builder)
    known = ", ".join((*_ELTWISE, *_BINARY, *_READERS))
    raise IllegalProblem(f"a post-op is one of {known}; got {text!r}; use one of these")


def _eltwise(name: str, text: str, words: list[str], x: Node) -> Node:
    if len(words) > 3:
        raise IllegalProblem(f"an eltwise post-op is KIND[:ALPHA[:BETA[:SCALE]]]; got {text!r}; correct it")
    alpha, beta, scale = _three(words, text)
    node = Eltwise(_ELTWISE[name], x, alpha, beta)
    return node if scale == 1 else Eltwise(EltwiseKind.LINEAR, node, scale, 0.0)


def _three(words: list[str], text: str) -> tuple[float, float, float]:
    given = [_float(word, text) for word in words]
    alpha, beta, scale = (*given, *(0.0, 0.0, 1.0)[len(given) :])
    return alpha, beta, scale


def _float(word: str, text: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise IllegalProblem(f"parameters of a post-op are numbers; got {word!r} in {text!r}; correct it") from None


def _sum(text: str, words: list[str], x: Node, builder: _Builder) -> Node:
    if len(words) > 3:
        raise IllegalProblem(f"a sum is written sum[:SCALE[:ZERO_POINT[:TYPE]]]; got {text!r}; correct it")
    scale = _float(words[0], text) if words else 1.0
    zero = int(_float(words[1], text)) if len(words) > 1 else 0
    return Binary(BinaryKind.ADD, x, Old(scale, zero, dtype_named(words[2]) if len(words) > 2 else None))


def _binary(name: str, text: str, words: list[str], x: Node, builder: _Builder) -> Node:
    if len(words) > 3:
        raise IllegalProblem(f"a binary post-op is KIND[:TYPE[:MASK[:TAG]]]; got {text!r}; correct it")
    dtype = dtype_named(words[0]) if words else F32
    mask = _mask(words[1], builder.around) if len(words) > 1 else 0
    return Binary(_BINARY[name], x, Input(_tensor(builder, dtype, mask, words[2] if len(words) > 2 else "")))


def _prelu(text: str, words: list[str], x: Node, builder: _Builder) -> Node:
    if len(words) > 2:
        raise IllegalProblem(f"a prelu is written prelu[:MASK[:TYPE]]; got {text!r}; correct it")
    mask = _mask(words[0], builder.around) if words else 0
    dtype = dtype_named(words[1]) if len(words) > 1 else F32
    return Binary(BinaryKind.PRELU, x, Input(_tensor(builder, dtype, mask, "")))


def _depthwise(text: str, words: list[str], x: Node, builder: _Builder) -> Node:
    raise NotYetSupported(f"a fused depthwise convolution is no post-op of convloom; got {text!r}; run it apart")


def _tensor(builder: _Builder, dtype: DType, mask: int, tag: str) -> int:
    operand = EpilogueOperand(f"post{len(builder.operands)}", dtype, mask)
    if tag and tag != "any":
        shape = operand.shape(builder.around.shape)
        layout = layout_from_tag(tag, shape, TensorKind.ACTIVATION)
        operand = EpilogueOperand(operand.name, dtype, mask, layout)
    return builder.declare(operand)


_READERS: dict[str, Callable[[str, list[str], Node, _Builder], Node]] = {
    "sum": _sum,
    "prelu": _prelu,
    "dw": _depthwise,
}
