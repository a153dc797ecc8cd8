"""Spark's daemon of Python workers, without the traceback of a worker whose reader has left, and quick to start.

Spark closes its end of a worker that has had nothing to do for a minute, or whose job was cancelled, and at its own
end; PySpark's daemon prints a traceback that ends in `BrokenPipeError` for each. Anything else is printed as ever.

Spark puts `pyspark.zip` first on the path of its Pythons, which holds no compiled modules: compiling them anew takes
0.6 s of the 0.8 that the start of the daemon takes. Where the zip is part of an installed PySpark, the daemon imports
the same modules from that.

Spark starts it as a module (`spark.python.daemon.module`), on this machine, by the Python that the session runs in.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def print_unless_left() -> None:
    """What the daemon calls about the error of a worker."""
    if not isinstance(sys.exc_info()[1], ConnectionError):
        traceback.print_exc()


def hush_this_worker() -> None:
    """In a worker of PySpark's own daemon, do the same: Spark plans a source by that one, whatever the session says."""
    program: Any = sys.modules.get("__main__")
    if getattr(getattr(program, "__spec__", None), "name", None) == "pyspark.daemon":
        _hush(program)


def _hush(module: Any) -> None:
    module.traceback = SimpleNamespace(**{**vars(traceback), "print_exc": print_unless_left})


def without_zips(path: Sequence[str]) -> list[str]:
    """`sys.path` without the zips of PySpark and py4j that are part of a PySpark which is on it anyway."""
    installed = {entry for entry in path if Path(entry, "pyspark", "python", "lib").is_dir()}
    zips = {Path(entry, "pyspark", "python", "lib") for entry in installed if Path(entry, "py4j").is_dir()}
    return [entry for entry in path if not (entry.endswith(".zip") and Path(entry).parent in zips)]


def main() -> None:
    """Be the daemon."""
    sys.path[:] = without_zips(sys.path)
    from pyspark import daemon

    _hush(daemon)
    daemon.manager()


if __name__ == "__main__":
    main()
