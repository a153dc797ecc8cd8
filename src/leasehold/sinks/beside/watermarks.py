"""How far an entity table has been filled: the table `leasehold_watermark`, one row a partition. The rules are `fence`.

Owns its SQL, but for the locks: every function here runs inside a transaction of the caller's, which has locked the
rows that it reads and writes (SQLite: the database).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from leasehold.database.tables import Kind
from leasehold.printable import printable
from leasehold.sinks.beside.session import MINE, Session, mine_of
from leasehold.sinks.rules import claims
from leasehold.sinks.rules.fence import Lane, Watermark
from leasehold.sinks.rules.table_spec import TableSpec

WATERMARK = "leasehold_watermark"

OF_READER = f"{MINE} AND consumer_group = %(group)s"
"""What is kept of the table as its consumer group has filled it. Its values are `of_reader`."""

_KEYS = ("pipeline", "entity_table", "consumer_group", "hub", "partition")
_COLUMNS: dict[str, Kind] = {
    **dict.fromkeys(_KEYS, "text"),
    "sequence_number": "bigint",
    "owner_level": "bigint",
    "whole": "boolean",
    "disputed": "boolean",
    "enqueued_time": "double precision",
}
_MOST_SAID = 1_000  # tables are not told for ever
_said: set[tuple[str, str, str]] = set()

logger = logging.getLogger(__name__)


def of_reader(spec: TableSpec, lane: Lane | None = None) -> dict[str, Any]:
    """The values of `OF_READER`, with `hub` and `partition` if there is one."""
    return {**mine_of(spec, lane), "group": spec.consumer_group}


def read(session: Session, hubs: Iterable[str]) -> dict[Lane, Watermark]:
    """The watermarks of all partitions of these hubs that have one.

    A partition whose watermark says no number, since somebody else has written it, is in dispute: the others are read.
    """
    columns = ("sequence_number", "owner_level", "whole", "disputed", "changes", "enqueued_time")
    query = (
        f"SELECT partition, {', '.join(map(session.anything, columns))} "
        f"FROM {session.of(WATERMARK)} WHERE {OF_READER} AND hub = %(hub)s AND {session.sound(['partition'])}"
    )
    return {
        (hub, partition): _watermark(session.spec, partition, *mark)
        for hub in hubs
        for partition, *mark in session.rows(query, **of_reader(session.spec), hub=hub)
    }


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
            *(spec.called, printable(partition), printable(repr(number)[:80]), printable(repr(level)[:80])),
        )
    return Watermark(disputed=True)


def write(session: Session, marks: Mapping[Lane, Watermark]) -> None:
    """Write watermarks as they are given, but for their counts of changes, which stay."""
    if not marks:
        return
    spec = session.spec
    rows = [
        (
            *(spec.pipeline, spec.name, spec.consumer_group, *lane),
            *(mark.sequence_number, mark.owner_level, mark.whole, mark.disputed, mark.enqueued_time),
        )
        for lane, mark in sorted(marks.items())
    ]
    claims.check_marked(spec, session.put(WATERMARK, _COLUMNS, _KEYS, rows), len(rows))


def count_change(session: Session, lanes: Collection[Lane] | None = None) -> None:
    """Note that entities of these partitions, or of any, were written or forgotten outside of a batch."""
    which, values = "", dict[str, Any]()
    if lanes is not None:
        asked, values = session.asked("asked", {"of_hub": "text", "name": "text"}, sorted(lanes))
        which = f" AND (hub, partition) IN (SELECT of_hub, asked.name FROM {asked})"
    session.run(
        f"UPDATE {session.of(WATERMARK)} SET changes = changes + 1 WHERE {OF_READER}{which}",
        **of_reader(session.spec),
        **values,
    )


def leave_none_whole(session: Session) -> None:
    """Note that nobody knows what the last batch has read: rule 9 of the fence."""
    session.run(
        f"UPDATE {session.of(WATERMARK)} SET whole = false WHERE {OF_READER} AND whole", **of_reader(session.spec)
    )


def reader_beside(session: Session, hub: str) -> str | None:
    """Another consumer group that the table has been filled by from this hub."""
    found = session.one(
        f"SELECT consumer_group FROM {session.of(WATERMARK)} "
        f"WHERE {MINE} AND consumer_group <> %(group)s AND hub = %(hub)s LIMIT 1",
        **of_reader(session.spec),
        hub=hub,
    )
    return None if found is None else str(found)
