"""Batches of several keys on their way at once, over one link of the official producer.

Owns the quick way, for what the service accepts: a batch is sent before the one before it is answered, where they are
of different keys. Of one key no more than one batch is on its way, so that its events keep their order whatever is
refused. What is not accepted, for whatever reason, is given back: the sender sends it once more, alone, by the client's
own way, and what that raises is what the caller is told. So a connection that breaks may leave several batches stored
that are sent again, where one at a time leaves one.

The client is used one step below its public surface, whose `send_batch` waits for each answer: `_producers` of the
client; of a producer `_lock`, `_open_with_retry`, `_close_handler` and `_handler`, whose `do_work` and `_link` are
the rest; of a batch `_message`. So this works with the releases of azure-eventhub that it was tried with: 5.15.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from azure.eventhub._constants import ALL_PARTITIONS
from azure.eventhub._pyamqp.constants import SEND_DISPOSITION_ACCEPT

from leasehold.errors import SchemaMismatch
from leasehold.hubs.event_hubs.url import without_secrets

logger = logging.getLogger(__name__)

MOST = 32
"""Batches on their way at once."""
_MOST_BYTES = 1 << 20
"""Bytes on their way, from which on no further batch is sent before one is answered."""

Lane = Iterator[Any]
"""The batches of one key, in order, each made when it is asked for. May raise `SchemaMismatch`."""


@dataclass(slots=True, eq=False)
class Flight:
    """A batch on its way, and what follows it. `accepted` is None until it is answered, or cannot be any more."""

    batch: Any
    lane: Lane
    accepted: bool | None = None

    def answered(self, reason: object, state: Any) -> None:
        """The client says what became of the batch; there is no state where it was not delivered."""
        self.accepted = bool(state) and SEND_DISPOSITION_ACCEPT in state


def send_together(client: Any, lanes: deque[Lane]) -> tuple[list[Flight], SchemaMismatch | None]:
    """Send what is in the lanes, and take out of them what is done, until nothing is left or something fails.

    Nothing is on its way any more when it returns. What it returns: the batches that were not accepted, in the order in
    which they were sent, and what a lane has raised, behind which nothing further was sent. Raises what the client
    raises while it connects.
    """
    producer = client._producers[ALL_PARTITIONS]
    flying: list[Flight] = []
    with producer._lock:
        producer._open_with_retry()
        try:
            refusal = _fly(producer._handler, lanes, flying)
        except BaseException as error:
            producer._close_handler()  # else what is left in it would be sent again, beside what we send again
            if not isinstance(error, Exception):
                raise
            logger.info("sending several batches at once has failed: %s", without_secrets(error))
            refusal = None
        return flying, refusal


def _fly(handler: Any, lanes: deque[Lane], flying: list[Flight]) -> SchemaMismatch | None:
    """As `send_together`, on an open link. What is in `flying` at the end, however it comes, was not accepted."""
    link = handler._link
    refusal: SchemaMismatch | None = None
    running = True
    while running:
        ends = refusal is not None or any(flight.accepted is False for flight in flying)
        while lanes and not ends and _has_room(link, flying):
            try:
                batch = next(lanes[0], None)
            except SchemaMismatch as error:
                refusal, ends = error, True
                continue
            lane = lanes.popleft()
            if batch is not None:
                flying.append(Flight(batch, lane))
                link.send_transfer(batch._message, on_send_complete=flying[-1].answered)
        if all(flight.accepted is False for flight in flying):
            break
        running = handler.do_work()
        for flight in [flight for flight in flying if flight.accepted]:
            flying.remove(flight)
            lanes.appendleft(flight.lane)
    return refusal


def _has_room(link: Any, flying: list[Flight]) -> bool:
    """Whether one more batch may be on its way. Without credit the client would give itself some."""
    if not flying:
        return True
    size = sum(flight.batch.size_in_bytes for flight in flying)
    return len(flying) < MOST and size < _MOST_BYTES and link.current_link_credit > 1
