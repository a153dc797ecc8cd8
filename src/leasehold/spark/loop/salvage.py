"""A batch of which some events cannot be computed: which ones, and the batch without them.

Owns the way between the search (`poison.py`, which knows no Spark) and batches: parts are evaluated like batches, and
what could be computed becomes one batch again, with the events that could not be among the rejected, as the hub has
them. Nothing is written here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from leasehold.model import EventRange
from leasehold.sinks.rules.batch import Identities
from leasehold.spark.loop.evaluation import Evaluated
from leasehold.spark.loop.feed import Feed
from leasehold.spark.loop.orders import Order
from leasehold.spark.loop.poison import Poison, Sifted, sift
from leasehold.spark.loop.producers import put_together
from leasehold.spark.loop.tasks import latest, timed
from leasehold.spark.plan.failures import FailureKind, sort_failure
from leasehold.spark.plan.offsets import ReadRange
from leasehold.spark.plan.reading import CARRIED, owned_batches, reads_for, with_level
from leasehold.spark.plan.share import Share
from leasehold.spark.table.expressions import with_rejected

logger = logging.getLogger(__name__)

WITNESSES = 20
"""How many events of the last good batch are computed again, where all of a batch fails."""


class Salvage:
    """Saves what can be computed of a batch. `compute` evaluates an order, and raises what that raises."""

    def __init__(
        self, share: Share, feed: Feed, cores: int, compute: Callable[[Order], Evaluated], stop: threading.Event
    ) -> None:
        self._share, self._feed, self._cores, self._compute, self._stop = share, feed, cores, compute, stop

    def sift(self, ranges: Sequence[EventRange], witnesses: Sequence[EventRange], most: int) -> Sifted[Evaluated]:
        """Find the events that cannot be computed. `witnesses` are ranges that could be, a moment ago.

        Raises `TooMuchPoison`, and any failure that is not the events' own; a stop ends the search so.
        """

        def compute(ranges: Sequence[EventRange]) -> Evaluated:
            return self._compute(self._feed.order(ranges, self._cores))

        def why(error: Exception) -> str | None:
            failure = sort_failure(error, computing=True)
            return failure.message if failure.kind is FailureKind.COMPUTING and not self._stop.is_set() else None

        def witness() -> bool:
            try:
                compute(last_events(witnesses, WITNESSES))
            except Exception as error:  # noqa: BLE001 - whatever it is: what worked does not work now
                logger.info("what was computed before cannot be computed now: %s", error)
                return False
            return bool(witnesses)

        return sift(ranges, compute, why, most=most, witness=witness)

    def joined(self, sifted: Sifted[Evaluated], order: Order, columns: tuple[str, ...]) -> Evaluated:
        """One batch of what could be computed, with what could not among the rejected."""
        no_events = replace(order, tasks=((),))
        parts = list(sifted.good) or [self._compute(no_events)]  # for the schema
        weights = {name: mean for each in parts for name, mean in each.weights.items()}
        times = latest(each.times for each in parts)
        batches = [each.batch for each in parts]
        joined = replace(
            batches[0],
            rows=pa.concat_tables([each.rows for each in batches]),
            rejected=None,
            sequence_by=_chunks([each.sequence_by for each in batches]),
            delete=_chunks([each.delete for each in batches]),
            ranges=timed(order.ranges, times),
            identities=_joined_identities([each.identities for each in batches]),
            read=_joined_counts([each.read for each in batches], len(sifted.poison)),
        )
        rejected = [read_raw(self._share, columns, one) for one in sifted.poison]
        for table in (*(each.rejected for each in batches), *rejected):
            if table is not None:
                joined = with_rejected(joined, table)
        producers = put_together(each.producers for each in parts)
        return Evaluated(joined, weights, producers=producers, times=times)


def last_events(ranges: Sequence[EventRange], most: int) -> tuple[EventRange, ...]:
    """The last events of each range, at most this many in all."""
    each = max(1, most // max(1, len(ranges)))
    return tuple(replace(one, begin=max(one.begin, one.end - each)) for one in ranges[:most])


def read_raw(share: Share, columns: tuple[str, ...], poison: Poison) -> pa.Table:
    """An event as the hub has it, with the reason why it is rejected."""
    one = poison.event
    names = tuple(dict.fromkeys((*CARRIED, "body", *columns)))
    wanted = [name for name in names if name != "ownerLevel"]
    piece = ReadRange(one.partition, one.begin, one.end, one.owner_level)
    batches = owned_batches(share.hub, piece, wanted, 1, reads_for(share.options))
    table = pa.Table.from_batches([with_level(batch, one.owner_level, names) for batch in batches])
    reason = f"cannot be computed: {poison.error}"
    return table.append_column("reason", pa.array([reason] * table.num_rows, pa.string()))


def _joined_identities(parts: Sequence[Identities | None]) -> Identities | None:
    there = [part for part in parts if part is not None]
    return replace(there[0], rows=pa.concat_tables([part.rows for part in there])) if there else None


def _joined_counts(parts: Sequence[int | None], poison: int) -> int | None:
    """How many events were read, with those that cannot be computed; None where tasks do not tell."""
    told = [part for part in parts if part is not None]
    return sum(told) + poison if len(told) == len(parts) else None


def _chunks(columns: Sequence[pa.ChunkedArray | None]) -> pa.ChunkedArray | None:
    there = [column for column in columns if column is not None]
    return pa.chunked_array([chunk for column in there for chunk in column.chunks], there[0].type) if there else None
