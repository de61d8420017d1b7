"""benchdnn's convolution lines: `--dir=.. --dt=.. --stag=.. g2mb1ic8ih5oc8oh5kh3ph1n"name"`.

In this notation dilation 0 means none, channels are totals, and the right pad follows from the output size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from convloom.dtypes import F32, dtype_named
from convloom.errors import IllegalProblem, NotYetSupported
from convloom.expr import Expr, const
from convloom.problem.conv import Conv, Direction, TensorSpec
from convloom.problem.epilogue.attributes import AttributeTexts
from convloom.problem.epilogue.print_attributes import print_attributes
from convloom.problem.layout import Layout, fuse, plain, unfuse
from convloom.problem.layout_tags import TensorKind, layout_from_tag, tag_of, weights_layout, weights_tag
from convloom.problem.notation.attributes import surroundings, with_attributes
from convloom.problem.notation.defaults import (
    TF32_NAME,
    Defaults,
    Types,
    allows_tf32,
    bias_fields,
    printed_size,
    refusal,
    types_named,
    types_text,
)

NAME = "benchdnn"
DEFAULT_BATCH = 2
LETTERS = "dhw"  # spatial dimensions, outermost first
UNSET = -1

_KEY = re.compile(r"(mb|g|ic|oc|[iokspd][dhw])(-?\d+)_?")
_SPATIAL_DEFAULTS = {"i": 0, "o": 0, "k": 0, "s": 1, "p": UNSET, "d": 0}
_DIRECTIONS: Mapping[str, tuple[Direction, bool]] = MappingProxyType(
    {
        "FWD_B": (Direction.FWD, True),
        "FWD_D": (Direction.FWD, False),
        "FWD_I": (Direction.FWD, False),
        "BWD_D": (Direction.BWD_D, False),
        "BWD_W": (Direction.BWD_W, False),
        "BWD_WB": (Direction.BWD_W, True),  # the bias gradient too
    }
)
# Flags that choose how to run or measure, not what; a line may carry them.
_IGNORED = frozenset(
    f"--{name}"
    for name in (
        *("conv", "mode", "engine", "match", "impl", "skip-impl", "cold-cache", "max-ms-per-prb", "perf-template"),
        *("alg", "fix-times-per-prb", "verbose", "canonical", "mem-check"),
    )
)

_ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {"--attr-post-ops": "post_ops", "--attr-scales": "scales", "--attr-zero-points": "zero_points"}
)

Dimension = dict[str, int]


def parse_conv(text: str, defaults: Defaults) -> Conv:
    """The convolution of a line: options, then one descriptor. IllegalProblem quotes the part that is wrong."""
    options, descriptor = _split_options(text)
    values, name = _parse_descriptor(descriptor)
    dimensions = _dimensions(values, descriptor)
    chosen = _Options(options, defaults)
    return chosen.build(values, dimensions, name)


def _split_options(text: str) -> tuple[dict[str, str], str]:
    options: dict[str, str] = {}
    rest = text.strip()
    while rest.startswith("--"):
        word, _, rest = rest.partition(" ")
        key, _, value = word.partition("=")
        options[key] = value
        rest = rest.lstrip()
    if not rest:
        raise IllegalProblem(f"a benchdnn line ends with a descriptor; got {text!r}; add e.g. mb2ic8ih5oc8oh5kh3ph1")
    return options, rest


def _parse_descriptor(text: str) -> tuple[dict[str, int], str]:
    """Keys with their numbers, and the name: all behind the first n."""
    values: dict[str, int] = {}
    position = 0
    while position < len(text) and text[position] != "n":
        match = _KEY.match(text, position)
        if match is None:
            raise IllegalProblem(
                f"a descriptor is keys (g mb ic oc, then i o k s p d with d h w) with numbers; got {text[position:]!r} "
                f"in {text!r}; correct it"
            )
        if match[2].startswith("-"):
            raise IllegalProblem(f"descriptor values must not be negative; got {match[0]!r} in {text!r}; use n >= 0")
        values[match[1]] = int(match[2])
        position = match.end()
    for key in ("ic", "oc"):
        if values.get(key, 0) < 1:
            raise IllegalProblem(f"a descriptor needs {key} of at least 1; got {values.get(key)} in {text!r}; add it")
    return values, text[position + 1 :]


def _dimensions(values: dict[str, int], text: str) -> tuple[Dimension, ...]:
    """One record per spatial dimension, completed: missing outputs and pads computed, squares and cubes copied."""
    found = {letter: _dimension(values, letter, text) for letter in LETTERS}
    depth, height, width = (found[letter] for letter in LETTERS)
    if depth is not None:
        if height is None and width is None:
            return depth, depth, depth
        if height is None or width is None:
            raise IllegalProblem(f"a 3-D descriptor gives d alone or d, h and w; got {text!r}; add the missing one")
        return depth, height, width
    if height is not None:
        return height, height if width is None else width
    if width is None:
        raise IllegalProblem(f"a descriptor needs a spatial dimension; got {text!r}; add e.g. iw5kw3")
    return (width,)


def _dimension(values: dict[str, int], letter: str, text: str) -> Dimension | None:
    """The values of one letter, or None if it is absent (all zero or default)."""
    given = {kind: values.get(kind + letter, default) for kind, default in _SPATIAL_DEFAULTS.items()}
    if not (given["i"] or given["k"] or given["o"] or given["d"]) and given["s"] == 1 and given["p"] < 1:
        return None
    for kind in ("i", "k", "s"):
        if given[kind] < 1:
            raise IllegalProblem(f"dimension {letter} needs {kind}{letter} of at least 1; got {text!r}; add it")
    reach = (given["k"] - 1) * (given["d"] + 1) + 1
    if not given["o"]:
        given["p"] = max(given["p"], 0)
        given["o"] = (given["i"] - reach + 2 * given["p"]) // given["s"] + 1
        if given["o"] < 1:
            raise IllegalProblem(
                f"the kernel must fit the padded input; in dimension {letter} the effective kernel {reach} is larger "
                f"than the padded input {given['i'] + 2 * given['p']} in {text!r}; pad more"
            )
    elif given["p"] == UNSET:
        given["p"] = _half((given["o"] - 1) * given["s"] - given["i"] + reach)
    return given


def _half(total: int) -> int:
    """Half of a total pad, rounded towards zero as C does."""
    return abs(total) // 2 * (1 if total > 0 else -1)


class _Options:
    """The options of a line over the defaults, and the problem that they make of a descriptor."""

    def __init__(self, options: dict[str, str], defaults: Defaults) -> None:
        self.direction, self.bias = defaults.direction, defaults.bias
        self.types: Types = defaults.dtypes
        self.tags = {"--stag": defaults.src_tag, "--wtag": defaults.wei_tag, "--dtag": defaults.dst_tag}
        self.strides: list[str] | None = None
        self.batch: int | None = None
        self.tf32 = _tf32(options, defaults)
        self.attributes = AttributeTexts()
        bias_type = F32
        for key, value in options.items():
            if key == "--bia-dt":
                bias_type = dtype_named(value)
            elif key != "--attr-fpmath":
                self._take(key, value)
        if "--dir" in options:
            self.bias = bias_type if _DIRECTIONS[options["--dir"].upper()][1] else None

    def _take(self, key: str, value: str) -> None:
        if "," in value:
            raise IllegalProblem(f"a line holds one problem; got the list {key}={value}; write one line for each value")
        if key == "--dir":
            self.direction = _direction(value)
        elif key == "--dt":
            self.types = types_named(value)
        elif key in self.tags:
            self.tags[key] = value
        elif key == "--strides":
            self.strides = value.split(":")
        elif key == "--mb":
            self.batch = _number(key, value)
        elif key in _ATTRIBUTES:
            self.attributes = replace(self.attributes, **{_ATTRIBUTES[key]: value})
        elif key.startswith("--attr"):
            known = ", ".join(_ATTRIBUTES)
            raise NotYetSupported(f"supported attributes are {known}; got {key}={value}; leave it out")
        elif key not in _IGNORED:
            raise IllegalProblem(
                f"a benchdnn option must be known; got {key}; use --dir --dt --bia-dt --stag --wtag --dtag"
            )

    def build(self, values: dict[str, int], dimensions: tuple[Dimension, ...], name: str) -> Conv:
        """The problem of a completed descriptor."""
        batch = self.batch or values.get("mb", DEFAULT_BATCH)
        groups, inputs, outputs = values.get("g", 1), values["ic"], values["oc"]
        if groups < 1 or inputs % groups or outputs % groups:
            raise IllegalProblem(
                f"groups must divide the channels; got g{groups}ic{inputs}oc{outputs}; use a common divisor"
            )
        src = (batch, inputs, *[dimension["i"] for dimension in dimensions])
        wei = (outputs, inputs // groups, *[dimension["k"] for dimension in dimensions])
        dst = (batch, outputs, *[dimension["o"] for dimension in dimensions])
        layouts = self._layouts(
            tuple(map(const, src)), tuple(map(const, wei)), tuple(map(const, dst)), groups, "g" in values
        )
        specs = [TensorSpec(dtype, layout) for dtype, layout in zip(self.types, layouts, strict=True)]
        conv = Conv(
            direction=self.direction,
            batch=const(batch),
            in_channels=const(inputs),
            out_channels=const(outputs),
            groups=const(groups),
            in_spatial=tuple(map(const, src[2:])),
            out_spatial=tuple(map(const, dst[2:])),
            kernel=wei[2:],
            stride=tuple(dimension["s"] for dimension in dimensions),
            dilation=tuple(dimension["d"] + 1 for dimension in dimensions),
            pad_begin=tuple(dimension["p"] for dimension in dimensions),
            src=specs[0],
            wei=specs[1],
            dst=specs[2],
            name=name,
            tf32=self.tf32,
        )
        conv = replace(conv, **bias_fields(self.direction, self.bias))
        found = with_attributes(conv, self.attributes)
        assert isinstance(found, Conv)
        return found

    def _layouts(
        self, src: tuple[Expr, ...], wei: tuple[Expr, ...], dst: tuple[Expr, ...], groups: int, explicit: bool
    ) -> tuple[Layout, Layout, Layout]:
        if self.strides is None:
            return (
                layout_from_tag(self.tags["--stag"], src, TensorKind.ACTIVATION),
                weights_layout(self.tags["--wtag"], wei, groups, explicit),
                layout_from_tag(self.tags["--dtag"], dst, TensorKind.ACTIVATION),
            )
        if len(self.strides) != 3:
            raise IllegalProblem(f"--strides are SRC:WEI:DST; got {':'.join(self.strides)}; separate three by colons")
        source, weights, result = (_strides(text) for text in self.strides)
        if explicit:
            weights = fuse(weights, 0, wei[0] // groups, groups)
        return source, weights, result


def _direction(name: str) -> Direction:
    found = _DIRECTIONS.get(name.upper())
    if found is None:
        raise IllegalProblem(f"--dir must be one of {', '.join(_DIRECTIONS)}; got {name!r}; use one of these")
    return found[0]


def _tf32(options: dict[str, str], defaults: Defaults) -> bool:
    """Whether a line allows tf32; of benchdnn's math modes bf16, f16 and any would allow more than is offered."""
    mode = options.get("--attr-fpmath")
    if mode is None:
        return allows_tf32(options["--dt"]) if "--dt" in options else defaults.tf32
    if mode not in ("strict", TF32_NAME):
        raise NotYetSupported(f"--attr-fpmath is strict or tf32; got {mode!r}; use one of these")
    return mode == TF32_NAME


def _strides(text: str) -> Layout:
    return plain([_number("--strides", stride) for stride in text.split("x")])


def _number(option: str, text: str) -> int:
    if not text.isdecimal():
        raise IllegalProblem(f"{option} takes numbers (strides joined by x); got {text!r}; write e.g. 75x25x5x1")
    return int(text)


def print_conv(conv: Conv) -> str:
    """The line that parses back to the same problem, with direction, types and layouts spelled out.

    IllegalProblem names what benchdnn cannot say (symbolic or empty sizes, negative left pads, alpha, beta, ..).
    """
    _check_expressible(conv)
    options = [
        f"--dir={_printed_direction(conv)}",
        f"--dt={types_text((conv.src.dtype, conv.wei.dtype, conv.dst.dtype))}",
    ]
    if conv.tf32:
        options.append(f"--attr-fpmath={TF32_NAME}")
    bias = conv.bias or conv.bias_grad
    if bias is not None and bias is not F32:
        options.append(f"--bia-dt={bias}")
    return " ".join([*options, *_printed_attributes(conv), *_printed_layouts(conv), print_descriptor(conv)])


def _printed_attributes(conv: Conv) -> list[str]:
    texts = print_attributes(conv.epilogue, surroundings(conv))
    return [f"{flag}={getattr(texts, name)}" for flag, name in _ATTRIBUTES.items() if getattr(texts, name)]


def _check_expressible(conv: Conv) -> None:
    if conv.scaling.alpha or conv.scaling.beta:
        raise refusal(NAME, "it has alpha or beta")
    if conv.bias is not None and conv.direction is not Direction.FWD:
        raise refusal(NAME, f"{conv.direction.value} has a bias")


def _printed_direction(conv: Conv) -> str:
    wanted = conv.direction, conv.bias is not None or conv.bias_grad is not None
    return next(name for name, meaning in _DIRECTIONS.items() if meaning == wanted)


def _printed_layouts(conv: Conv) -> list[str]:
    tags = [
        tag_of(conv.src.layout, conv.src_shape),
        weights_tag(conv.wei.layout, conv.wei_shape, conv.groups),
        tag_of(conv.dst.layout, conv.dst_shape),
    ]
    if None not in tags:
        return [f"{flag}={tag}" for flag, tag in zip(("--stag", "--wtag", "--dtag"), tags, strict=True)]
    weights = conv.wei.layout
    if conv.groups is not const(1):
        grouped = unfuse(weights, 0, conv.outputs_per_group)
        if grouped is None:
            raise refusal(NAME, "blocks of the weights cross the groups")
        weights = grouped
    return [f"--strides={':'.join(map(_printed_strides, (conv.src.layout, weights, conv.dst.layout)))}"]


def _printed_strides(layout: Layout) -> str:
    if layout.blocks:
        raise refusal(NAME, "one tensor has no tag, and another is blocked")
    return "x".join(str(printed_size(NAME, "a stride", stride)) for stride in layout.strides)


def print_descriptor(conv: Conv) -> str:
    """The descriptor alone: sizes and name, without direction, types and layouts."""
    groups = printed_size(NAME, "groups", conv.groups, 1)
    head = f"g{groups}" if groups > 1 else ""
    head += f"mb{printed_size(NAME, 'batch', conv.batch)}"
    inputs = _printed_run("i", conv.in_spatial)
    outputs = _printed_run("o", conv.out_spatial)
    head += f"ic{printed_size(NAME, 'in_channels', conv.in_channels, 1)}{inputs}"
    head += f"oc{printed_size(NAME, 'out_channels', conv.out_channels, 1)}{outputs}"
    tail = _printed_run("k", _constants(conv.kernel)) + _printed_run("s", _constants(conv.stride))
    tail += _printed_pads(conv) + _printed_run("d", _constants(tuple(value - 1 for value in conv.dilation)))
    return f"{head}_{tail}" + (f"n{conv.name}" if conv.name else "")


def _constants(values: tuple[int, ...]) -> tuple[Expr, ...]:
    return tuple(map(const, values))


def _printed_pads(conv: Conv) -> str:
    """The left pads; a negative one can only be left out, where it is what the parser then computes."""
    found: list[str] = []
    for letter, window, end in zip(LETTERS[-conv.rank :], conv.windows, conv.pad_end, strict=True):
        pad = window.pad_begin
        if pad >= 0:
            found.append(f"p{letter}{pad}")
        elif _half(pad + _value(end)) != pad:
            raise refusal(NAME, f"the left pad {pad} is negative")
    return "".join(found)


def _value(size: Expr) -> int:
    if not size.is_const:
        raise refusal(NAME, f"the right pad is the symbolic size {size}")
    return size.value


def _printed_run(kind: str, values: tuple[Expr, ...]) -> str:
    least = 1 if kind in "iok" else 0
    letters = LETTERS[-len(values) :]
    return "".join(
        f"{kind}{letter}{printed_size(NAME, kind + letter, value, least)}"
        for letter, value in zip(letters, values, strict=True)
    )
