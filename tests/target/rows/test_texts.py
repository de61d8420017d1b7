"""Every row's text is accepted by NVIDIA's compiler and assembler; no GPU is needed."""

from __future__ import annotations

import numpy as np
import pytest

from convloom.artifact import KernelSource, Language
from convloom.errors import IllegalProblem, UnsupportedTarget
from convloom.runtime.nvrtc import current_nvrtc
from convloom.target.asm_text import statement
from convloom.target.catalogue import all_rows, row_named
from convloom.target.instruction import Direction, Family, OperandKind, Register
from tests.target.rows.barrier_scripts import barrier_scripts
from tests.target.rows.cases import group_cases, tensor_cases, warp_cases
from tests.target.rows.harness import kernel_source


@pytest.fixture(scope="module")
def compiler():
    try:
        return current_nvrtc()
    except UnsupportedTarget as error:
        pytest.skip(str(error))


def distinct(cases):
    """One case of each row."""
    return list({case.row.name: case for case in cases}.values())


# Widths and types of wgmma differ in numbers only; a few stand for all here, a GPU run covers the rest.
CASES = [*distinct(warp_cases()), *distinct(tensor_cases()), *distinct(group_cases())[::4]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.row.name)
def test_one_instruction_kernels_compile(compiler, case):
    binary = compiler.compile(kernel_source(case, "sm_90a"))
    assert binary.payload


NUMBERS = {"pending": "1", "barrier": "2", "threads": "128", "registers": "40", "rank": "1u"}


def expression(operand):
    if operand.kind is OperandKind.IMMEDIATE:
        return NUMBERS[operand.name]
    if operand.direction is Direction.OUT:
        return {Register.B32: "d", Register.B64: "wide"}[operand.register]
    if operand.name == "address" and operand.register is Register.B32:
        return "16u"
    return NUMBERS.get(operand.name, "0u") if operand.register is Register.B32 else "(unsigned long long)map"


def test_the_other_rows_compile_together(compiler):
    covered = {case.row.name for case in (*warp_cases(), *tensor_cases())}
    rows = [
        row
        for row in all_rows().values()
        if row.name not in covered and row.text(Language.CUDA) is not None and row.shape == ()
    ]
    # Budgets go last and apart: they are refused where a block's register count is unknown.
    rows.sort(key=lambda row: row.family is Family.REGISTER_BUDGET)
    lines = []
    for row in rows:
        if row.family in (Family.TENSOR_LOAD, Family.TENSOR_STORE) and len(row.operands) > 1:
            arguments = {o.name: [expression(o)] * o.registers for o in row.operands}
        else:
            arguments = {o.name: [expression(o)] for o in row.operands}
        lines.append(statement(row, Language.CUDA, arguments))
    assert len(lines) > 30
    body = "\n    ".join(lines)
    text = (
        'extern "C" __global__ void __launch_bounds__(256) others(const void *map, unsigned *out) {\n'
        f"    unsigned d = 0;\n    {body}\n    out[threadIdx.x] = d;\n}}\n"
    )
    source = KernelSource("others", Language.CUDA, "sm_90a", text, (), (), ("1",) * 3, (256, 1, 1), 0, ())
    assert compiler.compile(source).payload


def test_barrier_scripts_compile(compiler):
    assert compiler.compile(next(barrier_scripts()).source("sm_90a")).payload


def test_a_statement_needs_an_expression_for_each_register():
    row = row_named("mma.m8n8k4.f64.f64.f64")
    with pytest.raises(IllegalProblem, match=r"operand 'd' .* takes 2 expressions; got 1"):
        statement(row, Language.CUDA, {"d": ["x"]})
    with pytest.raises(UnsupportedTarget, match="language"):
        statement(row, Language.OPENCL, {})


def test_statements_of_other_languages():
    arguments = {"d": ["r"], "a": ["x"], "b": ["y"], "c": ["z"]}
    assert statement(row_named("fma.f32"), Language.C, arguments) == "r = fmaf(x, y, z);"
    assert statement(row_named("fma.f32"), Language.OPENCL, arguments) == "r = fma(x, y, z);"
    assert statement(row_named("fma.s32"), Language.OPENCL, arguments) == "r = x * y + z;"
    load = statement(row_named("load.shared.32"), Language.OPENCL, {"d": ["r"], "address": ["p + 4"]})
    assert load == "r = *(__local uint *)(p + 4);"


def test_register_places_are_numbered_outputs_first():
    row = row_named("dp4a.s8.u8")
    text = statement(row, Language.CUDA, {"d": ["d"], "a": ["a"], "b": ["b"], "c": ["c"]})
    assert text == 'asm volatile("dp4a.s32.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));'


def test_cases_cover_every_row_with_an_effect():
    covered = {case.row.name for case in (*warp_cases(), *tensor_cases(), *group_cases())}
    covered |= {name for script in barrier_scripts() for name, _ in script.steps}
    families = {row_named(name).family for name in covered}
    assert families == set(Family) - {Family.FENCE, Family.REGISTER_BUDGET}
    assert np.unique([len(case.slots()) for case in warp_cases()]).size > 3
