"""Source texts: goldens per dialect, the entry points, the launch recipe."""

import re

import pytest

from convloom.artifact import Access, Language
from convloom.emit.index_text import index_text
from convloom.errors import InternalError
from convloom.expr import const, evaluate, fast_div, maximum, minimum, multiplier_of, select, sym
from convloom.plan.split import Reduction
from convloom.target.arch import CPU, OPENCL, SM_90A
from tests.emit.sources import PROBLEMS, divided_launches, source_of

TARGETS = {"c": CPU, "opencl": OPENCL, "cuda": SM_90A}
EVERY = [(name, dialect) for name in PROBLEMS for dialect in TARGETS]


@pytest.mark.parametrize(("name", "dialect"), EVERY)
def test_golden(name, dialect, golden):
    golden(f"{name}.{dialect}.txt", source_of(name, TARGETS[dialect]).text)


@pytest.mark.parametrize("how", [Reduction.PASSES, Reduction.ATOMIC], ids=lambda how: how.value)
@pytest.mark.parametrize("dialect", TARGETS)
def test_golden_of_divided_sums(dialect, how, golden):
    texts = [launch.text for launch in divided_launches(how, TARGETS[dialect])]
    golden(f"divided_{how.value}_product.{dialect}.txt", "\n".join(texts))


@pytest.mark.parametrize(("name", "dialect"), EVERY)
def test_texts_are_deterministic_and_plain(name, dialect):
    source = source_of(name, TARGETS[dialect])
    assert source == source_of(name, TARGETS[dialect])
    assert source.text.isascii()
    assert source.text.count("{") == source.text.count("}")
    assert source.text.endswith("}\n")
    assert source.name in source.text


@pytest.mark.parametrize(("name", "dialect"), EVERY)
def test_launch_recipe(name, dialect):
    source = source_of(name, TARGETS[dialect])
    assert source.language is {"c": Language.C, "opencl": Language.OPENCL, "cuda": Language.CUDA}[dialect]
    assert [buffer.name for buffer in source.buffers][:2] in (["a", "b"], ["b", "a"])
    assert {buffer.name for buffer in source.buffers if buffer.access is not Access.READ} == {"c"}
    assert source.block[1:] == (1, 1)
    assert source.grid[1:] == ("1", "1")
    floats = [scalar.name for scalar in source.scalars if not scalar.name.startswith("arg")]
    assert floats == (["alpha", "beta"] if name == "scaled_product_f64" else [])


@pytest.mark.parametrize("name", PROBLEMS)
def test_entry_points(name):
    assert (
        f"void {source_of(name, CPU).name}(void *const *buffers, const int64_t *integers" in source_of(name, CPU).text
    )
    cuda = source_of(name, SM_90A).text
    assert re.search(r'extern "C" __global__ void __launch_bounds__\(16\) tiled_16x16x8\(const ', cuda)
    assert "#include" not in cuda
    assert "__attribute__((reqd_work_group_size(16, 1, 1)))" in source_of(name, OPENCL).text


def test_dialects_have_no_barriers_that_they_do_not_know():
    for name in PROBLEMS:
        assert "barrier" not in source_of(name, CPU).text
        assert "__syncthreads();" in source_of(name, SM_90A).text
        assert "barrier(CLK_LOCAL_MEM_FENCE);" in source_of(name, OPENCL).text


def test_sixteen_bit_types_need_no_extension():
    for name in ("strided_backward_data_f16", "grouped_backward_weights_bf16"):
        text = source_of(name, OPENCL).text
        assert "cl_khr_fp16" not in text
        assert "vload_half(0, " in text or "<< 16" in text


def test_sixty_four_bit_floats_ask_for_their_extension():
    assert "cl_khr_fp64" in source_of("scaled_product_f64", OPENCL).text
    assert "cl_khr_fp64" not in source_of("padded_forward_f32", OPENCL).text


# --- index expressions ----------------------------------------------------------------------------------------------

X, Y = sym("x", lo=0, hi=1000), sym("y")

TEXTS = [
    (const(7), "7"),
    (const(-7), "(-7)"),
    (const(2**31), "2147483648LL"),
    (X + 3, "(x + 3)"),
    (X - Y * 3, "(x - y * 3)"),
    (-X, "(x * (-1))"),
    (X * Y * 4, "((x * y) * 4)"),
    (X // 4, "(x / 4)"),
    (X % 4, "(x % 4)"),
    (Y // 4, "floor_div(y, 4)"),
    (Y % 4, "floor_mod(y, 4)"),
    (X // Y, "floor_div(x, y)"),
    (X.lt(Y), "(x < y)"),
    (select(X.lt(Y), X, 5), "((x < y) ? x : 5)"),
    (minimum(X, Y), "min_index(x, y)"),
    (maximum(X, Y), "max_index(x, y)"),
    (fast_div(X, Y, 3), "fast_div(x, y, 3)"),
]


@pytest.mark.parametrize(("expression", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_index_texts(expression, text):
    assert index_text(expression) == text


def test_what_only_hosts_compute_is_refused():
    with pytest.raises(InternalError, match="MAGIC_MULTIPLIER; hoist it"):
        index_text(multiplier_of(Y))


@pytest.mark.parametrize("values", [(0, -9), (5, 7), (999, -1)])
def test_c_division_agrees_where_it_is_used(values):
    """Python's floor operators and C's truncating ones on the texts that use `/` and `%`."""
    for expression, text in TEXTS:
        if "/" in text or (" % " in text):
            names = {"x": values[0], "y": values[1]}
            assert eval(text.replace("/", "//"), names) == evaluate(expression, names)
