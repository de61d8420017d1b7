"""Runs every row as a one-instruction kernel on a GPU and compares it with the row's semantics.

    PYTHONPATH=src:. python tests/target/device_rows.py [--part warp|barrier|tensor|group] [--only TEXT]

prints one line per case: passed or failed, and for floating-point sums the largest error as a part of the bound.
A kernel that faults takes the process's context with it: the cases behind it then run in a new process.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from convloom.errors import ConvloomError
from convloom.runtime.cuda import CudaDevice
from convloom.runtime.device import device_named
from convloom.runtime.interface import DeviceFailure
from convloom.target.swizzle import Swizzle
from convloom.target.tensor_map import ColumnMap, TensorMap
from tests.target.rows.barrier_scripts import ScriptCase, barrier_scripts
from tests.target.rows.cases import group_cases, tensor_cases, warp_cases
from tests.target.rows.harness import BUFFERS, Case, kernel_source, map_of, written_slots

MAP_BYTES = 128
_MAP_TYPES = {
    "u8": "UINT8",
    "s32": "INT32",
    "f16": "FLOAT16",
    "f32": "FLOAT32",
    "f64": "FLOAT64",
    "bf16": "BFLOAT16",
}
_SWIZZLES = {Swizzle.NONE: "NONE", Swizzle.B32: "32B", Swizzle.B64: "64B", Swizzle.B128: "128B"}


class RefusedMap(ConvloomError):
    """The driver did not take a tensor map."""


@dataclass(frozen=True)
class Outcome:
    """What came of one case: the reason of failure (empty: passed), and the largest error over its bound."""

    name: str
    reason: str
    share: float = 0.0


PARTS: dict[str, Callable[[], Iterator[Case | ScriptCase]]] = {
    "warp": warp_cases,
    "barrier": barrier_scripts,
    "tensor": tensor_cases,
    "group": group_cases,
}


def encoded_map(tensor: TensorMap, base: int) -> np.ndarray:
    """The driver's 128 bytes for a map whose address counts from `base`."""
    driver = __import__("cuda.bindings.driver", fromlist=["driver"])
    kind = getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_MAP_TYPES[tensor.dtype.name]}")
    swizzle = getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[tensor.swizzle]}")
    wide = [driver.cuuint64_t(size) for size in tensor.sizes]
    strides = [driver.cuuint64_t(stride) for stride in tensor.strides or (16,)]  # one dimension: not looked at
    steps = [driver.cuuint32_t(step) for step in tensor.steps]
    head = (kind, tensor.rank, base + tensor.address, wide, strides)
    tail = (
        steps,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        swizzle,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if isinstance(tensor, ColumnMap):
        corners = list(tensor.lower), list(tensor.upper)
        status, found = driver.cuTensorMapEncodeIm2col(*head, *corners, tensor.channels, tensor.pixels, *tail)
    else:
        box = [driver.cuuint32_t(size) for size in tensor.box]
        status, found = driver.cuTensorMapEncodeTiled(*head, box, *tail)
    if int(status):
        raise RefusedMap(f"the driver must accept the map {tensor}; got {status}; compare with broken_rules()")
    return np.array([int(word) for word in found.opaque], np.uint64).view(np.uint8)


def run_case(device: CudaDevice, case: Case) -> Outcome:
    """One launch and the comparison."""
    results, memory = case.expected()
    count = case.blocks * case.lanes * len(written_slots(case))
    arrays = {
        "operands": case.operand_words(),
        "global_bytes": np.zeros(16, np.uint8) if case.global_bytes is None else case.global_bytes,
        "maps": np.zeros(MAP_BYTES, np.uint8),
        "shared_in": np.zeros(16, np.uint8) if case.shared is None else np.ascontiguousarray(case.shared),
        "shared_out": np.zeros(16 if case.shared is None else case.shared.size, np.uint8),
        "results": np.zeros(count + case.blocks, np.uint64),
    }
    with ExitStack() as stack:
        held = {name: stack.enter_context(device.allocate(arrays[name].nbytes)) for name in BUFFERS}
        tensor = map_of(case)
        if tensor is not None:
            with device.context.current():
                arrays["maps"] = encoded_map(tensor, held["global_bytes"].handle)
        for name in BUFFERS:
            held[name].write(arrays[name])
        device.build(kernel_source(case, device.arch)).launch([held[name].handle for name in BUFFERS], {})
        got = {name: np.empty_like(arrays[name]) for name in ("global_bytes", "shared_out", "results")}
        for name, array in got.items():
            held[name].read(array)
    if got["results"][count:].any():
        return Outcome(case.name, "a barrier was never passed")
    reason = differences(case, memory.global_bytes, memory.shared_bytes, got)
    words, share = result_differences(case, results, got["results"][:count])
    return Outcome(case.name, "; ".join(filter(None, (reason, words))), share)


def differences(case: Case, global_bytes, shared_bytes, got) -> str:
    """Bytes of memory that differ."""
    found: list[str] = []
    if case.global_bytes is not None:
        wrong = np.flatnonzero(global_bytes != got["global_bytes"])
        if wrong.size:
            found.append(f"{wrong.size} global bytes differ, first at {wrong[0]}")
    if case.shared is not None:
        expected = shared_bytes.reshape(case.blocks, -1)
        given = got["shared_out"].reshape(expected.shape)
        wrong = expected != given
        wrong[:, slice(*case.ignored)] = False
        if wrong.any():
            found.append(f"{wrong.sum()} shared bytes differ, first at {np.argwhere(wrong)[0].tolist()}")
    return "; ".join(found)


def result_differences(case: Case, results: dict[str, np.ndarray], flat: np.ndarray) -> tuple[str, float]:
    """(words of a difference, largest error over its bound)."""
    slots = written_slots(case)
    given = flat.reshape(case.blocks, case.lanes, len(slots))
    if not slots:
        return "", 0.0
    name = slots[0][0].name
    word = slots[0][0].register.word
    expected, given = results[name].reshape(given.shape), given.astype(word)
    if case.tolerance is None:
        wrong = np.argwhere(expected != given)
        return (f"{len(wrong)} words differ, first at {wrong[0].tolist()}" if wrong.size else ""), 0.0
    kind = {4: np.float32, 8: np.float64}[word.itemsize]
    error = np.abs(expected.view(kind).astype(np.float64) - given.view(kind))
    share = float((error / case.tolerance.reshape(error.shape)).max())
    return ("" if share <= 1 else f"error is {share:.3g} of its bound"), share


def run_script(device: CudaDevice, case: ScriptCase) -> Outcome:
    """A sequence of barrier operations by one thread."""
    expected = case.expected()
    with device.allocate(8 * expected.size) as out:
        out.write(np.full(expected.size, 7, np.uint64))
        device.build(case.source(device.arch)).launch([out.handle], {})
        got = np.empty(expected.size, np.uint64)
        out.read(got)
    wrong = np.flatnonzero(got != expected.reshape(-1).astype(np.uint64))
    return Outcome(case.name, f"answers {wrong[:5].tolist()} of {got.size} differ" if wrong.size else "")


def outcomes(device: CudaDevice, cases: list[Case | ScriptCase]) -> Iterator[Outcome]:
    """Kernels are built by several threads, launched one after the other."""

    def build(case: Case | ScriptCase) -> None:
        device.build(case.source(device.arch) if isinstance(case, ScriptCase) else kernel_source(case, device.arch))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(build, cases))
    for case in cases:
        try:
            yield run_script(device, case) if isinstance(case, ScriptCase) else run_case(device, case)
        except RefusedMap as error:
            yield Outcome(case.name, str(error))


def main() -> int:
    """Prints all outcomes; 1 if one failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--only", default="")
    parser.add_argument("--skip", type=int, default=0)
    given = parser.parse_args()
    cases = [case for part in PARTS if given.part in (None, part) for case in PARTS[part]() if given.only in case.name]
    done, failed = given.skip, 0
    try:
        for outcome in outcomes(device_named("cuda"), cases[given.skip :]):
            done, failed = done + 1, failed + bool(outcome.reason)
            share = f"  {outcome.share:.3f} of the bound" if outcome.share else ""
            print(f"{'FAILED' if outcome.reason else 'passed'} {outcome.name}{share}  {outcome.reason}", flush=True)
    except DeviceFailure as error:
        print(f"FAILED {cases[done].name}  {error}", flush=True)
        part = ["--part", given.part] if given.part else []
        rest = [sys.executable, __file__, *part, "--only", given.only, "--skip", str(done + 1)]
        subprocess.run(rest, check=False)
        return 1
    print(f"{len(cases)} cases, {failed} failed after number {given.skip}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
