"""All instruction rows, and questions about them."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType

from convloom.errors import UnsupportedTarget
from convloom.target import generic, nvidia_atomics, nvidia_sm80, nvidia_sm90, nvidia_tma, nvidia_wgmma
from convloom.target.instruction import Capability, Family, Instruction, Vendor

_FILES = (generic.ROWS, nvidia_sm80.ROWS, nvidia_sm90.ROWS, nvidia_tma.ROWS, nvidia_atomics.ROWS)


EVERY_ROW = "interpret"
"""The machine that executes rows by their semantics; it stands for sm_90a, the one with most of them."""


@cache
def all_rows() -> MappingProxyType[str, Instruction]:
    """Every row by name."""
    return MappingProxyType({row.name: row for rows in (*_FILES, nvidia_wgmma.rows()) for row in rows})


def row_named(name: str) -> Instruction:
    """The row with this name; UnsupportedTarget names some of its kin."""
    rows = all_rows()
    if name not in rows:
        kin = [other for other in rows if other.split(".")[0] == name.split(".")[0]] or list(rows)
        raise UnsupportedTarget(f"an instruction must be in the catalogue; got {name!r}; choose one like {kin[:8]}")
    return rows[name]


def machine_of(arch: str) -> Capability:
    """What an architecture name (`sm_80`, `sm_90a`; anything else: no vendor's extras) stands for."""
    if arch == EVERY_ROW:
        return Capability(Vendor.NVIDIA, 90, only=True)
    if not arch.startswith("sm_"):
        return Capability()
    return Capability(Vendor.NVIDIA, int(arch[3:].rstrip("af")), only=arch.endswith("a"))


@cache
def rows_for(arch: str, family: Family | None = None) -> tuple[Instruction, ...]:
    """The rows that a machine has, of one family or of all, in the catalogue's order."""
    machine = machine_of(arch)
    return tuple(row for row in all_rows().values() if row.needs.includes(machine) and family in (None, row.family))
