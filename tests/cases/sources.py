"""Kernels generated for GPUs that are not here: their plan, their launch, what they rely on."""

from __future__ import annotations

from convloom import Conv, Gemm
from convloom.artifact import KernelSource
from convloom.compiler import generate, prepare
from convloom.plan.choose import choose_plan
from convloom.plan.tiled import TiledPlan
from convloom.target.arch import target_named

GPU = target_named("sm_90a")


def gpu_plan(problem: Conv | Gemm) -> TiledPlan:
    return choose_plan(prepare(problem).contraction, GPU)


def gpu_source(problem: Conv | Gemm) -> KernelSource:
    return generate(prepare(problem).contraction, GPU, gpu_plan(problem)).source
