"""Runs tiny kernels written as IR text."""

import numpy as np

from convloom.ir.interpret import GlobalMemory, Options, interpret
from convloom.ir.parse import parse_kernel

HEAD = """kernel tiny
  threads {threads}
  index {bits}
  buffer a f32
  result c f32
  blocks {blocks}
"""


def kernel(body, threads=8, blocks=1, bits=32):
    """A kernel of two parameters, a (read) and c (written), around the lines of a body."""
    lines = [line for line in body.splitlines() if line.strip()]
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    text = HEAD.format(threads=threads, bits=bits, blocks=blocks) + "\n".join("  " + line[margin:] for line in lines)
    return parse_kernel(text)


def memory(values, **facts):
    return GlobalMemory(np.asarray(values, np.float32), **facts)


def run(body, a=None, c=None, *, threads=8, blocks=1, bits=32, options=None, arguments=None):
    """(outcome, values of c) of one launch; a holds 0, 1, 2 .., c is unknown unless given."""
    size = threads * blocks
    a = memory(np.arange(size)) if a is None else a
    c = memory(np.zeros(size), known=np.zeros(size, bool)) if c is None else c
    made = kernel(body, threads, blocks, bits)
    outcome = interpret(made, {"a": a, "c": c}, arguments or {}, {}, blocks, options or Options())
    return outcome, c.values


def kinds(outcome):
    return outcome.findings.kinds()
