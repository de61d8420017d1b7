"""Layouts against brute force over all indices."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convloom.errors import IllegalProblem
from convloom.expr import const, evaluate, sym
from convloom.problem.layout import Layout, dense, fuse, overlaps_itself, plain, unfuse
from convloom.problem.layout_memory import buffer_origin, buffer_size, element_offsets, pack, unpack
from convloom.problem.layout_tags import TensorKind, layout_from_tag, tag_of, weights_layout, weights_tag

TAGS_4D = ["abx", "axb", "xba", "acdb", "bacd", "aBx16b", "aBcd16b", "ABx32a32b", "AcdB4a8b", "ABcd4b16a4b"]


def offset_by_hand(tag, shape, index):
    """Element offset from a tag by its definition: storage axes outermost first, each a digit of its dimension."""
    head = "".join(itertools.takewhile(str.isalpha, tag))
    blocks = [(int(size), letter) for size, letter in _pairs(tag[len(head) :])]
    rest = [letter for letter in "abcdef"[: len(shape)] if letter not in head.lower()]
    outer = "".join("".join(rest) if letter == "x" else letter.lower() for letter in head)
    counts, digits = [], []
    for letter in outer:
        dim = ord(letter) - ord("a")
        whole = int(np.prod([size for size, name in blocks if name == letter]))
        counts.append(-(-shape[dim] // whole))
        digits.append(index[dim] // whole)
    for place, (size, letter) in enumerate(blocks):
        inner = int(np.prod([other for other, name in blocks[place + 1 :] if name == letter]))
        counts.append(size)
        digits.append(index[ord(letter) - ord("a")] // inner % size)
    return int(np.ravel_multi_index(digits, counts)) if digits else 0


def _pairs(text):
    size = ""
    for ch in text:
        if ch.isdigit():
            size += ch
        else:
            yield size, ch
            size = ""


@pytest.mark.parametrize("tag", TAGS_4D)
@pytest.mark.parametrize("shape", [(3, 33, 2, 5), (32, 16, 1, 3), (1, 1, 1, 1)])
def test_tags_mean_what_their_letters_say(tag, shape):
    layout = layout_from_tag(tag, shape)
    offsets = element_offsets(layout, shape)
    for index in itertools.islice(np.ndindex(shape), 0, None, 7):
        assert offsets[index] == offset_by_hand(tag, shape, index)
    assert layout.is_dense(shape)


@pytest.mark.parametrize("tag", TAGS_4D)
def test_view_agrees_with_memory(tag):
    shape = (3, 35, 2, 5)
    layout = layout_from_tag(tag, shape)
    view = layout.view(("n", "c", "h", "w"), shape)
    index = np.indices(shape)
    access = view.access(dict(zip("nchw", index, strict=True)))
    assert np.array_equal(np.broadcast_to(access.offset, shape), element_offsets(layout, shape))


@pytest.mark.parametrize(
    ("name", "kind", "shape", "tag"),
    [
        ("nchw", TensorKind.ACTIVATION, (2, 3, 4, 5), "abcd"),
        ("nhwc", TensorKind.ACTIVATION, (2, 3, 4, 5), "acdb"),
        ("nwc", TensorKind.ACTIVATION, (2, 3, 5), "acb"),
        ("ncw", TensorKind.ACTIVATION, (2, 3, 5), "abc"),
        ("ndhwc", TensorKind.ACTIVATION, (2, 3, 4, 5, 6), "acdeb"),
        ("ncdhw", TensorKind.ACTIVATION, (2, 3, 4, 5, 6), "abcde"),
        ("NChw32n32c", TensorKind.ACTIVATION, (40, 33, 4, 5), "ABcd32a32b"),
        ("nCx16c", TensorKind.ACTIVATION, (2, 33, 5), "aBc16b"),
        ("oihw", TensorKind.WEIGHTS, (8, 4, 3, 3), "abcd"),
        ("ohwi", TensorKind.WEIGHTS, (8, 4, 3, 3), "acdb"),
        ("hwio", TensorKind.WEIGHTS, (8, 4, 3, 3), "cdba"),
        ("OIhw8i16o2i", TensorKind.WEIGHTS, (20, 17, 3, 3), "ABcd8b16a2b"),
        ("goihw", TensorKind.GROUPED_WEIGHTS, (2, 8, 4, 3, 3), "abcde"),
        ("gohwi", TensorKind.GROUPED_WEIGHTS, (2, 8, 4, 3, 3), "abdec"),
        ("gowi", TensorKind.GROUPED_WEIGHTS, (2, 8, 4, 3), "abdc"),
    ],
)
def test_framework_names(name, kind, shape, tag):
    assert layout_from_tag(name, shape, kind) == layout_from_tag(tag, shape)


@pytest.mark.parametrize("tag", ["abb", "abc", "nchw", "aBx", "abx16b", "", "a-b", "abcde", "aBx16q", "aBx1b"])
def test_bad_tags_are_refused_by_name(tag):
    with pytest.raises(IllegalProblem, match="layout name"):
        layout_from_tag(tag, (2, 3, 4, 5))


@pytest.mark.parametrize("tag", TAGS_4D)
def test_tag_round_trip(tag):
    shape = (40, 70, 3, 5)
    layout = layout_from_tag(tag, shape)
    printed = tag_of(layout, shape)
    assert printed is not None
    assert layout_from_tag(printed, shape) == layout


def test_tag_of_prefers_x_and_refuses_gaps():
    assert tag_of(dense((2, 3, 4, 5)), (2, 3, 4, 5)) == "abx"
    assert tag_of(dense((2, 3, 4, 5), (0, 2, 3, 1)), (2, 3, 4, 5)) == "axb"
    assert tag_of(plain((100, 20, 5, 1)), (2, 3, 4, 5)) is None


@given(st.lists(st.integers(1, 3), min_size=4, max_size=4), st.permutations(range(4)))
@settings(derandomize=True)
def test_every_dense_order_has_a_tag(shape, order):
    layout = dense(shape, order)
    printed = tag_of(layout, shape)
    assert printed is not None
    assert layout_from_tag(printed, shape) == layout


@given(
    st.lists(st.integers(1, 4), min_size=3, max_size=3),
    st.lists(st.integers(-40, 40), min_size=3, max_size=3),
)
@settings(derandomize=True)
def test_any_strides_pack_and_unpack(shape, strides):
    layout = plain(strides)
    offsets = sum(
        np.arange(n).reshape([-1 if i == d else 1 for i in range(3)]) * s
        for d, (n, s) in enumerate(zip(shape, strides, strict=True))
    )
    assert buffer_origin(layout, shape) == -offsets.min()
    assert buffer_size(layout, shape) == offsets.max() - offsets.min() + 1
    buffer = np.arange(buffer_size(layout, shape))
    assert np.array_equal(unpack(buffer, layout, shape), offsets - offsets.min())
    if not overlaps_itself(layout, shape):
        assert len(np.unique(offsets)) == offsets.size
        logical = np.arange(offsets.size).reshape(shape)
        assert np.array_equal(unpack(pack(logical, layout, -1), layout, shape), logical)


@pytest.mark.parametrize("tag", TAGS_4D)
def test_blocked_pack_pads_with_fill(tag):
    shape = (3, 35, 2, 5)
    layout = layout_from_tag(tag, shape)
    logical = np.arange(np.prod(shape)).reshape(shape) + 1
    buffer = pack(logical, layout, -7)
    assert np.count_nonzero(buffer != -7) == logical.size
    assert np.array_equal(unpack(buffer, layout, shape), logical)


@pytest.mark.parametrize("tag", ["abx", "bax", "xcba", "abxc", "bxac", "aBCx4b4c", "aBx8b", "xaBc3b"])
@pytest.mark.parametrize(("groups", "outputs"), [(3, 8), (3, 7), (1, 8), (4, 1)])
def test_grouped_weights_by_brute_force(tag, groups, outputs):
    shape5 = (groups, outputs, 5, 3, 2)
    grouped = layout_from_tag(tag, shape5)
    fused = weights_layout(tag, (groups * outputs, 5, 3, 2), groups, explicit_groups=True)
    offsets = element_offsets(grouped, shape5).reshape(groups * outputs, 5, 3, 2)
    assert np.array_equal(element_offsets(fused, (groups * outputs, 5, 3, 2)), offsets)


@pytest.mark.parametrize("tag", ["abx", "axb", "bax", "xcba", "aBCx4b4c", "aBx8b"])
def test_weights_tags_round_trip(tag):
    shape = (24, 5, 3, 2)
    layout = weights_layout(tag, shape, 3, explicit_groups=True)
    printed = weights_tag(layout, shape, 3)
    assert printed is not None
    assert weights_layout(printed, shape, 3, explicit_groups=True) == layout


def test_fuse_refuses_blocked_groups():
    with pytest.raises(IllegalProblem, match="group dimension"):
        fuse(layout_from_tag("Abx4a", (8, 4, 3)), 0, 4, 8)


def test_unfuse_needs_a_group_boundary():
    assert unfuse(layout_from_tag("Abx16a", (64, 4, 3)), 0, 8) is None


def test_symbolic_extents():
    n, h = sym("n", lo=1), sym("h", lo=1)
    layout = layout_from_tag("axb", (n, 3, h, 4))
    assert layout.strides == (h * 12, const(1), const(12), const(3))
    size = layout.storage_size((n, 3, h, 4))
    assert int(evaluate(size, {"n": 5, "h": 7})) == 5 * 3 * 7 * 4
    assert layout.is_dense((n, 3, h, 4))
    assert layout.bind({n: 5, h: 7}) == layout_from_tag("axb", (5, 3, 7, 4))


def test_symbolic_blocked_view():
    c = sym("c", lo=1)
    layout = layout_from_tag("aBx16b", (2, c, 5))
    bound = layout.bind({c: 35})
    assert bound == layout_from_tag("aBx16b", (2, 35, 5))
    access = layout.view(("n", "c", "w"), (2, c, 5)).access({"n": 1, "c": 34, "w": 3})
    assert int(evaluate(access.offset, {"c": 35})) == element_offsets(bound, (2, 35, 5))[1, 34, 3]


def test_empty_tensors():
    layout = dense((3, 0, 4))
    assert layout == plain((4, 4, 1))
    assert buffer_size(layout, (3, 0, 4)) == 0
    assert unpack(pack(np.zeros((3, 0, 4)), layout), layout, (3, 0, 4)).shape == (3, 0, 4)


def test_overlap_is_found():
    assert overlaps_itself(plain((0, 1)), (2, 3))
    assert overlaps_itself(plain((2, 1)), (2, 3))
    assert not overlaps_itself(plain((0, 1)), (1, 3))
    assert not overlaps_itself(plain((-3, -1)), (2, 3))


def test_rank_mismatch_names_both():
    with pytest.raises(IllegalProblem, match="got 2 strides for rank 3"):
        plain((1, 1)).view(("a", "b", "c"), (1, 1, 1))


def test_buffer_of_wrong_size_is_refused():
    with pytest.raises(IllegalProblem, match="shape \\(6,\\)"):
        unpack(np.zeros(5), Layout((const(3), const(1))), (2, 3))
