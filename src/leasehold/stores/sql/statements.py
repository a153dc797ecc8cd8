"""The SQL of ownership and checkpoints, in the form that both databases read (`database.statements`).

Owns each statement once, and the few words that a database has for itself (`Words`). Pure.

A record is compared and written in one statement, under the lock of its row: it is inserted with the ETag that it is
expected to have, and where it exists, that ETag decides whether it is written. One that should be there and is not is
left out; stores never delete it. Many records come in key order, no key twice, so that two statements that lock the
same rows do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from leasehold.database.statements import quoted
from leasehold.database.tables import Kind
from leasehold.stores.sql.tables import (
    ASK,
    ASKED,
    BINDING,
    BOUND,
    CHECKPOINT,
    GROUP,
    OWNED,
    OWNER,
    OWNERSHIP,
    PARTITION,
    PRESENCE,
    PRESENT,
    PROGRESS,
)

OF_GROUP = " AND ".join(f"{name} = %({name})s" for name in GROUP)

_LISTED = {
    OWNERSHIP: ("partition", "owner_id", "owner_level", "etag", "last_modified", *list(OWNED)[2:]),
    PRESENCE: ("owner_id", *PRESENT, "created", "last_modified", "etag"),
    ASK: ("partition", *ASKED),
}
"""What is listed of a group's records, in the order in which `records.py` takes it."""


@dataclass(frozen=True, slots=True)
class Words:
    """What the databases call differently.

    given     SQL of the records of a step, as rows of these columns called `new`; `name` tells two steps apart
    clock     the columns that say when a record was written, and SQL for what they are now
    seconds   SQL for a column's time in seconds of the clock
    whole     SQL for whether a stored number is a whole one, this or more
    """

    given: Callable[[str, Mapping[str, Kind]], str]
    clock: Mapping[str, str]
    seconds: Callable[[str], str]
    whole: Callable[[str, int], str]


def _names(columns: Iterable[str]) -> str:
    return ", ".join(map(quoted, columns))


def _settings(columns: Iterable[str]) -> list[str]:
    """What gives these columns the values of the row that was to be inserted."""
    return [f"{quoted(name)} = excluded.{quoted(name)}" for name in columns]


def _same(table: str, columns: Iterable[str]) -> str:
    return " AND ".join(f"{table}.{name} = new.{name}" for name in columns)


def _upsert(table: str, columns: Mapping[str, Kind], words: Words, settings: Iterable[str]) -> str:
    """What writes the records of a step, each under its partition; what comes behind may say what is set, and when."""
    return f"""
INSERT INTO {table} AS stored ({_names(PARTITION)}, {_names(columns)})
SELECT {_names(PARTITION)}, {_names(columns)} FROM {words.given("records", {**PARTITION, **columns})} WHERE true
ON CONFLICT ({_names(PARTITION)}) DO UPDATE SET {", ".join(settings)}"""


def _deletion(table: str, columns: Mapping[str, Kind], words: Words) -> str:
    """What removes the records of a step that are as they say."""
    named = f"SELECT {_names(columns)} FROM {words.given('records', columns)}"
    return f"DELETE FROM {table} WHERE ({_names(columns)}) IN ({named}) RETURNING {_names(columns)}"


class Statements:
    """The statements in the words of a database."""

    def __init__(self, words: Words) -> None:
        clock = words.clock
        written = ["etag = %(etag)s", *(f"{name} = {now}" for name, now in clock.items())]
        modified = words.seconds("last_modified")
        self.listed = {
            table: ", ".join(words.seconds(name) if name in ("created", "last_modified") else name for name in columns)
            for table, columns in _LISTED.items()
        }

        def owned(condition: str = "") -> str:
            return f"""
INSERT INTO {OWNERSHIP} AS stored ({_names(PARTITION)}, {_names(OWNED)}, etag, {_names(clock)})
SELECT {_names(PARTITION)}, {_names(OWNED)}, coalesce(expected, %(etag)s), {", ".join(clock.values())}
FROM {words.given("records", {**PARTITION, **OWNED, "expected": "text"})}
WHERE expected IS NULL OR EXISTS (SELECT 1 FROM {OWNERSHIP} AS known WHERE {_same("known", PARTITION)})
ON CONFLICT ({_names(PARTITION)}) DO UPDATE SET {", ".join([*_settings(OWNED), *written])}
WHERE stored.etag = excluded.etag {condition}
RETURNING {_names(PARTITION)}, {modified}
"""

        self.claim = owned()
        self.renew = owned("AND stored.owner_id = excluded.owner_id AND stored.owner_level = excluded.owner_level")
        self.present = f"""
INSERT INTO {PRESENCE} ({_names(OWNER)}, {_names(PRESENT)}, created, etag, {_names(clock)})
SELECT {_names(OWNER)}, {_names(PRESENT)}, {clock["last_modified"]}, %(etag)s, {", ".join(clock.values())}
FROM {words.given("presences", {**OWNER, **PRESENT})} WHERE true
ON CONFLICT ({_names(OWNER)}) DO UPDATE SET {", ".join([*_settings(PRESENT), *written])}
RETURNING owner_id
"""
        self.withdraw_presence = _deletion(PRESENCE, OWNER, words)
        self.ask = _upsert(ASK, ASKED, words, _settings(ASKED)) + " RETURNING partition"
        self.withdraw_asks = _deletion(ASK, {**PARTITION, **ASKED}, words)

        self.checkpoints = f"SELECT partition, {_names(PROGRESS)} FROM {CHECKPOINT} WHERE {OF_GROUP}"
        readable = f"{words.whole('stored.owner_level', 0)} AND {words.whole('stored.sequence_number', -1)}"
        higher = "excluded.owner_level > stored.owner_level"
        self.raise_owner_level = f"""{_upsert(CHECKPOINT, PROGRESS, words, [])}
owner_level = CASE WHEN {readable} AND {higher} THEN excluded.owner_level ELSE stored.owner_level END
RETURNING {_names(PARTITION)}, {_names(PROGRESS)}
"""
        self.update_checkpoints = f"""{_upsert(CHECKPOINT, PROGRESS, words, _settings(PROGRESS))}
WHERE NOT ({readable}) OR {higher}
  OR (excluded.owner_level = stored.owner_level AND excluded.sequence_number >= stored.sequence_number)
RETURNING {_names(PARTITION)}
"""
        self.stands = f"""
SELECT {", ".join(f"stored.{name}" for name in PARTITION)}, stored.sequence_number, stored.owner_level
FROM {CHECKPOINT} AS stored JOIN {words.given("records", {**PARTITION, **PROGRESS})} ON {_same("stored", PARTITION)}
"""


BOUND_TO = f"SELECT {_names(BOUND)} FROM {BINDING} WHERE {OF_GROUP}"
_BIND = f"""
INSERT INTO {BINDING} AS stored ({_names(GROUP)}, {_names(BOUND)})
VALUES ({", ".join(f"%({name})s" for name in (*GROUP, *BOUND))})
ON CONFLICT ({_names(GROUP)}) DO UPDATE SET"""
BIND = f"{_BIND} pipeline = stored.pipeline RETURNING {_names(BOUND)}"
REBIND = f"{_BIND} {', '.join(_settings(BOUND))} RETURNING {_names(BOUND)}"
