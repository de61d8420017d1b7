"""One problem of a fuzz run: sizes, types, layouts, epilogue and plan, with the command line that repeats it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

from convloom.dtypes import dtype_named
from convloom.frontend.dynamic_twin import dynamic_twin
from convloom.plan.policy import ANYTHING, Policy
from convloom.problem.conv import NO_SCALING, Scaling
from convloom.problem.epilogue.attributes import NO_ATTRIBUTES, AttributeTexts
from convloom.problem.layout_tags import ANY
from convloom.problem.notation.choose import parse_problem
from convloom.problem.reference import Problem
from convloom.target.arch import INTERPRET


@dataclass(frozen=True, slots=True)
class ConvSizes:
    """A convolution; channels per group; a spatial dimension is (input, kernel, stride, dilation, pad, output)."""

    groups: int
    batch: int
    inputs: int
    outputs: int
    spatial: tuple[tuple[int, int, int, int, int, int], ...]

    @property
    def line(self) -> str:
        """The benchdnn descriptor (dilation counted from 0 there)."""
        text = f"g{self.groups}mb{self.batch}ic{self.groups * self.inputs}oc{self.groups * self.outputs}"
        for letter, (size, kernel, stride, dilation, pad, output) in zip(
            "dhw"[-len(self.spatial) :], self.spatial, strict=True
        ):
            text += f"_i{letter}{size}o{letter}{output}k{letter}{kernel}s{letter}{stride}d{letter}{dilation - 1}"
            text += f"p{letter}{pad}"
        return text


@dataclass(frozen=True, slots=True)
class GemmSizes:
    """A product; `transposed` for a, b and the result."""

    batch: int
    m: int
    n: int
    k: int
    transposed: tuple[bool, bool, bool]

    @property
    def line(self) -> str:
        """The line in rocMLIR's notation."""
        words = [f"-trans{name} {str(flag).lower()}" for name, flag in zip("ABO", self.transposed, strict=True)]
        return f"gemm {' '.join(words)} -g {self.batch} -m {self.m} -n {self.n} -k {self.k}"


@dataclass(frozen=True, slots=True)
class FuzzCase:
    """Everything that decides what runs. `dynamic`: one kernel for all sizes, called with these.

    `order`: of groups of threads and of landing copies, where the device takes a seed for it (None: lock-step).
    """

    sizes: ConvSizes | GemmSizes
    direction: str
    dtypes: str
    tags: tuple[str, str, str] = (ANY, ANY, ANY)
    bias: str | None = None
    scaling: Scaling = NO_SCALING
    dynamic: bool = False
    plan: str | None = None
    attributes: AttributeTexts = NO_ATTRIBUTES
    policy: Policy = ANYTHING
    order: int | None = None

    def problem(self) -> Problem:
        """The problem of constant sizes. IllegalProblem for what no problem allows."""
        stag, wtag, dtag = self.tags
        bias = None if self.bias is None else dtype_named(self.bias)
        parsed = parse_problem(
            self.sizes.line,
            direction=self.direction,
            dtypes=self.dtypes,
            bias=bias,
            stag=stag,
            wtag=wtag,
            dtag=dtag,
            attributes=self.attributes,
        )
        return replace(parsed, scaling=self.scaling)

    def compiled_problem(self) -> Problem:
        """What is compiled: the problem, or its twin over dims."""
        return dynamic_twin(self.problem()).dynamic if self.dynamic else self.problem()

    def called_problem(self) -> Problem:
        """The problem of the call, with the layouts that the compiled one has at these sizes."""
        return dynamic_twin(self.problem()).static if self.dynamic else self.problem()

    def command(self, device: str) -> str:
        """The command line that runs this case alone."""
        seeded = device == INTERPRET.name and self.order is not None
        words = ["env", f"CONVLOOM_INTERPRET_ORDER={self.order}"] if seeded else []
        words += ["convloom", "run", self.sizes.line, "--dir", self.direction, "--dt", self.dtypes]
        for option, tag in zip(("--stag", "--wtag", "--dtag"), self.tags, strict=True):
            words += [option, tag] if tag != ANY else []
        words += ["--bias", self.bias] if self.bias is not None else []
        words += ["--alpha"] if self.scaling.alpha else []
        words += ["--beta"] if self.scaling.beta else []
        attributes = (self.attributes.post_ops, self.attributes.scales, self.attributes.zero_points)
        for option, text in zip(("--attr-post-ops", "--attr-scales", "--attr-zero-points"), attributes, strict=True):
            words += [option, text] if text else []
        words += ["--dynamic"] if self.dynamic else []
        words += ["--deterministic"] if self.policy.deterministic else []
        words += [] if self.policy.max_workspace is None else ["--max-workspace", str(self.policy.max_workspace)]
        words += ["--device", device, "--data", "int"]
        words += ["--plan", self.plan] if self.plan is not None else []
        return shlex.join(words)
