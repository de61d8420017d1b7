"""`python -m convloom`: the command line, where its script is not on the path."""

from convloom.cli import app

app(prog_name="convloom")
