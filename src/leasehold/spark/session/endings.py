"""How a program on Spark ends when it is told to: quietly, and in order.

Owns the signals of a program that has no handlers of its own: Ctrl-C raises `KeyboardInterrupt` in the main thread, as
in any Python program, and SIGTERM raises `Terminated`, so that `with` and `finally` get their turn. What ends then
stops the queries and the session first, so that partitions are given up, and the process ends by the signal. Promises
that nothing of PySpark's or py4j's is printed on the way. The session's own Java ignores SIGTERM, which a service
manager sends to every process of a group, and ends with Python. PySpark's own handler asks Java to cancel all jobs in
the middle of whatever is being asked of Java: the answer is a traceback of 90 lines, or a stack overflow.

Refuses to touch what is the program's: a handler, a hook for exceptions, an interactive session, where Ctrl-C ends a
statement and not the program. A loop (`MicroBatches`) puts a handler of its own in this one's place for as long as it
runs, which ends it after the batch at hand.

Concurrency: handlers run in the main thread, between any two of its lines; they only note the signal and raise. The
session is stopped by another thread, since the main thread's connection to Java has been cut off in the middle of an
answer. That thread is waited for `PATIENCE` seconds, and a further signal meanwhile ends the process at once.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from leasehold.signal_handlers import DEFAULTS, handle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 15.0
"""Seconds that queries and session may take to stop."""
SIGNALS = tuple(DEFAULTS)
TOLD = threading.Event()
"""Set when the program was told to end, or a loop to stop: what Spark says from then on is no news."""

_received: list[int] = []
_ended_by: list[int] = []
_sessions: list[Any] = []


class Terminated(KeyboardInterrupt):
    """The process was asked to end (SIGTERM)."""


def end_quietly(spark: SparkSession, before: Any = None) -> None:
    """Have this program end in order, and quietly, at Ctrl-C and SIGTERM, as with a session of `open_session`.

    Call it once, in the main thread, with the `spark` that `SparkSession.builder.getOrCreate()` gave. Handlers of the
    program's own stay, an interactive session is left as it is, and so are the session's settings and Spark's logging
    until the end.

    `before` is the handler of SIGINT that was there before PySpark put its own in its place; default: Python's.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if before is not None and not _is_a_default(signal.SIGINT, before):
        signal.signal(signal.SIGINT, before)
    elif not is_interactive():
        for each in SIGNALS:
            if _is_a_default(each, signal.getsignal(each)):
                handle(each, _end, in_children=DEFAULTS[each])
    if spark not in _sessions and hasattr(spark, "_sc"):  # a session of Spark Connect has no Java of its own
        from leasehold.spark.session.classic import leave_sigterm_to_python, say_no_error_after

        leave_sigterm_to_python(spark)
        say_no_error_after(TOLD.is_set, spark)
    if not _sessions:
        atexit.register(_stop_session)
    _sessions[:] = [spark]


def take_signals(handler: Callable[[int], object]) -> Callable[[], None] | None:
    """Have `handler` called with the first signal, where the program has no handlers of its own; a second one ends
    the process. Returns what gives the signals back; None where there was nothing to take.
    """
    if threading.current_thread() is not threading.main_thread() or is_interactive():
        return None
    taken = {each: signal.getsignal(each) for each in SIGNALS}
    taken = {each: found for each, found in taken.items() if _is_a_default(each, found)}

    def told(signum: int, frame: FrameType | None) -> None:
        for each in taken:
            handle(each, signal.SIG_DFL)
        note(signum)
        handler(signum)

    for each in taken:
        handle(each, told, in_children=DEFAULTS[each])

    def give_back() -> None:
        for each, found in taken.items():
            if signal.getsignal(each) in (told, signal.SIG_DFL):  # else the program has set another one meanwhile
                handle(each, found)

    return give_back if taken else None


def note(signum: int) -> None:
    """The program was told to end by this signal: from here on, what Spark says is no news."""
    _received.append(signum)
    silence()
    root = logging.getLogger()
    if not root.handlers:  # else py4j's first word would make one, which then shows all that follows
        root.addHandler(logging.lastResort or logging.NullHandler())
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _except


def signals() -> int:
    """How often this program was told to end, so far. A loop that was stopped is not told of here."""
    return len(_received)


def told_since(before: int, patience: float) -> bool:
    """Whether it was told again since there were this many `signals`, or is within `patience` seconds."""
    deadline = time.monotonic() + patience
    while signals() == before and time.monotonic() < deadline:
        time.sleep(0.02)
    return signals() != before


def silence() -> None:
    """Say nothing more of what fails in Spark and py4j."""
    TOLD.set()
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    root = logging.getLogger()
    if _is_no_echo not in root.filters:
        root.addFilter(_is_no_echo)


def raise_again(signum: int) -> None:
    """Raise what this signal is to a program that has no handler for it."""
    raise Terminated if signum == signal.SIGTERM else KeyboardInterrupt


def is_interactive() -> bool:
    """Whether a person types statements here: then a signal ends a statement, and not the program."""
    ipython = sys.modules.get("IPython")  # a program may import it, and run in no shell of it
    in_shell = ipython is not None and ipython.get_ipython() is not None
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or in_shell


def _end(signum: int, frame: FrameType | None) -> None:
    note(signum)
    raise_again(signum)


def _is_a_default(signum: int, handler: Any) -> bool:
    """Whether a handler is Python's own, PySpark's, or the one of this module."""
    if handler is _end or handler == DEFAULTS[signum]:
        return True
    return str(getattr(handler, "__module__", "")).partition(".")[0] == "pyspark"


def _is_no_echo(record: logging.LogRecord) -> bool:
    """Whether a record is not py4j's, which repeats with a traceback, and as the root logger, what it raises."""
    return "py4j" not in Path(record.pathname).parts


def say_nothing_of_a_closed_socket() -> None:
    """For a worker of Spark's: that its socket is closed is how it is told to end."""
    tell = sys.excepthook

    def tell_unless_closed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, ConnectionError | EOFError):
            tell(kind, error, trace)

    sys.excepthook = tell_unless_closed


def _except(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What an interrupted program ends with: nothing is said of the interruption, nor of Spark's end."""
    if _is_of_the_end(error):
        _ended_by[:] = _received[-1:]
    else:
        sys.__excepthook__(kind, error, trace)


def _is_of_the_end(error: BaseException | None) -> bool:
    while error is not None:
        home = type(error).__module__.partition(".")[0]
        if isinstance(error, KeyboardInterrupt) or home in ("py4j", "pyspark"):
            return True
        error = error.__cause__ or error.__context__
    return False


def _stop_session() -> None:
    """At the end of a program that was told to end: stop what runs, and end by the signal if nobody has caught it."""
    if not (_received and _sessions):
        return
    for each in SIGNALS:
        with suppress(ValueError):
            handle(each, signal.SIG_DFL)
    stopping = threading.Thread(target=_stop, args=[_sessions[-1]], daemon=True, name="leasehold-ending")
    stopping.start()
    stopping.join(PATIENCE)
    if _ended_by:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os.kill(os.getpid(), _ended_by[-1])


def _stop(spark: Any) -> None:
    with suppress(Exception):  # Spark may be gone, and is to go
        from leasehold.spark.session.classic import silence_java

        silence_java(spark)
    with suppress(Exception):
        for query in spark.streams.active:
            query.stop()
    with suppress(Exception):
        spark.stop()
