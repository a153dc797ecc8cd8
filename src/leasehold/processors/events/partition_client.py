"""A held partition as a handler sees it, and as a program that pulls from it does.

Owns the two doors to a `PartitionWork`, and no state: a handler may look and record, a puller may also receive and
close. See `partition_work` for who may call what at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType

from leasehold.config import check_seconds
from leasehold.errors import ConfigError
from leasehold.model import Event
from leasehold.processors.events.cancelling import Cancellation, is_cancelled
from leasehold.processors.events.delivery import EventBatch
from leasehold.processors.events.partition_work import PartitionWork, described
from leasehold.processors.events.stopping import StopReason


class PartitionContext:
    """What a handler is told of its partition, and may do about it.

    `hub` is the hub's identity, `start` the sequence number that work on the partition began at, and `data` what was
    kept with the checkpoint before it (`update_checkpoint`). Hand `owner_level` to whatever is written for the
    partition, and refuse there what comes with a lower one than has been seen.
    """

    def __init__(self, work: PartitionWork) -> None:
        self.hub = work.hub
        self.partition = work.partition
        self.owner_level = work.owner_level
        self.start = work.start
        self.data = work.data
        self._work = work
        self._call_at: float | None = None

    @property
    def trusted(self) -> bool:
        """Whether no other instance can have acquired the partition, at this moment."""
        return self._work.trusted

    @property
    def stop_reason(self) -> StopReason | None:
        """Why no more events are given out, None as long as they are. A long handler may look, and end early."""
        return self._work.stop_reason

    def update_checkpoint(self, done: Event | EventBatch, data: Mapping[str, str] | None = None) -> bool:
        """Record that everything up to this event, or to the end of this batch, is processed.

        `data` is kept with it, from text to text and at most 1,024 bytes as JSON, and is in `data` of the next
        owner of the partition. It belongs to this checkpoint: the next one, of the policy too, has its own or none.

        Returns False, with nothing written, when the partition is not held any more at this owner level. What is
        recorded already stays. Raises `ConfigError` for data that a store cannot keep, `UsageError` for an event that
        was not given out for this partition, and `StoreUnavailable`, after which the call may be made again.
        """
        return self._work.update_checkpoint(done, data)

    def call_again(self, seconds: float) -> None:
        """Ask for a call of `on_events` with an empty batch, if no event comes in the next `seconds`.

        For work that is due though nothing arrives. Each call of `on_events` ends it, and may ask again; so may
        `on_partition_start`. The earliest of several counts.
        """
        at = self._work.now + max(0.0, seconds)
        self._call_at = at if self._call_at is None else min(at, self._call_at)

    def until_call(self) -> float | None:
        """Seconds until the call that was asked for is due, None if none was."""
        return None if self._call_at is None else max(0.0, self._call_at - self._work.now)

    def called(self) -> None:
        """`on_events` is about to be called."""
        self._call_at = None

    def fence_columns(self, event: Event) -> dict[str, str | int]:
        """What a row that comes from `event` carries so that a sink of Leasehold writes it exactly once."""
        return {
            "hub": self.hub,
            "partition": event.partition,
            "sequenceNumber": event.sequence_number,
            "ownerLevel": self.owner_level,
        }

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: partition {self.partition} at owner level {self.owner_level}>"


class PartitionClient(PartitionContext):
    """A held partition to receive from, as `EventProcessor.next_partition_client` gives it.

        with client:
            for batch in client:
                ...
                client.update_checkpoint(batch)

    Close it when no more is given out, or before. As a context manager it closes itself; if the block raises, the
    partition is given up with the error. Until it is closed the partition is not given out again in this process, and
    the processor does not end; one that is neither used nor closed for the stall timeout is given up.

    One thread receives at a time, by whichever of the ways. Others may look, record, and cancel meanwhile.
    """

    def receive(
        self,
        timeout: float | None = None,
        *,
        count: int | None = None,
        max_wait: float | None = None,
        cancel: Cancellation | None = None,
    ) -> EventBatch | None:
        """The next events, in order. Waits for them, at most `timeout` seconds: then the batch is empty.

        None when no more are given out, and `stop_reason` says why: finish what was begun, and close. Raises what
        made fetching impossible, such as `DataLoss`; `begin_again` tries anew. Where the processor has a `table`, the
        first call asks the checkpoint store whose the group is, and raises `StoreError` where that is away.

        count       the most events of this batch, from 1 to `prefetch`; default: `max_batch`
        max_wait    how long, in seconds, this batch waits to be full once it has its first event; default: the setting
        cancel      ends the wait: the batch is empty then, too
        """
        self._check(count, max_wait)
        self._work.confirm()
        return self._work.receive(timeout, most=count, max_wait=max_wait, cancel=cancel)

    def batches(
        self, *, count: int | None = None, max_wait: float | None = None, cancel: Cancellation | None = None
    ) -> Iterator[EventBatch]:
        """Batches as they come, none of them empty, until no more are given out, or cancelled. See `receive`."""
        self._check(count, max_wait)
        return self._batches(count, max_wait, cancel)

    def __iter__(self) -> Iterator[EventBatch]:
        """Batches as they come; see `batches`."""
        return self.batches()

    def events(self, *, cancel: Cancellation | None = None) -> Iterator[Event]:
        """Events one by one as they come, until no more are given out, or cancelled.

        An event that another instance may have by now is not given out. Record by `update_checkpoint(event)`.
        """
        for batch in self.batches(cancel=cancel):
            for event in batch:
                if is_cancelled(cancel) or not self._work.goes_on():
                    return
                yield event
                self._work.touch()

    def begin_again(self) -> int:
        """Go back to the checkpoint: what comes next is the first event that is not recorded. The partition stays held.

        After a failure whose events are to come again, or an error of `receive`. Returns the sequence number that comes
        next. Call it in the thread that receives. Without effect once there is a `stop_reason`.
        """
        return self._work.begin_again()

    def _batches(self, count: int | None, max_wait: float | None, cancel: Cancellation | None) -> Iterator[EventBatch]:
        self._work.confirm()
        while (batch := self._work.receive(most=count, max_wait=max_wait, cancel=cancel)) is not None:
            if batch:
                yield batch
            if is_cancelled(cancel):
                return

    def _check(self, count: int | None, max_wait: float | None) -> None:
        most = self._work.prefetched
        if count is not None and not 1 <= count <= most:
            rule = f"from 1 to what is fetched ahead, prefetch = {most}"
            raise ConfigError("count", count, rule, "Ask for fewer, or raise DeliverySettings(prefetch=…)")
        if max_wait is not None:
            check_seconds("max_wait", max_wait, or_zero=True)

    def close(self, error: str = "") -> None:
        """Fetch no more and give the partition up; `error` says what made it impossible to go on, if anything.

        Call it when nothing of the partition is being worked on any more. Closing twice is fine.
        """
        work = self._work
        if work.closed:
            return
        work.drain()
        if work.stop_reason is not StopReason.OWNERSHIP_LOST:
            work.let_go(error)
        work.end()

    def __enter__(self) -> PartitionClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(described(error) if isinstance(error, Exception) else "")
