"""Spark's daemon of Python workers, without the traceback of a worker whose reader has left.

Spark closes its end of a worker that has had nothing to do for a minute, or whose job was cancelled, and at its own
end; PySpark's daemon prints a traceback that ends in `BrokenPipeError` for each. Anything else is printed as ever.

Spark starts it as a module (`spark.python.daemon.module`), on this machine, by the Python that the session runs in.
"""

from __future__ import annotations

import sys
import traceback
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


def main() -> None:
    """Be the daemon."""
    from pyspark import daemon

    _hush(daemon)
    daemon.manager()


if __name__ == "__main__":
    main()
