"""Every check of the verifier finds the fault it is for, and lets the faultless kernel pass."""

import pytest

from convloom.errors import InternalError
from convloom.expr import free_symbols, local_sym
from convloom.ir import verify as rules
from convloom.ir.rewrite import statement_expressions, statements_in
from convloom.ir.verify import bound_symbols, verify
from tests.ir.interpret.kernels import kernel

GOOD = """
    shared s f32[8]
    register r f32x2[8]
    write s[tid] = read(a, tid, 1)
    barrier
    for i[0,3] < 4 unrolled
      write r[i * 2] = add(read(s, i * 2, 2), const(0.0, f32, 2))
    let last[0,7] = index(7 - tid)
    when last < 4
      write c[tid] = read(s, last, 1, if_=last < 3)
"""

# check -> bodies that break it and the words of the finding
FAULTS = {
    rules.check_types: [
        ("write c[tid] = const(0.0, f64, 1)", "c holds f32; f64 is stored to it"),
        (
            "register r b32[1]\nwrite r[0] = pack(convert(read(a, tid, 1), f16))",
            "a packed word has 32 bits; got 1 of f16",
        ),
        ("write c[tid] = convert(read(a, tid, 1), f16)", "c holds f32; f16 is stored"),
        ("write c[tid] = add(const(0.0, f32, 1), convert(const(0.0, f64, 4), f32))", "must have one type"),
        ("write c[tid] = mad(const(0.0, f32, 1), const(0.0, f32, 1), const(0.0, f32, 2))", "must have one type"),
    ],
    rules.check_buffers_allocated: [
        ("when tid < 4\n  register r f32[1]\nwrite r[0] = const(0.0, f32, 1)", "r is used before it is allocated"),
        ("for i[0,3] < 4 serial\n  shared s f32[8]\nwrite c[tid] = read(s, tid, 1)", "s is used before"),
    ],
    rules.check_names_bound: [
        (
            "when tid < 4\n  let x[0,7] = index(tid)\nwrite c[x] = const(0.0, f32, 1)",
            "name x is used before it is bound",
        ),
        ("for i[0,3] < 4 serial\n  let x[0,3] = index(i)\nwrite c[i] = const(0.0, f32, 1)", "name i is used before"),
    ],
    rules.check_local_bounds: [
        ("register r f32[4]\nwrite r[tid] = const(0.0, f32, 1)", r"index tid in \[0, 7\] .* may leave r\[4\]"),
        ("shared s f32[8]\nwrite s[tid - 1] = const(0.0, f32, 1)", r"in \[-1, 6\]"),
        ("shared s f32[8]\nwrite s[tid] = const(0.0, f32, 2)", r"of 2 lanes may leave s\[8\]"),
        ("shared s f32[8]\nwrite c[tid] = read(s, tid * 4, 1)", r"may leave s\[8\]"),
    ],
    rules.check_atomic_adds: [
        ("shared s f32[8]\nadd s[tid] = const(0.0, f32, 1)", "an atomic addition needs a result of f32, f64 or s32"),
        ("add a[tid] = const(0.0, f32, 1)", "a is f32"),
    ],
    rules.check_instruction_arguments: [
        ("do bar.sync (barrier=index(1))", "bar.sync takes barrier, threads; got barrier"),
        ("do bar.sync (barrier=index(tid), threads=index(32))", "barrier of bar.sync must be a constant; got tid"),
        (
            "shared s f32[8]\ndo st.release.b32 (address=address(s, 0), value=index(1))",
            "address of st.release.b32 must lie in global memory; s does not",
        ),
        (
            "register r s32[2]\ndo ld.acquire.b32 (d=registers(r, 0, 2), address=address(c, 0))",
            "d of ld.acquire.b32 takes 1 registers or numbers; got 2",
        ),
        (
            "register r s32[2]\ndo prefetch.tensormap (map=address(c, 0))",
            "map of prefetch.tensormap must be one of MapParameter; got Address",
        ),
    ],
    rules.check_instruction_rules: [
        ("do bar.sync (barrier=index(16), threads=index(32))", "barrier of bar.sync must be within 0, 15; got 16"),
        ("do bar.sync (barrier=index(1), threads=index(40))", "threads of bar.sync must be a multiple of 32; got 40"),
        (
            "shared s f32[64]\ndo cp.async.cg.16 (destination=address(s, tid * 2), source=address(a, tid * 4), "
            "source_bytes=index(16))",
            r"destination of cp.async.cg.16 must be a multiple of 16; got s\[tid \* 2\]",
        ),
        (
            "shared s f32[8]\ndo cp.async.ca.4 (destination=address(s, tid), source=address(a, tid), "
            "source_bytes=index(5))",
            "source_bytes of cp.async.ca.4 must be within 0, 4; got 5",
        ),
    ],
    rules.check_lanes_together: [
        ("when tid < 4\n  do bar.sync (barrier=index(1), threads=index(32))", "by 32 lanes together; some are masked"),
        (
            "let w[0,63] = index(tid)\nwhen bid < 1\n  when w != 3\n    do bar.arrive (barrier=index(1), "
            "threads=index(32))",
            "bar.arrive is executed by 32 lanes",
        ),
    ],
    rules.check_unrolled_constant: [
        ("for i[0,7] < tid unrolled\n  write c[i] = const(0.0, f32, 1)", "needs a constant extent; got tid"),
    ],
    rules.check_barriers_uniform: [
        ("when tid < 4\n  barrier", "reached by all threads alike"),
        ("for i[0,7] < tid serial\n  barrier", "reached by all threads alike"),
        (
            "let x[0,8] = index(tid + 1)\nwhen x < 4\n  for i[0,3] < 4 serial\n    barrier",
            "reached by all threads alike",
        ),
    ],
}


def made_of(body):
    """Bodies with instructions of warps belong to two of them."""
    return kernel(body, threads=64 if "bar." in body else 8)


CASES = [(check, body, words) for check, faults in FAULTS.items() for body, words in faults]


def test_good_kernel_passes():
    verify(kernel(GOOD), "test")


@pytest.mark.parametrize(("check", "body", "words"), CASES)
def test_planted_fault_is_found(check, body, words):
    made = made_of(body)
    assert list(check(made, frozenset())), "the check found nothing"
    with pytest.raises(InternalError, match=f"after planting: .*{words}.*; kernel tiny; report this"):
        verify(made, "planting")


def test_every_check_has_a_fault():
    assert set(FAULTS) == set(rules.CHECKS)


@pytest.mark.parametrize(("check", "body", "words"), CASES)
def test_faults_break_no_other_check(check, body, words):
    made = made_of(body)
    assert [other for other in rules.CHECKS if list(other(made, frozenset()))] == [check]


def test_barriers_in_uniform_control_flow_are_fine():
    verify(kernel("for i[0,3] < 4 serial\n  barrier\nwhen bid < 1\n  barrier", blocks=2), "test")


def test_conditions_on_what_is_not_known_part_no_lanes():
    body = """
        register r index[1]
        let w[0,63] = index(tid)
        write r[0] = index(bid)
        let w[0,63] = read(r, 0, 1)
        when w == 0
          do bar.arrive (barrier=index(1), threads=index(64))
        for tid2[0,3] < 4 serial
          when tid2 == 1
            do bar.arrive (barrier=index(1), threads=index(64))
        when tid < 32
          do bar.arrive (barrier=index(1), threads=index(64))
    """
    assert not list(rules.check_lanes_together(kernel(body, threads=64), frozenset()))


def test_names_read_from_memory_are_not_uniform():
    body = "register r index[1]\nwrite r[0] = index(bid)\nlet x[0,1] = read(r, 0, 1)\nwhen x < 1\n  barrier"
    assert list(rules.check_barriers_uniform(kernel(body), frozenset()))


def test_sizes_count_as_bound_until_they_are_hoisted():
    made = kernel("let x[0,7] = index(tid)\nwhen x < 4\n  let y[0,7] = index(x)\nwrite c[y] = const(0.0, f32, 1)")
    (free,) = {
        symbol
        for statement in statements_in(made.body)
        for expression in statement_expressions(statement)
        for symbol in free_symbols(expression)
        if symbol.name == "y"
    }
    assert list(rules.check_names_bound(made, frozenset()))
    assert not list(rules.check_names_bound(made, frozenset((free,))))


def test_bound_symbols():
    names = {symbol.name for symbol in bound_symbols(kernel(GOOD))}
    assert names == {"bid", "tid", "i", "last"}
    assert local_sym("tid", lo=0, hi=7) in bound_symbols(kernel(GOOD))
