"""The SQL of ownership and checkpoints, in the form that both databases read (`database.statements`).

Owns each statement once, and the few words that a database has for itself (`Words`). Pure.

A record is compared and written in one statement, under the lock of its row. Many records come in key order, no key
twice, so that two statements that lock the same rows do not wait for each other.
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

    value     SQL of a record's value in a column
    given     the FROM, or USING, that such values need, with the name by which a step calls its records
    locked    the same, where the records that are compared by their ETag are locked in this order
    written   the RETURNING of a statement that says which records were written, by these columns
    clock     the columns that say when a record was written, and SQL for what they are now
    began     SQL for the time at which a statement began, which is one time wherever it stands in the statement
    seconds   SQL for a column's time in seconds of the clock
    whole     SQL for whether a stored number is a whole one, this or more
    """

    value: Callable[[str], str]
    given: Callable[[str, str, Mapping[str, Kind]], str]
    locked: Callable[[str, Mapping[str, Kind]], str]
    written: Callable[[str], str]
    clock: Mapping[str, str]
    began: str
    seconds: Callable[[str], str]
    whole: Callable[[str, int], str]


def _names(columns: Iterable[str]) -> str:
    return ", ".join(map(quoted, columns))


def _settings(columns: Iterable[str]) -> list[str]:
    """What gives these columns the values of the row that was to be inserted."""
    return [f"{quoted(name)} = excluded.{quoted(name)}" for name in columns]


def _upsert(table: str, columns: Mapping[str, Kind], words: Words, settings: Iterable[str]) -> str:
    """What writes the records of a step, each under its partition; what comes behind may say what is set, and when."""
    return f"""
INSERT INTO {table} AS stored ({_names(PARTITION)}, {_names(columns)})
{_selected("records", {**PARTITION, **columns}, words)} WHERE true
ON CONFLICT ({_names(PARTITION)}) DO UPDATE SET {", ".join(settings)}"""


def _selected(name: str, columns: Mapping[str, Kind], words: Words) -> str:
    return f"SELECT {', '.join(map(words.value, columns))} {words.given('FROM', name, columns)}"


def _deletion(table: str, columns: Mapping[str, Kind], words: Words) -> str:
    """What removes the records of a step that are as they say."""
    same = " AND ".join(f"stored.{name} = {words.value(name)}" for name in columns)
    return f"DELETE FROM {table} AS stored {words.given('USING', 'records', columns)} WHERE {same}"


class Statements:
    """The statements in the words of a database."""

    def __init__(self, words: Words) -> None:
        clock = words.clock
        value, written = words.value, words.written
        now = ["etag = %(etag)s", *(f"{name} = {time}" for name, time in clock.items())]
        times = ", ".join(clock.values())
        began = ", ".join(words.began if name == "last_modified" else time for name, time in clock.items())
        self.listed = {
            table: ", ".join(words.seconds(name) if name in ("created", "last_modified") else name for name in columns)
            for table, columns in _LISTED.items()
        }

        stored = ", ".join(f"stored.{name}" for name in PARTITION)
        said = written(f"{stored}, {words.seconds('stored.last_modified')}")
        self.claim_new = f"""
INSERT INTO {OWNERSHIP} AS stored ({_names(PARTITION)}, {_names(OWNED)}, etag, {_names(clock)})
SELECT {", ".join(map(value, [*PARTITION, *OWNED]))}, %(etag)s, {times}
{words.given("FROM", "new_records", {**PARTITION, **OWNED})} WHERE true
ON CONFLICT DO NOTHING {said}
"""

        def known(*same: str) -> str:
            owned = [f"{quoted(name)} = {value(name)}" for name in OWNED]
            conditions = [f"stored.{name} = {value(name)}" for name in (*PARTITION, *same)]
            return f"""
UPDATE {OWNERSHIP} AS stored SET {", ".join([*owned, *now])}
{words.locked("records", {**PARTITION, **OWNED, "expected": "text"})}
WHERE {" AND ".join(conditions)} AND stored.etag = {value("expected")} {said}
"""

        self.claim_known = known()
        self.renew = known("owner_id", "owner_level")
        self.present = f"""
INSERT INTO {PRESENCE} ({_names(OWNER)}, {_names(PRESENT)}, created, etag, {_names(clock)})
SELECT {", ".join(map(value, [*OWNER, *PRESENT]))}, {words.began}, %(etag)s, {began}
{words.given("FROM", "presences", {**OWNER, **PRESENT})} WHERE true
ON CONFLICT ({_names(OWNER)}) DO UPDATE SET {", ".join([*_settings(PRESENT), *now])}
"""
        self.withdraw_presence = _deletion(PRESENCE, OWNER, words)
        self.ask = _upsert(ASK, ASKED, words, _settings(ASKED))
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
{written(_names(PARTITION))}
"""
        self.stands = f"""
SELECT {_names(PARTITION)}, sequence_number, owner_level FROM {CHECKPOINT}
WHERE ({_names(PARTITION)}) IN ({_selected("records", PARTITION, words)})
"""


BOUND_TO = f"SELECT {_names(BOUND)} FROM {BINDING} WHERE {OF_GROUP}"
_BIND = f"""
INSERT INTO {BINDING} AS stored ({_names(GROUP)}, {_names(BOUND)})
VALUES ({", ".join(f"%({name})s" for name in (*GROUP, *BOUND))})
ON CONFLICT ({_names(GROUP)}) DO UPDATE SET"""
BIND = f"{_BIND} pipeline = stored.pipeline RETURNING {_names(BOUND)}"
REBIND = f"{_BIND} {', '.join(_settings(BOUND))} RETURNING {_names(BOUND)}"
