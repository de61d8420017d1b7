"""Times of generated kernels beside PyTorch's (cuDNN, benchmark mode) on the same tensors, in one run on one GPU.

    python -m tests.device.compare_vendor --json times.json
    python -m tests.device.compare_vendor --batch resnet50.txt --dts f16 --family tiled

Device events, median, caches flushed before each call. The ratio is vendor time over ours: 1 is as fast, 0.1 ten times
slower. f32 is f32: TF32 is off.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from convloom.compiler import prepare
from convloom.frontend.anchor_torch import EventTimer
from convloom.frontend.compile import compile
from convloom.plan.choose import choose_plan
from convloom.plan.families import plan_text
from convloom.problem.conv import Conv, Direction
from convloom.problem.layout import dense
from convloom.target.arch import target_named
from tests.device.problems import conv_of

LAYERS = (
    'mb64ic3ih224oc64oh112kh7sh2ph3n"resnet50:conv1"',
    'mb64ic64ih56oc64oh56kh3ph1n"resnet50:l1.3x3"',
    'mb64ic256ih56oc64oh56kh1ph0n"resnet50:l1.1x1c"',
    'mb64ic128ih56oc128oh28kh3sh2ph1n"resnet50:l2.3x3s2"',
    'mb64ic512ih7oc512oh7kh3ph1n"resnet50:l4.3x3"',
    'mb32ic256ih56oc256oh56kh3ph1n"vgg16:3_2"',
    'mb4ic320ih128oc320oh128kh3ph1n"sdxl:320"',
    'g144mb64ic144ih56oc144oh56kh3ph1n"dw:mbv2.144"',
    'g32mb64ic512ih14oc512oh14kh3ph1n"group:resnext.g32b"',
    'mb16ic128iw3000oc1280ow3000kw3pw1n"conv1d:whisper1"',
    'mb2ic32id96oc32od96kd3pd1n"conv3d:unet3d32"',
    'mb7ic131ih53iw61oc197oh53ow61kh3kw3ph1pw1n"other:prime"',
)
REPEATS = 9


class Run(NamedTuple):
    """One measurement to make."""

    text: str
    direction: str
    dtypes: str
    last: bool  # channels last
    family: str = ""  # of plans; empty: any

    @property
    def conv(self) -> Conv:
        """The problem, in the layouts that PyTorch's tensors have."""
        conv = conv_of(self.text, self.direction, self.dtypes)
        if not self.last:
            return conv
        order = (0, *range(2, conv.rank + 2), 1)
        specs = {role.value: replace(conv.spec(role), layout=dense(conv.shape(role), order)) for role in conv.roles}
        return replace(conv, **specs)


def runs() -> list[Run]:
    """f16 channels last in all directions; forward also channels first, and in f32."""
    found: list[Run] = []
    for text in LAYERS:
        found += [Run(text, direction, "f16", True) for direction in ("fwd", "bwd_d", "bwd_w")]
        found += [Run(text, "fwd", "f16", False), Run(text, "fwd", "f32", True)]
    return found


def runs_of_files(
    files: Sequence[Path], dtypes: Sequence[str], lasts: Sequence[bool], families: Sequence[str]
) -> list[Run]:
    """Every line in all directions, types, layouts and families; what differs in its family only stands together."""
    lines = [line for file in files for line in file.read_text().splitlines() if line and not line.startswith("#")]
    wanted = itertools.product(lines, ("fwd", "bwd_d", "bwd_w"), dtypes, lasts, families)
    return [Run(*values) for values in wanted]


def plan_of(run: Run) -> str | None:
    """The plan's text where the run names a family; None: the library's own choice."""
    if not run.family:
        return None
    target = replace(target_named("sm_90a"), group_multiply_adds=())  # without them only tiled plans remain
    return plan_text(choose_plan(prepare(run.conv).contraction, target))


def build(run: Run) -> str:
    """Fills the disk cache from another process; the error in words."""
    try:
        compile(run.conv, "cuda", plan_of(run))
    except Exception as error:  # noqa: BLE001 - reported in the table
        return f"{type(error).__name__}: {error}"[:300]
    return ""


def timed(call: Callable[[], Any], timer: EventTimer) -> float:
    """Median seconds of a call by events, with cold caches; the host is ahead of the GPU when the call begins."""
    for _ in range(2):
        call()
    seconds: list[float] = []
    for _ in range(REPEATS):
        timer.cool()
        seconds.append(timer.seconds(call))
    return statistics.median(seconds)


def measured(run: Run, timer: EventTimer) -> dict[str, Any]:
    """Times of one run: ours, the vendor's, and the largest difference of the results relative to the largest value."""
    conv, tensors = run.conv, with_tensors(run)
    first, second, result = (tensors[role.value] for role in conv.roles)
    kernel = compile(conv, "cuda", plan_of(run))
    ours = timed(lambda: kernel(first, second, out=result), timer)
    call = vendor_call(conv, tensors)
    theirs = timed(call, timer)
    expected = call()
    difference = float((result.double() - expected.double()).abs().max() / expected.double().abs().max())
    return {"ours": ours, "vendor": theirs, "difference": difference, "ops": conv.ops, "plan": kernel.plan}


def with_tensors(run: Run) -> dict[str, Any]:
    """Random tensors of a run by the names of their roles."""
    import torch

    conv = run.conv
    dtype = {"f16": torch.float16, "f32": torch.float32}[run.dtypes]
    tensors: dict[str, Any] = {}
    for role in conv.roles:
        shape = tuple(extent.value for extent in conv.shape(role))
        strides = tuple(stride.value for stride in conv.spec(role).layout.strides)
        tensors[role.value] = torch.empty_strided(shape, strides, dtype=dtype, device="cuda").normal_()
    return tensors


def vendor_call(conv: Conv, tensors: dict[str, Any]) -> Callable[[], Any]:
    """PyTorch's call of the same direction on the same tensors."""
    import torch

    pads = [list(conv.pad_begin), [0] * conv.rank, conv.groups.value]
    arguments = [list(conv.stride), pads[0], list(conv.dilation), False, *pads[1:]]
    src, wei, dst = (tensors[name] for name in ("src", "wei", "dst"))
    if conv.direction is Direction.FWD:
        return lambda: torch.ops.aten.convolution(src, wei, None, *arguments)
    mask = [conv.direction is Direction.BWD_D, conv.direction is Direction.BWD_W, False]
    place = 0 if conv.direction is Direction.BWD_D else 1
    backward = torch.ops.aten.convolution_backward
    return lambda: backward(dst, src, wei, None, *arguments, mask)[place]


def main(arguments: Sequence[str]) -> int:
    """The command; the exit status."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--builders", type=int, default=8)
    parser.add_argument("--batch", type=Path, nargs="+", help="files of layers instead of those of this page")
    parser.add_argument("--dts", default="f16")
    parser.add_argument("--layouts", default="last", help="last, first or last,first")
    parser.add_argument("--family", default="any", help="any, tiled or any,tiled")
    options = parser.parse_args(arguments)
    wanted = runs()
    if options.batch:
        lasts = [word == "last" for word in options.layouts.split(",")]
        named = ["" if word == "any" else word for word in options.family.split(",")]
        wanted = runs_of_files(options.batch, options.dts.split(","), lasts, named)
    with multiprocessing.get_context("spawn").Pool(options.builders) as pool:
        errors = pool.map(build, wanted, 1)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    timer = EventTimer(torch, "cuda")
    rows: list[dict[str, Any]] = []
    for run, error in zip(wanted, errors, strict=True):
        row = {"name": run.conv.name, **run._asdict(), **({"error": error} if error else measured(run, timer))}
        rows.append(row)
        print(_line(row), flush=True)
    if options.json is not None:
        options.json.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    for words, mean, count in _means(rows):
        print(f"geometric mean of the ratios, {words}: {mean:.3f} ({count} runs)")
    return 0


def _means(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, float, int]]:
    """(direction, type, layout and family; geometric mean; number of runs)."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        if "ours" in row:
            words = f"{row['direction']} {row['dtypes']} {'last' if row['last'] else 'first'} {row['family'] or 'any'}"
            groups.setdefault(words, []).append(math.log(row["vendor"] / row["ours"]))
    for words, logarithms in groups.items():
        yield words, math.exp(statistics.fmean(logarithms)), len(logarithms)


def _line(row: dict[str, Any]) -> str:
    label = f"{row['name']:22} {row['direction']:5} {row['dtypes']} {'last ' if row['last'] else 'first'}"
    if "error" in row:
        return f"{label} {row['error']}"
    ours, vendor = row["ours"], row["vendor"]
    speed = row["ops"] / ours * 1e-12
    return (
        f"{label} {ours * 1e6:10.1f} us {speed:7.2f} TFLOP/s  vendor {vendor * 1e6:9.1f} us  ratio {vendor / ours:.3f}"
        f"  difference {row['difference']:.1e}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
