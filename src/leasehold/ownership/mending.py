"""What a person has to mend before the work on a partition goes on, as far as ownership records say it.

Owns the rule when a record says it already, so that a partition is given up with it once, and not with each try:
it is the same trouble (figures aside, such as the room that is left on a disk), at the same place of the checkpoint.
Of several troubles that take turns each counts once, and of many at one place only the first few.
A record may have it from another instance. Any thread may ask.
"""

from __future__ import annotations

import re

from leasehold.balancing.suspects import stands_still
from leasehold.model import BEFORE_FIRST, Checkpoint, Ownership

_MOST = 8
"""Troubles at one place that a partition is given up with."""


class Mending:
    """The troubles of one instance's partitions."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[int, frozenset[str]]] = {}

    def is_said(self, record: Ownership, error: str, checkpoint: Checkpoint | None) -> bool:
        """Whether this error is on record, or was put there, for the place where the checkpoint stands."""
        texts = self._at(record.partition, checkpoint)
        if len(texts) >= _MOST or _without_figures(error) in texts:
            return True
        same = _without_figures(record.last_error) == _without_figures(error)
        return same and checkpoint is not None and stands_still(record, checkpoint)

    def note(self, partition: str, error: str, checkpoint: Checkpoint | None) -> None:
        """The record says it."""
        texts = self._at(partition, checkpoint)
        if len(texts) < _MOST:
            self._said[partition] = _place(checkpoint), texts | {_without_figures(error)}

    def _at(self, partition: str, checkpoint: Checkpoint | None) -> frozenset[str]:
        """What was said of it where its checkpoint stands."""
        place, texts = self._said.get(partition, (BEFORE_FIRST, frozenset[str]()))
        return texts if place == _place(checkpoint) else frozenset()


def _place(checkpoint: Checkpoint | None) -> int:
    return BEFORE_FIRST if checkpoint is None else checkpoint.sequence_number


def _without_figures(message: str) -> str:
    return re.sub(r"\d[\d.,]*", "", message)
