"""The builder: names carry facts, trivial loops and conditions leave no trace."""

from convloom.dtypes import F32
from convloom.expr import bounds, const, divisor, local_sym, sym
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Buffer, Constant, For, If, Let, LoopKind, Scope, Write

N = sym("n", lo=1, hi=100, divisor=4)
OUT = Buffer("c", F32, Scope.GLOBAL, written=True)


def test_names_carry_bounds_and_divisors():
    builder = IrBuilder()
    name = builder.let("x", N * 2 + 8)
    assert (bounds(name).lo, bounds(name).hi, divisor(name)) == (16, 208, 8)
    (statement,) = builder.body
    assert statement == Let(name, N * 2 + 8)


def test_constants_and_names_are_not_bound_again():
    builder = IrBuilder()
    assert builder.let("x", const(3)) is const(3)
    assert builder.let("x", N) is N
    assert builder.body == ()


def test_a_promise_of_the_launch_narrows_a_name():
    builder = IrBuilder()
    block = local_sym("bid", lo=0)
    name = builder.let("tile", block, below=N)
    assert (bounds(name).lo, bounds(name).hi) == (0, 99)


def test_names_are_unique():
    builder = IrBuilder()
    names = [builder.let("x", N + 1), builder.let("x", N + 2), builder.let("x", N + 3)]
    assert [name.name for name in names] == ["x", "x_1", "x_2"]


def test_a_loop_of_one_iteration_is_no_loop():
    builder = IrBuilder()
    with builder.loop("i", 1) as i:
        assert i is const(0)
        builder.write(OUT, 0, Constant(0, F32))
    assert [type(statement) for statement in builder.body] == [Write]


def test_loops_and_conditions_nest():
    builder = IrBuilder()
    with builder.loop("i", N, LoopKind.SERIAL) as i, builder.condition(i.lt(3)):
        builder.write(OUT, i, Constant(0, F32))
    (loop,) = builder.body
    assert isinstance(loop, For)
    assert (bounds(loop.variable).lo, bounds(loop.variable).hi) == (0, 99)
    (condition,) = loop.body
    assert isinstance(condition, If)
    assert len(condition.body) == 1


def test_a_condition_that_holds_is_no_condition():
    builder = IrBuilder()
    for condition in (None, const(1)):
        with builder.condition(condition):
            builder.write(OUT, 0, Constant(0, F32))
    assert [type(statement) for statement in builder.body] == [Write, Write]


def test_a_mask_that_holds_is_dropped():
    builder = IrBuilder()
    builder.write(OUT, 0, Constant(0, F32), const(1))
    builder.write(OUT, 0, Constant(0, F32), N.lt(5))
    assert [statement.mask for statement in builder.body] == [None, N.lt(5)]
