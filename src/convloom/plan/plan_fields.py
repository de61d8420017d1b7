"""The words of a plan's text: a family, then named fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from convloom.errors import Infeasible


def fields_of(text: str, family: str, names: Sequence[str], optional: Mapping[str, str]) -> dict[str, str]:
    """The fields of a text by name; Infeasible for another family, and for missing or unknown fields.

    `optional`: what fields are that a text leaves out.
    """
    words = text.split()
    if not words or words[0] != family:
        raise Infeasible(f"a plan text begins with its family, {family!r}; got {text!r}; print a plan to see the form")
    fields = {**optional, **{name: value for name, _, value in (word.partition("=") for word in words[1:])}}
    missing = [name for name in names if not fields.get(name)]
    unknown = [name for name in fields if name not in names]
    if missing or unknown:
        raise Infeasible(
            f"a {family} plan has exactly the fields {', '.join(names)}; "
            f"missing {missing}, unknown {unknown}; correct the text"
        )
    return fields


def numbers(fields: Mapping[str, str], name: str, count: int) -> tuple[int, ...]:
    """`count` positive integers joined by x."""
    parts = fields[name].split("x")
    if len(parts) != count or not all(part.isdigit() and int(part) > 0 for part in parts):
        form = "a positive integer" if count == 1 else f"{count} positive integers joined by 'x'"
        raise Infeasible(f"plan field {name} must be {form}; got {fields[name]!r}; correct it")
    return tuple(int(part) for part in parts)


def flag(fields: Mapping[str, str], name: str) -> bool:
    """0 or 1."""
    if fields[name] not in ("0", "1"):
        raise Infeasible(f"plan field {name} must be 0 or 1; got {fields[name]!r}; correct it")
    return fields[name] == "1"


def axis_text(names: tuple[str, ...]) -> str:
    """Names joined by commas, - for none."""
    return ",".join(names) or "-"


def axis_names(text: str) -> tuple[str, ...]:
    """What `axis_text` joined."""
    return () if text == "-" else tuple(text.split(","))
