"""Threads as loops: hand-written kernels give on the cpu what the interpreter of all threads gives."""

import numpy as np
import pytest

from convloom.artifact import Access, BufferParam, KernelSource, Language
from convloom.emit.c import print_c
from convloom.errors import InternalError
from convloom.expr import free_symbols
from convloom.ir.ops import Allocate, Barrier, Buffer, For, Let, LoopKind, Read, Scope
from convloom.ir.rewrite import statements_in
from convloom.ir.text import kernel_text
from convloom.ir.verify import verify
from convloom.lower.serialize_work_items import serialize_work_items
from convloom.runtime.device import device_named
from tests.ir.interpret.kernels import kernel, memory, run

BODIES = {
    "let_across_a_barrier": """
        shared s f32[8]
        let x[0,7] = index((tid * 3 + 1) % 8)
        write s[tid] = read(a, tid, 1)
        barrier
        write c[tid] = read(s, x, 1)
    """,
    "uniform_let": """
        shared s f32[8]
        let base[0,] = index(bid * 8)
        write s[tid] = read(a, base + tid, 1)
        barrier
        write c[base + tid] = add(read(s, 7 - tid, 1), read(s, 0, 1))
    """,
    "registers_across_barriers": """
        shared s f32[8]
        register r f32[2]
        write r[0] = read(a, tid, 1)
        write r[1] = read(a, 7 - tid, 1)
        write s[tid] = read(r, 1, 1)
        barrier
        write r[0] = add(read(r, 0, 1), read(s, (tid + 1) % 8, 1))
        barrier
        write s[tid] = read(r, 0, 1)
        barrier
        write c[tid] = add(read(s, 7 - tid, 1), read(r, 1, 1))
    """,
    "vector_registers": """
        shared s f32[32]
        register r f32x4[4]
        write r[0] = splat(read(a, tid, 1), 4)
        write s[tid * 4] = read(r, 0, 4)
        barrier
        write r[0] = add(read(r, 0, 4), read(s, (7 - tid) * 4, 4))
        barrier
        write c[tid] = read(r, 2, 1)
    """,
    "loop_with_barriers": """
        shared s f32[8]
        register acc f32[1]
        write acc[0] = const(0.0, f32, 1)
        for i[0,4] < 5 serial
          write s[tid] = read(a, (tid + i) % 8, 1)
          barrier
          write acc[0] = add(read(acc, 0, 1), read(s, (tid * i + 1) % 8, 1))
          barrier
        write c[tid] = read(acc, 0, 1)
    """,
    "let_across_a_barrier_in_a_loop": """
        shared s f32[8]
        register acc f32[1]
        write acc[0] = const(0.0, f32, 1)
        for i[0,3] < 4 serial
          let x[0,7] = index((tid + i * 3) % 8)
          write s[x] = read(a, tid, 1)
          barrier
          let y[0,7] = index((x + 1) % 8)
          write acc[0] = mad(read(acc, 0, 1), read(a, 2, 1), read(s, y, 1))
          barrier
        write c[tid] = read(acc, 0, 1)
    """,
    "nested_loops": """
        shared s f32[8]
        register acc f32[1]
        write acc[0] = const(0.0, f32, 1)
        for i[0,2] < 3 serial
          let row[0,2] = index(i)
          for j[0,1] < 2 serial
            write s[(tid + row) % 8] = read(a, (tid + j) % 8, 1)
            barrier
            for k[0,3] < 4 unrolled
              write acc[0] = add(read(acc, 0, 1), read(s, (tid + k) % 8, 1))
            barrier
        write c[tid] = read(acc, 0, 1)
    """,
    "uniform_condition": """
        shared s f32[8]
        write s[tid] = read(a, tid, 1)
        when bid < 1
          barrier
          write c[tid] = read(s, 7 - tid, 1)
        when bid > 0
          write c[bid * 8 + tid] = read(s, tid, 1)
    """,
    "index_array_across_a_barrier": """
        shared s f32[8]
        register place index[2]
        for e[0,1] < 2 unrolled
          write place[e] = index((tid * 5 + e) % 8)
        write s[tid] = read(a, tid, 1)
        barrier
        for e[0,1] < 2 unrolled
          let at[0,7] = read(place, e, 1)
          write c[tid * 2 + e] = read(s, at, 1)
    """,
    "value_read_before_a_barrier": """
        shared s f32[8]
        register r index[1]
        write r[0] = index(7 - tid)
        let z[0,7] = read(r, 0, 1)
        write s[tid] = read(a, tid, 1)
        barrier
        write c[tid] = read(s, z, 1)
    """,
    "threads_that_take_no_part": """
        shared s f32[8]
        when tid < 5
          let v[0,4] = index(tid)
          write s[v] = read(a, v, 1)
        barrier
        write c[tid] = read(s, tid % 5, 1)
    """,
}
GRID = {"uniform_let": 3, "uniform_condition": 2}


def blocks_of(name):
    return GRID.get(name, 1)


def made(name):
    return kernel(BODIES[name], blocks=blocks_of(name))


def on_cpu(serial, a, size, blocks):
    """The values of c after the C text of a serialised kernel ran."""
    source = KernelSource(
        serial.name,
        Language.C,
        "native",
        print_c(serial),
        (BufferParam("a", "f32", Access.READ), BufferParam("c", "f32", Access.READ_WRITE)),
        (),
        (str(blocks), "1", "1"),
        (serial.threads, 1, 1),
        0,
        (),
    )
    c = np.zeros(size, np.float32)
    device_named("cpu").build(source).launch([a.ctypes.data, c.ctypes.data], {})
    return c


@pytest.mark.parametrize("name", BODIES)
def test_same_results_as_all_threads_at_once(name):
    blocks, size = blocks_of(name), 32
    a = np.arange(1, size + 1, dtype=np.float32)
    outcome, expected = run(BODIES[name], memory(a), memory(np.zeros(size)), blocks=blocks)
    assert not outcome.findings.kinds()
    assert np.count_nonzero(expected) >= 8 * min(blocks, 2)
    assert np.array_equal(on_cpu(serialize_work_items(made(name)), a, size, blocks), expected)


@pytest.mark.parametrize("name", BODIES)
def test_result_is_well_formed(name):
    serial = serialize_work_items(made(name))
    verify(serial, "serialize_work_items")
    assert not any(isinstance(statement, Barrier) for statement in statements_in(serial.body))
    assert any(isinstance(s, For) and s.kind is LoopKind.WORK_ITEMS for s in statements_in(serial.body))


@pytest.mark.parametrize("name", ["let_across_a_barrier", "loop_with_barriers", "uniform_let"])
def test_golden(name, golden):
    before = made(name)
    after = serialize_work_items(before)
    golden(f"serialize_{name}.txt", f"{kernel_text(before)}\n--- after\n{kernel_text(after)}")


def test_names_that_all_threads_share_are_bound_outside():
    serial = serialize_work_items(made("uniform_let"))
    assert any(isinstance(statement, Let) and statement.variable.name == "base" for statement in serial.body)


def test_names_that_differ_are_kept_per_thread():
    serial = serialize_work_items(made("let_across_a_barrier"))
    assert Allocate(Buffer("x_saved", None, Scope.REGISTER, 8)) in serial.body
    restored = [s for s in statements_in(serial.body) if isinstance(s, Let) and isinstance(s.value, Read)]
    assert [statement.variable.name for statement in restored] == ["x"]


def test_registers_that_live_in_one_region_stay_small():
    serial = serialize_work_items(made("index_array_across_a_barrier"))
    sizes = {s.buffer.name: s.buffer.size for s in statements_in(serial.body) if isinstance(s, Allocate)}
    assert sizes["place"] == 2 * 8
    inside = kernel("register r f32[2]\nwrite r[0] = read(a, tid, 1)\nwrite c[tid] = read(r, 0, 1)")
    sizes = {
        s.buffer.name: s.buffer.size
        for s in statements_in(serialize_work_items(inside).body)
        if isinstance(s, Allocate)
    }
    assert sizes == {"r": 2}


def test_a_barrier_that_not_all_threads_reach_is_an_error():
    with pytest.raises(InternalError, match="uniform control flow"):
        serialize_work_items(kernel("when tid < 4\n  barrier\nwrite c[tid] = read(a, tid, 1)"))
    with pytest.raises(InternalError, match="uniform control flow"):
        serialize_work_items(kernel("for i[0,7] < tid serial\n  barrier"))


def test_thread_number_is_bound_by_the_loops():
    serial = serialize_work_items(made("nested_loops"))
    outside = [statement for statement in serial.body if isinstance(statement, Let)]
    assert not any(
        "tid" in {s.name for s in free_symbols(let.value)} for let in outside if not isinstance(let.value, Read)
    )
