"""Multiplication by multiply-adds of single threads, or of vector registers along n."""

from __future__ import annotations

from convloom.expr import Expr
from convloom.ir.build import IrBuilder
from convloom.ir.ops import Buffer, Constant, LoopKind, MultiplyAdd, Read, Scope, Splat
from convloom.lower.frame import Frame
from convloom.lower.multiply import EmitPart, Stages, TileProduct, TileUse
from convloom.plan.shared_layout import SharedLayout, tile_layouts


class ScalarMultiplier:
    """Each thread owns thread_m x thread_n numbers of C, in chunks that interleave with those of the other threads."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        plan, acc = frame.plan, frame.contraction.acc
        self._acc = Buffer("acc", acc, Scope.REGISTER, plan.thread_m * plan.thread_n, plan.lanes)

    @property
    def accumulators(self) -> Buffer:
        """Rows of thread_n numbers."""
        return self._acc

    def layouts(self) -> tuple[SharedLayout, SharedLayout]:
        """Lines of one k in the accumulator's type: conversion happens once, on the way in."""
        return tile_layouts(self._frame.plan, self._frame.contraction.acc)

    def clear(self, builder: IrBuilder) -> None:
        """Zeros in every accumulator."""
        lanes = self._frame.plan.lanes
        builder.allocate(self._acc)
        with builder.loop("i", self._acc.size // lanes, LoopKind.UNROLLED) as i:
            builder.write(self._acc, i * lanes, Constant(0, self._frame.contraction.acc, lanes))

    def product(self, builder: IrBuilder, a: TileUse, b: TileUse) -> TileProduct:
        """One k after the other: fragments of a row of each tile to registers, then their outer product."""
        plan, acc = self._frame.plan, self._frame.contraction.acc
        slots = plan.fragments
        left = builder.allocate(Buffer("a_part", acc, Scope.REGISTER, slots * plan.thread_m))
        right = builder.allocate(Buffer("b_part", acc, Scope.REGISTER, slots * plan.thread_n, plan.lanes))

        def load(stages: Stages, k: Expr, slot: Expr) -> None:
            self._load_left(builder, left, slot * plan.thread_m, a, stages[0], k)
            self._load_right(builder, right, slot * plan.thread_n, b, stages[1], k)

        def multiply(slot: Expr) -> None:
            self._outer_product(builder, left, right, slot)

        depth = plan.block_k // plan.k_groups
        return TileProduct(self._frame.k_group * depth, depth, slots, load, multiply, plan.unroll_k)

    def _load_left(self, builder: IrBuilder, left: Buffer, start: Expr, a: TileUse, stage: Expr, k: Expr) -> None:
        plan = self._frame.plan
        with builder.loop("i", plan.thread_m // plan.chunk_m, LoopKind.UNROLLED) as i:
            row = interleaved(i * plan.chunk_m, self._frame.unit_m, plan.chunk_m, plan.units_m)
            fragment = Read(a.shared, stage + a.layout.index(row, k), plan.chunk_m)
            builder.write(left, start + i * plan.chunk_m, fragment)

    def _load_right(self, builder: IrBuilder, right: Buffer, start: Expr, b: TileUse, stage: Expr, k: Expr) -> None:
        plan = self._frame.plan
        width = plan.chunk_n if plan.lanes == 1 else plan.lanes
        with builder.loop("j", plan.thread_n // width, LoopKind.UNROLLED) as j:
            row = interleaved(j * width, self._frame.unit_n, plan.chunk_n, plan.units_n)
            builder.write(right, start + j * width, Read(b.shared, stage + b.layout.index(row, k), width))

    def _outer_product(self, builder: IrBuilder, left: Buffer, right: Buffer, slot: Expr) -> None:
        plan = self._frame.plan
        with (
            builder.loop("i", plan.thread_m, LoopKind.UNROLLED) as i,
            builder.loop("j", plan.thread_n // plan.lanes, LoopKind.UNROLLED) as j,
        ):
            index = i * plan.thread_n + j * plan.lanes
            row, column = slot * plan.thread_m + i, slot * plan.thread_n + j * plan.lanes
            factor = Read(left, row) if plan.lanes == 1 else Splat(Read(left, row), plan.lanes)
            product = MultiplyAdd(factor, Read(right, column, plan.lanes), Read(self._acc, index, plan.lanes))
            builder.write(self._acc, index, product)

    def settle(self, builder: IrBuilder) -> None:
        """Nothing: factors came without their zero points."""

    def place(self, number: Expr) -> tuple[Expr, Expr]:
        """Chunks interleave in both directions."""
        plan, frame = self._frame.plan, self._frame
        row = interleaved(number // plan.thread_n, frame.unit_m, plan.chunk_m, plan.units_m)
        return row, interleaved(number % plan.thread_n, frame.unit_n, plan.chunk_n, plan.units_n)

    def each_part(self, builder: IrBuilder, emit: EmitPart) -> None:
        """Rows outside, runs of `store` columns inside."""
        plan, frame = self._frame.plan, self._frame
        with builder.loop("i", plan.thread_m, LoopKind.UNROLLED) as i:
            row = interleaved(i, frame.unit_m, plan.chunk_m, plan.units_m)
            with builder.loop("j", plan.thread_n // plan.store, LoopKind.UNROLLED) as j:
                column = interleaved(j * plan.store, frame.unit_n, plan.chunk_n, plan.units_n)
                emit(row, column, Read(self._acc, i * plan.thread_n + j * plan.store, plan.store))


def interleaved(index: Expr, unit: Expr, chunk: int, units: int) -> Expr:
    """Row (column) in the block's tile of a thread's index-th row: chunks of all threads interleave."""
    return (index // chunk) * (chunk * units) + unit * chunk + index % chunk
