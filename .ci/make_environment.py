"""Make a virtual environment, also where the interpreter lacks the pieces that `venv` needs (Debian's python3)."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

MINIMUM = (3, 11)
BOOTSTRAP = Path(".bootstrap")


def with_venv(target: str) -> bool:
    """Try the standard library's venv; False where ensurepip is missing."""
    if importlib.util.find_spec("ensurepip") is None:
        return False
    return subprocess.run([sys.executable, "-m", "venv", "--clear", target], check=False).returncode == 0


def with_virtualenv(target: str) -> bool:
    """Try virtualenv, installed beforehand or fetched by pip into a folder of its own (leaves the system untouched)."""
    environment = dict(os.environ)
    if importlib.util.find_spec("virtualenv") is None:
        fetch = [sys.executable, "-m", "pip", "install", "--quiet", "--quiet", "--target", str(BOOTSTRAP), "virtualenv"]
        if subprocess.run(fetch, check=False).returncode != 0:
            return False
        environment["PYTHONPATH"] = str(BOOTSTRAP)
    command = [sys.executable, "-m", "virtualenv", "--quiet", "--clear", target]
    return subprocess.run(command, check=False, env=environment).returncode == 0


def main() -> int:
    """Make the environment named on the command line."""
    if sys.version_info < MINIMUM:
        print(f"Python {MINIMUM[0]}.{MINIMUM[1]} or newer is needed; this is {sys.version.split()[0]}; set PYTHON=...")
        return 1
    target = sys.argv[1]
    if with_venv(target) or with_virtualenv(target):
        return 0
    print("Neither venv nor virtualenv works here; install the package python3-venv, or pip, and try again.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
