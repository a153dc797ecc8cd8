"""The first SIGTERM or Ctrl-C asks a command to stop, a second one ends the process at once."""

from __future__ import annotations

import signal
import threading

from leasehold.waiting import SignalEvent


def stop_on_signals() -> threading.Event:
    """The event that is set once the process is asked to stop. For the main thread."""
    stop = SignalEvent()

    def ask(signum: int, frame: object) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)
        stop.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, ask)
    return stop
