"""How much an entity table holds, and what is set aside beside it, for whoever only looks.

Owns the counts. Makes and changes nothing: where a table is not there yet, there is nothing in it.
"""

from __future__ import annotations

from leasehold.sinks.base import TableContents
from leasehold.sinks.beside.outbox import table as outbox
from leasehold.sinks.beside.parking import table as parked
from leasehold.sinks.beside.session import Session
from leasehold.sinks.beside.set_aside import rejected
from leasehold.sinks.beside.skipping import table as skips
from leasehold.sinks.beside.skipping.table import SKIP
from leasehold.sinks.set_aside import SetAsideCounts


def of_tables(session: Session) -> TableContents:
    """What the table holds."""
    tables = (session.spec.name, session.spec.rejected)
    counts = [session.one(f"SELECT count(*) FROM {session.of(name)}") if session.there(name) else 0 for name in tables]
    return TableContents(*counts)


def set_aside(session: Session) -> SetAsideCounts:
    """What is set aside beside it."""
    rows = rejected.counts(session) if session.there(session.spec.rejected) else (0, 0)
    count, oldest, following = parked.counts(session)
    to_skip = skips.count(session) if session.there(SKIP) else 0
    return SetAsideCounts(*rows, count, oldest, following, outbox.counts(session), to_skip)
