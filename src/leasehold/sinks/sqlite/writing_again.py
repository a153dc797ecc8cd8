"""Rows of rejected events that are tried again, written to a table in SQLite: rule 2 of `set_aside`.

Runs inside a transaction of the caller's, which has locked the database.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from leasehold.sinks.beside import clearing, record, watermarks
from leasehold.sinks.beside.set_aside import retrying
from leasehold.sinks.beside.set_aside.trying import Tried
from leasehold.sinks.rules.batch import Batch, Kept
from leasehold.sinks.rules.content import Content, content_of
from leasehold.sinks.rules.ordering import Key, PastOrder
from leasehold.sinks.rules.remembered_order import TableOrder
from leasehold.sinks.rules.row_by_row import Order
from leasehold.sinks.rules.table import TableSpec
from leasehold.sinks.sqlite import memory
from leasehold.sinks.sqlite.session import Session
from leasehold.sinks.sqlite.shape import Layout
from leasehold.sinks.sqlite.writing import SqliteRows, write_rows


def write_again(session: Session, layout: Layout, batch: Batch, kept: Kept, order: TableOrder) -> Tried:
    """Write the rows that are kept, and the memory of their keys."""
    connection, spec = session.connection, session.spec
    content = content_of(batch, layout, kept)
    if spec.keys and (cleared := clearing.cleared_up_to(session)):
        keys = list(dict.fromkeys(content.rows.keys))
        content = retrying.without_doubtful(content, memory.known_places(connection, spec, keys), cleared)
    judge = _order(connection, spec, content, by_value=order.kind is not None)
    written = write_rows(SqliteRows(connection, spec, layout, content.rows), judge)
    watermarks.count_change(session)
    broken = dict(written.broken)
    if isinstance(judge, PastOrder):
        broken |= {index: retrying.not_comparable(lane) for index, lane in judge.conflicts.items()}
    if remembered := list(content.remembered(judge)):
        memory.remember(connection, spec, remembered)
        record.note_order(session, order)
    return Tried(written.applied, written.superseded, content.rejected(broken))


def _order(connection: sqlite3.Connection, spec: TableSpec, content: Content, *, by_value: bool) -> Order:
    """What decides which rows count, under rule 2."""
    if by_value or not spec.keys:

        def claims(keys: Sequence[Key]) -> Mapping[Key, tuple[Any, ...]]:
            return memory.known_claims(connection, spec, keys, by_value=by_value)

        return content.order(claims, keyed=bool(spec.keys))
    rows = content.rows
    known = memory.known_places(connection, spec, list(dict.fromkeys(rows.keys)))
    places = [(*lane, number) for lane, number in zip(rows.lanes, rows.numbers, strict=True)]
    return PastOrder(rows.keys, places, known)
