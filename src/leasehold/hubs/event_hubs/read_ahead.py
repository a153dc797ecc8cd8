"""A socket whose bytes are taken in large pieces, whoever asks for small ones.

For the official client of Event Hubs, which asks for the eight bytes of a frame's header and then for the rest. With a
time-out each is two calls of the system, and at each Python hands its one lock to another thread: several receivers of
one process spend more than half of their CPU on that, at less than half of the speed.

Owns the bytes that have come and were not asked for. Promises the socket's bytes in their order, and to wait on the
socket only when it has none itself, so that the socket's time-outs hold as before. Refuses other ways to read; all else
that is asked of it is the socket's to do. Whoever looks whether the socket can be read would miss what is here: the
client never does.

Concurrency: one thread reads at a time, as with the socket itself in the client's transport, under a lock.
"""

from __future__ import annotations

import socket
from typing import Any

_PIECE = 1 << 16
_OTHER_READS = ("recv", "recvfrom", "recvfrom_into", "recvmsg", "recvmsg_into", "read", "makefile", "pending", "detach")


class ReadAhead:
    """`raw`, read in pieces of up to 64 KiB."""

    def __init__(self, raw: socket.socket) -> None:
        self._raw = raw
        self._held = memoryview(bytearray(_PIECE))
        self._begin = self._end = 0

    def recv_into(self, buffer: memoryview) -> int:
        """As `socket.recv_into`."""
        if self._begin == self._end:
            self._begin = self._end = 0  # the socket may raise: a time-out leaves nothing here twice
            self._end = self._raw.recv_into(self._held)
        count = min(len(buffer), self._end - self._begin)
        buffer[:count] = self._held[self._begin : self._begin + count]
        self._begin += count
        return count

    def __getattr__(self, name: str) -> Any:
        if name in _OTHER_READS:  # they would pass by what is held here
            raise AttributeError(f"{name}: this socket is read by recv_into alone")
        return getattr(self._raw, name)
