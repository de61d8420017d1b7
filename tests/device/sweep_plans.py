"""Times several plans of each of some layers on one GPU: the data that the cost model is fitted to.

    python -m tests.device.sweep_plans --json plans.json

For each layer the best predicted plans of different tiles, each with other numbers of stages and sets of fragments
too. Built in many processes, timed in one: device events, median, caches flushed before each call.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from convloom.compiler import prepare
from convloom.frontend.anchor_torch import EventTimer
from convloom.frontend.compile import compile
from convloom.plan.candidates import arrangements, candidates
from convloom.plan.choose_walk import choose_walk
from convloom.plan.estimate import estimate
from convloom.plan.legality import check_plan
from convloom.plan.policy import ANYTHING
from convloom.plan.tiled import SCALAR, TiledPlan, plan_text
from convloom.target.arch import Target, target_named
from tests.device.compare_vendor import Run, timed, vendor_call, with_tensors

F16 = (
    'mb64ic64ih56oc64oh56kh3ph1n"resnet50:l1.3x3"',
    'mb64ic64ih56oc256oh56kh1ph0n"resnet50:l1.1x1b"',
    'mb64ic256ih56oc128oh56kh1ph0n"resnet50:l2.1x1a"',
    'mb64ic128ih56oc128oh28kh3sh2ph1n"resnet50:l2.3x3s2"',
    'mb64ic256ih14oc1024oh14kh1ph0n"resnet50:l3.1x1b"',
    'mb64ic256ih14oc256oh14kh3ph1n"resnet50:l3.3x3"',
    'mb64ic2048ih7oc512oh7kh1ph0n"resnet50:l4.1x1c"',
    'mb64ic512ih7oc512oh7kh3ph1n"resnet50:l4.3x3"',
    'mb32ic256ih56oc256oh56kh3ph1n"vgg16:3_2"',
    'mb4ic640ih64oc640oh64kh3ph1n"sdxl:640"',
)
F32 = (F16[0], F16[2], F16[5], F16[8])


class Timed(NamedTuple):
    """One plan of one run with its predicted seconds."""

    run: Run
    plan: str
    predicted: float


def runs() -> list[Run]:
    """f16 channels last in all directions, some channels first; f32 in both."""
    found = [Run(text, direction, "f16", True) for text in F16 for direction in ("fwd", "bwd_d", "bwd_w")]
    found += [Run(text, "fwd", "f16", False) for text in F16[::3]]
    return found + [Run(text, "fwd", "f32", last) for text in F32 for last in (True, False)]


def plans(run: Run, target: Target, tiles: int, most: int) -> list[tuple[TiledPlan, float]]:
    """The best plans of the best tiles, and variations of them that are legal, best prediction first."""
    contraction = prepare(run.conv).contraction
    costed = [
        (estimate(plan, arrangement.work, target).seconds, number, plan, arrangement)
        for number, (plan, arrangement) in enumerate(
            candidates(contraction, target, arrangements(contraction, target), splits=ANYTHING)
        )
    ]
    found: dict[TiledPlan, float] = {}
    seen: set[tuple[object, ...]] = set()
    for _, _, plan, arrangement in sorted(costed, key=lambda item: item[:2]):
        tile = (plan.row, plan.block_m, plan.block_n, plan.thread_m, plan.thread_n, plan.split.parts > 1)
        if tile in seen:
            continue
        seen.add(tile)
        plan = choose_walk(plan, arrangement.work, target)
        for variation in _variations(plan):
            if check_plan(variation, contraction, target, ANYTHING) is None:
                found.setdefault(variation, estimate(variation, arrangement.work, target).seconds)
        if len(seen) == tiles or len(found) >= most:
            break
    return list(found.items())


def _variations(plan: TiledPlan) -> Iterator[TiledPlan]:
    yield plan
    yield replace(plan, fragments=3 - plan.fragments)
    if plan.row == SCALAR:
        yield replace(plan, stages=2)
        yield replace(plan, stages=2, fragments=2)
    else:
        yield replace(plan, stages=2, fragments=2)
        yield replace(plan, stages=4, fragments=2)
        if plan.collect:
            yield replace(plan, collect=0)


def build(item: Timed) -> str:
    """Fills the disk cache from another process; the error in words."""
    try:
        compile(item.run.conv, "cuda", item.plan)
    except Exception as error:  # noqa: BLE001 - reported in the table
        return f"{type(error).__name__}: {error}"[:300]
    return ""


def main(arguments: Sequence[str]) -> int:
    """The command; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tiles", type=int, default=6, help="tiles per layer")
    parser.add_argument("--plans", type=int, default=20, help="plans per layer")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--only", default="", help="layers whose text, direction or types contain this")
    options = parser.parse_args(arguments)
    target = target_named(options.target)
    wanted = [run for run in runs() if options.only in f"{run.text} {run.direction} {run.dtypes} {run.last}"]
    with multiprocessing.get_context("spawn").Pool(max((os.cpu_count() or 1) - 2, 1)) as pool:
        lists = pool.starmap(plans, [(run, target, options.tiles, options.plans) for run in wanted], 1)
        items = [
            Timed(run, plan_text(plan), predicted)
            for run, found in zip(wanted, lists, strict=True)
            for plan, predicted in found
        ]
        print(f"{len(items)} plans of {len(wanted)} layers", flush=True)
        errors = pool.map(build, items, 4)
    rows = [dict(row) for row in _measure(items, errors)]
    if options.json is not None:
        options.json.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    return 0


def _measure(items: Sequence[Timed], errors: Sequence[str]) -> Iterator[dict[str, Any]]:
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    timer = EventTimer(torch, "cuda")
    last: Run | None = None
    tensors: dict[str, Any] = {}
    vendor = 0.0
    for item, error in zip(items, errors, strict=True):
        run = item.run
        row = {"name": run.conv.name, **run._asdict(), "plan": item.plan, "predicted": item.predicted}
        if error:
            print(row["name"], row["direction"], error, item.plan, flush=True)
            yield {**row, "error": error}
            continue
        if run != last:
            tensors, last = with_tensors(run), run
            vendor = timed(vendor_call(run.conv, tensors), timer)
        first, second, result = (tensors[role.value] for role in run.conv.roles)
        kernel = compile(run.conv, "cuda", item.plan)
        ours = timed(lambda k=kernel, a=first, b=second, c=result: k(a, b, out=c), timer)
        label = f"{row['name']} {run.direction} {run.dtypes} {'last' if run.last else 'first'}"
        times = f"{ours * 1e6:.1f} us, predicted {item.predicted * 1e6:.1f}, ratio {vendor / ours:.3f}"
        print(label, times, item.plan, flush=True)
        yield {**row, "ours": ours, "vendor": vendor}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
