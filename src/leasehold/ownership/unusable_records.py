"""What an instance says of records that it cannot use, and leaves alone.

Owns what was told: each record once for as long as it stays so, as a notice and in the log, with what follows from it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from leasehold.model import ConsumerGroup, RecordKind, Unreadable
from leasehold.notices import Notices, RecordSkipped

logger = logging.getLogger(__name__)

MEANS = {
    RecordKind.OWNERSHIP: "the partition is nobody's until the record has not been written for the partition "
    "expiration; where its ETag or age cannot be read either, until somebody removes it",
    RecordKind.PRESENCE: "this instance is not counted unless it owns something",
    RecordKind.ASK: "nobody is waited for",
    RecordKind.CHECKPOINT: "the partition is not taken until somebody says where to go on: `leasehold checkpoints set`",
}
"""What follows from a record that cannot be read, by its kind."""


class Skipping:
    """The records that one instance has told of. Used by its dispatch thread."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        self._told: frozenset[Unreadable] = frozenset()
        self._unclaimable: set[tuple[str, str]] = set()

    def tell(self, unreadable: Iterable[Unreadable]) -> None:
        """Tell of what a listing could not read, as far as that is news."""
        now = {(one.kind, one.name): one for one in unreadable}
        before = {(one.kind, one.name) for one in self._told}
        for key, one in now.items():
            if key not in before:
                self._say(one.group, one.kind, one.name, one.reason, MEANS[one.kind])
        self._told = frozenset(now.values())

    def tell_checkpoint(self, group: ConsumerGroup, partition: str) -> None:
        """Tell of a partition whose checkpoint is there and cannot be read."""
        self._tell_once(group, partition, RecordKind.CHECKPOINT, "cannot be read", MEANS[RecordKind.CHECKPOINT])

    def tell_unannounced(self, group: ConsumerGroup, partition: str) -> None:
        """Tell of a partition that was claimed, and whose checkpoint the store could not write."""
        means = "this instance does not work on the partition, and tries again in its next cycle"
        self._tell_once(group, partition, RecordKind.CHECKPOINT, "its owner level could not be written", means)

    def tell_level(self, group: ConsumerGroup, partition: str, reason: str) -> None:
        """Tell of a partition for which no owner level can be said to be new."""
        means = "nobody can take the partition and be told from those before. Remove the record, or set a checkpoint"
        self._tell_once(group, partition, RecordKind.OWNERSHIP, reason, means)

    def _tell_once(self, group: ConsumerGroup, partition: str, kind: RecordKind, reason: str, means: str) -> None:
        if (partition, reason) not in self._unclaimable:
            self._unclaimable.add((partition, reason))
            self._say(group, kind, partition, reason, means)

    def _say(self, group: ConsumerGroup, kind: RecordKind, name: str, reason: str, means: str) -> None:
        logger.warning("the %s record of %r in %s is skipped (%s): %s", kind, name, group, reason, means)
        self._notices.publish(RecordSkipped(kind, name, reason))
