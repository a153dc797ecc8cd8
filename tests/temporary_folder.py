"""Where tests keep their files: in memory, on a machine that has room for them there.

Hundreds of tests have a SQLite file, a Postgres or a Redis that is on disk before it answers, and five workers wait for
one disk: seconds, while something else writes to it too. What tests kill is processes, and for these a file in memory
is as durable as one on a disk.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108  a folder of our own is made in it
ROOM = 8 << 30
"""Bytes that have to be free: files of a whole run take less than one, and pytest keeps those of tests that failed."""


def settle() -> None:
    """Have this process, and those that it starts, make temporary files in memory, unless TMPDIR says where."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    there = os.statvfs(MEMORY)
    if there.f_bavail * there.f_frsize < ROOM or there.f_flag & os.ST_NOEXEC:  # tests write programs, too
        return
    folder = MEMORY / f"leasehold-tests-{os.getuid()}"
    folder.mkdir(mode=0o711, exist_ok=True)  # Postgres, as a user of its own, must get in
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None
