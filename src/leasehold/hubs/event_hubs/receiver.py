"""One receiver of the official client, read from as a stream.

Owns the thread in which azure-eventhub receives and the short queue between it and the reader: when the reader
is slow, the client stops granting credit and nothing piles up. A fault ends a receiver, and whoever reads opens
the next one where this one ended: the client's own retries (5.15, with `retry_total` above 0) try a refused link
again for ever, without a pause and without telling. One thread reads from a receiver at a time.

The client is used one step below its public surface, whose `receive_batch` opens a second connection, keeps a second
thread and makes two objects of each event: more than half of the CPU. What is used is
`EventHubConsumerClient._create_consumer`, and of the consumer `_open_with_retry`, `handler_ready`, `receive`, `close`,
`_keep_alive`, `_handler.do_work`, `_incoming_transfer` of its `_link`, which is given each frame of a message
(`decoding` says why), and the socket of its connection's transport, which is read in larger pieces (`read_ahead`). So
this works with the releases of azure-eventhub that it was tried with: 5.15.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from azure.eventhub import EventHubConsumerClient
from azure.eventhub._pyamqp._transport import SSLTransport

from leasehold.errors import HubUnavailable
from leasehold.hubs.event_hubs.decoding import decode
from leasehold.hubs.event_hubs.events import Message, number_of
from leasehold.hubs.event_hubs.read_ahead import ReadAhead
from leasehold.hubs.event_hubs.url import EventHubAddress, without_secrets
from leasehold.printable import span

_BATCHES, _BATCH_EVENTS = 2, 300
_GLANCE = 0.2
_PARTING = 5.0
_SKIPPED = 2_000
_FROM_THE_BEGINNING = "-1"
_STOLEN = "link:stolen"
_FINAL = ("not-found", "unauthorized-access", "not-allowed", _STOLEN)
"""Conditions, as the client names them, under which the next receiver would fare no better."""
_HINT = " (whoever reads without an owner level needs a consumer group of its own while others read {} with one)"


class _Closed(BaseException):
    """Ends what the client does with the next event, through all that it catches."""


class Receiver:
    """Receives a partition from a sequence number, a time or an offset (all inclusive) on, until it is closed.

    The sequence number may be that of the next event to come, for which it then waits.
    `most` events are asked for at a time, and as many ahead.
    """

    def __init__(
        self,
        address: EventHubAddress,
        partition: str,
        start: int | datetime | str,
        owner_level: int | None = None,
        *,
        most: int = _BATCH_EVENTS,
    ) -> None:
        self._address, self._partition = address, partition
        self.owner_level = owner_level
        self.position = start if isinstance(start, int) else None
        """The sequence number that comes next; `None` until the first event after a start by time or offset."""
        self._most = most
        self._news: queue.Queue[list[Message] | BaseException] = queue.Queue(_BATCHES)
        self._left: list[Message] = []
        self._awaited: int | None = None
        self._closing = threading.Event()
        self._idle = threading.Lock()
        self._idle_until = math.inf
        self._opened = threading.Event()
        self._heard = False
        self._client = address.client(EventHubConsumerClient, consumer_group=address.consumer_group, retry_total=0)
        self.failed = False
        """Whether the client has given up. What came before can still be taken."""
        self.may_try_again = False
        """Whether it failed by a fault that may be gone already."""
        self.disconnected = False
        """Whether it failed because of another reader's owner level: one not lower, or any where it has none itself."""
        self._thread = threading.Thread(target=self._receive, args=(start,), daemon=True, name=f"receive-{partition}")
        self._thread.start()

    def take(self, end: int | None, most: int, patience: float) -> list[Message]:
        """The next events below `end`, at least one and at most `most`; none if the next is beyond `end`.

        Raises `HubUnavailable` when the client has given up, or nothing has come for `patience` seconds.
        """
        self._awaited = end
        if not self._left:
            self._left = self._next(patience)
        count = min(most, len(self._left))
        if end is not None and number_of(self._left[count - 1]) >= end:
            count = bisect_left(self._left, end, hi=count, key=number_of)
        taken, self._left = self._left[:count], self._left[count:]
        if taken:
            self.position = number_of(taken[-1]) + 1
        return taken

    def wait_attached(self, timeout: float) -> bool:
        """Wait until the service has let it in or it has failed. Returns whether it was let in, and has not failed."""
        return self._opened.wait(timeout) and not self.failed

    def goes_on_at(self, start: int) -> bool:
        """Whether the events from `start` on come from it, or after so few others that a new one would take longer.

        If so, that is where it goes on.
        """
        if self.position is None or self.closed or self.failed or not 0 <= start - self.position <= _SKIPPED:
            return False
        self.position = start
        self._left = self._left[bisect_left(self._left, start, key=number_of) :]
        return True

    def rest(self, seconds: float) -> None:
        """Stay open for the reader that comes back within `seconds`. Without a `resume` by then it closes."""
        with self._idle:
            self._idle_until = time.monotonic() + seconds

    def resume(self) -> bool:
        """A reader takes the receiver up again. Returns whether it is still open."""
        with self._idle:
            self._idle_until = math.inf
            return not self.closed

    def end(self) -> None:
        """Disconnect as soon as may be. Waits for nothing."""
        self._closing.set()

    def close(self) -> None:
        """Disconnect and end the thread, which is not waited for if it hangs. Closing twice is fine."""
        close_together([self])

    @property
    def disconnected_unheard(self) -> bool:
        """Whether it was disconnected, and no reader knows: no `take` has raised."""
        return self.disconnected and not self._heard

    @property
    def closed(self) -> bool:
        """Whether it was closed, has come to its end, or receives in the process that this one was forked from."""
        return self._closing.is_set() or not self._thread.is_alive()

    def _next(self, patience: float) -> list[Message]:
        until = time.monotonic() + patience
        while True:
            try:
                got = self._news.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise HubUnavailable(
                    f"{self._address.url} has sent no event of partition {self._partition} for {span(patience)}, "
                    "although there are more. Try again"
                ) from None
            if isinstance(got, BaseException):
                self._heard = True
                hint = _HINT.format(self._address.consumer_group) if self.disconnected else ""
                raise HubUnavailable(
                    f"{self._address.url} cannot be read (partition {self._partition}): {without_secrets(got)}{hint}"
                ) from got
            begin = 0 if self.position is None else bisect_left(got, self.position, key=number_of)
            if begin < len(got):
                return got[begin:] if begin else got

    def _receive(self, start: int | datetime | str) -> None:
        arrived: list[Message] = []
        consumer: Any = None

        def on_message(message: Message) -> None:
            if self._closing.is_set():  # while one follows another, the client would listen for hundreds
                raise _Closed
            arrived.append(message)
            # The client goes on listening for 0.2 s after the last one there is, or until it has all it asked for.
            if self._awaited is not None and number_of(message) + 1 >= self._awaited and self._offer(arrived[:], 0):
                arrived.clear()

        try:
            consumer = self._client._create_consumer(
                self._address.consumer_group,
                self._partition,
                _place_before(start),
                lambda event: None,
                event_position_inclusive=not isinstance(start, int),
                owner_level=self.owner_level,
                prefetch=self._most,
            )
            # Its thread for that would read beside this one every 30 s, and events could overtake each other.
            consumer._keep_alive = None
            consumer._open_with_retry()  # `receive` would take a connection that is refused for one that was closed
            while not consumer.handler_ready:  # it gives up after 50 ms, and a service may be far away
                if self._given_up():
                    raise _Closed
                consumer._open_with_retry()
            _hand_out(consumer._handler._link, on_message)  # it has given no credit yet
            _read_ahead(consumer._handler._connection._transport)
            self._opened.set()
            while not self._given_up():
                consumer.receive()
                while arrived and not self._given_up():
                    if self._offer(arrived[:], _GLANCE):
                        arrived.clear()
                    else:
                        consumer._handler.do_work(batch=0)  # reads nothing, and shows the service that we live
        except _Closed:
            pass
        except Exception as error:  # noqa: BLE001  whatever ends the thread is the reader's to know
            condition = _condition(error)
            self.may_try_again = condition not in _FINAL
            self.disconnected = condition == _STOLEN
            self.failed = True
            self._opened.set()
            while not (self._offer(error, _GLANCE) or self._given_up()):
                pass
        finally:
            for client in (consumer, self._client):
                with contextlib.suppress(Exception):  # it is gone either way
                    client.close()

    def _given_up(self) -> bool:
        with self._idle:
            if time.monotonic() >= self._idle_until:
                self._closing.set()
            return self._closing.is_set()

    def _offer(self, what: list[Message] | BaseException, patience: float) -> bool:
        """Hand over to the reader, waiting at most `patience` seconds for room. Returns whether there was."""
        try:
            self._news.put(what, timeout=patience) if patience else self._news.put_nowait(what)
        except queue.Full:
            return False
        return True


def _condition(error: Exception) -> str | None:
    """The condition that the service gave. Below the client's public surface errors come as it has them, in bytes."""
    named = getattr(error, "error", None)
    given = getattr(error, "condition", None)
    if named is None and isinstance(given, bytes):
        return bytes(given).decode("ascii", "replace").partition(":")[2]
    return None if named is None else str(named)


def _place_before(start: int | datetime | str) -> int | datetime | str:
    """What comes before a sequence number, so that the next one to come may be named: the service refuses its own."""
    if not isinstance(start, int):
        return start
    return start - 1 if start > 0 else _FROM_THE_BEGINNING


def close_together(receivers: Sequence[Receiver]) -> None:
    """Close all of them, in the time that one takes."""
    for receiver in receivers:
        receiver._closing.set()
    until = time.monotonic() + _PARTING
    for receiver in receivers:  # each looks at every event, and every 0.2 s, but for a connection that is being opened
        receiver._thread.join(max(0.0, until - time.monotonic()))


def _hand_out(link: Any, on_message: Callable[[Message], None]) -> None:
    """Give out each message of the link. The client's own way ends at one that it cannot decode, and keeps all tags."""
    parts: list[bytes] = []

    def incoming(frame: Sequence[Any]) -> None:
        more, payload = frame[5], frame[11]
        if more or parts:
            parts.append(bytes(payload))
        if more:
            return
        link.current_link_credit -= 1
        link.delivery_count += 1
        message = decode(b"".join(parts) if parts else payload)
        parts.clear()
        on_message(message)

    link._incoming_transfer = incoming


def _read_ahead(transport: Any) -> None:
    """Read what the client receives in large pieces. Web sockets come in whole messages anyway."""
    over_tcp = isinstance(transport, SSLTransport)  # whatever its name says, without TLS too
    if over_tcp and transport.sock is not None:  # it is closed again, maybe
        transport.sock = ReadAhead(transport.sock)
