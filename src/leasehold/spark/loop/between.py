"""What a loop does between its batches, and while nothing comes, for a table with a handler.

Owns when that is, for `leasehold run` and `MicroBatches` alike: before each look for events the parked events that are
due are tried, of the partitions that are held and trusted and that nobody asks for; and before the partitions are given
up, what was emitted is sent. Promises that nothing is written before the consumer group is tied to the table. A store
that is away meanwhile ends nothing: the next look tries again. For any other table there is nothing to do.

All of it is in the loop's thread, so that a table is never in the middle of a batch. A process that is stopped here for
a minute, or killed, is as one that is stopped in a batch: see `handlers.table`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from leasehold.errors import LeaseholdError, is_waited_out
from leasehold.sinks.base import LevelOf
from leasehold.spark.plan.share import Share
from leasehold.spark.table.of_loop import MetTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


@runtime_checkable
class HandlesEvents(Protocol):
    """A table with a handler, as a loop sees it.

    `trusts` says whether a partition is held at an owner level at this moment, `level_of` has the level on record.
    """

    trusts: Callable[[str, int], bool]
    level_of: LevelOf | None

    @property
    def met_by_loop(self) -> MetTable:
        """Whose it is."""
        ...

    def take_session(self, spark: SparkSession) -> None:
        """Take the session whose tasks are to call the handler. Raises `ConfigError`."""
        ...

    def try_parked(self, hub: str, held: Mapping[str, int]) -> None:
        """Try the parked events that are due, of the partitions that are held at these levels."""
        ...

    def leave(self) -> None:
        """All partitions are about to be given up."""
        ...


def take_session(table: object, spark: SparkSession) -> None:
    """Give a table with a handler the session whose tasks are to call that. Raises `ConfigError`."""
    if isinstance(table, HandlesEvents):
        table.take_session(spark)


class Between:
    """The moments between a loop's batches. `tie` ties the consumer group to the table, or refuses it.

    `worked` says whether the loop has recorded a batch.
    """

    def __init__(
        self, table: object, share: Share, tie: Callable[[MetTable], None], worked: Callable[[], bool]
    ) -> None:
        self._worked = worked
        self._table = table if isinstance(table, HandlesEvents) else None
        self._share, self._tie = share, tie
        if self._table is not None:
            self._table.trusts, self._table.level_of = share.trusts, share.level_of

    def __call__(self) -> None:
        """Before each batch, and with each look for events. Raises what keeps this instance from working."""
        if self._table is None:
            return
        held = {name: one.owner_level for name, one in self._share.held(with_asked=False).items()}
        if not held:
            return
        try:
            self._tie(self._table.met_by_loop)
        except LeaseholdError as error:
            if not is_waited_out(error, worked=self._worked()):
                raise
            logger.info("parked events wait: %s", error)
            return
        self._table.level_of = self._share.level_of
        self._table.try_parked(self._share.hub.identity, held)

    def leave(self) -> None:
        """Before the partitions are given up."""
        if self._table is not None:
            self._table.leave()
