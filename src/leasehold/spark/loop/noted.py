"""Which events a person has had skipped, as a loop asks the table that it fills, before each batch.

Owns what is done while the table cannot be asked: the loop reads by what it knows. That costs nothing but the promise
that no transform sees such an event: the table leaves it out when the batch is written, and a handler asks once more.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from leasehold.errors import LeaseholdError, is_transient

logger = logging.getLogger(__name__)


@runtime_checkable
class KnowsNoted(Protocol):
    """A table whose events may be skipped."""

    def noted(self, hub: str) -> Mapping[str, frozenset[int]]:
        """By partition of `hub`, the sequence numbers of the events that are noted to be skipped."""
        ...


class NotedEvents:
    """The noted events of a hub in `table`: none, where no table is known, or it skips none. For one thread."""

    def __init__(self, table: object, hub: str) -> None:
        self._table = table if isinstance(table, KnowsNoted) else None
        self._hub = hub
        self._known: Mapping[str, frozenset[int]] = {}

    def __call__(self) -> Mapping[str, frozenset[int]]:
        """As they are now, or as they were when the table could be asked last."""
        if self._table is None:
            return {}
        try:
            self._known = self._table.noted(self._hub)
        except LeaseholdError as error:
            if not is_transient(error):
                raise
            logger.info("which events are to be skipped cannot be asked: %s", error)
        return self._known
