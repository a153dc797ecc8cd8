"""Fetching a partition's events ahead of its handler, up to a bound.

Owns the buffer between hub and handler. Promises that never more than `prefetch` events are in it, fewer where they
are large (`DeliverySettings.has_room`), that they come in order and once each from the position it was made for, and
that events which are gone from the hub are noticed: they fail the partition, or are told of in a notice, and in `gap`
until something follows. A partition that ends before the position fails too. A hub that is away is tried again, after
a pause that grows; one that gives the partition to another reader as its owner is not: `lost` is told, and the fetching
ends. `read` stands in for the hub's own, and `ended` is told when no more is read. How long each chunk took is told in
a notice, without the time for which there was no room for it.

The first chunk is one batch, so that the handler begins soon. Later ones are larger where events are small.

Concurrency: one thread per partition fetches, and waits under no lock for the hub; whoever takes does so under
`changed`, a condition shared with the partition's client. If that thread stops for a minute, the handler finds the
buffer empty for as long; if it goes on after the partition was lost, what it fetches is never taken. Closing does not
wait for a read that is under way, which can do no harm.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator

from leasehold.errors import DataLoss, EndWentBack, HubUnavailable, NotTheOwner
from leasehold.hubs.chunks import EventChunk, ReadChunks
from leasehold.model import PartitionProperties
from leasehold.notices import EventsLost, EventsReceived
from leasehold.processors.events.shared import SharedByPartitions

logger = logging.getLogger(__name__)


class Prefetch:
    """The events of `partition` from `position` on, as far as they have been fetched and not taken."""

    def __init__(
        self,
        partition: str,
        position: int,
        shared: SharedByPartitions,
        changed: threading.Condition,
        *,
        read: ReadChunks,
        lost: Callable[[NotTheOwner], None] = lambda error: None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self.error: Exception | None = None
        """What ended the fetching; what was fetched before can still be taken."""
        self.count = 0
        """How many events are here to be taken."""
        self.gap: tuple[int, int] | None = None
        """Events `[start, end)` that are gone, with nothing fetched behind them yet; None where nothing is missing."""
        self._hub = shared.hub
        self._partition = partition
        self._position = position
        self._settings = shared.delivery
        self._changed = changed
        self._watch = shared.watch
        self._notices = shared.manager.notices
        self._clock = shared.clock
        self._report = shared.report
        self._read = read
        self._lost = lost
        self._ended = ended
        self._chunks: deque[EventChunk] = deque()
        self._begun = 0
        """How many events of the first chunk have been taken."""
        self._sizes: deque[int] = deque()
        self._bytes = 0
        self._rows = shared.delivery.chunk(None)
        """How many events are fetched at a time, as far as there is room."""
        self._asked = 0
        """How many events somebody waits for who wants a full batch."""
        self._closed = threading.Event()
        # A daemon, since the hub may hang in it: it only reads, and has nothing to bring to an end.
        self._thread = threading.Thread(target=self._run, name=f"leasehold-fetch-{partition}", daemon=True)

    def start(self) -> None:
        """Begin to fetch."""
        self._thread.start()

    def close(self) -> None:
        """Fetch no more, and forget what was fetched. Waits for nothing."""
        self._closed.set()
        self._watch.wake()
        with self._changed:
            self._chunks.clear()
            self._sizes.clear()
            self.count = self._bytes = self._begun = 0
            self._changed.notify_all()

    @property
    def running(self) -> bool:
        """Whether its thread has not ended yet."""
        return self._thread.is_alive()

    def join(self, timeout: float) -> None:
        """Wait for the thread of what was closed, for at most `timeout` seconds."""
        self._thread.join(timeout)

    def is_ready(self, most: int) -> bool:
        """Whether there are this many events, at most `prefetch`. If not, they are fetched: the caller waits for them.

        Call it under `changed`.
        """
        if self.count < most and self._asked != most:
            self._asked = most
            self._changed.notify_all()
        return self.count >= most

    def take(self, most: int) -> list[EventChunk]:
        """The next events, at most this many. Call it under `changed`."""
        taken: list[EventChunk] = []
        left = min(most, self.count)
        self.count -= left
        while left:
            chunk, start = self._chunks[0], self._begun
            stop = min(len(chunk), start + left)
            if stop < len(chunk):
                self._begun = stop
            else:
                self._chunks.popleft()
                self._bytes -= self._sizes.popleft()
                self._begun = 0
            taken.append(chunk if stop - start == len(chunk) else chunk.part(start, stop))
            left -= stop - start
        self._asked = 0
        if self._room():  # the fetching thread waits for that alone
            self._changed.notify_all()
        return taken

    def _run(self) -> None:
        try:
            self._fetch_on()
        finally:
            self._ended()

    def _fetch_on(self) -> None:
        failures = 0
        while (place := self._watch.wait_beyond(self._partition, self._position, self._closed.is_set)) is not None:
            before = self._position
            try:
                self._fetch(place)
                failures = 0
            except HubUnavailable as error:
                failures = 1 if self._position > before else failures + 1
                self._report(error, self._partition)
                self._closed.wait(self._settings.pauses.pause(failures))
            except NotTheOwner as error:
                if not self._closed.is_set():
                    self._lost(error)
                return
            except Exception as error:  # noqa: BLE001 - it is raised to whoever takes
                with self._changed:
                    self.error = error
                    self._changed.notify_all()
                return

    def _fetch(self, place: PartitionProperties) -> None:
        """Fetch up to the end as it is known, as room is made."""
        if place.end < self._position:  # or the look began before another instance read on, and the claim came after it
            place = self._hub.partition_properties([self._partition])[self._partition]
            if place.end < self._position:
                raise EndWentBack(self._partition, self._position, place.end)
        if place.begin > self._position:
            self._lose(place.begin)
        rows = self._wait_for_room()
        if not rows:
            return
        chunks = self._read(self._partition, self._position, place.end, batch_rows=rows)
        try:
            while self._wait_for_room() == rows:
                chunk = self._next(chunks)
                if chunk is None:
                    if self._position < place.end:
                        self._skip(place.end)
                    return
                if chunk.first > self._position:
                    self._skip(chunk.first)
                self._position, nbytes = chunk.last + 1, chunk.nbytes
                with self._changed:
                    if self._closed.is_set():
                        return
                    self._chunks.append(chunk)
                    self._sizes.append(nbytes)
                    self._bytes += nbytes
                    self.count += len(chunk)
                    self._rows = self._settings.chunk(nbytes / len(chunk))
                    self.gap = None
                    self._changed.notify_all()
        finally:
            del chunks  # an error that is kept keeps this frame, with which the read would stay open

    def _next(self, chunks: Iterator[EventChunk]) -> EventChunk | None:
        """The next chunk of a read, told with how long it took; None at its end."""
        started, chunk, error_type = self._clock.monotonic(), None, ""
        try:
            chunk = next(chunks, None)
        except BaseException as error:
            error_type = type(error).__name__
            raise
        finally:
            if (chunk is not None or error_type) and not self._closed.is_set():
                seconds = self._clock.monotonic() - started
                self._notices.publish(
                    EventsReceived(self._partition, 0 if chunk is None else len(chunk), seconds, error_type)
                )
        return chunk

    def _wait_for_room(self) -> int:
        """Wait until there is room for more events. Returns for how many at a time; 0 when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed.is_set() or self._room())
            return 0 if self._closed.is_set() else self._room()

    def _room(self) -> int:
        """How many events may be fetched at a time now, 0 for none."""
        if self.count < self._asked:
            return min(self._rows, self._settings.prefetch - self.count)
        return self._rows if self._settings.has_room(self._rows, self.count, self._bytes) else 0

    def _skip(self, to: int) -> None:
        """Go on at `to`: what lies before was removed, if the partition begins later now; else it never was."""
        begin = self._hub.partition_properties([self._partition])[self._partition].begin
        if begin > self._position:
            self._lose(min(begin, to))
        self._position = to

    def _lose(self, to: int) -> None:
        if self._settings.fail_on_data_loss:
            remedy = "Set fail_on_data_loss=False to go on from the first event that is left."
            raise DataLoss(self._partition, self._position, to, remedy)
        logger.warning("partition %s: events [%d, %d) are gone from the hub", self._partition, self._position, to)
        self._notices.publish(EventsLost(self._partition, self._position, to))
        with self._changed:
            self.gap = (self.gap[0] if self.gap else self._position, to)
            self._position = to
            self._changed.notify_all()
