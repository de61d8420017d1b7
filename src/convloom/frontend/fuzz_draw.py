"""Draws fuzz cases: small problems of every kind, most of them awkward on purpose."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from convloom.compiler import prepare
from convloom.errors import IllegalProblem, NotYetSupported
from convloom.frontend.fuzz_attributes import draw_attributes
from convloom.frontend.fuzz_case import ConvSizes, FuzzCase, GemmSizes
from convloom.plan.draw_hopper import draw_hopper_plan
from convloom.plan.draw_plan import draw_plan
from convloom.plan.families import Plan, plan_text
from convloom.plan.policy import Policy
from convloom.problem.contraction import Contraction
from convloom.problem.conv import Scaling
from convloom.problem.epilogue.attributes import AttributeTexts
from convloom.problem.layout_tags import ANY
from convloom.problem.notation.defaults import TF32_NAME
from convloom.target.arch import Target

_DIRECTIONS = ("fwd", "bwd_d", "bwd_w")
_TYPES = (
    "f32", "f32", "f32", "tf32", "tf32", "f16", "f16", "f16:f16:f32", "f16:f16:u8", "bf16", "bf16:bf16:f32", "f64",
    "f64", "s8:s8:s32", "u8:s8:s8", "u8:u8:s32", "s8:u8:f16", "s8:s8:f32", "f16:bf16:f32", "f32:bf16:f32",
    "e4m3:e4m3:e4m3", "e5m2:e4m3:f16", "e4m3:f16:bf16",
)  # fmt: skip
_TAGS = (ANY, "abx", "axb", "axb", "aBx8b", "aBx16b")
_CHANNELS = (1, 1, 2, 3, 4, 5, 8, 8, 16, 17, 32)
_SIZES = (1, 2, 3, 5, 7, 8, 16, 17, 24, 33, 64)
_MOST_PRODUCTS, _MOST_WIDE_PRODUCTS = 1_000_000, 6_000_000
_HOPPER = 0.8  # share of the cases that tensor copies and asynchronous multiplies suit
_WIDE_TYPES = ("f16", "f16", "bf16", "f16:f16:f32", "tf32", "s8:s8:s32", "u8:s8:s8", "e4m3:e4m3:f16", "f16:f16:u8")
_WIDE_CHANNELS = (16, 32, 64, 64, 72, 128)
_WIDE_SIZES = (8, 16, 64, 72, 128, 136, 200)
_OPERAND_ORDER = {"fwd": (0, 1, 2), "bwd_d": (2, 1, 0), "bwd_w": (0, 2, 1)}  # (a, b, result) -> places of src:wei:dst


def draw_case(random: Random, target: Target) -> FuzzCase:
    """A case that is a legal problem; its plan is a random legal one in most cases.

    Where workspace is limited and sizes are dims, the planner chooses: a given plan would be refused at some sizes.
    """
    while True:
        kind = random.choice(_PROBLEMS)
        case, most = kind(random), _MOST_WIDE_PRODUCTS if kind is _draw_wide else _MOST_PRODUCTS
        try:
            if not 0 < case.problem().ops <= 2 * most:
                continue
            contraction = prepare(case.compiled_problem()).contraction
        except (IllegalProblem, NotYetSupported):
            continue
        case = replace(case, order=random.randrange(1 << 16) if random.random() < 0.3 else None)
        given = random.random() < 0.8 and not (case.dynamic and case.policy.max_workspace is not None)
        plan = _plan(random, contraction, target, case.policy) if given else None
        return case if plan is None else replace(case, plan=plan_text(plan))


def _plan(random: Random, contraction: Contraction, target: Target, policy: Policy) -> Plan | None:
    """Of either family, where both can be had."""
    found = draw_hopper_plan(random, contraction, target, policy) if random.random() < _HOPPER else None
    return found or draw_plan(random, contraction, target, policy)


def _policy(random: Random) -> Policy:
    return Policy(random.random() < 0.15, random.choice((0, 1 << 12)) if random.random() < 0.15 else None)


def _attributes(random: Random, operand_types: str) -> AttributeTexts:
    names = operand_types.replace(TF32_NAME, "f32").split(":")
    return draw_attributes(random, (names[0], names[len(names) // 2], names[-1]))


def _scaling(random: Random) -> Scaling:
    return Scaling(random.random() < 0.2, random.random() < 0.2)


def _gradient_type(random: Random, types: str) -> str | None:
    """The type in which a weight gradient gives the bias gradient too; mostly it does not."""
    if random.random() < 0.7:
        return None
    first = types.split(":")[0]
    return {"f64": "f64", "s8": "s32", "u8": "s32"}.get(first, "f32")


def _bias(random: Random, types: str) -> str | None:
    if random.random() < 0.6:
        return None
    names = types.replace(TF32_NAME, "f32").split(":")
    first, result = names[0], names[-1]
    if first in ("s8", "u8"):
        return random.choice(("s32", "f32", "s8", "u8", "bf16"))
    return result if first == result else "f32"


def _draw_conv(random: Random) -> FuzzCase:
    direction, operand_types = random.choice(_DIRECTIONS), random.choice(_TYPES)
    groups = random.choice((1, 1, 1, 2, 3, 8))
    rank = random.choice((1, 2, 2, 2, 3))
    spatial = tuple(_dimension(random, 12 if rank < 3 else 6) for _ in range(rank))
    sizes = ConvSizes(groups, random.choice((1, 2, 3)), random.choice(_CHANNELS), random.choice(_CHANNELS), spatial)
    bias = _gradient_type(random, operand_types) if direction == "bwd_w" else _bias(random, operand_types)
    tags = (random.choice(_TAGS), random.choice((ANY, "abx", "axb")), random.choice(_TAGS))
    dynamic = random.random() < 0.3 and not any("B" in tag for tag in tags)
    return FuzzCase(
        sizes,
        direction,
        _by_tensor(operand_types, direction),
        tags,
        bias,
        _scaling(random),
        dynamic,
        attributes=_attributes(random, operand_types),
        policy=_policy(random),
    )


def _by_tensor(operand_types: str, direction: str) -> str:
    """Types of (a, b, result) as src:wei:dst of a direction."""
    names = operand_types.split(":")
    if len(names) == 1:
        return names[0]
    places = _OPERAND_ORDER[direction]
    return ":".join(names[places.index(place)] for place in range(3))


def _dimension(random: Random, most: int) -> tuple[int, int, int, int, int, int]:
    """A window whose output is what fits, or one that crops or pads more behind."""
    kernel, stride, dilation = random.choice((1, 2, 3, 3, 5)), random.choice((1, 1, 2, 3)), random.choice((1, 1, 2))
    size, pad = random.randint(1, most), random.choice((0, 0, 1, 1, 2, 3))
    reach = (kernel - 1) * dilation + 1
    fits = max((size + 2 * pad - reach) // stride + 1, 1)
    return size, kernel, stride, dilation, pad, max(fits + random.choice((0, 0, 0, -1, 1)), 1)


def _draw_gemm(random: Random) -> FuzzCase:
    types = random.choice(_TYPES)
    flips = tuple(random.random() < 0.5 for _ in range(3))
    m, n, k = (random.choice(_SIZES) for _ in range(3))
    sizes = GemmSizes(random.choice((1, 1, 2, 3)), m, n, k, (flips[0], flips[1], flips[2]))
    return FuzzCase(
        sizes,
        "fwd",
        types,
        bias=_bias(random, types),
        scaling=_scaling(random),
        dynamic=random.random() < 0.3,
        attributes=_attributes(random, types),
        policy=_policy(random),
    )


def _draw_wide(random: Random) -> FuzzCase:
    """Channels last, and enough of them: what tensor copies fetch and warpgroups multiply."""
    case = _draw_gemm(random) if random.random() < 0.3 else _draw_conv(random)
    types = random.choice(_WIDE_TYPES)
    drawn = replace(case, bias=_bias(random, types), attributes=_attributes(random, types), dtypes=types)
    if isinstance(case.sizes, GemmSizes):
        m, n, k = (random.choice(_WIDE_SIZES) for _ in range(3))
        return replace(drawn, sizes=replace(case.sizes, m=m, n=n, k=k))
    inputs, outputs = (random.choice(_WIDE_CHANNELS) for _ in range(2))
    sizes = replace(case.sizes, groups=random.choice((1, 1, 1, 2)), inputs=inputs, outputs=outputs)
    bias = None if case.direction == "bwd_w" else drawn.bias
    weights = random.choice((ANY, "abx", "axb"))
    return replace(
        drawn, sizes=sizes, dtypes=_by_tensor(types, case.direction), tags=("axb", weights, "axb"), bias=bias
    )


_PROBLEMS = (_draw_gemm, _draw_conv, _draw_conv, _draw_wide)
