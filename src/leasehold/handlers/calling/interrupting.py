"""Calls of a handler in the main thread of its process, interrupted when they take too long. For a worker of Spark.

    with Interrupting(handler, 2.0) as answers:
        answers(state, event)

A call gets a signal after `timeout` seconds, which raises in it what no `except Exception` takes. What goes on all the
same, or sits in C and never sees it, is ended with its process by a thread of `faulthandler`, which needs nothing of
Python's, `GRACE` seconds later or up to half as late again; the stacks go to the process's errors first. Who runs the
process finds it gone, and calls for the same events in processes of their own (`processes`), which says which hung.

Owns this process's SIGALRM, its timer, and `faulthandler`'s, while it is open. One at a time, in the main thread.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from types import FrameType, TracebackType
from typing import Any

from leasehold.handlers.answers import Effects
from leasehold.handlers.calling.answering import answered
from leasehold.handlers.calling.raised import timed_out
from leasehold.handlers.contract import EntityEvent, EntityHandler
from leasehold.signal_handlers import handle

GRACE = 1.0


class Interrupted(BaseException):
    """Raised in a handler that takes too long. It is let through."""


class Interrupting:
    """Calls a handler, each call for at most `timeout` seconds."""

    def __init__(self, handler: EntityHandler, timeout: float) -> None:
        self._handler, self._timeout = handler, timeout
        self._in_call, self._where = False, ""
        self._watched_until = 0.0
        self._former: Any = None
        self._timer = 0.0, 0.0

    def __enter__(self) -> Interrupting:
        self._timer = signal.setitimer(signal.ITIMER_REAL, 0)
        self._former = signal.getsignal(signal.SIGALRM)
        handle(signal.SIGALRM, self._interrupt)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        faulthandler.cancel_dump_traceback_later()
        handle(signal.SIGALRM, self._former)
        signal.setitimer(signal.ITIMER_REAL, *self._timer)

    def __call__(self, state: Mapping[str, Any] | None, event: EntityEvent) -> Effects:
        """What the handler answers, a state as a dict. Raises what it raises, and `RaisedElsewhere` if it was ended."""
        self._watch()
        self._where = ""
        try:
            self._in_call = True
            signal.setitimer(signal.ITIMER_REAL, self._timeout)
            try:
                answer = answered(self._handler, state, event)
            finally:
                self._in_call = False
                signal.setitimer(signal.ITIMER_REAL, 0)
        except BaseException:
            if self._where:
                raise timed_out(self._timeout, self._where) from None
            raise
        if self._where:  # it went on, and ended after all
            raise timed_out(self._timeout, self._where)
        return answer

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._in_call:
            self._where = "".join(traceback.format_stack(frame)) or "?"
            raise Interrupted

    def _watch(self) -> None:
        """Have the process ended if this call is not: up to half as late again, so that few calls set a timer."""
        now = time.monotonic()
        enough = self._timeout + GRACE
        if self._watched_until < now + enough:
            faulthandler.dump_traceback_later(1.5 * enough, exit=True, file=sys.__stderr__ or sys.stderr)
            self._watched_until = now + 1.5 * enough
