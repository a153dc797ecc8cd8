"""What a store says of checkpoints that it cannot read.

Owns the memory of what was said: each is told once, in the log, with the way out. Records of ownership, presences and
asks are told of by whoever lists them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from leasehold.model import Checkpoint, ConsumerGroup, Unreadable

logger = logging.getLogger(__name__)


class Skipped:
    """The checkpoints that a store could not read. `where` names it for people. Safe to use from several threads."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._lock = threading.Lock()
        self._told: set[tuple[ConsumerGroup, str]] = set()

    def left(self, checkpoints: Iterable[Checkpoint | Unreadable]) -> list[Checkpoint]:
        """Those that could be read."""
        left = []
        for one in checkpoints:
            if isinstance(one, Unreadable):
                self.tell(one)
            else:
                left.append(one)
        return left

    def tell(self, record: Unreadable) -> None:
        """Say that this one cannot be read, if it has not been said."""
        with self._lock:
            told = (record.group, record.name) in self._told
            self._told.add((record.group, record.name))
        if not told:
            logger.warning(
                "%s: the checkpoint of partition %s of %s cannot be read (%s): nobody takes the partition until "
                "somebody has said where to go on, with `leasehold checkpoints set`",
                self._where,
                record.name,
                record.group,
                record.reason,
            )
