"""What a person has to mend before the work on a partition goes on, as far as ownership records say it.

Owns the rule when a record says it already, so that a partition is given up with it once, and not with each try:
it is the same trouble (figures aside, such as the room that is left on a disk), at the same place of the checkpoint.
A record may have it from another instance. Any thread may ask.
"""

from __future__ import annotations

import re

from leasehold.balancing.suspects import stands_still
from leasehold.model import BEFORE_FIRST, Checkpoint, Ownership


class Mending:
    """The troubles of one instance's partitions."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[str, int]] = {}

    def is_said(self, record: Ownership, error: str, checkpoint: Checkpoint | None) -> bool:
        """Whether this error is on record, or was put there, for the place where the checkpoint stands."""
        if self._said.get(record.partition) == _of(error, checkpoint):
            return True
        same = _without_figures(record.last_error) == _without_figures(error)
        return same and checkpoint is not None and stands_still(record, checkpoint)

    def note(self, partition: str, error: str, checkpoint: Checkpoint | None) -> None:
        """The record says it."""
        self._said[partition] = _of(error, checkpoint)


def _of(error: str, checkpoint: Checkpoint | None) -> tuple[str, int]:
    return _without_figures(error), BEFORE_FIRST if checkpoint is None else checkpoint.sequence_number


def _without_figures(message: str) -> str:
    return re.sub(r"\d[\d.,]*", "", message)
