"""Trying rejected events again: what happens in the transaction, in which order, whatever the database.

Owns this order; the rules are in `set_aside` and `retrying`, and a database brings a `RetryOfRejected`. First the
watermarks of the events' partitions are locked, then their rejected rows, so that nobody else reads, tries or drops
them meanwhile; only then is read how far the table has come and what is known of keys. Does no I/O of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from leasehold.errors import ConfigError
from leasehold.sinks.beside.set_aside import retrying
from leasehold.sinks.beside.set_aside.contract import EventId, RejectedRow, RetryResult
from leasehold.sinks.rules import duplicates
from leasehold.sinks.rules.batch import Batch, Kept, arrange
from leasehold.sinks.rules.content import kind_of_order
from leasehold.sinks.rules.fence import Lane, Watermark
from leasehold.sinks.rules.rejected import Rejected
from leasehold.sinks.rules.remembered_order import TableOrder, check_order, order_of
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.transactions import RemembersIdentities

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Tried:
    """How many rows were written or deleted, and were older than what is known of their key, and those that failed."""

    applied: int
    superseded: int
    rejected: Sequence[Rejected]


class RetryOfRejected(RemembersIdentities, Protocol):
    """What a database does in the transaction of a retry."""

    def fit(self, schema: pa.Schema) -> None:
        """Check the table for rows of this schema. Raises `SchemaMismatch`."""
        ...

    def lock(self, lanes: Collection[Lane]) -> None:
        """Keep those of these watermarks that there are from changing."""
        ...

    def watermarks(self, hubs: Iterable[str]) -> Mapping[Lane, Watermark]:
        """The watermarks of all partitions of these hubs that have one."""
        ...

    def found(self, events: Collection[EventId]) -> retrying.Found:
        """The rejected rows of each of these events; nobody else changes them until the transaction ends."""
        ...

    def recorded_order(self) -> TableOrder:
        """What is recorded of the order of the table's rows; it stays so until the transaction ends."""
        ...

    def write(self, batch: Batch, kept: Kept, order: TableOrder) -> Tried:
        """Write the rows that are kept and the memory of their keys, by rule 2."""
        ...

    def replace(self, tried: Sequence[RejectedRow], failures: Sequence[Rejected]) -> None:
        """Remove the rejected rows of what was tried, and set aside what is left."""
        ...


def try_again(
    transaction: RetryOfRejected, spec: TableSpec, batch: Batch, events: Collection[EventId], now: float
) -> RetryResult:
    """Bring what the transform makes of rejected events into the table: see `RejectedRows.retry`. `now`: since 1970."""
    append = not spec.keys
    if append and (batch.sequence_by is not None or batch.delete is not None):
        raise ConfigError("mode", spec.mode, "appended events have no order and no deletes", "Use upsert")
    arrangement = arrange(batch)
    transaction.fit(batch.rows.schema)
    transaction.lock({(event.hub, event.partition) for event in events})
    marks = transaction.watermarks(sorted({event.hub for event in events}))
    found = transaction.found(events)
    choice = retrying.choose(arrangement, batch.rows.num_rows, events, found, marks, append=append)
    kept, dropped = _without_duplicates(transaction, batch, choice, now)
    recorded = transaction.recorded_order()
    order = order_of(spec, kind_of_order(batch), deletes=batch.delete is not None)
    check_order(recorded, spec, order)
    tried = transaction.write(batch, kept, recorded.after(order))
    left = retrying.left_behind(choice, found, tried.rejected, append=append)
    transaction.replace([row for event in choice.tried for row in found[event]], left)
    others = choice.filtered, choice.unread, choice.gone, dropped
    return RetryResult(tried.applied, tried.superseded, len(left) + choice.left, *others)


def _without_duplicates(
    memory: RemembersIdentities, batch: Batch, choice: retrying.Choice, now: float
) -> tuple[Kept, int]:
    """Rule 6: what is left to write, and how many events are not; the others are remembered."""
    if batch.identities is None:
        return choice.kept, 0
    tried = {(event.hub, event.partition, event.sequence_number) for event in choice.tried}
    events = duplicates.among(batch.identities, tried)
    known = memory.known_identities({one.identity for one in events})
    reached = memory.identities_reached() if events else None
    verdict = duplicates.judge(events, known, batch.identities.window, reached, int(now * 1_000_000))
    memory.remember_identities(verdict.remembered)
    return choice.kept.without(verdict.dropped), len(verdict.dropped)
