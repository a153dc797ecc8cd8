"""One partition that is held, and the work on it.

Owns what handlers and pullers share: receiving in order from the checkpoint on, the trust, the checkpoints, and the
ending. Promises that a batch is given only while the partition is trusted and nobody has asked for it; that a
checkpoint is written only at the owner level that the events were read at; and that the partition is given back when
its work has ended, never before.

Concurrency: one thread receives and ends; any thread may look at `trusted` and `stop_reason`, wake it, and record
checkpoints. Checkpoints of one partition follow one another: a lock of the partition's own is held during the write,
which only they wait for. The fetching thread fills the buffer. If the process stops for a minute
- while a handler runs: trust has run out when it goes on. `trusted` says so, its checkpoint is not written, and the
  partition may have been worked on by another since: what the handler writes then must be fenced by the owner level;
- between the look at the trust and the giving of a batch: the same, since the handler then begins without trust;
- in a checkpoint: the store refuses it if another has been there, and it is true if none has;
- between the checkpoint and letting go: the record expires, and the next owner starts at the checkpoint.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial

from leasehold.errors import LeaseholdError, NotTheOwner, StoreError, UsageError, Verdict, is_waited_out
from leasehold.hubs.chunks import as_chunks
from leasehold.model import Event
from leasehold.notices import Notice
from leasehold.ownership.holds import Hold
from leasehold.processors.events.cancelling import Cancellation, is_cancelled
from leasehold.processors.events.checkpointer import Checkpointer, ProcessedEvent
from leasehold.processors.events.delivery import EventBatch
from leasehold.processors.events.prefetch import Prefetch
from leasehold.processors.events.restarts import Restarts
from leasehold.processors.events.shared import SharedByPartitions
from leasehold.processors.events.stopping import StopReason, reason_to_stop
from leasehold.stores.checkpoint_data import check_data

logger = logging.getLogger(__name__)

GLANCE = 0.5
"""The longest time between two looks at the trust while nothing comes, in seconds. What changes it usually wakes."""


class PartitionWork:
    """The work on one partition at one owner level."""

    def __init__(self, hold: Hold, shared: SharedByPartitions) -> None:
        self.hub = shared.hub.identity
        self.partition = hold.record.partition
        self.owner_level = hold.owner_level
        self.start = hold.start
        self.data = hold.data
        self._shared = shared
        self._clock = shared.clock
        self._changed = threading.Condition()
        self._checkpointing = threading.Lock()
        self._account = Checkpointer(shared.policy, hold.start, shared.clock.monotonic())
        self._delivered = hold.start - 1
        self._shutdown = False
        self._reason: StopReason | None = None
        self._trusted_until = -math.inf
        self._changed_since = False
        self._recording = Restarts(shared.delivery.attempts, shared.delivery.pauses)
        self._trouble: LeaseholdError | None = None
        self._checkpoint_not_before = 0.0
        self._active = shared.clock.monotonic()
        self._closed = threading.Event()
        self._prefetch = self._fetching(hold.start)
        self.receiver = 0
        """The thread, by its ident, that was the last to take it, or to receive."""
        self.unrecordable: LeaseholdError | None = None
        """Why its checkpoints are not tried any more, if they are not: the partition is to be given up."""

    # What is asked

    @property
    def trusted(self) -> bool:
        """Whether nobody else can have acquired the partition, at this moment."""
        hold = self._hold()
        return hold is not None and hold.owner_level == self.owner_level

    @property
    def stop_reason(self) -> StopReason | None:
        """Why no more events are given out, None as long as they are. Once there is a reason it stays."""
        if self._reason is None:
            self._changed_since = False  # before the look: what changes during it is not to be missed
            hold = self._hold()
            self._reason = reason_to_stop(hold, self.owner_level, shutdown=self._shutdown)
            self._trusted_until = -math.inf if hold is None else hold.trusted_until
        return self._reason

    def goes_on(self) -> bool:
        """Whether the next event may be given out, for a look before each: the full one only if anything has changed.

        Trust that was seen holds until its time, unless it is taken away, which wakes.
        """
        if self._reason is None and not self._changed_since and self._clock.monotonic() < self._trusted_until:
            return True
        return self.stop_reason is None

    @property
    def now(self) -> float:
        """Seconds on the processor's monotonic clock."""
        return self._clock.monotonic()

    def tell(self, notice: Notice) -> None:
        """Publish a notice."""
        self._shared.manager.notices.publish(notice)

    @property
    def idle(self) -> float:
        """Seconds since the work was last heard of."""
        return self._clock.monotonic() - self._active

    @property
    def closed(self) -> bool:
        """Whether the work has ended, and the partition is given back as far as it was ours."""
        return self._closed.is_set()

    @property
    def reached(self) -> int:
        """The highest sequence number that was processed or recorded."""
        return max(self._account.processed.sequence_number, self._account.recorded.sequence_number)

    @property
    def prefetched(self) -> int:
        """The most events that are fetched ahead."""
        return self._shared.delivery.prefetch

    @property
    def fetching(self) -> bool:
        """Whether the fetching thread has not ended yet."""
        return self._prefetch.running

    # The way of the events

    def confirm(self) -> None:
        """Before anything is given out: raise `UsageError` where the table that is filled is not the group's."""
        self._shared.confirm()

    def begin(self) -> None:
        """Begin to fetch."""
        self._shared.hub.stay(self.partition)
        self._prefetch.start()

    def receive(
        self,
        timeout: float | None = None,
        *,
        most: int | None = None,
        max_wait: float | None = None,
        cancel: Cancellation | None = None,
    ) -> EventBatch | None:
        """The next events, at most this many; an empty batch after `timeout` seconds; None when no more are given out.

        `most` and `max_wait` stand in for the settings of delivery. Where events are gone and nothing follows them, the
        checkpoint moves past the gap as soon as all before it is done with, unless a table is filled.
        """
        self.touch()
        self.receiver = threading.get_ident()
        delivery = self._shared.delivery
        most = delivery.max_batch if most is None else most
        max_wait = delivery.max_wait if max_wait is None else max_wait
        until = None if timeout is None else self._clock.monotonic() + timeout
        full_by: float | None = None
        while True:
            with cancel.waking(self.wake) if cancel is not None else nullcontext(), self._changed:
                while (past := self._past_the_gap()) is None:
                    fetched, now = self._prefetch, self._clock.monotonic()
                    if self.stop_reason is not None:
                        return None
                    if is_cancelled(cancel):
                        return self._batch_of(0)
                    if fetched.count:
                        full_by = now + max_wait if full_by is None else full_by
                        if now >= full_by or fetched.is_ready(most) or fetched.error:
                            batch = self._batch_of(most)
                            self._delivered = batch.last
                            return batch
                    elif fetched.error is not None:
                        raise fetched.error
                    if until is not None and now >= until:
                        return self._batch_of(0)
                    self._changed.wait(
                        min([GLANCE, *(max(0.0, at - now) for at in (until, full_by) if at is not None)])
                    )
                    self.touch()
            self._record_gap(past)

    def _past_the_gap(self) -> ProcessedEvent | None:
        """The last of the events that are gone, where it may be recorded now: nothing that was fetched is before it.

        Never where there is a table: it learns of the gap with the events that follow, and a checkpoint ahead of it
        would look as if the table had been taken back.
        """
        if self._shared.fills_table:
            return None
        fetched = self._prefetch
        if fetched.gap is None or fetched.count or self._clock.monotonic() < self._checkpoint_not_before:
            return None
        if self.stop_reason is not None or not self._account.passes(*fetched.gap):
            return None
        last = fetched.gap[1] - 1
        return ProcessedEvent(last, self._shared.hub.offset_of(self.partition, last))

    def _record_gap(self, past: ProcessedEvent) -> None:
        """Write a checkpoint behind events that are gone. Raises `unrecordable` after the last try."""
        self._try_recording(past)
        if self.unrecordable is not None:
            raise self.unrecordable

    def processed(self, place: ProcessedEvent, events: int, *, batch_ended: bool) -> None:
        """A handler has returned for this many more events, up to `place`."""
        self._account.note(place, events, batch_ended=batch_ended)
        self._shared.worked.set()
        self._shared.goes_on(self.partition)
        self.touch()

    def pause(self, seconds: float) -> StopReason | None:
        """Wait so long. Returns at once, with the reason, if there is one to stop."""
        until = self._clock.monotonic() + seconds
        with self._changed:
            while self.stop_reason is None and (left := until - self._clock.monotonic()) > 0:
                self._changed.wait(min(GLANCE, left))
                self.touch()
        return self.stop_reason

    def restart(self) -> None:
        """Begin to fetch anew, from the first event that is not processed."""
        position = self._account.restart()
        self._delivered = max(self._delivered, position - 1)
        self._prefetch = self._fetching(position)
        self.begin()

    def begin_again(self) -> int:
        """Forget what was fetched, and fetch anew from behind what is recorded. Returns the sequence number."""
        with self._changed:
            if self.stop_reason is None:
                self.drain()
                self.restart()
            return self._account.recorded.sequence_number + 1

    # Checkpoints

    def update_checkpoint(self, done: Event | EventBatch, data: Mapping[str, str] | None = None) -> bool:
        """Record everything up to this event, or to the end of this batch; see `PartitionContext`."""
        if not self._shared.policy.kept:
            raise UsageError(
                "this processor was given no checkpoint store, so there is nothing to record a checkpoint in. Give it "
                "one, stores=(OWNERSHIP, CHECKPOINTS), or leave the call out"
            )
        kept = dict(check_data(data)) if data is not None else {}
        if isinstance(done, EventBatch):
            place = ProcessedEvent(done.last, done.last_offset, kept, done.last_enqueued)
        else:
            place = ProcessedEvent(done.sequence_number, done.offset, kept, done.enqueued_time)
        if done.partition != self.partition or not self.start <= place.sequence_number <= self._delivered:
            raise UsageError(
                f"event {place.sequence_number} of partition {done.partition!r} has not been given out for partition "
                f"{self.partition!r} at owner level {self.owner_level}: call update_checkpoint of what the event came "
                "with"
            )
        return self._record(place)

    def until_checkpoint(self) -> float | None:
        """Seconds until a checkpoint may be written without another event: it becomes due, or is tried again."""
        now = self._clock.monotonic()
        wait = 0.0 if self._account.due(now) is not None else self._account.wait(now)
        return None if wait is None else max(wait, self._checkpoint_not_before - now)

    def checkpoint_if_due(self) -> None:
        """Write the checkpoint that the policy wants now. One that cannot be written stays due, for a later try.

        Raises `unrecordable` after the last try.
        """
        now = self._active  # a moment ago: an event was processed, or the waiting for one ended
        if now >= self._checkpoint_not_before and (place := self._account.due(now)) is not None:
            self._try_recording(place)
            if self.unrecordable is not None:
                raise self.unrecordable

    def record_owed(self) -> None:
        """Write what the policy owes at the end, as long as the partition is trusted. A refusal is tried once."""
        while (place := self._account.owed()) is not None and self.trusted and self.unrecordable is None:
            if self._try_recording(place) or (
                self._trouble is not None and self._trouble.verdict is not Verdict.PASSES
            ):
                return
            with self._changed:
                while self.trusted and (left := self._checkpoint_not_before - self._clock.monotonic()) > 0:
                    self._changed.wait(min(GLANCE, left))
                    self.touch()

    # The ending

    def wake(self) -> None:
        """Let whoever waits look again at how the partition stands."""
        self._changed_since = True
        with self._changed:
            self._changed.notify_all()

    def shut_down(self) -> None:
        """The processor is stopped: give out nothing more."""
        self._shutdown = True
        self.wake()

    def touch(self) -> None:
        """Note that the work goes on, or has nothing to do."""
        self._active = self._clock.monotonic()

    def drain(self) -> None:
        """Fetch no more."""
        self._prefetch.close()

    @property
    def ever_worked(self) -> bool:
        """Whether an event of any partition has been processed here."""
        return self._shared.worked.is_set()

    def put_on_record(self, error: str) -> None:
        """See `PartitionManager.put_on_record`."""
        self._shared.manager.put_on_record(self.partition, self.owner_level, error)

    def let_go(self, error: str = "", *, blameless: bool = False) -> bool:
        """Give the partition up; `blameless`: no poison, but what a person has to mend. Returns whether it was ours."""
        return self._shared.manager.let_go(self.partition, self.owner_level, error, blameless=blameless)

    def end(self) -> None:
        """The work has ended."""
        self._closed.set()
        self._detach_if_closed()
        self._shared.closed()

    def join(self, timeout: float) -> None:
        """Wait for the fetching thread, for at most `timeout` seconds."""
        self._prefetch.join(timeout)

    def _hold(self) -> Hold | None:
        try:
            return self._shared.manager.held().get(self.partition)
        except LeaseholdError:
            return None

    def _batch_of(self, most: int) -> EventBatch:
        return EventBatch(self.hub, self.partition, self.owner_level, self._prefetch.take(most) if most else ())

    def _record(self, place: ProcessedEvent) -> bool:
        with self._checkpointing:
            wanted = self._account.trying(place)
            if wanted is None:
                return self.trusted
            number, offset, data, at = wanted.sequence_number, wanted.offset, wanted.data, wanted.enqueued_time or None
            if not self._shared.manager.update_checkpoint(self.partition, self.owner_level, number, offset, data, at):
                return False
            self._account.record(wanted, self._clock.monotonic())
        return True

    def _try_recording(self, place: ProcessedEvent) -> bool:
        """Write a checkpoint. Returns whether it is decided: written, not ours to write, or not to be tried again.

        A store that is away, or that a person has to mend, is tried again for as long as the partition is held; what
        no waiting mends, as often as a handler that fails.
        """
        try:
            self._record(place)
        except LeaseholdError as error:
            self._trouble = error
            self._shared.report(error, self.partition)
            waited = is_waited_out(error, worked=True)  # given up, the same events would be handled again and again
            pause = self._recording.failed(self._account.recorded.sequence_number, transient=waited)
            if pause is None:
                self.unrecordable = StoreError(
                    f"partition {self.partition} is given up: its checkpoint could not be written "
                    f"{self._shared.delivery.attempts} times in a row ({described(error)})",
                    verdict=error.verdict,
                )
                return True
            self._checkpoint_not_before = self._clock.monotonic() + pause
            return False
        if self._trouble is not None:
            self._trouble = None
            logger.warning("partition %s: its checkpoint has been written after all", self.partition)
        return True

    def _fetching(self, position: int) -> Prefetch:
        shared, hub = self._shared, self._shared.hub
        owned = partial(hub.read_as_owner, owner_level=self.owner_level)
        return Prefetch(
            *(self.partition, position, shared, self._changed),
            read=as_chunks(owned) if hub.one_reader_per_partition(shared.group_name) else hub.read_chunks,
            lost=self._lose,
            ended=self._detach_if_closed,
        )

    def _detach_if_closed(self) -> None:
        """A receiver closes with its work: where that has ended, and where what was fetched for it has."""
        if self.closed:
            self._shared.hub.detach(self.partition)

    def _lose(self, error: NotTheOwner) -> None:
        logger.warning("%s", error)
        self._shared.manager.lose(self.partition, self.owner_level)
        self.wake()


def described(error: BaseException) -> str:
    """An error in one line, as ownership records keep it."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]
