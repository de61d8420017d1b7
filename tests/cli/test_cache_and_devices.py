"""The commands that need no kernel: cache, devices, version; and how errors end."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from convloom import settings
from convloom.cli import app
from convloom.runtime.disk_cache import CacheKey, current_cache


@pytest.fixture
def cli():
    return CliRunner()


@pytest.fixture
def cache(tmp_path):
    with settings.scoped(cache_dir=tmp_path, cache_limit=2**20):
        yield current_cache()


def test_path(cli, cache):
    result = cli.invoke(app, ["cache", "path"])
    assert result.exit_code == 0
    assert result.stdout.strip() == str(cache.directory)


def test_list_and_prune(cli, cache):
    for number in range(3):
        cache.put(CacheKey(f"kernel_{number}", bytes([number])), b"x" * 2048, "")
    listing = cli.invoke(app, ["cache", "list"]).stdout
    assert all(f"kernel_{number}" in listing for number in range(3))
    assert "3 kernels" in listing
    assert "3 kernels removed" in cli.invoke(app, ["cache", "prune"]).stdout
    assert cache.entries() == []


def test_prune_keeps_what_fits(cli, cache):
    for number in range(3):
        cache.put(CacheKey(f"kernel_{number}", bytes([number])), b"x" * 2048, "")
    assert "1 kernels removed" in cli.invoke(app, ["cache", "prune", "--limit", "5KiB"]).stdout
    assert len(cache.entries()) == 2


def test_an_error_names_the_rule_and_ends_with_2(cli, cache):
    result = cli.invoke(app, ["cache", "prune", "--limit", "many"])
    assert result.exit_code == 2
    assert "--limit must be a size" in result.stderr
    assert "Traceback" not in result.output


def test_devices_are_listed(cli):
    result = cli.invoke(app, ["devices"])
    assert result.exit_code == 0
    assert "cpu" in result.stdout


def test_version(cli):
    result = cli.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.startswith("convloom ")


def test_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "convloom", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("convloom ")
