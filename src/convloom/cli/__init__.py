"""The command line: `convloom COMMAND`; errors end with exit status 2, mismatches with 1."""

from convloom.cli.app import app

__all__ = ["app"]
