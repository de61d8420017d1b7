"""Tensor maps of a launch: made by the CUDA driver from their recipes, and remembered by sizes and addresses."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from convloom.artifact import TensorMapParam
from convloom.errors import UnsupportedTarget
from convloom.runtime.cuda_driver import CudaContext

_BYTES = 128
_MOST_KEPT = 512  # sets of maps of one kernel
_TYPES = {
    "f16": "FLOAT16",
    "bf16": "BFLOAT16",
    "f32": "FLOAT32",
    "f64": "FLOAT64",
    "s32": "INT32",
    "s8": "UINT8",
    "u8": "UINT8",
    "e4m3": "UINT8",
    "e5m2": "UINT8",
}
_ELEMENT_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "s32": 4}


class EncodedMaps(NamedTuple):
    """The maps of one launch, and the host address of each."""

    words: list[ctypes.Array[ctypes.c_char]]
    addresses: tuple[int, ...]


class TensorMaps:
    """The maps of one kernel in one context. Safe for several threads: the worst is a map that is made twice."""

    def __init__(self, kernel: str, recipes: Sequence[TensorMapParam], context: CudaContext) -> None:
        self._kernel, self._recipes, self._context = kernel, tuple(recipes), context
        self._known: dict[tuple[Any, ...], EncodedMaps] = {}

    def of_launch(self, addresses: tuple[int, ...], values: tuple[tuple[int, ...], ...]) -> EncodedMaps:
        """The maps over buffers at these addresses (one each) with these values of their expressions.

        UnsupportedTarget with the recipe if the driver refuses one.
        """
        key = (addresses, values)
        found = self._known.get(key)
        if found is None:
            words = [
                self._encoded(recipe, address, numbers)
                for recipe, address, numbers in zip(self._recipes, addresses, values, strict=True)
            ]
            found = EncodedMaps(words, tuple(map(ctypes.addressof, words)))
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            self._known[key] = found
        return found

    def _encoded(self, recipe: TensorMapParam, address: int, values: tuple[int, ...]) -> ctypes.Array[ctypes.c_char]:
        api = self._context.api
        rank = len(recipe.sizes)
        sizes, strides, offset = values[:rank], values[rank:-1], values[-1]
        head = (
            getattr(api.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_TYPES[recipe.dtype]}"),
            rank,
            address + offset * _ELEMENT_BYTES.get(recipe.dtype, 1),
            [api.cuuint64_t(size) for size in sizes],
            [api.cuuint64_t(stride) for stride in strides],
        )
        span = f"{recipe.swizzle}B" if recipe.swizzle else "NONE"
        tail = (
            [api.cuuint32_t(step) for step in recipe.steps],
            api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(api.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{span}"),
            api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        with self._context.current():
            if recipe.box:
                box = [api.cuuint32_t(size) for size in recipe.box]
                status, found = api.cuTensorMapEncodeTiled(*head, box, *tail)
            else:
                corners = list(recipe.lower), list(recipe.upper)
                status, found = api.cuTensorMapEncodeIm2col(*head, *corners, recipe.channels, recipe.pixels, *tail)
        if status:
            raise UnsupportedTarget(
                f"the driver of {self._context.name} must accept the tensor maps of kernel {self._kernel}; it refuses "
                f"{recipe} with sizes {sizes}, strides {strides} at {address:#x} + {offset}; choose another plan"
            )
        return ctypes.create_string_buffer(struct.pack("=16Q", *map(int, found.opaque)), _BYTES)
