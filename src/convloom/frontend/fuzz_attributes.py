"""Draws post-ops, scales and zero points of fuzz cases, such that integers stay integers, or halves and quarters."""

from __future__ import annotations

from random import Random

from convloom.problem.epilogue.attributes import NO_ATTRIBUTES, AttributeTexts

_SHARE = 0.45
"""Of the cases that have attributes."""
_ELTWISE = ("relu", "relu:0.5", "abs", "clip:-7:25", "clip_v2:-40:6", "linear:2:1", "linear:-0.5:3", "round", "square")
_BINARY = ("add", "sub", "mul", "div", "max", "min")
_COMPARISONS = ("ge", "gt", "le", "lt", "eq", "ne")
_COMPARED = 0.08  # share: what is behind a comparison says little about the sums
_OPERAND_TYPES = ("f32", "f32", "f16", "bf16", "s32", "s8", "u8")
_MASKS = ("common", "per_oc", "per_oc", "per_tensor", "per_tensor", "per_dim_0", "per_dim_2", "5")
_SUMS = ("sum", "sum:0.5", "sum:-1", "sum:1:3", "sum:2:-2")
_POWERS = ("0.25", "0.5", "2", "*", "*")
_INTEGERS = ("s8", "u8")


def draw_attributes(random: Random, types: tuple[str, str, str]) -> AttributeTexts:
    """Attributes for (a, b, result) types; none in about half of the cases."""
    if random.random() >= _SHARE:
        return NO_ATTRIBUTES
    post_ops = "+".join(_post_op(random, types[2]) for _ in range(random.choice((0, 1, 1, 2, 3))))
    return AttributeTexts(post_ops, _scales(random, types[0]), _zero_points(random, types[0], types[2]))


def _post_op(random: Random, result: str) -> str:
    kind = random.random()
    if kind < 0.4:
        return random.choice(_ELTWISE)
    if kind < 0.75:
        return _binary(random)
    if kind < 0.9:
        return _sum(random, result)
    return f"prelu:{random.choice(_MASKS)}:{random.choice(_OPERAND_TYPES)}"


def _binary(random: Random) -> str:
    mask = random.choice(_MASKS)
    tag = random.choice(("", ":abx", ":axb")) if mask == "per_tensor" else ""
    kinds = _COMPARISONS if random.random() < _COMPARED else _BINARY
    return f"{random.choice(kinds)}:{random.choice(_OPERAND_TYPES)}:{mask}{tag}"


def _sum(random: Random, result: str) -> str:
    """An 8-bit result may be read with the other sign."""
    if result in _INTEGERS and random.random() < 0.4:
        return f"sum:1:{random.choice((0, 2))}:{_INTEGERS[1 - _INTEGERS.index(result)]}"
    return random.choice(_SUMS)


def _scales(random: Random, a: str) -> str:
    """More often for 8-bit factors, where they belong to the numbers."""
    share = 0.5 if a in _INTEGERS else 0.15
    masks = {"src": ("common",), "wei": ("common", "per_oc", "per_oc"), "dst": ("common", "per_oc")}
    drawn = [
        f"{name}:{random.choice(among)}:{random.choice(_POWERS)}{random.choice(('', '', ':bf16', ':f16'))}"
        for name, among in masks.items()
        if random.random() < share
    ]
    return "+".join(drawn)


def _zero_points(random: Random, a: str, result: str) -> str:
    """Of 8-bit factors, and of integer results."""
    masks: dict[str, tuple[str, ...]] = {}
    if a in _INTEGERS:
        masks |= {"src": ("common", "common", "per_dim_1"), "wei": ("common", "per_oc")}
    if result in (*_INTEGERS, "s32"):
        masks["dst"] = ("common", "per_oc")
    drawn = [
        f"{name}:{random.choice(among)}:{random.choice(('1', '3', '*', '*'))}{random.choice(('', '', ':s8', ':u8'))}"
        for name, among in masks.items()
        if random.random() < 0.4
    ]
    return "+".join(drawn)
