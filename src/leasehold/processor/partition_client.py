"""A held partition as a handler sees it, and as somebody who pulls from it does.

Owns the two doors to a `PartitionWork`, and no state: a handler may look and record, a puller may also receive and
close. See `partition_work` for who may call what at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from leasehold.model import Event
from leasehold.processor.delivery import EventBatch
from leasehold.processor.partition_work import PartitionWork, described
from leasehold.processor.stopping import StopReason


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

    @property
    def trusted(self) -> bool:
        """Whether nobody else can have acquired the partition, at this moment."""
        return self._work.trusted

    @property
    def stop_reason(self) -> StopReason | None:
        """Why no more events are given out, None as long as they are. A long handler may look, and end early."""
        return self._work.stop_reason

    def update_checkpoint(self, done: Event | EventBatch, data: Mapping[str, str] | None = None) -> bool:
        """Record that everything up to this event, or to the end of this batch, is processed.

        `data` is kept with it, from text to text and at most 1,024 bytes as JSON, and is in `data` of whoever acquires
        the partition next. It belongs to this checkpoint: the next one, of the policy too, has its own or none.

        Returns False, with nothing written, when the partition is not held any more at this owner level. What is
        recorded already stays. Raises `ConfigError` for data that a store cannot keep, `UsageError` for an event that
        was not given out for this partition, and `StoreUnavailable`, after which the call may be made again.
        """
        return self._work.update_checkpoint(done, data)

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

    Close it when `receive` returns None, or before. As a context manager it closes itself; if the block raises, the
    partition is given up with the error. Until it is closed nobody in this process gets the partition again, and the
    processor does not end; one that is neither used nor closed for the stall timeout is given up.
    """

    def receive(self, timeout: float | None = None) -> EventBatch | None:
        """The next events, in order. Waits for them, at most `timeout` seconds: then the batch is empty.

        None when no more are given out, and `stop_reason` says why: finish what was begun, and close. Raises what
        made fetching impossible, such as `DataLoss`.
        """
        return self._work.receive(timeout)

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
