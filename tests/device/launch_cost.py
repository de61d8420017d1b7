"""Host time of a call on existing PyTorch tensors beside that of torch.nn.functional.conv2d, on problems of no size.

    python -m tests.device.launch_cost --json costs.json

Calls are queued without waiting, in batches that the driver's queue takes; the ways alternate batch by batch, so that
all meet the same machine. The figure is the median over the batches of a batch's mean.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import convloom
from convloom.problem.notation.choose import parse_line
from tests.lower.hopper_cases import FORWARD, LAUNCHES
from tests.notations import defaults

BATCH = 200  # the driver's queue takes 1024 launches before a call waits
ROUNDS = 60
REFERENCE = "conv2d"


def ways(torch: Any) -> dict[str, Callable[[], Any]]:
    """Calls by name; `conv2d` is PyTorch's."""
    x = torch.ones((2, 64, 12, 12), device="cuda", dtype=torch.float16).to(memory_format=torch.channels_last)
    w = torch.ones((64, 64, 3, 3), device="cuda", dtype=torch.float16).to(memory_format=torch.channels_last)
    problem = parse_line(FORWARD, defaults("fwd", "f16", "axb"))
    chosen = convloom.compile(problem, "cuda")
    mapped = convloom.compile(problem, "cuda", LAUNCHES["forward"].plan)
    split = convloom.compile(problem, "cuda", _divided(chosen.plan))
    out, conv2d = chosen(x, w), torch.nn.functional.conv2d
    return {
        REFERENCE: lambda: conv2d(x, w, padding=1),
        "kernel": lambda: chosen(x, w),
        "kernel, out given": lambda: chosen(x, w, out=out),
        "kernel, tensor maps": lambda: mapped(x, w),
        "kernel, tensor maps, out given": lambda: mapped(x, w, out=out),
        "kernel, two launches and workspace": lambda: split(x, w),
        "conv": lambda: convloom.conv(x, w, padding=1),
        "conv, out given": lambda: convloom.conv(x, w, padding=1, out=out),
        "empty_strided": lambda: torch.empty_strided(out.shape, out.stride(), dtype=out.dtype, device=out.device),
    }


def _divided(plan: str) -> str:
    """The plan with its sums divided between two launches, which leave registers."""
    changes = {"split": "split=passes*2", "out": "out=registers"}
    return " ".join(changes.get(word.partition("=")[0], word) for word in plan.split())


def measured(calls: dict[str, Callable[[], Any]], wait: Callable[[], None], rounds: int = ROUNDS) -> dict[str, float]:
    """Microseconds of host time per call."""
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            wait()
            start = time.perf_counter()
            for _ in range(BATCH):
                call()
            times[name].append((time.perf_counter() - start) / BATCH * 1e6)
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> None:
    """Prints one line per way: microseconds, and the ratio to conv2d."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch = __import__("torch")
    found = measured(ways(torch), torch.cuda.synchronize)
    for name, cost in found.items():
        print(f"{cost:7.2f} us {cost / found[REFERENCE]:6.2f}  {name}")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
