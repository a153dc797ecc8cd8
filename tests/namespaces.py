"""Programs in namespaces of their own, where the machine lets tests have them."""

from __future__ import annotations

import shutil
import subprocess

from tests.left_out import failed


def in_namespaces(*options: str) -> list[str]:
    """What is put before a command, by options of `unshare`. Where this machine has none the test is left out."""
    tool = shutil.which("unshare")
    before = [str(tool), *options]
    if tool is None or subprocess.run([*before, "true"], capture_output=True, check=False).returncode:
        failed("namespaces cannot be had here")
    return before
