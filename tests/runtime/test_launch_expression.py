import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convloom.artifact import KernelSource, Language, Requirement, ScalarKind, ScalarParam, TensorMapParam
from convloom.errors import IllegalProblem, InternalError
from convloom.runtime.launch_expression import Arithmetic, evaluate, symbols_of


def kernel(scalars=(), grid=("1", "1", "1"), requirements=()):
    return KernelSource("k", Language.C, "cpu", "", (), tuple(scalars), tuple(grid), (1, 1, 1), 0, tuple(requirements))


def integers(*expressions, kind=ScalarKind.I64):
    return [ScalarParam(f"p{place}", text, kind) for place, text in enumerate(expressions)]


@pytest.mark.parametrize(
    ("text", "symbols", "expected"),
    [
        ("7", {}, 7),
        ("-7 // 2", {}, -4),
        ("-7 % 4", {}, 1),
        ("(n + 63) // 64 * m", {"n": 65, "m": 3}, 6),
        ("min(n, 3) + max(n, 3, 9)", {"n": 5}, 12),
        ("n < 3 and m >= 2", {"n": 2, "m": 2}, 1),
        ("not n == 3 or m != 2", {"n": 3, "m": 2}, 0),
        ("select(n > 0, 8 // n, 5) + select(0, 1, 2)", {"n": 0}, 7),
        ("fast_div(n, 3, 1)", {"n": 5}, 7),
        ("0 <= n < 4", {"n": 4}, 0),
        ("(n > 1) + (n > 2)", {"n": 2}, 1),
        ("lambda_x + for_y", {"lambda_x": 1, "for_y": 2}, 3),
        ("9223372036854775807 * n", {"n": 4}, 9223372036854775807 * 4),
    ],
)
def test_evaluate(text, symbols, expected):
    result = evaluate(text, symbols)
    assert result == expected
    assert type(result) is int
    assert Arithmetic(kernel([], (text, "1", "1")))  # compiles
    assert symbols_of(text) == frozenset(symbols)


@given(st.integers(1, 2**31 - 1), st.integers(0, 2**31 - 1))
@settings(derandomize=True, max_examples=200)
def test_magic_numbers_divide(divisor, value):
    multiplier, shift = (evaluate(f"{name}(d)", {"d": divisor}) for name in ("magic_multiplier", "magic_shift"))
    assert multiplier < 2**32
    assert (value * multiplier) >> shift == value // divisor


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')", "n.real", "n[0]", "[n]", "(lambda: 1)()", "n ** n", "n / 2", "1.5", "'a'", "True", "n << 2",
        "n if n else 1", "print(n)", "min()", "min(n, key=n)", "min(*n)", "select(n, 1)", "n := 3", "", "n +", "1; 2",
        "~n", "min", "n is n", "n in n", "(1, 2)", "f(n)", "(" * 500 + "n" + ")" * 500, "\0",
    ],
)  # fmt: skip
def test_text_outside_the_language_is_refused(text):
    for call in (
        lambda: evaluate(text, {"n": 1}),
        lambda: symbols_of(text),
        lambda: Arithmetic(kernel([], (text, "1", "1"))),
    ):
        with pytest.raises(InternalError):
            call()


def test_everything_in_one_call():
    arithmetic = Arithmetic(
        kernel(
            [
                *integers("n * m", "magic_multiplier(m)"),
                ScalarParam("alpha", "alpha", ScalarKind.F32),
                *integers("-n", kind=ScalarKind.I32),
                ScalarParam("beta", "beta", ScalarKind.F64),
            ],
            ("(n + 7) // 8", "m", "1"),
            [Requirement("n % 2 == 0", "because")],
        )
    )
    assert arithmetic({"n": 10, "m": 3, "unused": 5}, {"alpha": 2, "beta": 0.5}) == (
        (2, 3, 1),
        (30, 2863311531, -10),
        (2.0, 0.5),
        (),
    )
    assert arithmetic.symbols == {"n", "m"}
    assert arithmetic({"n": 0, "m": 3}, {}) is None
    with pytest.raises(IllegalProblem, match="requires n % 2 == 0; got n = 9; because"):
        arithmetic({"n": 9, "m": 3}, {})


@pytest.mark.parametrize(
    ("kind", "value"),
    [(ScalarKind.I32, 2**31), (ScalarKind.I32, -(2**31) - 1), (ScalarKind.I64, 2**63), (ScalarKind.I64, -(2**63) - 1)],
)
def test_scalars_never_wrap(kind, value):
    arithmetic = Arithmetic(kernel(integers("n", kind=kind)))
    with pytest.raises(IllegalProblem, match=f"p0 = n .* got {value}"):
        arithmetic({"n": value}, {})
    inside = value - 1 if value > 0 else value + 1
    assert arithmetic({"n": inside}, {}) == ((1, 1, 1), (inside,), (), ())


def test_faults_of_the_arithmetic_itself():
    with pytest.raises(InternalError, match="negative"):
        Arithmetic(kernel([], ("n", "1", "1")))({"n": -1}, {})
    with pytest.raises(InternalError, match="divide by zero"):
        Arithmetic(kernel([], ("4 // n", "1", "1")))({"n": 0}, {})
    with pytest.raises(IllegalProblem, match="divisor"):
        Arithmetic(kernel(integers("magic_shift(n)")))({"n": 0}, {})
    with pytest.raises(IllegalProblem, match="needs values for m"):
        evaluate("n + m", {"n": 1})


def test_names_cannot_capture_the_function():
    arithmetic = Arithmetic(kernel(integers("s + f + v0 + result + index + i0"), ("g0", "1", "1")))
    symbols = dict.fromkeys(["s", "f", "v0", "result", "index", "i0", "g0"], 2)
    assert arithmetic(symbols, {}) == ((2, 1, 1), (12,), (), ())


def test_a_realistic_call_takes_microseconds():
    arithmetic = Arithmetic(
        kernel(
            integers(*(f"n{i} * {i} + stride{i}" for i in range(12)), "magic_multiplier(n3)", "magic_shift(n3)"),
            ("(n0 + 63) // 64 * ((n1 + 63) // 64)", "n2", "1"),
            [Requirement(f"n{i} % {i + 1} == 0", "") for i in range(4)],
        )
    )
    symbols = {f"{name}{i}": 12 for name in ("n", "stride") for i in range(12)}
    times = []
    for _ in range(200):
        start = time.perf_counter()
        arithmetic(symbols, {})
        times.append(time.perf_counter() - start)
    assert sorted(times)[100] < 60e-6


def test_tensor_maps_are_computed_with_the_scalars():
    recipe = TensorMapParam("x_map", "x", "f16", ("n", "m"), ("2 * n",), "n // 2", (1, 1), 128, box=(64, 8))
    assert Arithmetic(replace(kernel(), maps=(recipe,)))({"n": 64, "m": 3}, {}).maps == ((64, 3, 128, 32),)
