"""The short way of a batch with which nothing is wrong: one statement notes its keys, another one writes its rows.

Owns the question whether a batch may go this way, and its statements. Promises the outcome of writing every row in the
order of events, or to leave nothing behind: then the batch goes the long way (`merging`), which finds out what was
wrong. So this way does not look into the table beforehand. It looks into the batch where a key comes more than once,
and then alone asks the table how large its rows are, if they may not fit a page.

1. Each key comes once, so all its rows are written, but for those that are older than what is known of their key. Or
   the driver has staged the last row of each key alone (`rows.BatchRows.last`), so that each comes once in staging. Or,
   without `sequence_by`, a key comes more than once, and its last row is written: if all its rows are of one partition,
   none is a delete, none breaks a rule by itself, and all have the same values of unique indexes. Then each of them is
   refused in its turn where the last is refused here, unless they change such a value: so a key that does comes once.
2. A row may be refused for what it is itself, or because another row has its value of a unique index. What a statement
   writes, the database judges row by row, so a row that is refused in its turn is refused here, if at that moment all
   those are there that are in its turn. So new rows, and those that leave the values of unique indexes as they were,
   are written first, in the order of keys, which is fastest: nobody has given up a value by then, and of two that take
   the same the second is refused. Rows that change such a value come next, in the order of events, by which each finds
   those values given up that were in its turn, and no more. Deletes come last. A row may be refused here that would
   have had its value in its turn: then the batch goes the long way, and has the outcome of that.
3. That is so for what the database judges row by row, and where it writes what it is given. It is not for foreign keys,
   exclusion constraints, and unique constraints that are deferrable, which hold at the end of a statement; not where a
   unique index is on a column that the table computes, or of a domain; and not with triggers and partitions, which may
   change rows, and have rules of their own. Tables that have any of this go the long way.
4. A key that was written from another partition is left as it is, without `sequence_by`. Then fewer keys are noted than
   there are, and the batch goes the long way.
5. With `sequence_by`, how many of several rows of a key are older takes what is known of it. That is read without a
   lock, and a key that somebody has noted since then is left as it is. So the keys that were left are to be just those
   whose rows are all older than what was read; else the batch goes the long way.
6. A key that is not remembered may have a row that counts by its own value (`own_values`). The statement that notes and
   locks the keys looks for such rows of those that are new to the memory: if there is one, the batch goes the long way.

Who may do what at the same time: keys are noted in their order, and each is locked with it until the transaction ends,
so batches about the same keys follow one another as on the long way (`memory`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg

from leasehold.database.postgres.troubles import is_the_rows
from leasehold.database.statements import sent
from leasehold.sinks.postgres.concerned import Concerned
from leasehold.sinks.postgres.layout import Layout, TargetColumn
from leasehold.sinks.postgres.memory import Memory
from leasehold.sinks.postgres.names import quoted
from leasehold.sinks.postgres.own_values import OwnColumn
from leasehold.sinks.postgres.session import PostgresSession
from leasehold.sinks.postgres.staging import APART, KEYS, KNOWN, STAGE, Staging
from leasehold.sinks.rules.ordering import Step

T = TypeVar("T")

Known = tuple[Any, ...]
"""What is remembered of a key: `(kid, lane, number, by_number, by_text)`."""

_CLAIM = ("lane", "number", "by_number", "by_text", "gone")
_MOST_FAILURES = 6
"""The most failures in a row that lengthen the row of batches left out."""
_FEW, _PART = 1000, 8
"""At most `_FEW` rows, or one in `_PART`, may change a value of a unique index: with more, the long way is shorter."""


class Chance:
    """Whether a batch of this table tries the short way: after failures in a row, 1, 3, 7 … batches do not.

    Shared by the threads of a sink, which may race for it: all that depends on it is speed.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._left_out = 0

    def taken(self) -> bool:
        """Whether the next batch tries."""
        if self._left_out:
            self._left_out -= 1
            return False
        return True

    def note(self, *, went: bool) -> None:
        """How that went."""
        self._failures = 0 if went else min(self._failures + 1, _MOST_FAILURES)
        self._left_out = 2**self._failures - 1


class _OtherWay(Exception):
    """This batch cannot go the short way; undoes what it has done."""


class AtOnce:
    """The rows of one batch, which are staged; each of another key, unless `repeated`."""

    def __init__(
        self,
        session: PostgresSession,
        layout: Layout,
        *,
        by_value: bool,
        deletes: bool,
        repeated: bool,
        own: OwnColumn | None,
    ) -> None:
        self._own = own
        self._session = session
        self._layout = layout
        self._by_value = by_value
        self._deletes = deletes
        self._repeated = repeated
        self._last = f"{STAGE} AS s JOIN {KEYS} AS k ON k.place = s.place" if repeated else f"{STAGE} AS s"
        self._watermark = session.names.of("leasehold_watermark")
        self._key_values = layout.key_values("s")
        self._is_row = layout.is_row_of(self._key_values)
        self._order = layout.order(self._key_values)

    @property
    def is_possible(self) -> bool:
        """Whether the table lets a batch go this way."""
        found, spec = self._layout.relation, self._session.spec
        if self._repeated and self._by_value:  # how many rows are older takes what was known of their keys
            return False
        if not found.plain or found.foreign or found.exclusions or (spec.spread and not self._by_value):
            return False
        others = {column.name for column in found.columns if column.is_generated or column.is_domain}
        return all(index.immediate and not index.columns & others for index in found.unique)

    def write(self, rows: int) -> int | None:
        """Write these rows; returns how many were older than what is known. None: nothing is done, or left."""
        return self._tried(lambda: self._write(self._gathered() if self._repeated else rows))

    def write_judged(self, rows: int, judge: Callable[[Sequence[Known]], tuple[Step, set[int]]]) -> Step | None:
        """Write these rows as `judge` says, which is given what is known of their keys.

        `judge` returns its judgement, and the numbers of the keys of which all rows are older. Returns the judgement;
        None as `write`.
        """

        def write() -> Step:
            step, older = judge(self._load_known())
            self._write(rows, older)
            return step

        return self._tried(write)

    def _tried(self, write: Callable[[], T]) -> T | None:
        try:
            with self._session.savepoint():
                return write()
        except _OtherWay:
            return None
        except psycopg.errors.CardinalityViolation:  # two values that are different as text are one key
            return None
        except psycopg.Error as error:
            if not is_the_rows(error):
                raise
            return None

    def _gathered(self) -> int:
        """Find the last row of each key; returns how many there are."""
        Staging(self._session, self._layout).analyze()
        Memory(self._session, self._layout, by_value=self._by_value).gather()
        if self._differ() or Concerned(self._session, self._layout, deletes=self._deletes).is_any_alone():
            raise _OtherWay
        return int(self._session.one(f"SELECT count(*) FROM {KEYS}"))

    def _differ(self) -> bool:
        """Whether rows of one key are of two partitions, delete it, or have two values of a unique index."""
        same = f"s.lane = last.lane AND NOT s.gone{' AND NOT last.gone' if self._deletes else ''}"
        if self._unique:
            mine, others = ([f"{of}.c{place}" for place, _ in self._unique] for of in ("s", "last"))
            same += f" AND {_same(mine, others)}"
        return bool(
            self._session.one(
                # Counted: the server would go by loops to find the first one, where there is none.
                f"SELECT count(*) FROM {STAGE} AS s JOIN {KEYS} AS k ON k.kid = s.kid "
                f"JOIN {STAGE} AS last ON last.place = k.place WHERE s.place <> k.place AND NOT ({same})"
            )
        )

    def _write(self, rows: int, older: set[int] | None = None) -> int:
        lost = rows - self._note_keys(as_known=older is not None)
        if lost and (not self._by_value or self._set_lost_apart() != lost):
            raise _OtherWay
        if older is not None and older != {kid for (kid,) in self._session.rows(f"SELECT kid FROM {APART}")}:
            raise _OtherWay
        these = f"NOT EXISTS (SELECT 1 FROM {APART} AS a WHERE a.kid = s.kid)" if lost else "true"
        left = rows - lost
        if self._deletes:
            left -= self._session.one(f"SELECT count(*) FROM {self._last} WHERE s.gone AND {these}")
        written = self._write_those_that_stay(these)
        left = left - written if self._unique else 0
        if left and (left > max(_FEW, rows // _PART) or self._write_those_that_change(these) != left):
            raise _OtherWay
        if self._deletes:
            table = self._session.names.table
            self._session.run(
                f"DELETE FROM {table} AS t USING {self._last} WHERE s.gone AND {these} AND {self._is_row}"
            )
        return lost

    def _write_those_that_stay(self, these: str) -> int:
        """Write rows of new keys, and those that leave the values of unique indexes as they are; returns how many."""
        if self._layout.drawn:
            Staging(self._session, self._layout).analyze()  # or the server reads the whole table to find those there
        where, table, staying = f"NOT s.gone AND {these}", self._session.names.table, ""
        if self._unique:
            names = [quoted(target.name) for _, target in self._unique]
            staying = f" WHERE {_same([f'written.{name}' for name in names], [f'excluded.{name}' for name in names])}"
        statements = self._layout.upserts(table, self._last, where, self._is_row, self._order)
        return sum(self._session.run(statement + staying) for statement in statements)

    def _write_those_that_change(self, these: str) -> int:
        """Write the rows that change a value of a unique index, of keys that come once; returns how many."""
        table = self._session.names.table
        there = [f"t.{quoted(target.name)}" for _, target in self._unique]
        staged = [f"CAST({target.held(f's.c{place}')} AS {sent(target.declared)})" for place, target in self._unique]
        if self._repeated:
            these = f"NOT EXISTS (SELECT 1 FROM {STAGE} AS o WHERE o.kid = s.kid AND o.place <> s.place)"
        source = (
            f"{self._last} JOIN {table} AS t ON {self._is_row} "
            f"WHERE NOT s.gone AND {these} AND NOT {_same(there, staged)} ORDER BY s.place"
        )
        return self._session.run(self._layout.insert(table, source, there=True))

    @property
    def _unique(self) -> list[tuple[int, TargetColumn]]:
        """The columns of unique indexes that rows have values for, with their places.

        But for those of the key, and of an index that has all of the key in it: two keys are never the same there.
        """
        keys = {target.name for target in self._layout.key_targets}
        names = {
            name
            for index in self._layout.relation.unique
            if not (index.plain and keys <= index.columns)
            for name in index.columns - keys
        }
        return [(place, target) for place, target in enumerate(self._layout.targets) if target.name in names]

    def _load_known(self) -> Sequence[Known]:
        """What is known of the keys, none of which is locked yet."""
        Staging(self._session, self._layout).analyze()  # or the server reads all of the memory
        self._session.run(
            f"INSERT INTO {KNOWN} (kid, at, lane, number, by_number, by_text) "
            f"SELECT s.kid, m.ctid, m.lane, m.number, m.by_number, m.by_text FROM {STAGE} AS s "
            f"JOIN {self._session.names.memory} AS m ON {self._is_known}"
        )
        return self._session.rows(f"SELECT kid, lane, number, by_number, by_text FROM {KNOWN}")

    @property
    def _is_known(self) -> str:
        pairs = zip(self._session.names.key_columns, self._key_values, strict=True)
        return " AND ".join(f"m.{key} = {value}" for key, value in pairs)

    def _note_keys(self, *, as_known: bool = False) -> int:
        """Note the event of each key; returns of how many, without those that are to stay as they are.

        With `as_known`, only where what is noted is still what was loaded.
        """
        keys = ", ".join(self._session.names.key_columns)
        claim, values = ", ".join(_CLAIM), ", ".join(self._key_values)
        updates = ", ".join(f"{name} = excluded.{name}" for name in _CLAIM)
        counts = f"NOT {self._older()}" if self._by_value else "m.lane = excluded.lane"
        if as_known:
            counts += f" AND (m.ctid, m.lane, m.number) IN (SELECT at, lane, number FROM {KNOWN})"
        note = (
            f"INSERT INTO {self._session.names.memory} AS m ({keys}, {claim}) "
            f"SELECT {values}, {', '.join(f's.{name}' for name in _CLAIM)} FROM {self._last} ORDER BY {self._order} "
            f"ON CONFLICT ({keys}) DO UPDATE SET {updates} WHERE {counts}"
        )
        return self._session.run(note) if self._own is None else self._noted(note, self._own)

    def _noted(self, note: str, own: OwnColumn) -> int:
        """Run this statement, and refuse keys that are new to the memory where a row has a value (rule 6)."""
        keys = self._session.names.key_columns
        # One row after the other: the server would read all of the table for it, where that seems cheaper to it.
        row = f"SELECT 1 AS one FROM {self._session.names.table} AS t WHERE noted.fresh AND {own.is_there}"
        is_row = self._layout.is_row_of([f"noted.{key}" for key in keys])
        [(noted, rows)] = self._session.rows(
            f"WITH noted AS ({note} RETURNING {', '.join(f'm.{key}' for key in keys)}, m.xmax = 0 AS fresh) "
            f"SELECT count(*), count(own.one) FROM noted LEFT JOIN LATERAL ({row} AND {is_row} LIMIT 1) AS own ON true"
        )
        if rows:
            raise _OtherWay
        return int(noted)

    def _older(self) -> str:
        """Rules 2 and 4 of `ordering`: the claim of the row is below the one that is known.

        Which partitions they are of is looked up where their values are equal: that is rare.
        """

        def value(of: str) -> str:
            return f"(coalesce({of}.by_number, 0), coalesce({of}.by_text, ''))"

        def claim(of: str, lane: str) -> str:
            return f"({lane}.partition, {lane}.hub, {of}.number)"

        beside = f"{self._watermark} AS was, {self._watermark} AS now WHERE was.id = m.lane AND now.id = excluded.lane"
        return (
            f"((m.by_number IS NOT NULL OR m.by_text IS NOT NULL) AND ({value('excluded')} < {value('m')} "
            f"OR ({value('excluded')} = {value('m')} AND CASE WHEN m.lane = excluded.lane "
            "THEN excluded.number < m.number ELSE "
            f"coalesce((SELECT {claim('excluded', 'now')} < {claim('m', 'was')} FROM {beside}), false) END)))"
        )

    def _set_lost_apart(self) -> int:
        """Note the keys whose row is older than what is known; returns how many. What is noted of others is theirs."""
        claim = "lane", "number", "by_number", "by_text"
        return self._session.run(
            f"INSERT INTO {APART} (kid, lost) SELECT s.kid, true FROM {STAGE} AS s "
            f"JOIN {self._session.names.memory} AS m ON {self._is_known} "
            f"WHERE ({', '.join(f'm.{name}' for name in claim)}) IS DISTINCT FROM "
            f"({', '.join(f's.{name}' for name in claim)})"
        )


def _same(left_values: Sequence[str], right_values: Sequence[str]) -> str:
    """SQL for whether values are the same to the last bit, whatever their types; NULL is the same as NULL."""
    return f"pg_catalog.record_image_eq(ROW({', '.join(left_values)}), ROW({', '.join(right_values)}))"
