"""What the script `leasehold` calls: Ctrl-C while the command is being imported ends it with 130, and prints nothing.

Owns the time until the command begins, which looks after Ctrl-C itself (`leasehold.cli`). A package of its own, since
importing anything of `leasehold` imports most of what takes that time. Python's own start, before it, is Python's.
"""

from __future__ import annotations

import os
import signal

__all__ = ["main"]


def _end(signum: int, frame: object) -> None:
    os._exit(130)  # nothing is open yet


def main() -> None:
    """Run the command line of this process, and exit."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else whoever has started it wants it otherwise
        signal.signal(signal.SIGINT, _end)
    from leasehold.cli.app import main as run

    run()
