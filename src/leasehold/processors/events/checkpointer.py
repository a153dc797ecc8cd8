"""When a checkpoint is due, and for which event.

Owns the policies and the account of one partition: what is processed, what was asked to be recorded, what is. Promises
that a checkpoint is never ahead of what is processed, and never behind one that was tried before: a store takes a
step back at the same owner level for a sign that somebody else has been there. Pure: time is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from leasehold.config import check_number, check_seconds
from leasehold.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPolicy:
    """When what is processed is recorded. What several say is due when the first of them does.

    batches   after each batch
    events    after this many events
    seconds   when this many seconds have passed since the last one, and something has been processed
    on_stop   what is not recorded yet when the work on the partition ends
    kept      False where there is no checkpoint store: nothing is ever recorded
    """

    batches: bool = False
    events: int | None = None
    seconds: float | None = None
    on_stop: bool = True
    kept: bool = True

    def __post_init__(self) -> None:
        if self.events is not None:
            check_number("events", self.events, least=1, remedy="Say after how many events, or leave it out")
        if self.seconds is not None:
            check_seconds("seconds", self.seconds)
        if not self.on_stop and (self.batches or self.events or self.seconds):
            raise ConfigError(
                "on_stop",
                False,
                "a policy that records by itself also records what is left at the end, or it would be read again",
                "Leave it out, or use MANUAL",
            )


EACH_BATCH = CheckpointPolicy(batches=True)
"""After each batch: the least to read again after a crash, one write to the store for each batch."""
ON_STOP = CheckpointPolicy()
"""Only when the work on a partition ends: after a crash all is read again that came since it was acquired."""
MANUAL = CheckpointPolicy(on_stop=False)
"""Only when `update_checkpoint` is called."""


def every(*, events: int | None = None, seconds: float | None = None) -> CheckpointPolicy:
    """After this many events or this many seconds, whichever comes first, and on stop."""
    if events is None and seconds is None:
        raise ConfigError("events", None, "neither events nor seconds is given", "Say how often")
    return CheckpointPolicy(events=events, seconds=seconds)


@dataclass(frozen=True, slots=True, order=True)
class ProcessedEvent:
    """An event of a partition: its sequence number, the hub's offset for it, and what the user keeps with it.

    `enqueued_time` in seconds since 1970, 0 where it is not known.
    """

    sequence_number: int
    offset: str | None = None
    data: Mapping[str, str] = field(default_factory=dict, compare=False)
    enqueued_time: float = field(default=0.0, compare=False)


class Checkpointer:
    """The account of one partition that is worked on from `start` (a sequence number) on. `now`: monotonic seconds."""

    def __init__(self, policy: CheckpointPolicy, start: int, now: float) -> None:
        self._policy = policy
        self._events = 0
        self._batch_ended = False
        self._since = now
        self._tried = ProcessedEvent(start - 1)
        self.processed = ProcessedEvent(start - 1)
        self.recorded = ProcessedEvent(start - 1)

    def note(self, place: ProcessedEvent, events: int, *, batch_ended: bool) -> None:
        """This many more events are processed, up to `place`."""
        self.processed = place
        self._events += events
        self._batch_ended = batch_ended

    def passes(self, start: int, end: int) -> bool:
        """Whether events `[start, end)`, which are gone, may count as recorded: all before them is done with.

        That is what has been processed, where the policy records that by itself; else what has been recorded.
        """
        done = max(self.processed, self.recorded) if self._policy.on_stop else self.recorded
        return self._policy.kept and start <= done.sequence_number + 1 and end - 1 > self.recorded.sequence_number

    def due(self, now: float) -> ProcessedEvent | None:
        """What the policy wants to be recorded now."""
        if self.owed() is None:
            return None
        policy = self._policy
        if (
            (policy.batches and self._batch_ended)
            or (policy.events is not None and self._events >= policy.events)
            or (policy.seconds is not None and now - self._since >= policy.seconds)
        ):
            return self.processed
        return None

    def wait(self, now: float) -> float | None:
        """Seconds until something may become due without another event, None if nothing will."""
        if self._policy.seconds is None or self.owed() is None:
            return None
        return max(0.0, self._since + self._policy.seconds - now)

    def owed(self) -> ProcessedEvent | None:
        """What is to be recorded when the work ends."""
        if (
            not (self._policy.on_stop and self._policy.kept)
            or self.processed.sequence_number <= self.recorded.sequence_number
        ):
            return None
        return self.processed

    def trying(self, place: ProcessedEvent) -> ProcessedEvent | None:
        """What to write in order to have `place` recorded: None if it is, and never less than was tried before.

        Other data for the same place is written again.
        """
        if place.sequence_number <= self.recorded.sequence_number and not (
            place.sequence_number == self.recorded.sequence_number and place.data and place.data != self.recorded.data
        ):
            return None
        if place.sequence_number >= self._tried.sequence_number:
            self._tried = place
        return self._tried

    def record(self, place: ProcessedEvent, now: float) -> None:
        """`place` has been recorded."""
        self.recorded = place
        self._since = now
        if place.sequence_number >= self.processed.sequence_number:
            self._events = 0
            self._batch_ended = False

    def restart(self) -> int:
        """A failed task is started again. Returns the sequence number to go on from.

        A policy that records by itself counts as processed what handlers have returned for, recorded or not; without
        one, only what was recorded is.
        """
        if not self._policy.on_stop or self.processed.sequence_number < self.recorded.sequence_number:
            self.processed = self.recorded
        return self.processed.sequence_number + 1
