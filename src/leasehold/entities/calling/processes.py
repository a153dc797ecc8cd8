"""Processes that call a handler, so that a call which hangs can be ended.

Owns their lives. A call takes one that is idle, or starts one, so there are as many as there have been calls at
the same time; each answers one call at a time, by `program`. A process whose call takes too long is killed with all
that it has started, and so is one whose answer nobody waits for. Calls of any threads at once.

When this process stops for a minute in a call, the answer is there when it goes on, and counts. When it is killed, the
kernel ends its processes (Linux). A child that this process forks begins with none.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from leasehold.entities.answers import Effects
from leasehold.entities.calling.crossing import call_of, read_answer
from leasehold.entities.calling.program import BEGUN, BY_NAME, WHERE, receive, send
from leasehold.entities.calling.raised import died, timed_out
from leasehold.entities.handlers import EntityEvent, EntityHandler
from leasehold.errors import ConfigError, HandlerUnavailable

STARTING = 60.0
"""Seconds for a process to start, and to import the handler."""
_LOOKING = 1.0  # seconds that a process which hangs has for saying where
_PROGRAM = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from leasehold.entities.calling.program import main; main(*map(int, sys.argv[2:]))"
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

    def __init__(self, name: str, handler: bytes, timeout: float) -> None:
        self._name, self._handler, self._timeout = name, handler, timeout
        self._lock = threading.Lock()
        self._idle: list[_Process] = []
        self._owner = os.getpid()

    def __call__(self, state: Mapping[str, Any] | None, event: EntityEvent) -> Effects:
        """What the handler answers, a state as a dict.

        Raises `Reject`; `RaisedElsewhere` for all else that it raises, for a call that was ended, and for a process
        that ended in it; `HandlerUnavailable` where no process starts.
        """
        said, answer = call_of(state, event), None
        while answer is None:  # one that was idle may have ended before the call
            process = self._taken() or _Process(self._name, self._handler)
            try:
                answer = process.call(said, self._timeout)
            except BaseException:
                process.end()
                raise
        self._give_back(process)
        return read_answer(answer)

    def close(self) -> None:
        """End the processes that are idle. The next call starts one."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.end()

    def _taken(self) -> _Process | None:
        with self._lock:
            if self._owner != os.getpid():  # forked: they are our parent's
                self._owner, self._idle = os.getpid(), []
            return self._idle.pop() if self._idle else None

    def _give_back(self, process: _Process) -> None:
        with self._lock:
            self._idle.append(process)


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

    def call(self, said: bytes, timeout: float) -> bytes | None:
        """Send a call and wait for the answer; None if the process has ended before it began to call.

        Raises `RaisedElsewhere`. Then, as after None, the process is of no use any more.
        """
        self._calls.settimeout(timeout)
        begun = False
        try:
            send(self._calls, said)
            begun = receive(self._calls) == BEGUN
            return receive(self._calls)
        except TimeoutError:
            raise timed_out(timeout, self._asked_where()) from None
        except (EOFError, OSError):
            how = self.end(wait=_LOOKING)
            if begun:
                raise died(how) from None
            return None

    def end(self, wait: float = 0.0) -> str:
        """Kill the process and what it has started, which may end by itself for so many seconds. How it ended."""
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
        while (left := until - time.monotonic()) > 0 and select.select([self._where], [], [], left)[0]:
            said += os.read(self._where, 1 << 16)
            until = min(until, time.monotonic() + _LOOKING / 10)
        return said.decode(errors="replace")

    def _close(self) -> None:
        self._calls.close()
        for one in (self._lifeline, self._where):
            os.close(one)
