"""Whose an entity table is, whether it was there, and what orders its rows: the table `leasehold_table`.

Owns its SQL, one row for each entity table of a database; the rules are `claims` and `remembered_order`. Every function
here runs inside a transaction of the caller's. No row is ever removed.
"""

from __future__ import annotations

import uuid

from leasehold.sinks.beside.session import Session
from leasehold.sinks.rules import claims
from leasehold.sinks.rules.claims import TableRecord
from leasehold.sinks.rules.remembered_order import TableOrder

TABLE = "leasehold_table"


def check_formats(session: Session, written: int) -> None:
    """Refuse a database with a table of an earlier format than is `written` here: all its tables share some.

    For a database in which `TABLE` may not be there yet.
    """
    if session.there(TABLE):
        query = f"SELECT name, format FROM {session.of(TABLE)} WHERE format < %(written)s ORDER BY name LIMIT 1"
        for name, stated in session.rows(query, written=written):
            claims.check_format(name, stated, written)


def claim(session: Session, written: int) -> str:
    """Make the table this pipeline's if it is nobody's, in the format that is `written` here; return its identity.

    Refuses another pipeline's, and one of another format.
    """
    spec = session.spec
    record = _record(session)
    if record is None:
        check_formats(session, written)
        for other in claims.neighbours(spec):
            query = f"SELECT name FROM {session.of(TABLE)} WHERE name = %(other)s"
            if (taken := session.one(query, other=other)) is not None:
                raise claims.too_near(spec, taken)
        session.run(
            f"INSERT INTO {session.of(TABLE)} (name, format, pipeline, mode, keys, sink_id) "
            "VALUES (%(name)s, %(format)s, %(pipeline)s, %(mode)s, %(keys)s, %(id)s) ON CONFLICT DO NOTHING",
            name=spec.name,
            format=written,
            pipeline=spec.pipeline,
            mode=spec.mode,
            keys=claims.keys_text(spec),
            id=str(uuid.uuid4()),
        )
        record = _record(session)
        assert record is not None
    claims.check_record(spec, record, written)
    return record.sink_id


def _record(session: Session) -> TableRecord | None:
    query = f"SELECT format, pipeline, mode, keys, sink_id FROM {session.of(TABLE)} WHERE name = %(name)s"
    rows = session.rows(query, name=session.spec.name)
    return TableRecord(*rows[0]) if rows else None


def recorded_identity(session: Session) -> str | None:
    """See `Sink`. For a database in which `TABLE` may not be there yet, and outside of a transaction too."""
    record = _record(session) if session.there(TABLE) else None
    return None if record is None else record.sink_id


def check_still_there(session: Session) -> None:
    """Refuse to make anew what was there and is gone: by its watermarks nothing is missing."""
    spec = session.spec
    gone = [name for name in (spec.name, *([spec.memory] if spec.memory else [])) if not session.there(name)]
    if gone and session.one(f"SELECT made FROM {session.of(TABLE)} WHERE name = %(name)s", name=spec.name):
        raise claims.was_dropped(spec, gone[0])


def note_made(session: Session, *, is_new: bool) -> None:
    """Note whether the entity table is there."""
    session.run(
        f"UPDATE {session.of(TABLE)} SET made = %(made)s WHERE name = %(name)s AND made <> %(made)s",
        name=session.spec.name,
        made=is_new,
    )


def order(session: Session) -> TableOrder:
    """What is recorded of the order of the table's rows. While that is not all, nobody else can record it."""
    query = f"SELECT ordered_by, sequence_by, deletes, rows_count FROM {session.of(TABLE)} WHERE name = %(name)s"
    [(expression, kind, deletes, rows_count)] = session.rows(query, name=session.spec.name)
    if session.locking and (expression is None or deletes is None):
        [(expression, kind, deletes, rows_count)] = session.rows(f"{query} {session.locking}", name=session.spec.name)
    return TableOrder(expression, kind, None if deletes is None else bool(deletes), bool(rows_count))


def note_order(session: Session, written: TableOrder) -> None:
    """Note what the rows just written were ordered by."""
    recorded = order(session)
    if (now := recorded.after(written)) != recorded:
        _set_order(session, now)


def forget_order(session: Session, *, rows_count: bool) -> None:
    """Rule 3 of `remembered_order`, as far as the record goes. `rows_count` as in rule 6, from now on."""
    _set_order(session, TableOrder(None, None, None, rows_count))


def _set_order(session: Session, new: TableOrder) -> None:
    session.run(
        f"UPDATE {session.of(TABLE)} SET ordered_by = %(expression)s, sequence_by = %(kind)s, deletes = %(deletes)s, "
        "rows_count = %(rows_count)s WHERE name = %(name)s",
        name=session.spec.name,
        expression=new.expression,
        kind=new.kind,
        deletes=new.deletes,
        rows_count=new.rows_count,
    )
