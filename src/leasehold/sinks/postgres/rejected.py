"""The events that were set aside, with a reason: the table `<table>_rejected` beside an entity table in Postgres.

Owns this table, and its SQL. As in SQLite a row has an identity, hub, partition, sequence number and place, is there
once however often the event is read, and the rejected rows of an event are those of its latest reading. The `body` is
bytes; `is_text` says that they are text, in UTF-8: a body may have a NUL, which Postgres holds in no text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from leasehold.errors import SchemaMismatch
from leasehold.sinks.beside.set_aside.contract import RejectedRow
from leasehold.sinks.beside.set_aside.kept import EVENT, row_of
from leasehold.sinks.postgres.session import Session
from leasehold.sinks.rules.fence import Admission
from leasehold.sinks.rules.rejected import Rejected

_ALL = ("hub", "partition", "sequence_number", "place", "body", "is_text", "reason", "source", "rejected_at")


_DEAD = r'"deliveries":\s*\d+,\s*"traceback":\s*"'
"""In the source of an event whose handler has raised; text, since JSON of others may be none to the server."""


def make_or_check(session: Session, *, there: bool) -> None:
    """Make the table unless it is there. Raises `SchemaMismatch` for another one of its name."""
    spec = session.spec
    if not there:
        session.run(
            f'CREATE TABLE {session.names.rejected} (hub text COLLATE "C", partition text COLLATE "C", '
            "sequence_number bigint, place integer, body bytea, is_text boolean NOT NULL, reason text NOT NULL, "
            "source text, rejected_at timestamptz NOT NULL, PRIMARY KEY (hub, partition, sequence_number, place))"
        )
        session.run(f"CREATE INDEX ON {session.names.rejected} (rejected_at)")
        return
    columns = session.rows(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%(it)s) AND attnum > 0 AND NOT attisdropped",
        it=session.names.rejected.replace("%%", "%"),
    )
    if {name for (name,) in columns} != set(_ALL):
        raise SchemaMismatch(
            f"{spec.rejected} is where rejected events go, and has other columns than {', '.join(_ALL)}. "
            "Rename it, or the entity table"
        )


def replace(session: Session, read: Iterable[Admission], rows: Sequence[Rejected], now: float) -> None:
    """Set `rows` aside in the place of whatever an earlier reading of the events `read` has set aside."""
    ranges = [(*each.range.lane, max(each.after + 1, each.range.first), each.range.last) for each in read]
    if ranges:
        hubs, partitions, firsts, lasts = map(list, zip(*ranges, strict=True))
        session.run(
            f"DELETE FROM {session.names.rejected} AS old USING unnest(%(hubs)s::text[], %(partitions)s::text[], "
            "%(firsts)s::bigint[], %(lasts)s::bigint[]) AS read(hub, partition, first, last) WHERE old.hub = read.hub "
            "AND old.partition = read.partition AND old.sequence_number BETWEEN read.first AND read.last",
            hubs=hubs,
            partitions=partitions,
            firsts=firsts,
            lasts=lasts,
        )
    insert(session, rows, now)


def insert(session: Session, rows: Sequence[Rejected], now: float) -> None:
    """Set `rows` aside, of events that have none."""
    session.many(
        f"INSERT INTO {session.names.rejected} ({', '.join(_ALL)}) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, to_timestamp(%s))",
        [
            (
                *(row.hub, row.partition, row.sequence_number, row.place),
                *as_bytes(row.body),
                row.reason.replace("\0", "\\0"),
                row.source,
                now,
            )
            for row in rows
        ],
    )


def counts(session: Session) -> tuple[int, int]:
    """How many rows there are, and how many of dead letters: see `SetAsideCounts`. The table is there."""
    [(count, dead)] = session.rows(
        f"SELECT count(*), count(*) FILTER (WHERE source ~ %(dead)s) FROM {session.names.rejected}", dead=_DEAD
    )
    return count, dead


def as_bytes(body: object) -> tuple[bytes | None, bool]:
    """A body as it is kept, and whether it is text."""
    if body is None or isinstance(body, bytes):
        return body, False
    return str(body).encode("utf-8", "replace"), True


def page(session: Session, after: RejectedRow | None, at_most: int) -> list[RejectedRow]:
    """Rows behind `after`, in their order."""
    where = "" if after is None else f"WHERE ({EVENT}) > (%(hub)s, %(partition)s, %(number)s, %(place)s) "
    event = None if after is None else after.event
    rows = session.rows(
        f"SELECT {EVENT}, {session.rejected_columns} FROM {session.names.rejected} {where}ORDER BY {EVENT} "
        "LIMIT %(at_most)s",
        hub=event and event.hub,
        partition=event and event.partition,
        number=event and event.sequence_number,
        place=None if after is None else after.place,
        at_most=at_most,
    )
    return [row_of(row) for row in rows]
