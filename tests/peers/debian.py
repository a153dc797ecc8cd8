"""Programs from Debian's packages, unpacked beside the interpreter and not installed: no rights are needed for it.

Where there is no apt-get, or no archive can be reached, the test that asks is skipped with the reason.
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


def unpacked(name: str, *packages: str) -> Path:
    """The folder that these packages have been unpacked in, once, by whichever process comes first."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.skip(f"{name} is left out: there is no apt-get and dpkg-deb here")
    parent = Path(sys.prefix) / "share" / "leasehold-tests"
    folder = parent / name
    parent.mkdir(parents=True, exist_ok=True)
    with locked(parent / "lock"):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            done = subprocess.run(
                ["apt-get", "download", *packages], cwd=folder, capture_output=True, text=True, timeout=240
            )
            if done.returncode:
                failed(f"{name} is left out: apt-get download {' '.join(packages)}: {done.stderr.strip()[-300:]}")
            for package in folder.glob("*.deb"):
                subprocess.run(["dpkg-deb", "-x", package, folder], check=True, timeout=60)
            (folder / "complete").touch()
    return folder


def environment(folder: Path) -> dict[str, str]:
    """What a program of that folder is to be run with, so that it finds its libraries there."""
    libraries = [str(path) for path in (folder / "usr" / "lib").glob("*-linux-gnu*")]
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(libraries)}
