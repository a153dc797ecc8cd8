"""Processes that call a handler, so that a call which hangs can be ended.

Owns their lives. A call takes one that is idle, or has one started and takes whichever is there first, so there are
about as many as there have been calls at the same time; each answers one call at a time, by `program`. A process whose
call takes too long is killed with all that it has started, and so is one whose answer nobody waits for. With `beside`
one more is started as soon as the last idle one is taken, so that calls seldom wait for it. Calls of any threads at
once.

A slow entity need not hold up the others of its partition: with `beside` a call that takes much longer than calls do
goes on in its process, and `GoesOn` is raised. Whoever calls for the same event and state again gets the answer of that
call, at once or with `GoesOn` once more. With another state its process is killed, and the new call is waited for, so
that it comes to an end. When the partition is left it is killed too. At most `MOST_BESIDE` go on; the next one is
waited for.

When this process stops for a minute in a call, the answer is there when it goes on, and counts. When it is killed, the
kernel ends its processes (Linux). A child that this process forks begins with none.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from leasehold.errors import ConfigError, HandlerUnavailable
from leasehold.handlers.answers import Effects
from leasehold.handlers.calling.crossing import call_of, read_answer
from leasehold.handlers.calling.program import BEGUN, BY_NAME, WHERE, receive, send
from leasehold.handlers.calling.raised import GoesOn, RaisedElsewhere, died, timed_out
from leasehold.handlers.contract import EntityEvent, EntityHandler
from leasehold.waiting import readable

STARTING = 60.0
"""Seconds for a process to start, and to import the handler."""

PATIENCE, SLOW = 0.03, 10
"""After this many seconds, and this many times what a call takes, a call goes on beside others."""
MOST_BESIDE = 4
"""The most calls that go on beside others. Each has a process."""
_WEIGHT = 0.05
_AT_ONCE = 0.001
_FORGOTTEN = 10.0
_NO_RESERVE = 10.0  # seconds without another try, after one that did not start

_Place = tuple[str, str, int]
_LOOKING = 1.0  # seconds that a process which hangs has for saying where
_LAST = b" in <module>\n"
"""Where the main thread's stack ends, which comes behind all others."""
_PROGRAM = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from leasehold.handlers.calling.program import main; main(*map(int, sys.argv[2:]))"
)


def named(handler: EntityHandler) -> bytes:
    """How another process finds the handler. Raises `ConfigError` where it cannot."""
    home = handler.function.__module__
    module = sys.modules.get(home)
    names = [name for name, value in vars(module).items() if value is handler] if module is not None else []
    if home == "__main__" or not names:
        raise ConfigError(
            "handler_timeout",
            f"of {handler.function.__qualname__}",
            "a handler with a time-out is called in a process of its own, which imports it from its module",
            "Put it at the top of a module that can be imported, and not into the program itself",
        )
    return BY_NAME + f"{home}:{names[0]}".encode()


class HandlerProcesses:
    """Calls a handler, known as `named` says or pickled, each call for at most `timeout` seconds."""

    def __init__(self, name: str, handler: bytes, timeout: float, *, beside: bool = False) -> None:
        self._name, self._handler, self._timeout = name, handler, timeout
        self._beside, self._mean = beside, 0.0
        self._begin()

    def _begin(self) -> None:
        """Have no process: at first, and in a child that this process has forked."""
        self._lock = threading.Condition()
        self._idle: list[_Process] = []
        self._going: dict[_Place, tuple[bytes, _Process]] = {}
        self._waiting = 0  # calls that wait for a process
        self._starting: set[threading.Thread] = set()
        self._failures: list[Exception] = []
        self._reserve_from = 0.0
        self._owner = os.getpid()

    def __call__(self, state: Mapping[str, Any] | None, event: EntityEvent) -> Effects:
        """What the handler answers, a state as a dict.

        Raises `Reject`; `RaisedElsewhere` for all else that it raises, for a call that was ended, and for a process
        that ended in it; `HandlerUnavailable` where no process starts; `GoesOn`.
        """
        said, place = call_of(state, event), (event.hub, event.partition, event.sequence_number)
        process, replaced = self._resumed(place, said)
        resumed = process is not None
        while process is None:  # one that was idle may have ended before the call
            process = self._begun(said)
        began = time.monotonic()  # it may have had to start first
        try:
            answer = process.answer(0.0 if resumed else None if replaced else self._patience())
        except BaseException as error:
            process.end()
            if isinstance(error, RaisedElsewhere):
                error.beside = resumed
            raise
        if answer is None:
            self._let_go_on(place, said, process)
            raise GoesOn(first=not resumed)
        if not resumed:
            self._mean += _WEIGHT * (time.monotonic() - began - self._mean)
        self._give_back(process)
        return read_answer(answer)

    def leave(self, hub: str, partition: str) -> None:
        """End the calls that go on for events of this partition."""
        self._end_those(lambda place, process: place[:2] == (hub, partition))

    def close(self) -> None:
        """End the processes that are idle, and the calls that go on. The next call starts one."""
        self._forget_forked()
        with self._lock:
            idle, self._idle, starting, self._starting = self._idle, [], self._starting, set()
        for thread in starting:  # which ends what it has started, now that nobody waits for that
            thread.join()
        for process in idle:
            process.end()
        self._end_those(lambda place, process: True)

    def _begun(self, data: bytes) -> _Process | None:
        """A process that has begun with the call; None if one that was idle has ended before."""
        process = self._taken()
        try:
            return process if process.begin(data, self._timeout) else None
        except BaseException:
            process.end()
            raise

    def _patience(self) -> float | None:
        """Seconds after which a call goes on beside others, None if it is waited for."""
        if not self._beside or len(self._going) >= MOST_BESIDE:
            return None
        return max(PATIENCE, SLOW * self._mean)

    def _resumed(self, place: _Place, data: bytes) -> tuple[_Process | None, bool]:
        """The process that is called for this event and state already, or whether one with another state was ended."""
        self._forget_forked()
        with self._lock:
            before, process = self._going.pop(place, (b"", None))
        if process is None or before == data:
            return process, False
        process.end()
        return None, True

    def _let_go_on(self, place: _Place, data: bytes, process: _Process) -> None:
        self._end_those(lambda place, process: process.is_overdue)  # nobody has come back to those
        with self._lock:
            self._going[place] = data, process

    def _end_those(self, which: Callable[[_Place, _Process], bool]) -> None:
        self._forget_forked()
        with self._lock:
            ended = {place: process for place, (_, process) in self._going.items() if which(place, process)}
            for place in ended:
                del self._going[place]
        for process in ended.values():
            process.end()

    def _taken(self) -> _Process:
        self._forget_forked()
        with self._lock:
            self._waiting += 1
            try:
                while not self._idle:
                    if self._failures:
                        raise self._failures.pop()
                    self._start_some(self._waiting)
                    self._lock.wait()
                process = self._idle.pop()
            finally:
                self._waiting -= 1
            if self._beside and not self._idle and time.monotonic() >= self._reserve_from:
                self._start_some(self._waiting + 1)
            return process

    def _give_back(self, process: _Process) -> None:
        with self._lock:
            self._idle.append(process)
            self._lock.notify()

    def _start_some(self, count: int) -> None:
        """See to it that this many processes are being started, in threads of their own."""
        while len(self._starting) < count:
            thread = threading.Thread(target=self._start, name="leasehold-handler", daemon=True)
            self._starting.add(thread)
            thread.start()

    def _start(self) -> None:
        started = failure = None
        try:
            started = _Process(self._name, self._handler)
        except Exception as error:  # noqa: BLE001  a call that waits raises it
            failure = error
        with self._lock:
            wanted = threading.current_thread() in self._starting
            self._starting.discard(threading.current_thread())
            if wanted and started is not None:
                self._idle.append(started)
            elif failure is not None:
                self._reserve_from = time.monotonic() + _NO_RESERVE
                self._failures += [failure] if self._waiting else []
            self._lock.notify_all()
        if started is not None and not wanted:
            started.end()

    def _forget_forked(self) -> None:
        if self._owner != os.getpid():  # forked: they are our parent's
            self._begin()


class _Process:
    """One process, for one thread at a time."""

    def __init__(self, name: str, handler: bytes) -> None:
        mine, its = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        self._where, where = os.pipe()
        self._calls, self._ended = mine, False
        fds = its.fileno(), lifeline, where
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this program's own parts
                [sys.executable, "-c", _PROGRAM, json.dumps([*map(str, sys.path)]), *map(str, fds)],
                stdin=subprocess.DEVNULL,
                pass_fds=fds,
                start_new_session=True,
            )
        except BaseException:
            self._close()
            raise
        finally:
            its.close()
            os.close(lifeline)
            os.close(where)
        try:
            mine.settimeout(STARTING)
            send(mine, handler)
            receive(mine)
        except BaseException as error:
            how = self.end(wait=_LOOKING if isinstance(error, EOFError) else 0.0)
            if not isinstance(error, EOFError | OSError):
                raise
            raise HandlerUnavailable(
                f"the process that is to call the handler {name} has not started: it ended {how}. What it wrote to "
                "this program's errors says why"
            ) from error

    def begin(self, data: bytes, timeout: float) -> bool:
        """Send a call. False if the process has ended before it began with it, and is of no use any more.

        Raises `RaisedElsewhere`.
        """
        self._timeout, self._until = timeout, time.monotonic() + timeout
        self._calls.settimeout(timeout)
        try:
            send(self._calls, data)
            return receive(self._calls) == BEGUN
        except TimeoutError:
            raise timed_out(timeout, self._asked_where()) from None
        except (EOFError, OSError):
            self.end(wait=_LOOKING)
            return False

    def answer(self, patience: float | None) -> bytes | None:
        """Wait for the answer of the call that has begun; None if it goes on after `patience` seconds.

        Raises `RaisedElsewhere`. Then the process is of no use any more.
        """
        left = max(_AT_ONCE, self._until - time.monotonic())  # what is there by now counts
        wait = left if patience is None else min(left, max(_AT_ONCE, patience))
        try:
            self._calls.settimeout(wait)
            self._calls.recv(1, socket.MSG_PEEK)
            self._calls.settimeout(left + _LOOKING)
            return receive(self._calls)
        except TimeoutError:
            if time.monotonic() < self._until:
                return None
            raise timed_out(self._timeout, self._asked_where()) from None
        except (EOFError, OSError):
            raise died(self.end(wait=_LOOKING)) from None

    @property
    def is_overdue(self) -> bool:
        """Whether its call has taken too long for a while already."""
        return time.monotonic() > self._until + _FORGOTTEN

    def end(self, wait: float = 0.0) -> str:
        """Kill the process and what it has started, which may end by itself for this many seconds. How it ended."""
        if not self._ended:
            self._ended = True
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(wait)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._close()
        code = self._process.returncode
        return f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"

    def _asked_where(self) -> str:
        """The stacks of the process, which hangs. Empty if it does not say."""
        self._process.send_signal(WHERE)
        said, until = b"", time.monotonic() + _LOOKING
        while (left := until - time.monotonic()) > 0 and readable(self._where, left):
            said += os.read(self._where, 1 << 16)
            if said.endswith(_LAST):
                break
            until = min(until, time.monotonic() + _LOOKING / 10)
        return said.decode(errors="replace")

    def _close(self) -> None:
        self._calls.close()
        for one in (self._lifeline, self._where):
            os.close(one)
