"""Which events a person has had skipped, as a loop asks the table that it fills, before each batch.

Owns what is done while the table cannot be asked: the loop reads by what it knows. That costs nothing but the promise
that no transform sees such an event: the table leaves it out when the batch is written, and a handler asks once more.

Refuses to apply a batch without an event to a table that does not leave it out, another one than the loop asks: the
table would move its watermark past the event, with nothing that tells of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from leasehold.errors import LeaseholdError, UsageError, is_waited_out
from leasehold.printable import excerpt
from leasehold.sinks.rules.fence import Watermark
from leasehold.spark.loop.orders import Order
from leasehold.spark.table.of_loop import MetTable

logger = logging.getLogger(__name__)


@runtime_checkable
class KnowsNoted(Protocol):
    """A table whose events may be skipped."""

    def noted(self, hub: str) -> Mapping[str, frozenset[int]]:
        """By partition of `hub`, the sequence numbers of the events that are noted to be skipped."""
        ...


class NotedEvents:
    """The noted events of a hub in `table`: none, where no table is known, or it skips none. For one thread.

    `worked` says whether the loop has recorded a batch.
    """

    def __init__(self, table: object, hub: str, worked: Callable[[], bool]) -> None:
        self._worked = worked
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
            if not is_waited_out(error, worked=self._worked()):
                raise
            logger.info("which events are to be skipped cannot be asked: %s", error)
        return self._known


def check_noted(table: MetTable, order: Order) -> None:
    """Refuse a batch without events that are neither noted in this table nor behind it. Raises `UsageError`."""
    noted = table.noted(order.hub)
    marks = table.watermarks(order.hub)  # behind the notes: what has been passed meanwhile has none any more
    for partition, numbers in order.skipped.items():
        passed = marks.get(partition, Watermark()).sequence_number
        if lost := [number for number in numbers if number > passed and number not in noted.get(partition, ())]:
            raise UsageError(
                f"event {lost[0]} of partition {excerpt(partition)} was left out of this batch, since it is to be "
                f"skipped in the table that the loop was given as table=…, and nobody has noted that for the table "
                f"{table.spec.called}, which would be without it and not say so. Nothing of the batch was applied to "
                "this table. Run `leasehold skip` with a pipeline file of this table too, or give the loop no table"
            )
