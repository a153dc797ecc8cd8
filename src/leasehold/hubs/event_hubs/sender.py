"""Sending through the official producer, in batches up to the size that the service takes.

Owns which batch an event goes into. Events of one partition or key keep their order; a batch is one partition
or one key, and those of several keys are on their way at once (`together`). Which partition a key goes to the service
alone decides. Promises that what `send` counts has been acknowledged, and that nothing is on its way when it returns or
raises. A send that the service throttles is tried again here, since the official client (5.15) does not; what the
service refuses because of its content is a `SchemaMismatch`; after any other fault it may have been stored or not.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from azure.eventhub import EventData, EventHubProducerClient
from azure.eventhub.exceptions import EventDataSendError

from leasehold.backoff import Backoff
from leasehold.errors import SchemaMismatch
from leasehold.hubs.event_hubs.events import to_send
from leasehold.hubs.event_hubs.together import Lane, send_together
from leasehold.hubs.event_hubs.url import EventHubAddress, without_secrets
from leasehold.hubs.trace_context import sent_in_span
from leasehold.model import Event

_AT_ONCE = 10_000
_TRIES = 6
_PAUSES = Backoff(0.2, 3.2)
_BUSY = "server-busy"
_CONTENT = frozenset(
    {
        *("argument-error", "argument-out-of-range", "decode-error", "invalid-field", "link:message-size-exceeded"),
        *("not-allowed", "not-implemented", "precondition-failed"),
    }
)
"""Conditions by which the service refuses what was sent for what it is, as the client names them: no waiting mends it.

Of several events in a batch each may pass alone.
"""

_Place = tuple[str, str]
"""A keyword of the client's `create_batch`, and its value."""


class EventHubSender:
    """One producer client, used by one thread at a time."""

    def __init__(self, address: EventHubAddress) -> None:
        self._client: Any = address.client(EventHubProducerClient)
        self._lock = threading.Lock()
        self._turn = random.randrange(1 << 16)

    def send(self, events: Iterable[Event], partition: str | None, partitions: Sequence[str]) -> int:
        """Send events to a partition, or where their keys say among `partitions`; return how many."""
        count = 0
        source = iter(sent_in_span(events))
        with self._lock:
            while some := list(islice(source, _AT_ONCE)):
                self._send_placed(self._placed(some, partition, partitions))
                count += len(some)
        return count

    def close(self) -> None:
        """Disconnect."""
        with self._lock:
            self._client.close()

    def _placed(
        self, events: Sequence[Event], partition: str | None, ids: Sequence[str]
    ) -> dict[_Place, list[EventData]]:
        """Events by where they go: a partition or a key."""
        placed: dict[_Place, list[EventData]] = {}
        for event in events:
            if partition is None and event.partition_key:
                place = "partition_key", event.partition_key
            elif partition is not None:
                place = "partition_id", partition
            elif event.partition_key == "":
                place = "partition_id", ids[0]
            else:
                place = "partition_id", ids[self._turn % len(ids)]
                self._turn += 1
            placed.setdefault(place, []).append(to_send(event, carry_key=place[0] == "partition_id"))
        return placed

    def _send_placed(self, placed: dict[_Place, list[EventData]]) -> None:
        keyed: deque[Lane] = deque()
        for place, events in placed.items():
            batches = self._batches(place, events)
            if place[0] == "partition_key":
                keyed.append(batches)
            else:
                for batch in batches:
                    self._send_batch(batch)
        refusal: SchemaMismatch | None = None
        while keyed and refusal is None:
            left, refusal = send_together(self._client, keyed)
            for flight in left:
                self._send_batch(flight.batch)
                keyed.append(flight.lane)
        if refusal is not None:
            raise refusal

    def _batches(self, place: _Place, events: Sequence[EventData]) -> Iterator[Any]:
        """The batches of one place, each made when it is asked for."""
        how = dict([place])
        batch = self._client.create_batch(**how)
        for event in events:
            if not _fits(batch, event):
                if len(batch):
                    yield batch
                    batch = self._client.create_batch(**how)
                    if _fits(batch, event):
                        continue
                size = batch.max_size_in_bytes
                raise SchemaMismatch(f"an event is larger than the {size:,} bytes that the hub takes")
        yield batch

    def _send_batch(self, batch: Any) -> None:
        for tried in range(1, _TRIES + 1):
            try:
                self._client.send_batch(batch)
            except EventDataSendError as error:
                if error.error in _CONTENT:
                    what = "an event" if len(batch) == 1 else f"a batch of {len(batch):,} events"
                    raise SchemaMismatch(f"Event Hubs refuses {what}: {without_secrets(error)}") from error
                if tried == _TRIES or error.error != _BUSY:
                    raise
                time.sleep(_PAUSES.pause(tried))
            else:
                return


def _fits(batch: Any, event: EventData) -> bool:
    """Put an event into a batch, if it has room for it."""
    try:
        batch.add(event)
    except ValueError:
        return False
    return True
