"""`convloom explain --interpret`: counts beside estimates."""

import re

from typer.testing import CliRunner

from convloom.cli import app

LINE = "mb2ic32ih8oc32oh8kh1"


def output(*arguments):
    result = CliRunner().invoke(app, ["explain", LINE, *arguments, "--interpret"])
    assert result.exit_code == 0, result.output
    return result.output


def test_counts_stand_beside_estimates():
    text = output("--target", "sm_90a")
    assert "interpreted   result equal to the reference, no faults" in text
    blocks = re.search(r"blocks +(\d+) +(\d+)\n", text)
    assert blocks[1] == blocks[2]
    assert re.search(r"load from shared \w+_tile +\d+ requests +[\d.]+ wavefronts each", text)
    assert re.search(r"store to global c +\d+ requests +[\d.]+ sectors each", text)


def test_the_default_target_is_replaced_and_said_so():
    assert output().startswith("target        interpret: the interpreter runs no kernel of the cpu target\n")


def test_matrix_rows_are_listed():
    text = output("--dt", "f16", "--stag", "axb", "--wtag", "axb", "--dtag", "axb", "--target", "sm_80")
    assert re.search(r"instructions +cp\.async\.\w+\.16 +\d+ times", text)
    assert re.search(r"mma\.m16n8k16\.f32\.f16\.f16 +\d+ times", text)
