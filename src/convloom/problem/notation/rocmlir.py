"""rocMLIR's convolution lines: `convfp16 -F 1 -f GNC01 -I NGC01 -O NGC01 -n 1 -c 64 -H 56 ..` (channels are totals).

Layout letters: N (images; output channels of a group in the filter), G groups, C channels of a group, 0 1 2 spatial.
"""

from __future__ import annotations

from convloom.errors import IllegalProblem
from convloom.problem.conv import Conv, Role
from convloom.problem.notation import miopen
from convloom.problem.notation.defaults import Defaults, refusal
from convloom.problem.notation.driver_flags import DIRECTION_OF_FLAG, base_of, print_geometry
from convloom.problem.notation.grouped_letters import parse_layout, print_layout, with_layouts

NAME = "rocMLIR"


def is_grouped_letters(letters: str) -> bool:
    """True for a layout of this notation: it names the groups."""
    return "G" in letters


def parse_conv(text: str, defaults: Defaults) -> Conv:
    """The convolution of a line. IllegalProblem names the flag or the layout that is wrong."""
    words = text.split()
    letters: dict[Role, str] = {}
    for role, flag in miopen.LAYOUT_FLAGS.items():
        if f"-{flag}" in words[:-1]:
            place = words.index(f"-{flag}")
            letters[role] = words[place + 1]
            del words[place : place + 2]
    if len(letters) < len(Role):
        raise IllegalProblem(f"a rocMLIR line names all layouts with -f, -I and -O; got {text!r}; add the missing ones")
    conv = miopen.parse_conv(" ".join(words), defaults)
    return with_layouts(conv, {role: parse_layout(conv, role, letters[role], _order(conv, role)) for role in Role})


def _order(conv: Conv, role: Role) -> str:
    return ("GNC" if role is Role.WEI else "NGC") + "012"[: conv.rank]


def print_conv(conv: Conv) -> str:
    """The line that parses back to the same problem. IllegalProblem names what rocMLIR cannot say."""
    if conv.scaling.alpha or conv.scaling.beta or conv.bias is not None or conv.bias_grad is not None:
        raise refusal(NAME, "it has alpha, beta or a bias")
    number = next(flag for flag, direction in DIRECTION_OF_FLAG.items() if direction is conv.direction)
    layouts = [
        f"-{miopen.LAYOUT_FLAGS[role]} {print_layout(NAME, conv, role, _order(conv, role))}"
        for role in (Role.WEI, Role.SRC, Role.DST)
    ]
    return " ".join([base_of(NAME, conv), "-F", number, *layouts, print_geometry(NAME, conv, transposed=False)])
