"""The text form of tensor maps as kernel parameters, and back.

map in = tiled(a, sizes=(64, m), strides=(128,), steps=(1, 1), box=(64, 128), swizzle=128, offset=0)
map in = columns(a, sizes=.., strides=.., steps=.., lower=.., upper=.., channels=64, pixels=128, swizzle=128, offset=0)
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from convloom.errors import IllegalProblem
from convloom.expr import Expr, to_text
from convloom.ir.ops import Buffer, MapParameter
from convloom.target.swizzle import Swizzle


def map_text(map: MapParameter) -> str:
    """One line."""
    common = {"sizes": _tuple(map.sizes), "strides": _tuple(map.strides), "steps": _tuple(map.steps)}
    if map.box:
        own = {"box": _tuple(map.box)}
    else:
        own = {
            "lower": _tuple(map.lower),
            "upper": _tuple(map.upper),
            "channels": str(map.channels),
            "pixels": str(map.pixels),
        }
    last = {"swizzle": str(map.swizzle.value), "offset": to_text(map.offset)}
    words = ", ".join(f"{name}={text}" for name, text in (common | own | last).items())
    return f"map {map.name} = {'tiled' if map.box else 'columns'}({map.buffer.name}, {words})"


def _tuple(values: tuple[Expr | int, ...]) -> str:
    texts = [to_text(value) if isinstance(value, Expr) else str(value) for value in values]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def parse_map(text: str, buffers: dict[str, Buffer], expression: Callable[[str], Expr]) -> MapParameter:
    """Reads a line without its first word; IllegalProblem if it is no map."""
    name, _, rest = text.partition(" = ")
    call = ast.parse(rest, mode="eval").body
    if not isinstance(call, ast.Call) or not call.args:
        raise IllegalProblem(f"a map is written name = tiled(buffer, ..) or columns(buffer, ..); got {text!r}")
    given = {str(word.arg): word.value for word in call.keywords}

    def integers(key: str) -> tuple[int, ...]:
        return tuple(int(ast.unparse(item)) for item in _items(given[key])) if key in given else ()

    def expressions(key: str) -> tuple[Expr, ...]:
        return tuple(expression(ast.unparse(item)) for item in _items(given[key]))

    return MapParameter(
        name,
        buffers[ast.unparse(call.args[0])],
        expressions("sizes"),
        expressions("strides"),
        integers("steps"),
        Swizzle(int(ast.unparse(given["swizzle"]))),
        box=integers("box"),
        lower=integers("lower"),
        upper=integers("upper"),
        channels=int(ast.unparse(given["channels"])) if "channels" in given else 0,
        pixels=int(ast.unparse(given["pixels"])) if "pixels" in given else 0,
        offset=expression(ast.unparse(given["offset"])),
    )


def _items(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]
