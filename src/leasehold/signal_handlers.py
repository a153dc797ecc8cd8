"""Signal handlers of this process alone: its children have those that the program had before.

Owns what Leasehold puts in the place of a signal's handler, in whatever room. Promises that a child which is forked
meanwhile (by `os.fork`, a `multiprocessing.Process` or a `Pool` of an entity handler) finds each such signal as it was
before: a SIGTERM ends the child, and does not stop its copy of a processor. A handler that the program itself has set
since stays, in its children too. Does nothing about programs that are executed: no handler gets there.

Concurrency: handlers are set in the main thread; any thread may fork. The thread that forks blocks these signals until
the child has put its handlers back, so that a signal which the parent sends at once ends the child. Meanwhile the
parent's other threads get them; where there is none, they come when the fork is done.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from typing import Any

DEFAULTS: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""Python's own handlers of the signals that ask a program to end."""


@dataclass(frozen=True, slots=True)
class _Handlers:
    """Those of one signal: what was set here last, and what children get."""

    here: Any
    in_children: Any


_handlers: dict[int, _Handlers] = {}
_forking = threading.local()


def handle(signum: int, handler: Any, *, in_children: Any = None) -> None:
    """Set the handler of a signal in this process, as `signal.signal` does; also to put a former one back.

    Children get `in_children`; default: the handler that there was before the first one set here. Only in the main
    thread. A signal handler may call this.
    """
    now, known = signal.getsignal(signum), _handlers.get(signum)
    if in_children is None:
        in_children = known.in_children if known and known.here == now else now
    _handlers[signum] = _Handlers(handler, in_children)  # first: another thread may fork between these lines
    signal.signal(signum, handler)


def _before_fork() -> None:
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, list(_handlers))


def _after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _after_fork_in_child() -> None:
    for signum, known in _handlers.items():
        if signal.getsignal(signum) == known.here:
            # None is a handler that C code has set: Python cannot set it.
            signal.signal(signum, signal.SIG_DFL if known.in_children is None else known.in_children)
    _handlers.clear()
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
