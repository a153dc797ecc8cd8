"""Records as rows, and rows as records, of a store in SQL. Pure.

What is read may be of any kind: SQLite keeps a text in a column of numbers, and whoever may write there can write one.
`readable.read` says what becomes of such a row. Postgres lists rows as JSON, which writes 1 for 1.0, and a text for
what is infinite or no number at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from leasehold.model import Ask, Checkpoint, ConsumerGroup, Ownership, Presence
from leasehold.stores.checkpoint_data import data_text, with_data
from leasehold.stores.names import legible
from leasehold.stores.sql.steps import Row
from leasehold.stores.sql.tables import ASKED, OWNED, PRESENT

Key = tuple[str, str, str, str]
"""A partition of a group."""
Values = dict[str, Any]
R = TypeVar("R", Ownership, Checkpoint, Ask)


def to_ownership(group: ConsumerGroup, row: Row) -> Ownership:
    partition, owner, level, etag, modified, *rest = row
    return Ownership(group, partition, owner, level, etag, float(modified), *rest)


def tag_of(row: Row) -> tuple[object, object]:
    """The ETag of an ownership, and when it was written."""
    return row[3], float(row[4])


def to_presence(group: ConsumerGroup, row: Row) -> Presence:
    owner, pipeline, strategy, capacity, maximum, created, modified, etag = row
    return Presence(group, owner, pipeline, strategy, float(capacity), maximum, float(created), float(modified), etag)


def to_ask(group: ConsumerGroup, row: Row) -> Ask:
    return Ask(group, *row)


def to_checkpoint(group: ConsumerGroup, row: Row) -> Checkpoint:
    partition, number, level, offset, data = row
    return with_data(Checkpoint(group, partition, number, level, offset), data)


def keys_apart(records: Sequence[R]) -> Iterable[list[tuple[int, R]]]:
    """The records with their positions, in key order: one list, and one more for each time that a key comes again."""
    lists: list[dict[Key, tuple[int, R]]] = []
    times: dict[Key, int] = {}
    for position, record in enumerate(records):
        key = key_of(record)
        times[key] = nth = times.get(key, -1) + 1
        if nth == len(lists):
            lists.append({})
        lists[nth][key] = position, record
    return [[one[key] for key in sorted(one)] for one in lists]


def key_of(record: Ownership | Checkpoint | Ask) -> Key:
    return record.group.namespace, record.group.hub, record.group.name, record.partition


def group_values(group: ConsumerGroup) -> Values:
    return {"namespace": group.namespace, "hub": group.hub, "consumer_group": group.name}


def ownership_values(record: Ownership) -> Values:
    values = _values(record, "partition", *OWNED)
    return {**values, "expected": record.etag, "last_error": legible(record.last_error)}


def presence_values(presence: Presence) -> Values:
    return _values(presence, "owner_id", *PRESENT)


def ask_values(ask: Ask) -> Values:
    return _values(ask, "partition", *ASKED)


def checkpoint_values(checkpoint: Checkpoint) -> Values:
    values = _values(checkpoint, "partition", "sequence_number", "owner_level", "offset")
    return {**values, "data": data_text(checkpoint)}


def _values(record: Ownership | Presence | Ask | Checkpoint, *columns: str) -> Values:
    """The values of columns that are called as the record's own fields."""
    return {**group_values(record.group), **{name: getattr(record, name) for name in columns}}
