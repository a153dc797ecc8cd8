"""The program of a process that calls a handler for another one: `processes` starts it.

It takes a call, calls, and answers, one at a time, until its caller closes the connection. It lives in a session of its
own, so that what a person types reaches its caller alone, and goes on when it is asked to end: its caller ends it, by a
signal that nothing ignores. When the caller is gone, whatever this process is doing, the kernel ends it (Linux), or it
ends after the call at hand. Where a call takes too long, the caller asks first where it is: `WHERE`.
"""

from __future__ import annotations

import faulthandler
import fcntl
import importlib
import os
import pickle
import signal
import socket
import struct
import sys
from functools import partial
from typing import Any

from leasehold.handlers.calling.answering import answered, elsewhere
from leasehold.handlers.calling.crossing import answer_of, failure_of, read_call
from leasehold.handlers.contract import EntityHandler, Reject
from leasehold.printable import drop_unread_output
from leasehold.signal_handlers import handle
from leasehold.waiting import readable

WHERE = signal.SIGUSR2
"""Asks the process to write all its threads' stacks; no code of the handler's is in the way of that."""
BY_NAME, BY_VALUE = b"n", b"v"
BEGUN = b"begun"
"""Comes before each answer, before the handler is called: from then on the process's end is the handler's failure."""
_LENGTH = struct.Struct(">I")


def main(calls: int, lifeline: int, where: int) -> None:
    """Answer calls at the socket `calls`. `lifeline` closes when the caller is gone, `where` takes stacks."""
    for one in (signal.SIGINT, signal.SIGTERM):
        handle(one, _go_on)
    os.register_at_fork(after_in_child=partial(faulthandler.unregister, WHERE))
    faulthandler.register(WHERE, file=where, all_threads=True, chain=False)
    _end_with(lifeline)
    with socket.socket(fileno=calls) as caller:
        handler = _handler(receive(caller))
        send(caller, b"ready")
        try:
            while True:
                call = receive(caller)
                send(caller, BEGUN)
                send(caller, _answer(handler, call))
        except EOFError:
            return
        finally:
            drop_unread_output()


def send(to: socket.socket, data: bytes) -> None:
    """Send a message."""
    to.sendall(_LENGTH.pack(len(data)) + data)


def receive(source: socket.socket) -> bytes:
    """The next message. Raises `EOFError` where the other side has closed, and `TimeoutError`."""
    (length,) = _LENGTH.unpack(_exactly(source, _LENGTH.size))
    return _exactly(source, length)


def _exactly(source: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = source.recv(min(count - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def _handler(named: bytes) -> EntityHandler:
    """By its name, or as our own caller has pickled it. Ends the process where it cannot be found."""
    if named[:1] == BY_VALUE:
        found: Any = pickle.loads(named[1:])  # noqa: S301 - of the process that has started this one
    else:
        module, _, name = named[1:].decode().partition(":")
        found = getattr(importlib.import_module(module), name)
    assert isinstance(found, EntityHandler)
    return found


def _answer(handler: EntityHandler, call: bytes) -> bytes:
    try:
        return answer_of(answered(handler, *read_call(call)))
    except Reject as rejection:
        return failure_of(rejection)
    except Exception as error:  # noqa: BLE001  whatever a handler raises, the caller is told
        return failure_of(elsewhere(error))


def _end_with(lifeline: int) -> None:
    if hasattr(os, "O_ASYNC"):
        signal.signal(signal.SIGIO, signal.SIG_DFL)  # which ends the process
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if readable(lifeline, 0.0):  # it was gone before
        sys.exit()


def _go_on(*arguments: object) -> None:
    """In place of ignoring a signal, which programs that the handler starts would inherit."""
