"""`convloom cache`: the compiled kernels on disk."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.table import Table

from convloom import settings
from convloom.cli.console import ReportingGroup, output
from convloom.errors import IllegalProblem
from convloom.runtime.disk_cache import DiskCache, current_cache

app = typer.Typer(cls=ReportingGroup, help="The compiled kernels on disk (works offline).", no_args_is_help=True)


@app.command()
def path() -> None:
    """Print the directory of the cache."""
    typer.echo(current_cache().directory)


@app.command("list")
def list_entries() -> None:
    """List the cached kernels, the least recently used first."""
    entries = _opened_cache().entries()
    table = Table("kernel", "KiB", "used", title=None)
    table.columns[1].justify = "right"
    for entry in entries:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        table.add_row(entry.name or "(damaged)", f"{entry.nbytes / 1024:.1f}", used)
    console = output()
    if entries:
        console.print(table)
    console.print(f"{len(entries)} kernels, {sum(entry.nbytes for entry in entries) / 2**20:.1f} MiB")


@app.command()
def prune(
    limit: Annotated[str, typer.Option(help="Most bytes to keep, such as 200MiB; 0 empties the cache.")] = "0",
) -> None:
    """Remove damaged entries, then the least recently used ones until at most LIMIT bytes are left."""
    cache, most = _opened_cache(), _size(limit)
    removed = cache.prune(most)
    output().print(f"{len(removed)} kernels removed, {sum(entry.nbytes for entry in removed) / 2**20:.1f} MiB")

    if sum(entry.nbytes for entry in cache.entries()) > most:
        raise IllegalProblem(
            f"pruning needs a cache whose files may be removed; {cache.directory} keeps more than --limit {limit}; "
            "give yourself the right to write there"
        )


def _opened_cache() -> DiskCache:
    found = current_cache()
    found.open()
    return found


def _size(text: str) -> int:
    try:
        return settings.parse_size(text)
    except ValueError:
        raise IllegalProblem(f"--limit must be a size such as 512MiB or 2GB; got {text!r}; correct it") from None
