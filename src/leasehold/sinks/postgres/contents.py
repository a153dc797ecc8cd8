"""How much an entity table in Postgres holds, and what is set aside beside it, for whoever only looks.

Owns the counts. Promises to make and change nothing. Where a table is not there yet, there is nothing in it. `shown` is
the database as errors name it.
"""

from __future__ import annotations

from leasehold.sinks.base import TableContents
from leasehold.sinks.beside.outbox import table as outbox
from leasehold.sinks.beside.outbox.table import OUTBOX
from leasehold.sinks.beside.parking import table as parked
from leasehold.sinks.beside.parking.table import PARKED
from leasehold.sinks.beside.set_aside.contract import SetAsideCounts
from leasehold.sinks.postgres import rejected
from leasehold.sinks.postgres.catalog import check_tables, kind_of_relation
from leasehold.sinks.postgres.session import Session


def of_tables(session: Session, shown: str) -> TableContents:
    """What the table holds."""
    mine = (session.spec.name, session.spec.rejected)
    check_tables(session, mine, shown)
    counts = [
        session.one(f"SELECT count(*) FROM {session.names.of(name)}") if kind_of_relation(session, name) else 0
        for name in mine
    ]
    return TableContents(*counts)


def set_aside(session: Session, shown: str) -> SetAsideCounts:
    """What is set aside beside it."""
    check_tables(session, [session.spec.rejected, PARKED, OUTBOX], shown)
    rows = rejected.counts(session) if kind_of_relation(session, session.spec.rejected) else (0, 0)
    count, oldest, following = parked.counts(session)
    return SetAsideCounts(*rows, count, oldest, following, outbox.counts(session))
