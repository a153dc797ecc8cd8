"""Steps that batches of each kind take: whose the table is, its columns, its order, what was sent before.

Owns these steps; the list is in `steps`.
"""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.sinks.door.open_batch import OpenBatch, SinkMemory
from leasehold.sinks.rules import claims, duplicates, unchanged
from leasehold.sinks.rules.content import kind_of_order
from leasehold.sinks.rules.duplicates import IdentifiedEvent
from leasehold.sinks.rules.remembered_order import check_order, order_of
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.transactions import TableTransaction


def claim(sink: SinkMemory, transaction: TableTransaction) -> str:
    """Make the table this pipeline's if it is nobody's; its identity.

    A database that was deleted under a running instance may be there again, empty: made by another one that was
    started meanwhile. Going on in it would leave out all that the first one held.
    """
    identity = transaction.claim()
    if sink.identity not in (None, identity):
        raise claims.was_replaced(sink.spec, sink.where)
    return identity


def take_claim(open_: OpenBatch) -> None:
    open_.identity = claim(open_.sink, open_.transaction)


def fit(open_: OpenBatch) -> None:
    open_.transaction.fit(open_.batch.rows.schema)


def check_reader(spec: TableSpec, transaction: TableTransaction, hubs: Iterable[str]) -> None:
    """Refuse a hub whose events another consumer group has filled the table with."""
    for hub in hubs:
        if (group := transaction.reader_beside(hub)) is not None:
            raise claims.another_reader(spec, group)


def take_order(open_: OpenBatch) -> None:
    recorded = open_.transaction.recorded_order()
    order = order_of(open_.spec, kind_of_order(open_.batch), deletes=open_.batch.delete is not None)
    check_order(recorded, open_.spec, order)
    open_.order = recorded.after(order)


def leave_out_duplicates(open_: OpenBatch, events: list[IdentifiedEvent]) -> int | None:
    """Judge which of these events were sent before, and remember the others; the time that is recorded as reached."""
    identities, memory = open_.batch.identities, open_.transaction
    assert identities is not None
    known = memory.known_identities({one.identity for one in events})
    reached = memory.identities_reached() if events else None
    verdict = duplicates.judge(events, known, identities.window, reached, int(open_.now * 1_000_000))
    memory.remember_identities(verdict.remembered)
    open_.verdict, open_.kept = verdict, open_.kept.without(verdict.dropped)
    return reached


def fill_in(open_: OpenBatch) -> None:
    if open_.spec.unavailable_value is not None:
        open_.batch = unchanged.filled(open_.batch, open_.kept, open_.spec, open_.transaction)


def write(open_: OpenBatch) -> None:
    assert open_.order is not None
    open_.written = open_.transaction.write(
        open_.batch, open_.kept, open_.order, again=open_.batch.again is not None, each_row=open_.each_row
    )
