"""Names bound to numbers of index arrays keep their value when the array changes."""

import numpy as np

from convloom.dtypes import F32
from convloom.expr import const
from convloom.ir.build import IrBuilder
from convloom.ir.interpret import GlobalMemory, Options, interpret
from convloom.ir.ops import Buffer, Constant, Kernel, Read, Scope
from convloom.ir.symbols import thread_id


def test_a_name_read_from_an_array_outlives_the_array_s_number():
    ir, tid = IrBuilder(), thread_id(32)
    c = Buffer("c", F32, Scope.GLOBAL, written=True)
    counters = ir.allocate(Buffer("counters", None, Scope.REGISTER, 1))
    ir.write(counters, 0, tid)
    before = ir.let_read("before", Read(counters, const(0)), 0, 31)
    ir.write(counters, 0, tid + 32)
    ir.write(c, before, Constant(1.0, F32))
    kernel = Kernel("names", (c,), (), 32, const(1), 32, ir.body)
    for clocks in (False, True):
        memory = GlobalMemory(np.zeros(32, np.float32), known=np.zeros(32, bool))
        outcome = interpret(kernel, {"c": memory}, {}, {}, 1, Options(clocks=clocks))
        assert [str(finding) for finding in outcome.findings] == []
        assert (memory.values == 1.0).all()
