"""Layout names: benchdnn's generic tags, the names of frameworks (nchw, OIhw16i16o), and letters per storage axis."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache

from convloom.errors import IllegalProblem
from convloom.expr import Expr, ExprLike, as_expr, ceil_div, const
from convloom.problem.layout import Block, Layout, dense, fuse, storage_extent, unfuse

ANY = "any"
LETTERS = "abcdefghijklm"
SPATIAL_LETTERS = "dhw"
_TAG = re.compile(r"([a-zA-Z]+)((?:\d+[a-z])*)")
_INNER = re.compile(r"(\d+)([a-z])")


class TensorKind(Enum):
    """What the letters of a name mean: n c, o i, g o i (then d h w), or nothing but generic letters."""

    ACTIVATION = "nc"
    WEIGHTS = "oi"
    GROUPED_WEIGHTS = "goi"
    MATRIX = ""


def layout_from_tag(tag: str, extents: Sequence[ExprLike], kind: TensorKind = TensorKind.MATRIX) -> Layout:
    """The layout that a tag names for a tensor of these extents.

    Generic: letters a, b, .. outermost first, capital for a dimension that is blocked, then blocks (`aBx16b`); x stands
    for all letters that are not named. Names: nchw, nCx16c, NChw32n32c, oihw, ohwi, goihw and their kin. `any`: abx.
    IllegalProblem for a name that does not fit the rank or names a dimension twice.
    """
    sizes = tuple([as_expr(extent) for extent in extents])
    return _generic_layout(generic_tag(tag, len(sizes), kind), sizes)


def generic_tag(tag: str, rank: int, kind: TensorKind) -> str:
    """The tag over the letters a, b, .. without x; `any` is the declared order."""
    match = _TAG.fullmatch(tag)
    if match is None:
        raise _bad_tag(tag, "it is not letters followed by blocks such as 16b")
    outer, inner = match[1], match[2]
    if outer == ANY:
        return LETTERS[:rank]
    names = _names_used(outer, rank, kind)
    seen = {names.get(letter) for letter in outer.lower() if letter != "x"}
    if None in seen:
        raise _bad_tag(tag, f"its letters must be among {''.join(names)} and x for rank {rank}")
    rest = "".join(letter for letter in LETTERS[:rank] if letter not in seen)
    spread = "".join(rest if letter == "x" else _translated(letter, names) for letter in outer)
    if sorted(spread.lower()) != list(LETTERS[:rank]):
        raise _bad_tag(tag, f"it must name each of the {rank} dimensions once")
    return spread + _INNER.sub(lambda item: item[1] + _block_letter(tag, item[2], names), inner)


def _names_used(outer: str, rank: int, kind: TensorKind) -> dict[str, str]:
    """The letters of a tag and their generic letters; a tag with an `a` is generic, as no name has that letter."""
    if "a" in outer.lower() or kind is TensorKind.MATRIX:
        return {letter: letter for letter in LETTERS[:rank]}
    spatial = rank - len(kind.value)
    return dict(zip(kind.value + SPATIAL_LETTERS[3 - spatial :], LETTERS, strict=False))


def _translated(letter: str, names: dict[str, str]) -> str:
    found = names[letter.lower()]
    return found.upper() if letter.isupper() else found


def _block_letter(tag: str, letter: str, names: dict[str, str]) -> str:
    if letter not in names:
        raise _bad_tag(tag, f"it has a block of the unknown dimension {letter}")
    return names[letter]


@lru_cache(maxsize=4096)
def _generic_layout(tag: str, extents: tuple[Expr, ...]) -> Layout:
    match = _TAG.fullmatch(tag)
    assert match is not None
    outer, blocks = match[1], [(LETTERS.index(letter), int(size)) for size, letter in _INNER.findall(match[2])]
    _check_capitals(tag, outer, blocks)
    placed, step = _place_blocks(blocks)
    strides = list(extents)
    for letter in reversed(outer):
        dim = LETTERS.index(letter.lower())
        strides[dim] = as_expr(step)
        period = next((block.period for block in placed if block.dim == dim), const(1))
        step = step * storage_extent(ceil_div(extents[dim], period))
    return Layout(tuple(strides), placed)


def _check_capitals(tag: str, outer: str, blocks: list[tuple[int, int]]) -> None:
    blocked = {LETTERS[dim] for dim, _ in blocks}
    for letter in outer:
        if letter.isupper() is not (letter.lower() in blocked):
            raise _bad_tag(tag, "a capital marks a dimension that has blocks, and only that")
    if any(size < 2 for _, size in blocks):
        raise _bad_tag(tag, "a block holds at least 2 elements")


def _place_blocks(blocks: list[tuple[int, int]]) -> tuple[tuple[Block, ...], Expr]:
    """The blocks in storage order, and how many elements one of each together takes."""
    placed: list[Block] = []
    step = 1
    periods: dict[int, int] = {}
    for dim, size in reversed(blocks):
        periods[dim] = periods.get(dim, 1) * size
        placed.insert(0, Block(dim, const(periods[dim]), const(step)))
        step *= size
    return tuple(placed), const(step)


def _bad_tag(tag: str, reason: str) -> IllegalProblem:
    return IllegalProblem(f"a layout name must fit its tensor; got {tag!r}: {reason}; use e.g. abx, axb, aBx16b, nhwc")


def weights_layout(tag: str, shape: Sequence[ExprLike], groups: ExprLike, explicit_groups: bool) -> Layout:
    """Layout of weights (oc, ic/g, *kernel) from a tag, which counts a group dimension in front if there is one.

    `any` is the declared order in both cases.
    """
    outputs, *rest = [as_expr(extent) for extent in shape]
    if not explicit_groups:
        return layout_from_tag(tag, shape, TensorKind.WEIGHTS)
    count = as_expr(groups)
    per_group = outputs // count
    grouped = layout_from_tag(tag, (count, per_group, *rest), TensorKind.GROUPED_WEIGHTS)
    return fuse(grouped, 0, per_group, count)


def layout_from_letters(letters: str, extents: dict[str, Expr], order: str) -> Layout:
    """Dense layout whose storage axes are named by letters, outermost first; `order` lists the logical dimensions.

    IllegalProblem unless `letters` is a permutation of `order`.
    """
    if sorted(letters) != sorted(order):
        raise IllegalProblem(f"a layout must name each of {order} once; got {letters!r}; reorder these letters")
    return dense([extents[letter] for letter in order], [order.index(letter) for letter in letters])


def storage_order(layout: Layout, extents: Sequence[Expr]) -> tuple[int, ...]:
    """Dimensions by falling stride; among equal strides one of extent 1 comes last, else the declared order.

    IllegalProblem for symbolic strides, whose order is open.
    """
    for stride in layout.strides:
        if not stride.is_const:
            raise IllegalProblem(f"a layout's name needs constant strides; got {stride}; bind its symbols first")
    return tuple(sorted(range(layout.rank), key=lambda dim: (-layout.strides[dim].value, extents[dim] is const(1))))


def tag_of(layout: Layout, extents: Sequence[ExprLike], kept: int = 2) -> str | None:
    """A generic tag that names exactly this layout, or None; dimensions from `kept` on are written x where possible."""
    sizes = tuple([as_expr(extent) for extent in extents])
    outer = "".join(LETTERS[dim] for dim in storage_order(layout, sizes))
    blocks = _printed_blocks(layout)
    if blocks is None:
        return None
    for _, letter in _INNER.findall(blocks):
        outer = outer.replace(letter, letter.upper())
    found = outer + blocks
    if _generic_layout(found, sizes) != layout:
        return None
    spatial = LETTERS[kept : len(sizes)]
    return outer.replace(spatial, "x") + blocks if spatial else found


def _printed_blocks(layout: Layout) -> str | None:
    """The blocks of a tag; None if their sizes are no plain numbers that divide each other."""
    parts: list[str] = []
    for place, block in enumerate(layout.blocks):
        inner = next((later.period for later in layout.blocks[place + 1 :] if later.dim == block.dim), const(1))
        size = block.period // inner
        if not size.is_const or size.value < 2:
            return None
        parts.append(f"{size.value}{LETTERS[block.dim]}")
    return "".join(parts)


def weights_tag(layout: Layout, shape: Sequence[ExprLike], groups: ExprLike) -> str | None:
    """The inverse of `weights_layout`, with a group dimension when groups exceed 1; None if no tag names the layout."""
    count = as_expr(groups)
    if count is const(1):
        return tag_of(layout, shape)
    outputs, *rest = [as_expr(extent) for extent in shape]
    grouped = unfuse(layout, 0, outputs // count)
    return None if grouped is None else tag_of(grouped, (count, outputs // count, *rest), kept=3)
