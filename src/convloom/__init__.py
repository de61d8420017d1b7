"""convloom: convolution and matrix product kernels, generated for the device at hand."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from convloom.frontend.compile import compile
    from convloom.frontend.convolution import conv, conv_input_grad, conv_transpose, conv_weight_grad
    from convloom.frontend.dims import dim
    from convloom.frontend.kernel import Kernel
    from convloom.frontend.product import gemm
    from convloom.problem.conv import Conv, Direction, Scaling, TensorSpec
    from convloom.problem.conv_arguments import conv_problem, conv_transpose_problem
    from convloom.problem.epilogue import (
        Epilogue,
        EpilogueOperand,
        clip,
        elu,
        exp,
        gelu,
        hardswish,
        leaky_relu,
        log,
        maximum,
        minimum,
        mish,
        prelu,
        relu,
        round_even,
        select,
        sigmoid,
        sqrt,
        swish,
        tanh,
    )
    from convloom.problem.gemm import BiasAxis, Gemm
    from convloom.problem.gemm_arguments import gemm_problem

__all__ = [
    "BiasAxis",
    "Conv",
    "Direction",
    "Epilogue",
    "EpilogueOperand",
    "Gemm",
    "Kernel",
    "Scaling",
    "TensorSpec",
    "clip",
    "compile",
    "conv",
    "conv_input_grad",
    "conv_problem",
    "conv_transpose",
    "conv_transpose_problem",
    "conv_weight_grad",
    "dim",
    "elu",
    "exp",
    "gelu",
    "gemm",
    "gemm_problem",
    "hardswish",
    "leaky_relu",
    "log",
    "maximum",
    "minimum",
    "mish",
    "prelu",
    "relu",
    "round_even",
    "select",
    "sigmoid",
    "sqrt",
    "swish",
    "tanh",
]

# Loaded on first use: a part of the library can be used without the others.
_HOMES = {
    "frontend.compile": ("compile",),
    "frontend.convolution": ("conv", "conv_input_grad", "conv_transpose", "conv_weight_grad"),
    "frontend.dims": ("dim",),
    "frontend.kernel": ("Kernel",),
    "frontend.product": ("gemm",),
    "problem.conv": ("Conv", "Direction", "Scaling", "TensorSpec"),
    "problem.conv_arguments": ("conv_problem", "conv_transpose_problem"),
    "problem.epilogue": (
        "EpilogueOperand",
        "Epilogue",
        "clip",
        "elu",
        "exp",
        "gelu",
        "hardswish",
        "leaky_relu",
        "log",
        "maximum",
        "minimum",
        "mish",
        "prelu",
        "relu",
        "round_even",
        "select",
        "sigmoid",
        "sqrt",
        "swish",
        "tanh",
    ),
    "problem.gemm": ("BiasAxis", "Gemm"),
    "problem.gemm_arguments": ("gemm_problem",),
}
_MODULE_OF = {name: f"convloom.{module}" for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'convloom' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF])
