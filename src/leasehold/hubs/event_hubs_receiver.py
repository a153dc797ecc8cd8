"""One receiver of the official client, read from as a stream.

Owns the thread in which azure-eventhub receives and the short queue between it and the reader: when the reader
is slow, the client stops granting credit and nothing piles up. A fault ends a receiver, and whoever reads opens
the next one where this one ended: the client's own retries (5.15, with `retry_total` above 0) try a refused link
again for ever, without a pause and without telling. One thread reads from a receiver at a time.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from datetime import datetime
from typing import Any

from azure.eventhub import EventData, EventHubConsumerClient

from leasehold.errors import HubUnavailable
from leasehold.hubs.event_hubs_url import Address, without_secrets

_BATCHES, _BATCH_EVENTS = 2, 300
_GLANCE = 0.2
_STOLEN = "link:stolen"
_FINAL = ("not-found", "unauthorized-access", "not-allowed", _STOLEN)
"""Conditions, as the client names them, under which the next receiver would fare no better."""
_HINT = " (whoever reads without an owner level needs a consumer group of its own while others read {} with one)"


class Receiver:
    """Receives a partition from a sequence number (inclusive) or a time on, until it is closed.

    `most` events are asked for at a time, and as many ahead.
    """

    def __init__(
        self,
        address: Address,
        partition: str,
        start: int | datetime,
        owner_level: int | None = None,
        *,
        most: int = _BATCH_EVENTS,
    ) -> None:
        self._address, self._partition = address, partition
        self.owner_level = owner_level
        self.position = start if isinstance(start, int) else None
        """The sequence number that comes next; `None` until the first event after a start by time."""
        self._most = most
        self._news: queue.Queue[list[EventData] | BaseException] = queue.Queue(_BATCHES)
        self._left: deque[EventData] = deque()
        self._closing = threading.Event()
        self._client = address.client(EventHubConsumerClient, consumer_group=address.consumer_group, retry_total=0)
        self.failed = False
        """Whether the client has given up. What came before can still be taken."""
        self.may_try_again = False
        """Whether it failed by a fault that may be gone already."""
        self.disconnected = False
        """Whether it failed because of another reader's owner level: one not lower, or any where it has none itself."""
        where = {"starting_position": start, "starting_position_inclusive": True, "owner_level": owner_level}
        self._thread = threading.Thread(target=self._receive, args=(where,), daemon=True, name=f"receive-{partition}")
        self._thread.start()

    def take(self, end: int | None, most: int, patience: float) -> list[EventData]:
        """The next events below `end`, at least one and at most `most`; none if the next is beyond `end`.

        Raises `HubUnavailable` when the client has given up, or nothing has come for `patience` seconds.
        """
        if not self._left:
            self._left.extend(self._next(patience))
        taken: list[EventData] = []
        while self._left and len(taken) < most:
            number = self._left[0].sequence_number
            assert number is not None
            if end is not None and number >= end:
                break
            taken.append(self._left.popleft())
            self.position = number + 1
        return taken

    def close(self) -> None:
        """Disconnect and end the thread. Closing twice is fine."""
        self._closing.set()
        while self._thread.is_alive():
            with contextlib.suppress(Exception):  # it is gone either way
                self._client.close()  # again, if the thread had not begun to receive the first time
            self._thread.join(1.0)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closing.is_set()

    def _next(self, patience: float) -> list[EventData]:
        until = time.monotonic() + patience
        while True:
            try:
                got = self._news.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise HubUnavailable(
                    f"{self._address.url} has sent no event of partition {self._partition} for {patience:g} s, "
                    "although there are more. Try again"
                ) from None
            if isinstance(got, BaseException):
                condition = getattr(got, "error", None)
                self.may_try_again = condition not in _FINAL
                self.disconnected = condition == _STOLEN
                hint = _HINT.format(self._address.consumer_group) if self.disconnected else ""
                raise HubUnavailable(
                    f"{self._address.url} cannot be read (partition {self._partition}): {without_secrets(got)}{hint}"
                ) from got
            fresh = [one for one in got if self.position is None or (one.sequence_number or 0) >= self.position]
            if fresh:
                return fresh

    def _receive(self, where: dict[str, Any]) -> None:
        try:
            self._client.receive_batch(
                lambda context, events: self._hand_over(list(events)) if events else None,
                partition_id=self._partition,
                max_batch_size=self._most,
                prefetch=self._most,
                on_error=lambda context, error: self._hand_over(error),
                **where,
            )
        except Exception as error:  # noqa: BLE001  whatever ends the thread is the reader's to know
            self._hand_over(error)

    def _hand_over(self, what: list[EventData] | BaseException) -> None:
        self.failed = self.failed or isinstance(what, BaseException)
        while not self._closing.is_set():
            with contextlib.suppress(queue.Full):
                self._news.put(what, timeout=_GLANCE)
                return
