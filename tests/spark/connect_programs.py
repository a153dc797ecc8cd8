"""Programs over Spark Connect, each a process of its own: the server that is in PySpark's package runs in it.

That server has one port, so that one program runs at a time, whichever worker of the tests has started it.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.repository import ROOT
from tests.waiting import PATIENCE


def said_by(*words: str | Path, folder: Path = ROOT) -> list[str]:
    """What a Python that is given these words prints in lines that begin with "said "; the program ends well."""
    here = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}
    with Path(tempfile.gettempdir(), "leasehold-connect-programs").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        done = subprocess.run(
            [sys.executable, *words],
            cwd=folder,
            env={**os.environ, **here},
            capture_output=True,
            text=True,
            timeout=4 * PATIENCE,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return [line.partition("said ")[2] for line in done.stdout.splitlines() if "said " in line]
