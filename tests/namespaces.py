"""Programs in namespaces of their own, where the machine lets tests have them."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


def in_namespaces(*options: str) -> list[str]:
    """What is put before a command, by options of `unshare`. Skips the test where this machine has no such thing."""
    tool = shutil.which("unshare")
    before = [str(tool), *options]
    if tool is None or subprocess.run([*before, "true"], capture_output=True, check=False).returncode:
        reason = "namespaces cannot be had here"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return before
