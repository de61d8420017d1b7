"""The words that say how a plan is picked."""

import pytest

from convloom.errors import IllegalProblem
from convloom.tune.pick import DEFAULT_COUNT, MODEL, Pick, PickHow, parse_pick


@pytest.mark.parametrize(
    ("text", "pick"),
    [
        ("model", MODEL),
        ("measured", Pick(PickHow.MEASURED, DEFAULT_COUNT)),
        ("measured:1", Pick(PickHow.MEASURED, 1)),
        ("measured:32", Pick(PickHow.MEASURED, 32)),
    ],
)
def test_texts(text, pick):
    assert parse_pick(text) == pick
    assert parse_pick(str(pick)) == pick


@pytest.mark.parametrize("text", ["", "Model", "measured:", "measured:-1", "measured:x", "model:3", "measured:8 "])
def test_other_texts_are_refused(text):
    with pytest.raises(IllegalProblem, match="pick must be model, measured or measured:K"):
        parse_pick(text)


@pytest.mark.parametrize("text", ["measured:0", "measured:257"])
def test_numbers_out_of_range_are_refused(text):
    with pytest.raises(IllegalProblem, match="measured picks among 1 to 256 plans"):
        parse_pick(text)
