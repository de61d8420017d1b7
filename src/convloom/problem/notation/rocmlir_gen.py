"""rocmlir-gen's command lines: `--operation conv -t f16 --fil_layout gkc01 --in_layout ngc01 --out_layout ngk01 ..`.

Channels are totals. Unlike rocMLIR's problem lines they give left and right pads (`--padding_h_l`, `--padding_h_r`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from convloom.errors import IllegalProblem
from convloom.problem.conv import Conv, Direction, Role
from convloom.problem.conv_arguments import conv_problem
from convloom.problem.gemm import Gemm
from convloom.problem.notation import rocmlir_gemm
from convloom.problem.notation.defaults import Defaults, printed_size, refusal
from convloom.problem.notation.driver_flags import base_of, types_of
from convloom.problem.notation.grouped_letters import parse_layout, print_layout, with_layouts

NAME = "rocmlir-gen"
OPERATION = "operation"

_DIRECTIONS: Mapping[str, Direction] = MappingProxyType(
    {"conv": Direction.FWD, "conv_bwd_data": Direction.BWD_D, "conv_bwd_weight": Direction.BWD_W}
)
_BASE_OF_TYPE: Mapping[str, str] = MappingProxyType(
    {"f32": "conv", "f16": "convfp16", "bf16": "convbfp16", "i8": "convint8"}
)
# Letters of the storage axes, in the order of the logical dimensions, and the flag and default of each layout.
_LETTERS: Mapping[Role, str] = MappingProxyType({Role.SRC: "ngc", Role.WEI: "gkc", Role.DST: "ngk"})
_LAYOUT_FLAGS: Mapping[Role, str] = MappingProxyType(
    {Role.SRC: "in_layout", Role.WEI: "fil_layout", Role.DST: "out_layout"}
)
_SIZES = ("batchsize", "in_channels", "out_channels", "groupsize")
_WINDOWS = ("in", "fil", "dilation", "conv_stride", "padding")
_GEMM = ("g", "m", "n", "k", "transA", "transB", "transO", "out_datatype")
_SWITCHES = frozenset(("transA", "transB", "transO", "ph", "pv", "pv_with_gpu"))
_IGNORED = frozenset(
    (
        *("arch", "num_cu", "num_chiplets", "kernel_id", "perf_config", "kernel-repeats", "rand", "rand_type"),
        *("ph", "pv", "pv_with_gpu", "RMS_threshold", "emit-tuning-key", "emit-tuning-space"),
    )
)
_SPATIAL = "dhw"


def is_command(words: Sequence[str]) -> bool:
    """True for the words of such a line: it names the operation."""
    return any(word.lstrip("-").partition("=")[0] == OPERATION and word.startswith("-") for word in words)


def parse_problem(text: str, defaults: Defaults) -> Conv | Gemm:
    """The problem of a command line; `-t` missing: the default types. IllegalProblem names the flag that is wrong."""
    flags = _read_flags(text.split())
    operation = flags.pop(OPERATION, "")
    if operation == "gemm":
        words = [word for name, value in flags.items() if name in (*_GEMM, "t") for word in (f"-{name}", value)]
        return rocmlir_gemm.parse_gemm(" ".join(words), defaults)
    if operation not in _DIRECTIONS:
        known = ", ".join((*_DIRECTIONS, "gemm"))
        raise IllegalProblem(f"--operation must be one of {known}; got {operation!r}; use one of these")
    return _conv(flags, _DIRECTIONS[operation], defaults)


def _read_flags(words: list[str]) -> dict[str, str]:
    known = {OPERATION, "t", *_GEMM, *_SIZES, *_LAYOUT_FLAGS.values(), *_IGNORED}
    known |= {f"{kind}_{letter}" for kind in _WINDOWS for letter in _SPATIAL}
    known |= {f"padding_{letter}_{side}" for letter in _SPATIAL for side in "lr"}
    waiting = words[1:] if words and words[0].endswith(NAME) else list(words)
    found: dict[str, str] = {}
    while waiting:
        word = waiting.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or name not in known:
            raise IllegalProblem(
                f"a flag of rocmlir-gen must be known; got {word}; use those for conv and gemm problems"
            )
        found[name] = value if equals else _value_of(name, waiting)
    return found


def _value_of(name: str, waiting: list[str]) -> str:
    if name in _SWITCHES and (not waiting or waiting[0] not in ("true", "false")):
        return "true"
    if not waiting:
        raise IllegalProblem(f"flag {name} takes a value; got none; add it")
    return waiting.pop(0)


def _conv(flags: dict[str, str], direction: Direction, defaults: Defaults) -> Conv:
    letters = [letter for letter in _SPATIAL if f"in_{letter}" in flags]
    windows = {kind: [_number(flags, f"{kind}_{letter}") for letter in letters] for kind in _WINDOWS[:-1]}
    pads = [(_pad(flags, letter, "l"), _pad(flags, letter, "r")) for letter in letters]
    batch, inputs, outputs, groups = (_number(flags, name) for name in _SIZES)
    conv = conv_problem(
        batch=batch,
        in_channels=inputs,
        out_channels=outputs,
        groups=groups,
        in_spatial=windows["in"],
        kernel=windows["fil"],
        stride=windows["conv_stride"],
        dilation=windows["dilation"],
        padding=pads,
    )
    src, wei, dst = types_of(_base(flags), direction, defaults)
    conv = replace(
        conv,
        direction=direction,
        src=replace(conv.src, dtype=src),
        wei=replace(conv.wei, dtype=wei),
        dst=replace(conv.dst, dtype=dst),
    )
    orders = {role: _order(conv, role) for role in Role}
    letters = {role: flags.get(_LAYOUT_FLAGS[role], orders[role]) for role in Role}
    return with_layouts(conv, {role: parse_layout(conv, role, letters[role], orders[role]) for role in Role})


def _base(flags: dict[str, str]) -> str | None:
    name = flags.get("t")
    if name is None:
        return None
    if name not in _BASE_OF_TYPE:
        raise IllegalProblem(f"-t must be one of {', '.join(_BASE_OF_TYPE)}; got {name!r}; use one of these")
    return _BASE_OF_TYPE[name]


def _number(flags: dict[str, str], name: str) -> int:
    default = "1" if name == "groupsize" or name.startswith(("dilation", "conv_stride")) else None
    text = flags.get(name, default)
    if text is None or not text.isdecimal():
        raise IllegalProblem(f"--{name} takes a number; got {text!r}; add e.g. --{name} 8")
    return int(text)


def _pad(flags: dict[str, str], letter: str, side: str) -> int:
    for name in (f"padding_{letter}_{side}", f"padding_{letter}"):
        if name in flags:
            return _number(flags, name)
    return 0


def _order(conv: Conv, role: Role) -> str:
    return _LETTERS[role] + "012"[: conv.rank]


def print_problem(problem: Conv | Gemm) -> str:
    """The line that parses back to the same problem. IllegalProblem names what rocmlir-gen cannot say."""
    if isinstance(problem, Gemm):
        return f"{NAME} --{OPERATION} gemm {rocmlir_gemm.print_gemm(problem)}"
    if problem.scaling.alpha or problem.scaling.beta or problem.bias is not None or problem.bias_grad is not None:
        raise refusal(NAME, "it has alpha, beta or a bias")
    operation = next(name for name, direction in _DIRECTIONS.items() if direction is problem.direction)
    base = base_of(NAME, problem)
    dtype = next(name for name, meaning in _BASE_OF_TYPE.items() if meaning == base)
    words = [NAME, f"--{OPERATION} {operation} -t {dtype}"]
    for role in (Role.WEI, Role.SRC, Role.DST):
        words.append(f"--{_LAYOUT_FLAGS[role]} {print_layout(NAME, problem, role, _order(problem, role))}")
    sizes = (problem.batch, problem.in_channels, problem.out_channels, problem.groups)
    words += [f"--{name} {printed_size(NAME, name, size)}" for name, size in zip(_SIZES, sizes, strict=True)]
    for place, letter in enumerate(_SPATIAL[3 - problem.rank :]):
        words += _printed_dimension(problem, place, letter)
    return " ".join(words)


def _printed_dimension(conv: Conv, place: int, letter: str) -> list[str]:
    window = conv.windows[place]
    words = [
        f"--in_{letter} {printed_size(NAME, f'in_{letter}', conv.in_spatial[place])}",
        f"--fil_{letter} {window.kernel}",
        f"--dilation_{letter} {window.dilation}",
        f"--conv_stride_{letter} {window.stride}",
    ]
    end = conv.pad_end[place]
    if not end.is_const or window.pad_begin < 0 or end.value <= -window.stride:
        raise refusal(NAME, f"its pads {window.pad_begin} and {end} are not both sizes >= 0")
    return [*words, f"--padding_{letter}_l {window.pad_begin}", f"--padding_{letter}_r {max(end.value, 0)}"]
