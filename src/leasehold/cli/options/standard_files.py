"""Standard input, output and error, where the process was started with one of them closed (`leasehold … >&-`).

Owns that each of the three is open: on nothing, where it was closed. Python has no object for one that is closed, and
the next file to be opened, a database or a socket, would get its number: what a library prints would go into it.
"""

from __future__ import annotations

import os
import sys


def open_standard_files() -> None:
    """Open those that are closed. To be called before any other file is opened."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        free = os.open(os.devnull, os.O_RDWR)  # the lowest number there is: its own, unless somebody has taken that
        stream = open(free, "w" if number else "r", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
