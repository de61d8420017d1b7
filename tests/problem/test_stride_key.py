"""The stride key: what it says, that it reads back, and that what it reads back to generates the same source."""

import re
from itertools import islice
from pathlib import Path

import pytest

from convloom.compiler import contract, generate, plan_for, prepare
from convloom.dtypes import F32
from convloom.errors import IllegalProblem
from convloom.expr import sym
from convloom.plan.choose import choose_plan
from convloom.problem.conv import Direction
from convloom.problem.conv_arguments import conv_problem
from convloom.problem.normal_form import normal_form
from convloom.problem.notation.choose import parse_problem
from convloom.problem.stride_key import key_text, parse_key
from convloom.target.arch import CPU, OPENCL, SM_90A
from tests.problem.drawing import TYPES, draw

SUITES = Path(__file__).parents[2] / "suites"
DIRECTIONS = tuple(Direction)
TARGETS = (CPU, OPENCL, SM_90A)
PARTS = 12  # tests that share the lines, so that processes can share the work


def suite_lines():
    """Every line once, with the first file that has it."""
    found = {}
    for file in sorted(SUITES.rglob("*.txt")):
        for line in file.read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                found.setdefault(line.strip(), str(file.relative_to(SUITES)))
    return found


def sample():
    """For each target: the middle line of each file, the direction changing from file to file."""
    lines = suite_lines()
    files = list(dict.fromkeys(lines.values()))
    for number, file in enumerate(files):
        own = [line for line, first in lines.items() if first == file]
        for shift, target in enumerate(TARGETS):
            direction = DIRECTIONS[(number + shift) % 3]
            yield pytest.param(own[len(own) // 2], direction, target, id=f"{file}-{direction.value}-{target.name}")


def contraction_of(line, direction):
    """In normal form, without the cache of `prepare`, which so many would only fill."""
    return normal_form(contract(parse_problem(line, direction=direction))).contraction


def key(problem):
    return key_text(prepare(problem).contraction)


def read_back(contraction):
    """The contraction that the key of this one says, after checks that the text says everything."""
    text = key_text(contraction)
    found = parse_key(text)
    assert key_text(found) == text
    assert found == contraction
    return found


def generate_the_same(line, direction, target):
    contraction = contraction_of(line, direction)
    found = read_back(contraction)
    plan = choose_plan(contraction, target)
    assert choose_plan(found, target) == plan
    assert generate(found, target, plan).program == generate(contraction, target, plan).program


@pytest.mark.parametrize("part", range(PARTS))
def test_every_line_of_the_suites_reads_back(part):
    """Each in one direction, by turns; source is a function of contraction, target and plan, so it is equal too."""
    lines = list(suite_lines())
    assert len(lines) == 1948
    for number, line in islice(enumerate(lines), part, None, PARTS):
        read_back(contraction_of(line, DIRECTIONS[number // PARTS % 3]))


@pytest.mark.slow
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_line_reads_back_in_every_direction(part, direction):
    for line in islice(suite_lines(), part, None, PARTS):
        read_back(contraction_of(line, direction))


@pytest.mark.parametrize(("line", "direction", "target"), list(sample()))
def test_keys_generate_the_same_source(line, direction, target):
    generate_the_same(line, direction, target)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_key_generates_the_same_source(part, direction, target):
    for line in islice(suite_lines(), part, None, PARTS):
        generate_the_same(line, direction, target)


@pytest.mark.parametrize("seed", range(60))
def test_random_problems_read_back(seed):
    read_back(prepare(draw(seed, TYPES).static).contraction)


@pytest.mark.parametrize("seed", range(16))
def test_dynamic_keys_generate_the_same_source(seed):
    """Hints are no facts and not in the key: the same plan gives the same text."""
    contraction = prepare(draw(seed, TYPES).dynamic).contraction
    found = parse_key(key_text(contraction))
    assert key_text(found) == key_text(contraction)
    plan = plan_for(contraction, CPU)
    assert generate(found, CPU, plan).source == generate(contraction, CPU, plan).source


def test_key_of_a_product():
    problem = parse_problem("-transA false -transB true -g 1 -m 384 -n 768 -k 64 -t f32")
    assert key(problem) == (
        "acc=f32 | m=384 n=768 k=64 | a f32 m=384:64 k=64:1 | b f32 n=768:64 k=64:1 | c f32 m=384:768 n=768:1"
    )


def test_key_of_a_padded_convolution():
    text = key(conv_problem(batch=2, in_channels=3, out_channels=4, in_spatial=(8,), kernel=(3,), padding=1))
    assert re.search(r" where 0<=[kmn0-9+-]+<8", text)
    assert "base=-1" in text


def test_key_of_a_family_lists_phases():
    text = key(
        conv_problem(
            direction=Direction.BWD_D, batch=1, in_channels=2, out_channels=2, in_spatial=(8,), kernel=(3,), stride=2
        )
    )
    assert " | phases p0=" in text


def test_key_of_dims_states_their_facts():
    n = sym("n", divisor=8, lo=8, hi=64, hint=16)
    text = key(conv_problem(batch=n, in_channels=2, out_channels=2, in_spatial=(8,), kernel=(3,)))
    assert " | sizes n[8,64]%8 | " in text
    assert "16" not in re.findall(r"sizes ([^|]*)", text)[0]


@pytest.mark.parametrize("name", ["m0", "k1", "p0", "g0"])
def test_dims_named_like_axes_are_refused(name):
    """A key gives axes and phases names of its own."""
    size = sym(name, lo=1)
    problem = conv_problem(batch=size, in_channels=2, out_channels=2, in_spatial=(8,), kernel=(3,))
    with pytest.raises(IllegalProblem, match=f"{name}.*rename"):
        key(problem)


GOOD = "acc=f32 | m=4 n=5 k=3 | a f32 m=4:3 k=3:1 | b f32 n=5:1 k=3:5 | c f32 m=4:5 n=5:1"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("acc=f32", "acc=f33"),
        ("acc=f32", "sum=f32"),
        ("| a f32 m=4:3 k=3:1 ", ""),
        ("| b f32", "| d f32"),
        ("m=4 n=5 k=3", "m=4 n=5 q=3"),
        ("k=3:1", "k=3:1,2:1"),
        ("n=5:1 k=3:5", "n=5:1 k=3:5 where 1<0<2"),
        ("m=4:5", "m=x:5"),
        ("m=4:5", "m7=4:5"),
        ("m=4:3", "m=5:3"),
    ],
)
def test_malformed_keys_are_refused(old, new):
    assert key_text(parse_key(GOOD)) == GOOD
    assert old in GOOD
    with pytest.raises(IllegalProblem):
        parse_key(GOOD.replace(old, new))


def test_factors_and_bias_are_in_the_key():
    problem = conv_problem(batch=1, in_channels=2, out_channels=2, in_spatial=(8,), kernel=(3,), bias=F32)
    assert " | bias f32 " in key(problem)
    assert GOOD.replace("acc=f32", "acc=f32 scale=alpha,beta") == key_text(
        parse_key(GOOD.replace("acc=f32", "acc=f32 scale=alpha,beta"))
    )


def test_tf32_is_part_of_the_key():
    strict = prepare(parse_problem("mb2ic8ih5oc8oh5kh3ph1")).contraction
    allowed = prepare(parse_problem("mb2ic8ih5oc8oh5kh3ph1", dtypes="tf32")).contraction
    assert "math=tf32" in key_text(allowed)
    assert "math" not in key_text(strict)
    assert parse_key(key_text(allowed)).tf32
