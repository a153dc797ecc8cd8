"""What the database keeps beside an entity table: whose it is, how far it has come, and what it knows of keys.

Owns these tables, and their SQL:

    leasehold_table        one row a table: format, pipeline, mode, keys, identity of the sink, and what orders it
    leasehold_watermark    one row a pipeline, table, hub, consumer group and partition
    leasehold_key_<table>  one row a key of an upserted table: the event that wrote it last; also after the
                           entity was deleted, so that a late older event does not bring it back
    <table>_rejected       the events that were set aside (`rejected`)
    leasehold_parked       events that wait, and those of their entity behind them (`sinks.beside.parking`)
    leasehold_outbox       events that handlers have emitted, until they are sent (`sinks.beside.outbox`)
    leasehold_identity_<table>  what events are known by that a producer may send twice (`identities`)
    leasehold_place, leasehold_cleared  where partitions were and when, and up to where memories may have been cleared
                           (`forgetting`)
    leasehold_message, leasehold_message_sent, leasehold_message_entity, leasehold_message_parked  messages of queues
                           that are done, what they were sent as, versions of entities, and messages that wait
                           (`sinks.beside.messages`)
    leasehold_entity       versions of entities whose events are in several partitions (`sinks.beside.entities`)
    leasehold_dropped      of those, what a person has dropped (`sinks.beside.set_aside`)

Promises that a table has one owner: another pipeline, mode or set of keys is refused. Refuses to go on
when the entity table is gone and its watermarks are not: what was applied would be missing for good. Every
function here runs inside a transaction of the caller's, which locks the database from its first statement.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence

from leasehold.printable import printable
from leasehold.sinks.rules import claims
from leasehold.sinks.rules.claims import TableRecord
from leasehold.sinks.rules.columns import quoted
from leasehold.sinks.rules.fence import Lane, Watermark
from leasehold.sinks.rules.ordering import UNKNOWN, Claim, Key
from leasehold.sinks.rules.remembered_order import TableOrder
from leasehold.sinks.rules.table import TableSpec
from leasehold.sinks.sqlite import rejected
from leasehold.sinks.sqlite.shape import exists
from leasehold.sinks.sqlite.upgrades import FORMAT, bring_up_to_date, is_wide, widen

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS leasehold_table (
        name TEXT COLLATE NOCASE PRIMARY KEY, format INTEGER NOT NULL, pipeline TEXT NOT NULL,
        mode TEXT NOT NULL, keys TEXT NOT NULL, sequence_by TEXT, made INTEGER NOT NULL DEFAULT 0,
        sink_id TEXT NOT NULL, ordered_by TEXT, deletes INTEGER) WITHOUT ROWID""",  # sequence_by is the values' kind
    """CREATE TABLE IF NOT EXISTS leasehold_watermark (
        pipeline TEXT, entity_table TEXT COLLATE NOCASE, hub TEXT, consumer_group TEXT, partition TEXT,
        sequence_number INTEGER NOT NULL, owner_level INTEGER NOT NULL, whole INTEGER NOT NULL DEFAULT 0,
        disputed INTEGER NOT NULL DEFAULT 0, changes INTEGER NOT NULL DEFAULT 0,
        timed_number INTEGER, enqueued_time REAL,
        PRIMARY KEY (pipeline, entity_table, hub, consumer_group, partition)) WITHOUT ROWID""",
)
_MARK = ", ".join(  # text that is no UTF-8 would fail the whole query
    [
        *(
            f"iif(typeof({column}) = 'text', CAST({column} AS BLOB), {column})"
            for column in ("sequence_number", "owner_level", "whole", "disputed", "changes")
        ),
        "iif(timed_number = sequence_number AND typeof(enqueued_time) <> 'text', enqueued_time, NULL)",
    ]
)
_KEYS_A_QUERY = 400  # below SQLite's 500 terms of a VALUES
_MOST_SAID = 1_000  # tables are not told for ever
_said: set[tuple[str, str, str]] = set()

logger = logging.getLogger(__name__)


def claim(connection: sqlite3.Connection, spec: TableSpec) -> str:
    """Make the table this pipeline's if it is nobody's, bring it up to date, and return the identity of the sink."""
    row = connection.execute(
        "SELECT format, pipeline, mode, keys, sink_id FROM leasehold_table WHERE name = ?", (spec.name,)
    ).fetchone()
    if row is None:
        return _claim_new(connection, spec)
    record = TableRecord(*row)
    claims.check_record(spec, record, FORMAT)
    if record.format < FORMAT:
        bring_up_to_date(connection, spec)
    elif not is_wide(connection):
        widen(connection)
    return record.sink_id


def _claim_new(connection: sqlite3.Connection, spec: TableSpec) -> str:
    for other in claims.neighbours(spec):
        taken = connection.execute("SELECT name FROM leasehold_table WHERE name = ?", (other,)).fetchone()
        if taken:
            raise claims.too_near(spec, taken[0])
    widen(connection)  # another table of an earlier release may have been here first
    sink_id = str(uuid.uuid4())
    connection.execute(
        "INSERT INTO leasehold_table (name, format, pipeline, mode, keys, sink_id) VALUES (?, ?, ?, ?, ?, ?)",
        (spec.name, FORMAT, spec.pipeline, spec.mode, claims.keys_text(spec), sink_id),
    )
    return sink_id


def check_still_there(connection: sqlite3.Connection, spec: TableSpec) -> None:
    """Refuse to make anew what was there and is gone: by its watermarks nothing is missing."""
    made = connection.execute("SELECT 1 FROM leasehold_table WHERE name = ? AND made", (spec.name,)).fetchone()
    gone = [name for name in (spec.name, *_companion(spec)) if not exists(connection, name)]
    if made and gone:
        raise claims.was_dropped(spec, gone[0])


def forget_dropped(connection: sqlite3.Connection, spec: TableSpec) -> None:
    """If the entity table has been dropped, forget that it was there, and what is known of its keys."""
    if exists(connection, spec.name):
        return
    connection.execute("UPDATE leasehold_table SET made = 0 WHERE name = ?", (spec.name,))
    forget_order(connection, spec)
    for name in (*_companion(spec), spec.identities):
        connection.execute(f"DROP TABLE IF EXISTS {quoted(name)}")


def forget_keys(connection: sqlite3.Connection, spec: TableSpec) -> None:
    """Forget what is known of keys, and what they were ordered by."""
    forget_order(connection, spec)
    for name in _companion(spec):
        if exists(connection, name):
            connection.execute(f"DELETE FROM {quoted(name)}")


def make_companions(connection: sqlite3.Connection, spec: TableSpec) -> None:
    """Make the memory of keys and the table of rejected events, and note that the entity table is there."""
    for name in _companion(spec):
        columns = ", ".join(_key_columns(spec))
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {quoted(name)} ({columns}, hub TEXT NOT NULL, partition TEXT NOT NULL, "
            "sequence_number INTEGER NOT NULL, sequence_by, deleted INTEGER NOT NULL, "
            f"PRIMARY KEY ({columns})) WITHOUT ROWID"
        )
    rejected.make(connection, spec)
    connection.execute("UPDATE leasehold_table SET made = 1 WHERE name = ? AND NOT made", (spec.name,))


def watermarks(connection: sqlite3.Connection, spec: TableSpec, hubs: Iterable[str]) -> dict[Lane, Watermark]:
    """The watermarks of all partitions of these hubs that have one.

    A partition whose watermark says no number, since somebody else has written it, is in dispute: the others are read.
    """
    return {
        (hub, partition): _watermark(spec, partition, number, level, whole, disputed, changes, at)
        for hub in hubs
        for kept, number, level, whole, disputed, changes, at in connection.execute(
            f"SELECT CAST(partition AS BLOB), {_MARK} FROM leasehold_watermark WHERE pipeline = ? "
            "AND entity_table = ? AND consumer_group = ? AND hub = ? AND typeof(partition) = 'text'",
            (spec.pipeline, spec.name, spec.consumer_group, hub),
        )
        if (partition := _text(kept)) is not None
    }


def _text(kept: bytes) -> str | None:
    """A name as it was kept; None for what is not UTF-8, and so no partition's."""
    try:
        return kept.decode()
    except UnicodeDecodeError:
        return None


def _watermark(
    spec: TableSpec,
    partition: str,
    number: object,
    level: object,
    whole: object,
    disputed: object,
    changes: object,
    at: object,
) -> Watermark:
    if isinstance(number, int) and isinstance(level, int):
        time = float(at) if isinstance(at, int | float) and math.isfinite(at) else None
        return Watermark(number, level, bool(whole), bool(disputed), changes if isinstance(changes, int) else 0, time)
    said = (spec.pipeline, spec.name, partition)
    if said not in _said and len(_said) < _MOST_SAID:
        _said.add(said)
        logger.warning(
            "table %s: the watermark of partition %s is invalid (sequence number %s, owner level %s). Nothing of "
            "this partition is applied. Stop every instance, and set it by `leasehold reset`",
            *(spec.name, printable(partition), printable(repr(number)[:80]), printable(repr(level)[:80])),
        )
    return Watermark(disputed=True)


def reader_beside(connection: sqlite3.Connection, spec: TableSpec, hub: str) -> str | None:
    """Another consumer group that the table has been filled by from this hub."""
    row = connection.execute(
        "SELECT consumer_group FROM leasehold_watermark "
        "WHERE pipeline = ? AND entity_table = ? AND hub = ? AND consumer_group <> ? LIMIT 1",
        (spec.pipeline, spec.name, hub, spec.consumer_group),
    ).fetchone()
    return None if row is None else str(row[0])


def set_watermarks(connection: sqlite3.Connection, spec: TableSpec, marks: Mapping[Lane, Watermark]) -> None:
    """Write watermarks as they are given, but for their counts of changes, which stay."""
    written = connection.executemany(
        "INSERT INTO leasehold_watermark (pipeline, entity_table, hub, consumer_group, partition, "
        "sequence_number, owner_level, whole, disputed, timed_number, enqueued_time) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
        "sequence_number = excluded.sequence_number, owner_level = excluded.owner_level, whole = excluded.whole, "
        "disputed = excluded.disputed, timed_number = excluded.timed_number, enqueued_time = excluded.enqueued_time",
        [
            (
                *(spec.pipeline, spec.name, hub, spec.consumer_group, partition),
                *(mark.sequence_number, mark.owner_level, mark.whole, mark.disputed),
                *(mark.sequence_number, mark.enqueued_time),
            )
            for (hub, partition), mark in marks.items()
        ],
    ).rowcount
    claims.check_marked(spec, written, len(marks))


def count_change(connection: sqlite3.Connection, spec: TableSpec, lane: Lane | None = None) -> None:
    """Note that entities of this partition, or of any, were written or forgotten outside of a batch."""
    those = "" if lane is None else " AND hub = ? AND partition = ?"
    connection.execute(
        f"UPDATE leasehold_watermark SET changes = changes + 1 WHERE pipeline = ? AND entity_table = ?{those}",
        (spec.pipeline, spec.name, *(lane or ())),
    )


def leave_none_whole(connection: sqlite3.Connection, spec: TableSpec) -> None:
    """Note that nobody knows what the last batch has read: rule 9 of the fence."""
    connection.execute(
        "UPDATE leasehold_watermark SET whole = 0 "
        "WHERE pipeline = ? AND entity_table = ? AND consumer_group = ? AND whole",
        (spec.pipeline, spec.name, spec.consumer_group),
    )


def recorded_order(connection: sqlite3.Connection, spec: TableSpec) -> TableOrder:
    """What is recorded of the order of the table's rows."""
    row = connection.execute(
        "SELECT ordered_by, sequence_by, deletes FROM leasehold_table WHERE name = ?", (spec.name,)
    ).fetchone()
    expression, kind, deletes = row
    return TableOrder(expression, kind, None if deletes is None else bool(deletes))


def record_order(connection: sqlite3.Connection, spec: TableSpec, order: TableOrder) -> None:
    """Note what the rows just written were ordered by."""
    recorded = recorded_order(connection, spec)
    if (now := recorded.after(order)) != recorded:
        connection.execute(
            "UPDATE leasehold_table SET ordered_by = ?, sequence_by = ?, deletes = ? WHERE name = ?",
            (now.expression, now.kind, now.deletes, spec.name),
        )


def forget_order(connection: sqlite3.Connection, spec: TableSpec) -> None:
    """Rule 3 of `remembered_order`, as far as the record goes."""
    connection.execute(
        "UPDATE leasehold_table SET ordered_by = NULL, sequence_by = NULL, deletes = NULL WHERE name = ?", (spec.name,)
    )


def known_claims(
    connection: sqlite3.Connection, spec: TableSpec, keys: Sequence[Key], *, by_value: bool
) -> dict[Key, Claim]:
    """What earlier batches left in the memory of keys, for these keys only."""
    if not by_value:
        return {key: (hub, partition) for key, hub, partition, _, _ in _known(connection, spec, keys)}
    return {
        key: UNKNOWN if value is None else (value, partition, hub, number)
        for key, hub, partition, number, value in _known(connection, spec, keys)
    }


def known_places(connection: sqlite3.Connection, spec: TableSpec, keys: Sequence[Key]) -> dict[Key, Claim]:
    """The event that has written each of these keys last: its hub, partition and sequence number."""
    return {key: (hub, partition, number) for key, hub, partition, number, _ in _known(connection, spec, keys)}


def _known(
    connection: sqlite3.Connection, spec: TableSpec, keys: Sequence[Key]
) -> Iterator[tuple[Key, str, str, int, object]]:
    """Of each of these keys that is known: hub, partition, sequence number and value of `sequence_by`."""
    columns = _key_columns(spec)
    width = len(columns)
    match = " AND ".join(f"k.{column} = w.column{place}" for place, column in enumerate(columns, 1))
    wanted = ", ".join(f"k.{column}" for column in columns)
    one = f"({', '.join('?' * width)})"
    for start in range(0, len(keys), _KEYS_A_QUERY):
        some = keys[start : start + _KEYS_A_QUERY]
        query = (
            f"SELECT {wanted}, k.hub, k.partition, k.sequence_number, k.sequence_by "
            f"FROM (VALUES {', '.join([one] * len(some))}) w CROSS JOIN {quoted(_companion(spec)[0])} k ON {match}"
        )
        for row in connection.execute(query, [value for key in some for value in key]):
            yield (row[:width], *row[width:])


def remember_keys(
    connection: sqlite3.Connection, spec: TableSpec, rows: Iterable[tuple[object, ...]], *, one_lane: bool = False
) -> int:
    """Note the last event of each key: its columns, hub, partition, sequence number, sequence_by, deleted.

    With `one_lane`, a key that is known from another partition stays as it is. Returns how many were noted.
    """
    columns = ("hub", "partition", "sequence_number", "sequence_by", "deleted")
    bound = ", ".join("?" * (len(spec.keys) + len(columns)))
    noted = ", ".join(f"{column} = excluded.{column}" for column in columns)
    those = " WHERE memory.hub = excluded.hub AND memory.partition = excluded.partition" if one_lane else ""
    return sum(
        connection.executemany(
            f"INSERT INTO {quoted(name)} AS memory VALUES ({bound}) ON CONFLICT DO UPDATE SET {noted}{those}", rows
        ).rowcount
        for name in _companion(spec)
    )


def _companion(spec: TableSpec) -> tuple[str, ...]:
    return (spec.memory,) if spec.memory else ()


def _key_columns(spec: TableSpec) -> list[str]:
    # Numbered: a key may well be called hub, or partition.
    return [f"key_{place}" for place in range(1, len(spec.keys) + 1)]
