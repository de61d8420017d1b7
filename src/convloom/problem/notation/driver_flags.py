"""The flags that MIOpenDriver and rocMLIR lines share: reading them, and the convolution that they describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from convloom.dtypes import BF16, F16, F32, S8, S32, DType
from convloom.errors import IllegalProblem, NotYetSupported
from convloom.expr import Expr, const
from convloom.problem.conv import Conv, Direction, Role
from convloom.problem.geometry import Window, output_extent
from convloom.problem.notation.defaults import Defaults, Types, printed_size, refusal

OPERANDS_OF_BASE: Mapping[str, DType] = MappingProxyType(
    {"conv": F32, "convfp16": F16, "convbfp16": BF16, "convint8": S8}
)
DIRECTION_OF_FLAG: Mapping[str, Direction] = MappingProxyType(
    {"1": Direction.FWD, "2": Direction.BWD_D, "4": Direction.BWD_W}
)

# Short names by long name; each flag takes one value.
CONV_FLAGS: Mapping[str, str] = MappingProxyType(
    {
        "in_layout": "I", "fil_layout": "f", "out_layout": "O", "spatial_dim": "_", "forw": "F", "batchsize": "n",
        "in_channels": "c", "out_channels": "k", "in_d": "!", "in_h": "H", "in_w": "W", "fil_d": "@", "fil_h": "y",
        "fil_w": "x", "conv_stride_d": "#", "conv_stride_h": "u", "conv_stride_w": "v", "pad_d": "$", "pad_h": "p",
        "pad_w": "q", "dilation_d": "^", "dilation_h": "l", "dilation_w": "j", "trans_output_pad_d": "%",
        "trans_output_pad_h": "Y", "trans_output_pad_w": "X", "group_count": "g", "mode": "m", "pad_mode": "z",
        "bias": "b", "pad_val": "r", "tensor_vect": "Z", "vector_length": "L", "in_cast_type": "U",
        "out_cast_type": "T", "wei_cast_type": "R",
        "iter": "i", "verify": "V", "time": "t", "wall": "w", "search": "s", "solution": "S", "gpualloc": "G",
        "printconv": "P", "dump_output": "o", "in_data": "d", "weights": "e", "in_bias": "a", "dout_data": "D",
        "verification_cache": "C",
    }
)  # fmt: skip
# Flags of which only one value is understood: other values change the operation.
_FIXED: Mapping[str, str] = MappingProxyType({"r": "0", "Z": "0", "L": "1", "U": "-1", "T": "-1", "R": "-1"})


@dataclass(frozen=True, slots=True)
class _DimensionFlags:
    """The flags of one spatial dimension and their defaults: extent, kernel, stride, pad, dilation, output pad."""

    extent: str
    kernel: str
    stride: str
    pad: str
    dilation: str
    output_pad: str


_DIMENSIONS = (
    _DimensionFlags("!", "@", "#", "$", "^", "%"),
    _DimensionFlags("H", "y", "u", "p", "l", "Y"),
    _DimensionFlags("W", "x", "v", "q", "j", "X"),
)
_DEFAULTS: Mapping[str, int] = MappingProxyType(
    {"n": 100, "c": 3, "k": 32, "g": 1, "_": 2}
    | {flags.extent: 32 for flags in _DIMENSIONS}
    | {flags.kernel: 3 for flags in _DIMENSIONS}
    | {flags.stride: 1 for flags in _DIMENSIONS}
    | {flags.pad: 0 for flags in _DIMENSIONS}
    | {flags.dilation: 1 for flags in _DIMENSIONS}
    | {flags.output_pad: 0 for flags in _DIMENSIONS}
)


@dataclass(frozen=True, slots=True)
class Geometry:
    """The numbers of a line: sizes of the operation's own input, windows, and what a transposed output adds."""

    batch: int
    in_channels: int
    out_channels: int
    groups: int
    extents: tuple[int, ...]
    windows: tuple[Window, ...]
    output_pads: tuple[int, ...]


def read_flags(words: Sequence[str], extra: Sequence[str] = ()) -> dict[str, str]:
    """Values by short name (or the extra names). IllegalProblem for an unknown flag or a missing value."""
    found: dict[str, str] = {}
    for flag, value in pairs(words):
        name = flag.lstrip("-")
        short = CONV_FLAGS.get(name) if flag.startswith("--") else name
        if short is None or (short not in CONV_FLAGS.values() and short not in extra):
            raise IllegalProblem(f"a flag must be known; got {flag}; use the flags of MIOpenDriver or rocMLIR lines")
        found[short] = value
    for name, value in _FIXED.items():
        if found.get(name, value) != value:
            raise NotYetSupported(f"flag -{name} is only supported as {value}; got {found[name]}; leave it out")
    return found


def pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    """Words as (flag, value). IllegalProblem if a flag has no dash or no value."""
    if len(words) % 2:
        raise IllegalProblem(
            f"every flag takes one value; got {' '.join(words)!r} with an odd number of words; complete it"
        )
    for flag in words[::2]:
        if not flag.startswith("-"):
            raise IllegalProblem(
                f"a flag starts with a dash; got {flag!r} in {' '.join(words)!r}; check the values before it"
            )
    return list(zip(words[::2], words[1::2], strict=True))


def number(flags: dict[str, str], name: str) -> int:
    """The value of a flag, or its default. IllegalProblem unless it is a number."""
    text = flags.get(name)
    if text is None:
        return _DEFAULTS[name]
    try:
        return int(text)
    except ValueError:
        raise IllegalProblem(
            f"flag -{name} takes a number; got {text!r}; write e.g. -{name} {_DEFAULTS[name]}"
        ) from None


def geometry(flags: dict[str, str]) -> Geometry:
    """The numbers of a line. IllegalProblem for another number of spatial dimensions than 2 or 3."""
    rank = number(flags, "_")
    if rank not in (2, 3):
        raise IllegalProblem(f"spatial_dim must be 2 or 3; got {rank}; write a 1-D convolution in benchdnn's notation")
    names = _DIMENSIONS[3 - rank :]
    windows = [
        Window(*[number(flags, flag) for flag in (name.kernel, name.stride, name.dilation, name.pad)]) for name in names
    ]
    return Geometry(
        batch=number(flags, "n"),
        in_channels=number(flags, "c"),
        out_channels=number(flags, "k"),
        groups=number(flags, "g"),
        extents=tuple([number(flags, name.extent) for name in names]),
        windows=tuple(windows),
        output_pads=tuple([number(flags, name.output_pad) for name in names]),
    )


def direction_of(flags: dict[str, str], defaults: Defaults) -> Direction:
    """The direction that -F names, or the default where it is missing or 0 (all)."""
    text = flags.get("F", "0")
    if text == "0":
        return defaults.direction
    found = DIRECTION_OF_FLAG.get(text)
    if found is None:
        raise IllegalProblem(f"-F must name one direction: 1 (fwd), 2 (bwd_d) or 4 (bwd_w); got {text}; split the line")
    return found


def types_of(base: str | None, direction: Direction, defaults: Defaults) -> Types:
    """Element types of src, wei, dst by the base name; 8-bit products are stored as s32. IllegalProblem if unknown."""
    if base is None:
        return defaults.dtypes
    operand = OPERANDS_OF_BASE.get(base)
    if operand is None:
        raise IllegalProblem(
            f"a base name must be one of {', '.join(OPERANDS_OF_BASE)}; got {base!r}; use one of these"
        )
    if operand is not S8:
        return operand, operand, operand
    return {
        Direction.FWD: (S8, S8, S32),
        Direction.BWD_D: (S32, S8, S8),
        Direction.BWD_W: (S8, S32, S8),
    }[direction]


def base_of(notation: str, conv: Conv) -> str:
    """The base name of a problem's types; refuses types that have none."""
    types = conv.src.dtype, conv.wei.dtype, conv.dst.dtype
    for base in OPERANDS_OF_BASE:
        if types_of(base, conv.direction, Defaults()) == types:
            return base
    raise refusal(notation, f"no base name means the types {':'.join(map(str, types))}")


def print_geometry(notation: str, conv: Conv, transposed: bool) -> str:
    """The numeric flags of a problem. Refuses sizes that unequal pads, symbols or one dimension leave without words."""
    if conv.rank == 1:
        raise refusal(notation, "it has one spatial dimension")
    given, produced = (Role.DST, Role.SRC) if transposed else (Role.SRC, Role.DST)
    sizes = {role: conv.shape(role) for role in (given, produced)}
    words = [f"-n {printed_size(notation, 'batch', conv.batch)}"]
    words.append(f"-c {printed_size(notation, 'channels', sizes[given][1])}")
    words += _printed_extents(notation, sizes[given][2:])
    words.append(f"-k {printed_size(notation, 'channels', sizes[produced][1])}")
    names = _DIMENSIONS[3 - conv.rank :]
    for attribute in ("kernel", "pad", "stride", "dilation"):
        field = "pad_begin" if attribute == "pad" else attribute
        words += [
            f"-{getattr(name, attribute)} {value}" for name, value in zip(names, getattr(conv, field), strict=True)
        ]
    words.append(f"-g {printed_size(notation, 'groups', conv.groups, 1)}")
    words += _printed_output_pads(notation, conv) if transposed else _checked_outputs(notation, conv)
    return " ".join([*(["-_ 3"] if conv.rank == 3 else []), *words])


def _printed_extents(notation: str, extents: tuple[Expr, ...]) -> list[str]:
    names = _DIMENSIONS[3 - len(extents) :]
    return [f"-{name.extent} {printed_size(notation, 'extent', e)}" for name, e in zip(names, extents, strict=True)]


def _checked_outputs(notation: str, conv: Conv) -> list[str]:
    for extent, outputs, window in zip(conv.in_spatial, conv.out_spatial, conv.windows, strict=True):
        if output_extent(extent, window, window.pad_begin) is not outputs:
            raise refusal(
                notation, f"its pads are unequal: output {outputs} does not follow from the left pad on both sides"
            )
    return []


def _printed_output_pads(notation: str, conv: Conv) -> list[str]:
    found: list[str] = []
    for name, window, end in zip(_DIMENSIONS[3 - conv.rank :], conv.windows, conv.pad_end, strict=True):
        extra = const(window.pad_begin) - end
        if not extra.is_const or not 0 <= extra.value < max(window.stride, window.dilation):
            raise refusal(notation, f"its pads are unequal: {window.pad_begin} and {end}")
        if extra.value:
            found.append(f"-{name.output_pad} {extra.value}")
    return found
