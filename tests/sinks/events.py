"""Events as Arrow tables, a plain model of an entity table, and a look into the real one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.sqlite.sink import SqliteSink

SCHEMA = pa.schema(
    [
        ("tail", pa.string()),
        ("status", pa.string()),
        ("slot", pa.int64()),
        ("hub", pa.string()),
        ("partition", pa.string()),
        ("sequenceNumber", pa.int64()),
        ("ownerLevel", pa.int64()),
    ]
)
MADE = """CREATE TABLE flights (tail TEXT NOT NULL PRIMARY KEY, status TEXT NOT NULL CHECK (status <> 'bad'),
          slot INTEGER UNIQUE)"""
MADE_APPEND = """CREATE TABLE flights (tail TEXT NOT NULL, status TEXT NOT NULL CHECK (status <> 'bad'),
                 slot INTEGER UNIQUE)"""


class E(NamedTuple):
    """One row; `version` is the value of sequence_by and `gone` that of delete_when, where a test uses them."""

    tail: str | None
    status: str | None = "ok"
    slot: int | None = None
    partition: str = "0"
    number: int = 0
    level: int = 1
    hub: str = "h"
    version: int | None = 0
    gone: bool = False


def batch(events: Iterable[E], *, by_version: bool = False, deletes: bool = False, rejected: Iterable[E] = ()) -> Batch:
    """The events as a batch; those in `rejected` as events that could not be parsed."""
    events, rejected = list(events), list(rejected)
    columns = [[e.tail for e in events], [e.status for e in events], [e.slot for e in events], *_fence(events)]
    aside = None
    if rejected:
        names = ("hub", "partition", "sequenceNumber", "ownerLevel", "body", "reason")
        body, reason = [f"{e.tail}".encode() for e in rejected], ["not JSON"] * len(rejected)
        aside = pa.table(dict(zip(names, [*_fence(rejected), body, reason], strict=True)))
    return Batch(
        pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA),
        aside,
        pa.chunked_array([pa.array([e.version for e in events], pa.int64())]) if by_version else None,
        pa.chunked_array([pa.array([e.gone for e in events], pa.bool_())]) if deletes else None,
    )


def lacking_chunks(*, by_version: bool) -> tuple[Batch, Batch]:
    """Events 0 to 3 are rejected, and 4 is good: a batch without good rows, and one without others that are rejected.

    Columns of no rows have no chunks, as what a filter leaves may have none: PyArrow before 25 ends the process by some
    functions of such a column.
    """
    first = batch([], by_version=by_version, deletes=True, rejected=[E("?", number=0), E("?", number=1)])
    second = batch([E("a", "bad", number=2), E(None, number=3), E("c", number=4)], by_version=by_version)
    assert first.rejected is not None
    no_version = pa.chunked_array([], pa.int64()) if by_version else None
    no_rows, no_rejected = _without_chunks(first.rows), _without_chunks(first.rejected)
    return (
        replace(first, rows=no_rows, sequence_by=no_version, delete=pa.chunked_array([], pa.bool_())),
        replace(second, rejected=no_rejected),
    )


def _without_chunks(table: pa.Table) -> pa.Table:
    return pa.table([pa.chunked_array([], field.type) for field in table.schema], schema=table.schema)


def last_of_keys(*, by_version: bool) -> Batch:
    """A batch for a table that has `a` and `b`: without rules, it gets the last row of each key alone."""
    rows = [E("a", "x"), E("c"), E("b", gone=True), E("a", "y"), E(None), E("c", "z")]
    numbered = [row._replace(number=number, version=number) for number, row in enumerate(rows, 2)]
    return batch(numbered, by_version=by_version, deletes=True, rejected=[E("?", number=8)])


def _fence(events: Sequence[E]) -> list[list[Any]]:
    return [
        [e.hub for e in events],
        [e.partition for e in events],
        [e.number for e in events],
        [e.level for e in events],
    ]


def sink(path: Path, mode: str = "upsert", *, made: bool = False, **settings: Any) -> SqliteSink:
    """The table `flights` at `path`; with `made`, with constraints of its own."""
    if made and not path.exists():
        run(path, MADE if mode == "upsert" else MADE_APPEND)
    keys = ("tail",) if mode == "upsert" else ()
    timeout = settings.pop("timeout", 10.0)
    spec = TableSpec(**{"name": "flights", "pipeline": "p", "mode": mode, "keys": keys, **settings})
    return SqliteSink(path, spec, timeout=timeout)


def run(path: Path, *statements: str) -> None:
    """Change a database behind Leasehold's back."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def look(path: Path, query: str = "SELECT tail, status, slot FROM flights ORDER BY rowid") -> list[tuple[Any, ...]]:
    """What a query gives."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def look_rejected(path: Path) -> list[tuple[Any, ...]]:
    """The rejected events in the order in which they were set aside, as far as the model knows them."""
    return look(path, "SELECT hub, partition, sequence_number FROM flights_rejected ORDER BY rowid")


def left(path: Path) -> list[list[tuple[Any, ...]]]:
    """What a batch leaves, but for when rows were set aside, and in which order rows lie in the file."""
    aside = "SELECT hub, partition, sequence_number, place, body, reason FROM flights_rejected"
    tables = ("flights", "leasehold_key_flights", "leasehold_watermark")
    queries = (aside, *(f"SELECT * FROM {name}" for name in tables))
    return [sorted(look(path, query), key=repr) for query in queries]


@dataclass(frozen=True)
class Rules:
    """What the table refuses beside a NULL and `bad`, in its plainest form; rows are `(tail, status, slot)` by key.

    apart    the slots of two rows are at least so far apart: 1 for a unique index, more for an exclusion constraint
    gates    the slots that another table has, which the table refers to; None if it does not
    booked   keys that another table refers to, once they are there
    held     slots that another table refers to, once they are there
    leaders  whether `status` is the key of a row of this table
    """

    apart: int = 1
    gates: frozenset[int] | None = None
    booked: frozenset[str] = frozenset()
    held: frozenset[int] = frozenset()
    leaders: bool = False

    def refuse(self, rows: Mapping[Any, tuple[str, str, int | None]], key: Any, e: E) -> bool:
        """Whether the row cannot be written as the one of this key."""
        others = [slot for other, (_, _, slot) in rows.items() if other != key and slot is not None]
        if e.slot is not None and any(abs(slot - e.slot) < self.apart for slot in others):
            return True
        if e.slot is not None and self.gates is not None and e.slot not in self.gates:
            return True
        if self.leaders and e.status != e.tail and e.status not in {tail for tail, _, _ in rows.values()}:
            return True
        return key in rows and rows[key][2] in self.held and rows[key][2] != e.slot

    def refuse_delete(self, rows: Mapping[Any, tuple[str, str, int | None]], key: Any) -> bool:
        """Whether the row of this key cannot be removed."""
        if key not in rows:
            return False
        led = self.leaders and any(status == key for other, (_, status, _) in rows.items() if other != key)
        return led or key in self.booked or rows[key][2] in self.held


@dataclass
class Model:
    """What the table should hold: every rule in its plainest form, one row after the other."""

    append: bool = False
    by_version: bool = False
    deletes: bool = False
    rules: Rules = Rules()
    marks: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    rows: dict[Any, tuple[str, str, int | None]] = field(default_factory=dict)
    claims: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    rejected: list[tuple[str, str, int]] = field(default_factory=list)
    rejects_strangers: bool = False

    def apply(self, events: Sequence[E], rejected: Sequence[E] = ()) -> bool:
        """Apply a batch. False, and nothing changed, when a key comes from two partitions, unless that is rejected."""
        before = (dict(self.marks), dict(self.rows), dict(self.claims), list(self.rejected))
        labelled = [*((e, True) for e in events), *((e, False) for e in rejected)]
        lanes = sorted({(e.hub, e.partition, e.level) for e, _ in labelled})
        for hub, partition, level in lanes:
            number, highest = self.marks.get((hub, partition), (-1, 0))
            if level < highest:
                continue
            mine = [(e, ok) for e, ok in labelled if (e.hub, e.partition, e.level) == (hub, partition, level)]
            for e, ok in sorted(mine, key=lambda each: each[0].number):
                if e.number > number and not (self._apply_one(e) if ok else self._reject(e)):
                    self.marks, self.rows, self.claims, self.rejected = before
                    return False
            self.marks[hub, partition] = (max([number, *(e.number for e, _ in mine)]), level)
        return True

    def _apply_one(self, e: E) -> bool:
        if not self.append:
            if e.tail is None or (self.by_version and e.version is None):
                return self._reject(e)
            known = self.claims.get(e.tail)
            claim: tuple[Any, ...] = (
                (e.version, e.partition, e.hub, e.number) if self.by_version else (e.hub, e.partition)
            )
            if known is not None and not self.by_version and known != claim:
                return self.rejects_strangers and self._reject(e)
            if known is not None and self.by_version and claim < known:
                return True
            if self.deletes and e.gone:
                if self.rules.refuse_delete(self.rows, e.tail):
                    return self._reject(e)
                self.rows.pop(e.tail, None)
                self.claims[e.tail] = claim
                return True
        key = len(self.rows) if self.append else e.tail
        if e.tail is None or e.status in (None, "bad") or self.rules.refuse(self.rows, key, e):
            return self._reject(e)
        assert e.status is not None
        self.rows[key] = (e.tail, e.status, e.slot)
        if not self.append:
            self.claims[e.tail] = claim
        return True

    def _reject(self, e: E) -> bool:
        self.rejected.append((e.hub, e.partition, e.number))
        return True
