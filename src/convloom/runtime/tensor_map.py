"""Tensor maps of a launch: made by the CUDA driver from their recipes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from convloom.artifact import KernelSource, TensorMapParam
from convloom.errors import UnsupportedTarget
from convloom.runtime.cuda_driver import CudaContext

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
    """The maps of one launch, and the host address of each: it holds as long as the map is kept."""

    maps: tuple[Any, ...]
    addresses: tuple[int, ...]


class TensorMaps:
    """The maps of one kernel for one set of sizes, at any addresses, in one context."""

    def __init__(self, source: KernelSource, values: tuple[tuple[int, ...], ...], context: CudaContext) -> None:
        self._context = context
        self._encoders = tuple(
            _Encoder(source.name, recipe, numbers, context) for recipe, numbers in zip(source.maps, values, strict=True)
        )

    def at(self, addresses: list[int]) -> EncodedMaps:
        """The maps over buffers at these addresses, one each; UnsupportedTarget with the recipe if one is refused."""
        with self._context.current():
            maps = tuple([encode(place) for encode, place in zip(self._encoders, addresses, strict=True)])
        return EncodedMaps(maps, tuple([item.getPtr() for item in maps]))


class _Encoder:
    """One recipe with the values of its expressions, as the driver takes them."""

    def __init__(self, kernel: str, recipe: TensorMapParam, values: tuple[int, ...], context: CudaContext) -> None:
        self._kernel, self._recipe, self._values, self._context = kernel, recipe, values, context
        api, rank = context.api, len(recipe.sizes)
        self._offset = values[-1] * _ELEMENT_BYTES.get(recipe.dtype, 1)
        self._head = getattr(api.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_TYPES[recipe.dtype]}"), rank
        span = f"{recipe.swizzle}B" if recipe.swizzle else "NONE"
        window = (
            ([api.cuuint32_t(size) for size in recipe.box],)
            if recipe.box
            else (list(recipe.lower), list(recipe.upper), recipe.channels, recipe.pixels)
        )
        self._tail = (
            [api.cuuint64_t(size) for size in values[:rank]],
            [api.cuuint64_t(stride) for stride in values[rank:-1] or (16,)],  # of one dimension: not looked at
            *window,
            [api.cuuint32_t(step) for step in recipe.steps],
            api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(api.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{span}"),
            api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        self._encode: Callable[..., tuple[Any, Any]] = (
            api.cuTensorMapEncodeTiled if recipe.box else api.cuTensorMapEncodeIm2col
        )

    def __call__(self, address: int) -> Any:
        """The map over a buffer at this address; the context must be current."""
        status, found = self._encode(*self._head, address + self._offset, *self._tail)
        if status:
            rank = len(self._recipe.sizes)
            raise UnsupportedTarget(
                f"the driver of {self._context.name} must accept the tensor maps of kernel {self._kernel}; it refuses "
                f"{self._recipe} with sizes {self._values[:rank]}, strides {self._values[rank:-1]} at {address:#x} + "
                f"{self._offset} bytes; choose another plan"
            )
        return found
