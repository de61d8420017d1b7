"""Walking and rebuilding: every expression, value and buffer is seen, and nothing else changes."""

from dataclasses import replace

from convloom.compiler import generate, plan_for, prepare
from convloom.expr import const, free_symbols, local_sym, substitute
from convloom.ir.ops import Buffer, For, If, Let, Read, Scope, Write
from convloom.ir.rewrite import (
    map_buffers,
    map_statements,
    statement_expressions,
    statement_values,
    statements_in,
    values_in,
)
from convloom.ir.tables import constant_tables
from convloom.ir.types import ValueType, value_type
from convloom.problem.conv import Direction
from convloom.problem.notation.choose import parse_problem
from convloom.target.arch import CPU, SM_90A
from tests.ir.interpret.kernels import kernel

BODY = """
    register r f32x4[4]
    for i[0,1] < bid + 2 serial
      when i < tid
        write c[i + tid] = mad(read(a, i, 1), convert(read(a, tid, 1, if_=tid < 3), f32), const(0.0, f32, 1)) if i < 7
    let x[0,9] = read(r, bid, 1)
    write r[tid * 4] = splat(add(read(a, tid + 1, 1), read(a, 0, 1)), 4)
"""


def generated(target=CPU, line="mb2ic16ih14oc32oh14kh3ph1", direction=Direction.FWD):
    contraction = prepare(parse_problem(line, direction=direction)).contraction
    return generate(contraction, target, plan_for(contraction, target)).kernel


def expressions(body):
    return [expression for statement in statements_in(body) for expression in statement_expressions(statement)]


def test_identity_gives_an_equal_body():
    for made in (kernel(BODY), generated(), generated(SM_90A)):
        assert map_statements(made.body, lambda expression: expression) == made.body
        assert map_buffers(made.body, lambda buffer, index: (buffer, index)) == made.body


def test_every_expression_is_mapped():
    for made in (kernel(BODY), generated(), generated(SM_90A)):
        seen = []
        map_statements(made.body, lambda expression, seen=seen: seen.append(expression) or expression)
        assert sorted(map(repr, seen)) == sorted(map(repr, expressions(made.body)))
        assert len(seen) > 8


def test_substitution_reaches_masks_extents_and_nested_bodies():
    made = kernel(BODY)
    bid = local_sym("bid", lo=0)
    body = map_statements(made.body, lambda expression: substitute(expression, {bid: const(5)}))
    assert all(bid not in free_symbols(expression) for expression in expressions(body))
    loop = next(statement for statement in body if isinstance(statement, For))
    assert loop.extent is const(7)


def test_statements_come_outer_before_inner():
    kinds = [type(statement) for statement in statements_in(kernel(BODY).body)]
    assert kinds.index(For) < kinds.index(If) < kinds.index(Write) < kinds.index(Let)


def test_every_value_is_walked():
    made = kernel(BODY)
    reads = [
        value
        for statement in statements_in(made.body)
        for value in statement_values(statement)
        if isinstance(value, Read)
    ]
    assert len(reads) == 5
    (store,) = [s for s in statements_in(made.body) if isinstance(s, Write) and s.buffer.name == "r"]
    assert len(list(values_in(store.value))) == 4


def test_buffers_are_moved_with_their_indices():
    made = kernel(BODY)
    wide = Buffer("wide", made.buffers[0].dtype, Scope.GLOBAL)

    def place(buffer, index):
        return (wide, index * 2) if buffer.name == "a" else (buffer, index)

    moved = map_buffers(made.body, place)
    reads = [
        value for statement in statements_in(moved) for value in statement_values(statement) if isinstance(value, Read)
    ]
    assert [read.buffer.name for read in reads if read.buffer.name != "r"] == ["wide"] * 4
    assert local_sym("tid", lo=0, hi=7) * 2 in [read.index for read in reads]


def test_tables_are_found_once():
    made = generated(CPU, "mb1ic8ih14oc8oh7kh3sh2ph1", Direction.BWD_D)
    tables = constant_tables(made)
    assert tables
    assert len({table.name for table in tables}) == len(tables)
    assert all(table.scope is Scope.CONSTANT and len(table.values) == 4 for table in tables)
    assert not constant_tables(generated())


def test_types_of_values():
    made = kernel(BODY)
    stores = {s.buffer.name: s.value for s in statements_in(made.body) if isinstance(s, Write)}
    f32 = made.buffers[0].dtype
    assert value_type(stores["c"]) == ValueType(f32, 1)
    assert value_type(stores["r"]) == ValueType(f32, 4)
    assert value_type(replace(stores["r"], lanes=8)).lanes == 8
