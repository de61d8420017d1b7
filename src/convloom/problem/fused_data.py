"""Data for the operands of an epilogue in a check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convloom.dtypes import U8, DType
from convloom.problem.epilogue import Binary, BinaryKind, Epilogue, EpilogueOperand, Input

Array = NDArray[Any]
Draw = Callable[[tuple[int, ...], DType], Array]

_POWERS = (0.25, 0.5, 1.0, 2.0, 4.0)
_ZERO_LIMIT = 4


def fill_operands(
    epilogue: Epilogue, shapes: tuple[tuple[int, ...], ...], random: np.random.Generator, draw: Draw
) -> tuple[Array, ...]:
    """One array per operand, in the order of a call.

    The value that an operand names, powers of two for scales and divisors, small zero points, else what `draw` gives.
    """
    scales = set(epilogue.factors) | {
        node.right.index
        for node in epilogue.nodes()
        if isinstance(node, Binary) and node.kind is BinaryKind.DIV and isinstance(node.right, Input)
    }
    count = len(epilogue.operands)

    def filled(number: int, operand: EpilogueOperand, shape: tuple[int, ...]) -> Array:
        if operand.value is not None:
            return np.full(shape, operand.value).astype(operand.dtype.numpy)
        if number >= count:
            lowest = 0 if operand.dtype is U8 else -_ZERO_LIMIT
            return random.integers(lowest, _ZERO_LIMIT + 1, shape).astype(operand.dtype.numpy)
        if number in scales:
            powers = _POWERS if operand.dtype.is_float else _POWERS[2:]
            return random.choice(np.array(powers), shape).astype(operand.dtype.numpy)
        return draw(shape, operand.dtype)

    items = enumerate(zip(epilogue.all_operands, shapes, strict=True))
    return tuple(filled(number, operand, shape) for number, (operand, shape) in items)
