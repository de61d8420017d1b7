"""Notations of other projects for problems: benchdnn, MIOpenDriver and rocMLIR lines, parsed and printed."""

from __future__ import annotations

from convloom.problem.notation.attributes import with_attributes
from convloom.problem.notation.batch_file import BatchLine, read_batch
from convloom.problem.notation.choose import Notation, expressible, notation_of, parse_problem, print_problem
from convloom.problem.notation.defaults import WITH_BIAS, Defaults, allows_tf32, direction_named, types_named

__all__ = [
    "WITH_BIAS",
    "BatchLine",
    "Defaults",
    "Notation",
    "allows_tf32",
    "direction_named",
    "expressible",
    "notation_of",
    "parse_problem",
    "print_problem",
    "read_batch",
    "types_named",
    "with_attributes",
]
