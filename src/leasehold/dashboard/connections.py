"""What a connection to the dashboard may cost: bounds on how many there are, and on how long one keeps it waiting.

Owns three bounds, on top of uvicorn's own (which hangs up on a browser that is silent between two requests). There are
`MOST` connections at most: one more is hung up on. A request is complete `PATIENCE` seconds after its connection was
made or its first byte came. What is sent is taken within `PATIENCE`: whoever reads nothing, so that what is to be sent
piles up, is hung up on. A peer that has vanished without a word is noticed by the system, which asks it now and then
and gives up `VANISHED` seconds after what it was sent was not acknowledged (on Linux; elsewhere after the system's own
time). A browser that is hung up on comes again by itself.

All in the event loop's thread.
"""

from __future__ import annotations

import asyncio
import socket
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 256
PATIENCE = 20.0
VANISHED = 60


class BoundedHttp(H11Protocol):
    """HTTP as uvicorn speaks it, within these bounds."""

    most: ClassVar[int] = MOST
    patience: ClassVar[float] = PATIENCE
    _asked_by: asyncio.TimerHandle | None = None
    _taken_by: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody is there."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
            return
        _watch(transport.get_extra_info("socket"))
        self._expect()

    def data_received(self, data: bytes) -> None:
        """A piece of a request."""
        super().data_received(data)
        self._expect()

    def pause_writing(self) -> None:
        """What is to be sent piles up."""
        super().pause_writing()
        self._taken_by = self._taken_by or self.loop.call_later(self.patience, self.transport.abort)

    def resume_writing(self) -> None:
        """It is taken again."""
        super().resume_writing()
        _cancel(self._taken_by)
        self._taken_by = None

    def connection_lost(self, exc: Exception | None) -> None:
        """They are gone."""
        _cancel(self._asked_by)
        _cancel(self._taken_by)
        super().connection_lost(exc)

    def _expect(self) -> None:
        """Hang up in a while, unless a request is whole: from its first byte on, whatever comes in between."""
        if self._is_whole():
            _cancel(self._asked_by)
            self._asked_by = None
        elif self._asked_by is None:
            self._asked_by = self.loop.call_later(self.patience, self._hang_up)

    def _hang_up(self) -> None:
        self._asked_by = None
        if not self._is_whole():
            self.transport.abort()

    def _is_whole(self) -> bool:
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _watch(connected: socket.socket) -> None:
    """Let the system find out that a peer has vanished."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, seconds in (
        ("TCP_KEEPIDLE", VANISHED // 2),
        ("TCP_KEEPINTVL", VANISHED // 6),
        ("TCP_USER_TIMEOUT", VANISHED * 1_000),
    ):
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
