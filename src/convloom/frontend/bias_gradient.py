"""The launch that gives the bias gradient beside the weight gradient."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from convloom.errors import IllegalProblem, IllegalType
from convloom.frontend.arrays import Family, family_of
from convloom.frontend.tensor import Tensor
from convloom.problem.bias_gradient import bias_gradient_problem
from convloom.problem.conv import Conv, constant
from convloom.problem.reference import Problem
from convloom.runtime.interface import Device, as_bytes

NAME = "bias_grad"


class Summing(Protocol):
    """What a kernel is to this module."""

    problem: Problem
    device: Device

    def run(
        self,
        family: Family,
        tensors: list[Tensor],
        out: Any,
        result: Tensor | None,
        factors: tuple[float, float],
        stream: Any,
        names: tuple[str, ...],
    ) -> Any:
        """The call on adapted arrays."""


class BiasGradient:
    """Sums grad_out channel by channel; `kernel` is that of `bias_gradient_problem`.

    Owns the one in the device's memory with which the numbers are multiplied.
    """

    def __init__(self, kernel: Summing, conv: Conv) -> None:
        problem = bias_gradient_problem(conv)
        self._kernel, self._dtype, self._ones_type = kernel, problem.wei.dtype, problem.src.dtype
        blocked = bool(conv.dst.layout.blocks)  # such a tensor is passed as its storage, its sizes are constants
        self._shape = tuple([constant(extent, "a blocked layout") for extent in conv.dst_shape]) if blocked else None
        one = as_bytes(np.ones(1, self._ones_type.numpy))
        self._memory = kernel.device.allocate(one.nbytes)
        self._memory.write(one)
        self._memory.declare(0, one.nbytes, known=True)

    def run(self, family: Family, grad: Tensor, out: Any, factors: tuple[float, float], stream: Any) -> Any:
        """The sums of `grad` (n, oc, *outputs), times alpha, plus beta times the old ones: (oc,), in `out` or new.

        IllegalProblem, IllegalType for an `out` that does not fit, or that is missing where beta reads it.
        """
        channels = self._shape_of(grad)[1]
        if out is None:
            if factors[1] != 0.0:
                raise IllegalProblem(
                    f"beta and accumulate need an old bias gradient; got beta={factors[1]} and no array; pass one"
                )
            out = family.allocator((channels,), (1,), self._dtype, grad.device)()
        result = self._adapted(out, channels, grad)
        self.launch(family, grad, result, factors, stream)
        return out

    def launch(self, family: Family, grad: Tensor, result: Tensor, factors: tuple[float, float], stream: Any) -> None:
        """The same on adapted arrays that are known to fit."""
        batch, _, *outputs = self._shape_of(grad)
        shape = (batch, 1, *outputs)
        rank = len(shape)
        ones = Tensor(self._memory.handle, shape, (0,) * rank, self._ones_type, grad.device, grad.keeper)
        gradient = result._replace(shape=(*result.shape, *[1] * (rank - 1)), strides=(1,) * rank)
        self._kernel.run(family, [ones, grad], out=None, result=gradient, factors=factors, stream=stream, names=_NAMES)

    def _shape_of(self, grad: Tensor) -> tuple[int, ...]:
        return grad.shape if self._shape is None else self._shape

    def _adapted(self, out: Any, channels: int, grad: Tensor) -> Tensor:
        family = family_of(NAME, out)
        family.check_writable(NAME, out)
        tensor = family.adapt(NAME, out)
        if tensor.dtype is not self._dtype:
            raise IllegalType(f"{NAME} must have elements of type {self._dtype}; got {tensor.dtype}; convert it")
        if tensor.shape != (channels,) or (channels > 1 and tensor.strides != (1,)):
            raise IllegalProblem(
                f"{NAME} has one value per output channel, contiguous, shape ({channels},); got shape {tensor.shape}, "
                f"strides {tensor.strides}; pass such an array"
            )
        if tensor.device != grad.device:
            raise IllegalProblem(
                f"all arrays must lie on one device; grad_out lies on {grad.device}, {NAME} on {tensor.device}; move it"
            )
        return tensor


_NAMES = ("ones", "grad_out", NAME)
