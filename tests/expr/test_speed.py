"""Time per node, with slack for a busy machine: index arithmetic must stay a small part of problem to source."""

from __future__ import annotations

import time

from convloom.expr import Expr, all_of, prove, simplify, sym


def addresses(tag: str, count: int) -> list[tuple[Expr, Expr]]:
    """(offset, validity) of unrolled loads of a convolution whose sizes are all symbols."""
    n, ic, ih, iw, oh, ow = (sym(name + tag, lo=1) for name in ("N", "IC", "IH", "IW", "OH", "OW"))
    block, thread, step = sym("block" + tag, lo=0), sym("thread" + tag, lo=0, hi=255), sym("step" + tag, lo=0)
    result = []
    for index in range(count):
        m = block * 64 + (thread // 16) * 8 + index
        k = step * 16 + thread % 16 + index * 16
        x, rest = m % ow, m // ow
        y, image = rest % oh, rest // oh
        v, u, channel = y * 2 + (k // 3) % 3 - 1, x * 2 + k % 3 - 1, k // 9
        valid = all_of(v.ge(0), v.lt(ih), u.ge(0), u.lt(iw), m.lt(n * oh * ow), k.lt(ic * 9))
        result.append((((image * ic + channel) * ih + v) * iw + u, valid))
    return result


def count_nodes(roots: list[Expr]) -> int:
    seen: set[Expr] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(node.args)
    return len(seen)


def seconds(action) -> float:
    started = time.process_time()
    action()
    return time.process_time() - started


def flat(pairs: list[tuple[Expr, Expr]]) -> list[Expr]:
    return [e for pair in pairs for e in pair]


def test_construction_and_simplification():
    for e in flat(addresses("warm", 4)):
        simplify(e)
    build_time = seconds(lambda: addresses("t", 200))
    roots = flat(addresses("t", 200))
    nodes = count_nodes(roots)
    assert nodes > 4000
    assert build_time < nodes * 60e-6
    assert seconds(lambda: [simplify(e) for e in roots]) < nodes * 500e-6
    assert seconds(lambda: [simplify(e) for e in roots]) < nodes * 2e-6


def test_rebuilding_known_expressions():
    addresses("again", 100)
    assert seconds(lambda: addresses("again", 100)) < 100 * 25 * 10e-6


def test_proofs_are_remembered():
    roots = [valid for _, valid in addresses("proof", 20)]
    for e in roots:
        prove(e)
    assert seconds(lambda: [prove(e) for e in roots]) < 2e-3
