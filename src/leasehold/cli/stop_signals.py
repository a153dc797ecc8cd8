"""The first SIGTERM or Ctrl-C asks a command to stop, a second one ends the process at once.

Where a command does not ask, the first Ctrl-C raises `KeyboardInterrupt`, once it has been imported (until then the
script ends at once: `leasehold_command`); `end_at_next_interrupt` sees to the second.
"""

from __future__ import annotations

import os
import signal
import threading

from leasehold.signal_handlers import handle
from leasehold.waiting import SignalEvent


def stop_on_signals() -> threading.Event:
    """The event that is set once the process is asked to stop. For the main thread."""
    stop = SignalEvent()

    def ask(signum: int, frame: object) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            handle(each, signal.SIG_DFL)
        stop.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        handle(each, ask)
    return stop


def raise_at_interrupt() -> None:
    """From now on Ctrl-C raises `KeyboardInterrupt`, if it is the script that has had it end the process so far."""
    held = signal.getsignal(signal.SIGINT)
    if getattr(held, "__module__", None) == "leasehold_command":
        signal.signal(signal.SIGINT, signal.default_int_handler)


def end_at_next_interrupt() -> None:
    """From now on Ctrl-C ends the process at once with exit code 130, and prints nothing: it is ending already.

    Without it, Ctrl-C while Python waits for its threads prints a traceback. Does nothing beside the main thread.
    """
    if threading.current_thread() is threading.main_thread():
        handle(signal.SIGINT, lambda signum, frame: os._exit(130))
