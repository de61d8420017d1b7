"""Defaults of problem lines for tests."""

from convloom.cli.problem_options import UNTAGGED, defaults_of


def defaults(direction="fwd", dtypes="f32", tag=UNTAGGED):
    """One layout tag for all tensors."""
    return defaults_of(direction, dtypes, tag, tag, tag)
