"""What this instance holds, as all its threads see it.

Owns the map of holds and of those on their way out, under one lock under which nothing is waited for. Promises
that a partition is reported as held only while it is trusted, and that one which was let go is not: it is on its way
out until the dispatch cycle has written that down. A hold that was dropped is remembered until the partition is
acquired anew: its record names this instance for as long as nobody has claimed it. Refuses to touch a hold that has
been acquired anew meanwhile: every change names the owner level it is meant for.

Concurrency: the dispatch thread adds, extends and drops; any thread may look, let go, and prove. A renewal may be
under way while a hold is let go: its answer then gives the new ETag to the hold on its way out.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from leasehold.clock import Clock
from leasehold.model import Checkpoint, Ownership


@dataclass(frozen=True, slots=True)
class Hold:
    """A partition held: its record, the sequence number to start at, and when trust in it ends.

    `start` and `data` are what the checkpoint gave when this owner level was acquired. `asked_by` is the instance
    that waits for it to be handed over, `""` if there is none. `proven` is False for a suspect that has neither made
    progress since it was `acquired` nor left this instance alive for long enough. `error` says why a partition that
    is let go had to be given up; `blameless`: that is no bad end of its owner, but something that a person has to mend.
    """

    record: Ownership
    start: int
    trusted_until: float
    asked_by: str = ""
    proven: bool = True
    error: str = ""
    blameless: bool = False
    acquired: float = 0.0
    data: Mapping[str, str] = field(default_factory=dict)

    @property
    def owner_level(self) -> int:
        """The owner level at which the partition is held."""
        return self.record.owner_level


class Holds:
    """The holds of one instance, by partition."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._holds: dict[str, Hold] = {}
        self._leaving: dict[str, Hold] = {}
        self._dropped: dict[str, Hold] = {}

    def trusted(self) -> dict[str, Hold]:
        """What is held and trusted at this moment."""
        with self._lock:
            now = self._clock.monotonic()
            return {partition: hold for partition, hold in self._holds.items() if now < hold.trusted_until}

    def lapsed(self) -> dict[str, Hold]:
        """What trust has run out in."""
        with self._lock:
            now = self._clock.monotonic()
            return {partition: hold for partition, hold in self._holds.items() if now >= hold.trusted_until}

    def all(self) -> dict[str, Hold]:
        """Everything, trusted or not, without what is on its way out."""
        with self._lock:
            return dict(self._holds)

    def leaving(self) -> dict[str, Hold]:
        """What was let go, and not yet written down as such."""
        with self._lock:
            return dict(self._leaving)

    def names(self) -> frozenset[str]:
        """The partitions that are held or on their way out."""
        with self._lock:
            return frozenset({*self._holds, *self._leaving})

    def add(self, hold: Hold) -> None:
        """Hold a partition from now on."""
        with self._lock:
            self._holds[hold.record.partition] = hold
            self._dropped.pop(hold.record.partition, None)

    def extend(self, renewed: Sequence[Ownership], trusted_until: float) -> dict[str, Hold]:
        """Trust what was renewed for longer. Returns the holds in which trust had run out when the answer came."""
        lapsed = {}
        with self._lock:
            now = self._clock.monotonic()
            for record in renewed:
                for holds in (self._holds, self._leaving):
                    hold = holds.get(record.partition)
                    if hold is None or hold.owner_level != record.owner_level:
                        continue
                    if now < hold.trusted_until:
                        ours = hold.record
                        if hold.blameless:  # what it is to say is not written down yet
                            record = replace(record, claimed_at=ours.claimed_at, failures=ours.failures)
                        holds[record.partition] = replace(hold, record=record, trusted_until=trusted_until)
                    else:
                        lapsed[record.partition] = hold
        return lapsed

    def drop(self, lost: Mapping[str, Hold]) -> dict[str, Hold]:
        """Hold these no longer. Returns those that were still held at that level."""
        with self._lock:
            dropped = {
                partition: hold
                for partition, hold in lost.items()
                if partition in self._holds and self._holds[partition].owner_level == hold.owner_level
            }
            for partition in dropped:
                del self._holds[partition]
            self._dropped.update(dropped)
        return dropped

    def let_go(self, partition: str, owner_level: int, error: str = "", *, stands_at: int | None = None) -> bool:
        """Put a partition on its way out. Returns whether it was held and trusted at that level.

        `stands_at`: the `error` is blameless, and the checkpoint stands there until a person has mended that.
        """
        with self._lock:
            hold = self._holds.get(partition)
            if hold is None or hold.owner_level != owner_level or self._clock.monotonic() >= hold.trusted_until:
                return False
            record = self._holds.pop(partition).record
            if stands_at is not None:
                failures = record.failures if stands_at <= record.claimed_at else 0  # the record counts from there on
                record = replace(record, claimed_at=max(stands_at, record.claimed_at), failures=failures)
            self._leaving[partition] = replace(hold, record=record, error=error, blameless=stands_at is not None)
            return True

    def give_up(self, partition: str, owner_level: int, error: str) -> bool:
        """Put a partition on its way out, also if trust in it has run out. Returns whether it was at that level."""
        with self._lock:
            for holds in (self._holds, self._dropped):
                hold = holds.get(partition)
                if hold is not None and hold.owner_level == owner_level:
                    self._leaving[partition] = replace(holds.pop(partition), error=error)
                    return True
            return False

    def found_leaving(self, record: Ownership) -> bool:
        """Note how the record of a hold on its way out stands. Returns whether that was news."""
        with self._lock:
            hold = self._leaving.get(record.partition)
            if hold is None or hold.record.etag == record.etag:
                return False
            self._leaving[record.partition] = replace(hold, record=replace(hold.record, etag=record.etag))
            return True

    def gone(self, partitions: Collection[str]) -> None:
        """Forget those on their way out: it is written down, or not ours to write."""
        with self._lock:
            for partition in partitions:
                self._leaving.pop(partition, None)

    def take_all(self) -> dict[str, Hold]:
        """Forget everything, and return it."""
        with self._lock:
            taken = {**self._holds, **self._leaving}
            self._holds.clear()
            self._leaving.clear()
            self._dropped.clear()
            return taken

    def set_askers(self, askers: Mapping[str, str]) -> None:
        """Note who asks for what; who is not named asks no more."""
        with self._lock:
            for partition, hold in self._holds.items():
                asker = askers.get(partition, "")
                if hold.asked_by != asker:
                    self._holds[partition] = replace(hold, asked_by=asker)

    def prove(self, recorded: Sequence[Checkpoint]) -> None:
        """Clear the suspicion of those whose checkpoint has moved."""
        with self._lock:
            for checkpoint in recorded:
                hold = self._holds.get(checkpoint.partition)
                if hold is not None and checkpoint.sequence_number > hold.record.claimed_at and not hold.proven:
                    self._holds[checkpoint.partition] = replace(hold, proven=True)

    def prove_survived(self, before: float) -> None:
        """Clear the suspicion of those acquired before that moment: they have not brought this instance down."""
        with self._lock:
            for partition, hold in self._holds.items():
                if not hold.proven and hold.acquired <= before:
                    self._holds[partition] = replace(hold, proven=True)
