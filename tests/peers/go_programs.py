"""Programs in Go, built beside the interpreter, from modules as `go` is configured for them on the machine.

Where there is no `go`, or a module cannot be had, the test that asks is skipped with the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.left_out import failed
from tests.node_packages import locked


def built(what: str, source: Path, name: str) -> Path:
    """The program in the folder `source`, built as `name`. `what` it is, for the reason why it is left out."""
    if (go := shutil.which("go")) is None:
        pytest.skip(f"{what} is left out: there is no go here")
    parent = Path(sys.prefix) / "share" / "leasehold-tests"
    parent.mkdir(parents=True, exist_ok=True)
    with locked(parent / "lock"):
        folder = parent / name
        folder.mkdir(exist_ok=True)
        for file in ("go.mod", "go.sum", "main.go"):
            shutil.copyfile(source / file, folder / file)
        done = subprocess.run(
            [go, "build", "-o", "program", "."],
            cwd=folder,
            env={**os.environ, "GOFLAGS": "-mod=readonly"},
            capture_output=True,
            text=True,
            timeout=1500,
            check=False,
        )
        if done.returncode:
            failed(f"{what} is left out: go says {done.stderr.strip()[:500]}")
    return folder / "program"
