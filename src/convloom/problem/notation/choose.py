"""Which notation a line is in, and parsing and printing in any of them."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from itertools import pairwise

from convloom.dtypes import DType
from convloom.errors import IllegalProblem
from convloom.problem.conv import Conv, Direction
from convloom.problem.epilogue.attributes import NO_ATTRIBUTES, AttributeTexts
from convloom.problem.gemm import Gemm
from convloom.problem.layout_tags import ANY
from convloom.problem.notation import benchdnn, miopen, rocmlir, rocmlir_gemm, rocmlir_gen
from convloom.problem.notation.attributes import with_attributes
from convloom.problem.notation.defaults import Defaults, Types, allows_tf32, direction_named, refusal, types_named

Problem = Conv | Gemm


class Notation(Enum):
    """The notations, by the project that uses them."""

    BENCHDNN = "benchdnn"
    MIOPEN = "miopen"
    ROCMLIR = "rocmlir"
    ROCMLIR_GEMM = "rocmlir_gemm"
    ROCMLIR_GEN = "rocmlir_gen"


_GEMM_MARKS = frozenset(("-transA", "-transB", "-transO", "-out_datatype"))


def notation_of(text: str) -> Notation:
    """The notation of a line, by its words: flags of products, layout letters with groups, other dashes, or none."""
    words = text.split()
    if not words:
        raise IllegalProblem("a problem must not be empty; got an empty line; write e.g. mb1ic8ih5oc8oh5kh3ph1")
    if rocmlir_gen.is_command(words):
        return Notation.ROCMLIR_GEN
    if words[0] == "gemm" or _GEMM_MARKS & set(words):
        return Notation.ROCMLIR_GEMM
    if words[0].endswith(miopen.NAME):
        return Notation.MIOPEN
    after_flag = {value for flag, value in pairwise(words) if flag in ("-f", "-I", "-O")}
    if any(rocmlir.is_grouped_letters(letters) for letters in after_flag):
        return Notation.ROCMLIR
    if words[0].startswith("conv") or _is_short_flag(words[0]):
        return Notation.MIOPEN
    return Notation.BENCHDNN


def _is_short_flag(word: str) -> bool:
    return len(word) == 2 and word.startswith("-")


def parse_problem(
    text: str,
    *,
    direction: Direction | str = Direction.FWD,
    dtypes: Types | str = "f32",
    bias: DType | None = None,
    stag: str = ANY,
    wtag: str = ANY,
    dtag: str = ANY,
    attributes: AttributeTexts = NO_ATTRIBUTES,
) -> Conv | Gemm:
    """The problem of one line in any notation; the keywords fill in what the line leaves open, its own words win.

    `dtypes` is one name, or src:wei:dst (for a product a:b:c). Tags are layout names and concern benchdnn's notation.
    IllegalProblem quotes the part of the line that is wrong.
    """
    defaults = Defaults(
        direction=direction if isinstance(direction, Direction) else direction_named(direction),
        dtypes=types_named(dtypes) if isinstance(dtypes, str) else dtypes,
        bias=bias,
        src_tag=stag,
        wei_tag=wtag,
        dst_tag=dtag,
        tf32=isinstance(dtypes, str) and allows_tf32(dtypes),
        attributes=attributes,
    )
    return parse_line(text, defaults)


def parse_line(text: str, defaults: Defaults) -> Conv | Gemm:
    """`parse_problem` with the defaults as a record."""
    return with_attributes(_parse_line(text, defaults), defaults.attributes)


def _parse_line(text: str, defaults: Defaults) -> Conv | Gemm:
    notation = notation_of(text)
    if notation is Notation.BENCHDNN:
        return benchdnn.parse_conv(text, defaults)
    problem = _parse_without_math(text, notation, defaults)
    return replace(problem, tf32=True) if defaults.tf32 else problem


def _parse_without_math(text: str, notation: Notation, defaults: Defaults) -> Conv | Gemm:
    if notation is Notation.ROCMLIR_GEN:
        return rocmlir_gen.parse_problem(text, defaults)
    if notation is Notation.ROCMLIR_GEMM:
        return rocmlir_gemm.parse_gemm(text, defaults)
    if notation is Notation.ROCMLIR:
        return rocmlir.parse_conv(text, defaults)
    return miopen.parse_conv(text, defaults)


def print_problem(problem: Problem, notation: Notation | None = None) -> str:
    """The line that parses back to an equal problem; without a notation, the first that can express it.

    Only benchdnn's notation has a word for tf32.

    IllegalProblem says why the notation (the last one tried) cannot express the problem.
    """
    if notation not in (None, Notation.BENCHDNN) and problem.tf32:
        raise refusal(notation.value, "it allows tf32")
    if notation is None:
        able = expressible(problem)
        notation = able[0] if able else (Notation.BENCHDNN if isinstance(problem, Conv) else Notation.ROCMLIR_GEMM)
    if not problem.epilogue.is_empty and notation is not Notation.BENCHDNN:
        raise refusal(notation.value, "it has an epilogue")
    if notation is Notation.ROCMLIR_GEN:
        return rocmlir_gen.print_problem(problem)
    if notation is Notation.ROCMLIR_GEMM:
        return rocmlir_gemm.print_gemm(_as_gemm(problem))
    conv = _as_conv(problem, notation)
    printer = {
        Notation.BENCHDNN: benchdnn.print_conv,
        Notation.MIOPEN: miopen.print_conv,
        Notation.ROCMLIR: rocmlir.print_conv,
    }[notation]
    return printer(conv)


def expressible(problem: Problem) -> tuple[Notation, ...]:
    """The notations that can express the problem."""
    return tuple(notation for notation in Notation if _can_express(problem, notation))


def _can_express(problem: Problem, notation: Notation) -> bool:
    try:
        print_problem(problem, notation)
    except IllegalProblem:
        return False
    return True


def _as_gemm(problem: Problem) -> Gemm:
    if isinstance(problem, Conv):
        raise refusal(Notation.ROCMLIR_GEMM.value, "it is a convolution")
    return problem


def _as_conv(problem: Problem, notation: Notation) -> Conv:
    if isinstance(problem, Gemm):
        raise refusal(notation.value, "it is a matrix product")
    return problem
