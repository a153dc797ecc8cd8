"""What is delivered to handlers, and how much at a time.

Owns the settings of delivery and the batch. A batch is in the hub's form until somebody looks at its events or at its
table, so that a handler pays for neither the one nor the other unless it asks; pyarrow is needed only by hubs that are
read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from leasehold.backoff import Backoff
from leasehold.config import check_number, check_seconds, default_where_none
from leasehold.errors import ConfigError
from leasehold.hubs.chunks import EventChunk
from leasehold.model import EARLIEST, Event
from leasehold.printable import span
from leasehold.processors.events.checkpointer import CheckpointPolicy
from leasehold.processors.events.positions import Start
from leasehold.waiting import INSTANCE

if TYPE_CHECKING:
    import pyarrow as pa

AHEAD_BYTES = 1 << 20
"""While events of this many bytes wait in a partition, no more are fetched if they are more than two batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings:
    """How events come to handlers. Durations in seconds.

    max_batch           most events in a batch
    max_wait            how long a batch waits to be full once it has its first event
    prefetch            most events of a partition that are fetched ahead of its handler. Beyond three batches, no more
                        than 1 MiB of them are
    poll_interval       between two looks at the hub for new events, for all partitions together
    attempts            a partition is given up after this many failures of its handler in a row
    restart_backoff     the pause after the first failure; it doubles with each
    longest_backoff     the longest pause
    fail_on_data_loss   fail when events were removed before they were read; else go on with what is left, with a
                        notice; the checkpoint passes the gap as soon as all before it is done with, and where a table
                        is filled with the next events, until which each start tells of it again
    start               where a group begins that has no checkpoint yet: a position, a mapping by partition, or a
                        function from a partition to a position
    checkpoint          the policy: `every(events=…, seconds=…)`, once a second by default where there are handlers;
                        `EACH_BATCH`, `ON_STOP`, or `MANUAL`, which it always is without handlers
    available_now       end when all that was in the hub at the start has been consumed, by any instance, as the
                        checkpoints tell: they are written once a second at least, but with `MANUAL`. Events that are
                        gone, what a person has to mend, and a handler that has failed `attempts` times in a row end the
                        processor: `run` and `wait` raise the error
    patience            how long making a processor waits for a hub that is given as a URL and is away, which is said
                        once, in the log and as a notice. Stores that are away are waited for as long as it runs
    """

    max_batch: int = 100
    max_wait: float = 0.0
    prefetch: int = 3_000
    poll_interval: float = 0.1
    attempts: int = 5
    restart_backoff: float = 0.5
    longest_backoff: float = 30.0
    fail_on_data_loss: bool = True
    start: Start = EARLIEST
    checkpoint: CheckpointPolicy | None = None
    available_now: bool = False
    patience: float = INSTANCE

    def __post_init__(self) -> None:
        default_where_none(self)
        for name in ("max_batch", "prefetch", "attempts"):
            check_number(name, getattr(self, name), least=1)
        for name in ("poll_interval", "restart_backoff", "longest_backoff"):
            check_seconds(name, getattr(self, name))
        check_seconds("max_wait", self.max_wait, or_zero=True)
        if self.prefetch < self.max_batch:
            raise ConfigError(
                "prefetch",
                self.prefetch,
                f"no less than max_batch ({self.max_batch}), or a batch is never full",
                f"Set it to {3 * self.max_batch}, or lower max_batch",
            )
        if self.longest_backoff < self.restart_backoff:
            raise ConfigError(
                "longest_backoff",
                self.longest_backoff,
                f"no shorter than restart_backoff ({span(self.restart_backoff)})",
                "30 s is the default",
            )

    @property
    def pauses(self) -> Backoff:
        """The pauses after failures in a row: rule 1 of `restarts`."""
        return Backoff(self.restart_backoff, self.longest_backoff)

    def chunk(self, event_bytes: float | None) -> int:
        """How many events are fetched at a time, where one has about this many bytes; None where nobody knows yet.

        One batch; or 2, 4, 8, … of them, up to a third of `prefetch` and of 1 MiB, since each fetch has its price. Few
        enough that the handler's batch and the next one overlap.
        """
        rows, most = self.max_batch, self.prefetch // 3
        while event_bytes is not None and 2 * rows <= most and 2 * rows * event_bytes <= AHEAD_BYTES / 3:
            rows *= 2
        return max(1, min(rows, self.prefetch // 2))

    def has_room(self, rows: int, count: int, nbytes: int) -> bool:
        """Whether `rows` more may be fetched while `count` events of `nbytes` wait, and are enough for a batch."""
        return count + rows <= self.prefetch and (nbytes < AHEAD_BYTES or count <= 2 * self.max_batch)


class EventBatch(Sequence[Event]):
    """Events of one partition in order, read at `owner_level`; they number `first` to `last`. Empty after a time-out.

    What a fence needs goes with it: `hub`, `partition`, the sequence numbers and the owner level.
    """

    def __init__(self, hub: str, partition: str, owner_level: int, chunks: Sequence[EventChunk] = ()) -> None:
        self.hub = hub
        self.partition = partition
        self.owner_level = owner_level
        self._chunks = chunks
        self._count = sum(map(len, chunks))
        self._events: list[Event] | None = None

    @property
    def first(self) -> int:
        """The sequence number of the first event."""
        return self._chunk(0).first

    @property
    def last(self) -> int:
        """The sequence number of the last event."""
        return self._chunk(-1).last

    @property
    def last_offset(self) -> str | None:
        """The hub's offset of the last event, where it has one."""
        return self._chunk(-1).last_offset

    @property
    def last_enqueued(self) -> float:
        """When the hub received the last event, in seconds since 1970; 0 where it does not say."""
        return self._chunk(-1).last_enqueued

    def arrow(self) -> pa.Table:
        """The events as an Arrow table: the columns of every hub, and `ownerLevel`, as a sink wants them."""
        if not self._chunks:
            raise ValueError("an empty batch has no table")
        from leasehold.hubs.arrow_events import table_of

        return table_of([chunk.arrow() for chunk in self._chunks], self.owner_level)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Event]:
        return iter(self._all())

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | Sequence[Event]:
        return self._all()[index]

    def __repr__(self) -> str:
        held = f"[{self.first}, {self.last}]" if self else "nothing"
        return f"<EventBatch: {held} of partition {self.partition} at owner level {self.owner_level}>"

    def _all(self) -> list[Event]:
        if self._events is None:
            self._events = [event for chunk in self._chunks for event in chunk.events()]
        return self._events

    def _chunk(self, index: int) -> EventChunk:
        if not self._chunks:
            raise ValueError("an empty batch has no first and last event")
        return self._chunks[index]
