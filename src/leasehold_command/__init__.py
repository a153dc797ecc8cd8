"""What the script `leasehold` calls: Ctrl-C while the command is being imported ends it with 130, and prints nothing.

Owns the time until the command begins, which looks after Ctrl-C itself (`leasehold.cli`). A package of its own, since
importing anything of `leasehold` imports most of what takes that time, and without an import that is not there already.
What is before it prints Python's traceback at Ctrl-C: Python's own start, and what the installer's script imports.
"""

import _signal  # type: ignore[import-not-found]  # of the interpreter itself; `signal` imports `enum` and more
import os

__all__ = ["main"]


def _end(signum: int, frame: object) -> None:
    os._exit(130)  # nothing is open yet


def main() -> None:
    """Run the command line of this process, and exit."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # else whoever has started it wants another
        _signal.signal(_signal.SIGINT, _end)
    from leasehold.cli.app import main as run

    run()
