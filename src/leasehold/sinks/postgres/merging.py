"""From staging into the table: set-wise, by the last row of each key, and row by row for the keys that need it.

Owns the statements that write the table, and what is done when they fail. Promises the outcome of writing every row in
the order of events. Where nothing is wrong with a batch, that takes two statements (`at_once`). Else concerned keys
(`concerned`) go row by row, under savepoints, by the rules in `ordering`; so do keys that were last written from
another partition. If the statement for all others fails nevertheless, it is tried for each half of them, until what is
left is few, which go row by row as well.

Runs in the transaction of the batch, and locks what is remembered of its keys itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import psycopg

from leasehold.database.postgres.troubles import is_the_rows
from leasehold.errors import KeyFromTwoPartitions
from leasehold.sinks.beside.set_aside import retrying
from leasehold.sinks.postgres.at_once import AtOnce, Chance
from leasehold.sinks.postgres.blame import Blame
from leasehold.sinks.postgres.bookkeeping import Bookkeeping
from leasehold.sinks.postgres.concerned import Concerned
from leasehold.sinks.postgres.layout import Layout
from leasehold.sinks.postgres.memory import Memory
from leasehold.sinks.postgres.own_values import OwnColumn
from leasehold.sinks.postgres.session import PostgresSession
from leasehold.sinks.postgres.staging import APART, FRESH, KEYS, KNOWN, ROWS, STAGE, Filled, Staging
from leasehold.sinks.rules.ordering import Claim, KeyOrder, PastOrder
from leasehold.sinks.rules.row_by_row import RowWriter, not_comparable, two_partitions

_FEW = 64
"""Keys that go row by row when the statement for all of them fails."""


@dataclass(slots=True)
class Merged:
    """What became of the staged rows; `broken` are the places of those that the table refused, with its words."""

    applied: int = 0
    superseded: int = 0
    broken: dict[int, str] = field(default_factory=dict)


class Merge:
    """Merges the staged rows of one batch."""

    def __init__(
        self,
        session: PostgresSession,
        layout: Layout,
        bookkeeping: Bookkeeping,
        *,
        by_value: bool,
        deletes: bool,
        own: OwnColumn | None,
    ) -> None:
        self._session = session
        self._layout = layout
        self._bookkeeping = bookkeeping
        self._by_value = by_value
        self._deletes = deletes
        self._own = own
        self._merged = Merged()
        self._apart = False  # whether anything was set apart when that was looked at last
        self._watermark = session.names.of("leasehold_watermark")
        self._blame = Blame(session, session.spec.name, layout.relation, layout.given)

    # every event counts

    def append(self, rows: int) -> Merged:
        """Add all rows, those alone left out that break a rule."""
        if rows:
            self._append(0, rows)
        self._merged.applied = rows - len(self._merged.broken)
        return self._merged

    def _append(self, first: int, end: int) -> None:
        source = f"{STAGE} AS s WHERE s.place >= %(first)s AND s.place < %(end)s ORDER BY s.place"
        try:
            with self._session.savepoint():
                self._session.run(self._layout.insert(self._session.names.table, source), first=first, end=end)
        except psycopg.Error as error:
            if end - first == 1:
                self._merged.broken[first] = self._blame.reason(error)
                return
            if not is_the_rows(error):
                raise
            middle = (first + end) // 2
            self._append(first, middle)
            self._append(middle, end)

    # the last event of each key counts

    def upsert(self, filled: Filled, chance: Chance) -> Merged:
        """Write the last event of each key of these rows. Raises `KeyFromTwoPartitions`."""
        self._refuse_keys_that_do_not_fit()
        respelled = self._number_respelled_keys()
        repeated = filled.rows != filled.keys or respelled > 0
        if self._went_at_once(filled.rows, chance, repeated=repeated):
            return self._merged
        memory = self._locked_keys()
        rows = filled.rows - len(self._merged.broken)
        once = rows == memory.keys  # each key
        Concerned(self._session, self._layout, deletes=self._deletes).set_apart()
        if self._by_value:
            self._set_lost_apart()
        elif not self._session.spec.spread:
            self._set_strangers_apart(once=once)
        self._session.run(f"ANALYZE {APART}")
        self._apart = self._any_apart()
        self._merge(0, (self._session.one(f"SELECT max(kid) FROM {KEYS}") or 0) + 1)
        self._apart = self._any_apart()
        self._count_merged(rows, once=once)
        memory.remember_merged(apart=self._apart)
        self._write_apart(memory)
        return self._merged

    def _went_at_once(self, rows: int, chance: Chance, *, repeated: bool) -> bool:
        it = AtOnce(
            *(self._session, self._layout),
            by_value=self._by_value,
            deletes=self._deletes,
            repeated=repeated,
            own=self._own,
        )
        if not it.is_possible or not chance.taken():
            return False
        rows -= len(self._merged.broken)
        older = it.write(rows)
        chance.note(went=older is not None)
        if older is None:
            return False
        self._merged.applied += rows - older
        self._merged.superseded += older
        return True

    # events that come after their time

    def past(self, cleared: Callable[[], Mapping[int, int]]) -> Merged:
        """Write rows of events that are tried again, one after the other: rule 5 of `ordering`.

        `cleared` says up to which sequence number of each lane memories may have been cleared. Asked once the keys are
        locked, so that nobody clears them any more.
        """
        self._refuse_keys_that_do_not_fit()
        self._number_respelled_keys()
        memory = self._locked_keys()
        lanes = cleared()
        doubtful = self._session.rows(
            f"DELETE FROM {STAGE} AS s USING {FRESH} AS f, unnest(%(lanes)s::bigint[], %(numbers)s::bigint[]) "
            "AS c(lane, number) WHERE f.kid = s.kid AND s.lane = c.lane AND s.number <= c.number RETURNING s.place",
            lanes=[*lanes],
            numbers=[*lanes.values()],
        )
        self._merged.broken |= {row: retrying.FORGOTTEN for (row,) in doubtful}
        self._session.run(f"INSERT INTO {APART} (kid, lost) SELECT kid, false FROM {KEYS}")
        self._write_apart(memory, past=True)
        return self._merged

    def _locked_keys(self) -> Memory:
        """What is known of the keys that a table can have, locked; rows of the others are broken."""
        Staging(self._session, self._layout).analyze()
        memory = Memory(self._session, self._layout, by_value=self._by_value, own=self._own)
        memory.gather()
        for kid, reason in memory.too_long().items():
            self._refuse_key(kid, reason)
        memory.lock()
        return memory

    def _refuse_keys_that_do_not_fit(self) -> None:
        for place, key in zip(self._layout.keys, self._layout.key_targets, strict=True):
            if (fits := key.fits(f"c{place}")) is not None:
                for (row,) in self._session.rows(f"DELETE FROM {STAGE} WHERE NOT {fits} RETURNING place"):
                    self._merged.broken[row] = f"the key {key.name} does not fit the type {key.described}"

    def _number_respelled_keys(self) -> int:
        """A key that is written in several ways (a UUID, an object of JSON) has a number for each of them so far.

        Returns how many rows have another number now.
        """
        if not any(key.way.respells for key in self._layout.key_targets):
            return 0
        values = ", ".join(self._layout.key_values("o"))
        return self._session.run(
            f"UPDATE {STAGE} AS s SET kid = same.kid FROM (SELECT place, min(kid) OVER (PARTITION BY {values}) AS kid "
            f"FROM {STAGE} AS o) AS same WHERE same.place = s.place AND same.kid <> s.kid"
        )

    def _refuse_key(self, kid: int, reason: str) -> None:
        self._session.run(f"DELETE FROM {KEYS} WHERE kid = %(kid)s", kid=kid)
        for (row,) in self._session.rows(f"DELETE FROM {STAGE} WHERE kid = %(kid)s RETURNING place", kid=kid):
            self._merged.broken[row] = f"the key is too long: {reason}"

    def _any_apart(self) -> bool:
        return bool(self._session.one(f"SELECT EXISTS (SELECT 1 FROM {APART})"))

    def _set_strangers_apart(self, *, once: bool) -> None:
        """Keys that come from two partitions: `KeyOrder` judges them, once it is known which rows can be written."""
        note = f"INSERT INTO {APART} (kid, lost) SELECT kid, false FROM "
        self._session.run(f"{note}{KNOWN} WHERE lane <> now ON CONFLICT DO NOTHING")
        if not once and self._session.one(f"SELECT min(lane) <> max(lane) FROM {STAGE}"):
            self._session.run(f"{note}{STAGE} GROUP BY kid HAVING min(lane) <> max(lane) ON CONFLICT DO NOTHING")

    def _set_lost_apart(self) -> None:
        """Keys whose events are all older than what is known: nothing of them is written."""
        self._session.run(
            f"INSERT INTO {APART} (kid, lost) SELECT k.kid, true FROM {KEYS} AS k {self._beside_known('k')} "
            f"WHERE {self._older('k')} ON CONFLICT DO NOTHING"
        )

    def _beside_known(self, alias: str, kind: str = "") -> str:
        return (
            f"{kind} JOIN {KNOWN} AS n ON n.kid = {alias}.kid "
            f"LEFT JOIN {self._watermark} AS was ON was.id = n.lane JOIN {self._watermark} AS now "
            f"ON now.id = {alias}.lane"
        )

    def _older(self, alias: str) -> str:
        """Rules 2 and 4 of `ordering`: the claim of this row is below the one that is known."""

        def claim(value: str, lane: str) -> str:
            return (
                f"(coalesce({value}.by_number, 0), coalesce({value}.by_text, ''), coalesce({lane}.partition, ''), "
                f"coalesce({lane}.hub, ''), {value}.number)"
            )

        return f"((n.by_number IS NOT NULL OR n.by_text IS NOT NULL) AND {claim(alias, 'now')} < {claim('n', 'was')})"

    def _merge(self, first: int, end: int) -> None:
        """Write the last rows of the keys `[first, end)` that are not set apart."""
        these = "k.kid >= %(first)s AND k.kid < %(end)s"
        if self._apart:  # what is set apart below is of keys that are not asked for again
            these += f" AND NOT EXISTS (SELECT 1 FROM {APART} AS a WHERE a.kid = k.kid)"
        keys = [f"k.{key}" for key in self._session.names.key_columns]
        order, is_row = self._layout.order(keys), self._layout.is_row_of(keys)
        source = f"{KEYS} AS k JOIN {STAGE} AS s ON s.place = k.place"
        try:
            with self._session.savepoint():
                if self._deletes:
                    self._session.run(
                        f"DELETE FROM {self._session.names.table} AS t USING {KEYS} AS k WHERE k.gone AND {these} "
                        f"AND {is_row}",
                        first=first,
                        end=end,
                    )
                for statement in self._layout.upserts(
                    self._session.names.table, source, f"NOT k.gone AND {these}", is_row, order
                ):
                    self._session.run(statement, first=first, end=end)
        except psycopg.Error as error:
            if not is_the_rows(error):
                raise
            if end - first <= _FEW:
                self._session.run(
                    f"INSERT INTO {APART} (kid, lost) SELECT k.kid, false FROM {KEYS} AS k WHERE {these}",
                    first=first,
                    end=end,
                )
                return
            middle = (first + end) // 2
            self._merge(first, middle)
            self._merge(middle, end)

    def _count_merged(self, rows: int, *, once: bool) -> None:
        """How many rows would have been written one after the other, and how many were older than what was there."""
        merged, old = "true", 0
        if self._apart:
            merged = f"NOT EXISTS (SELECT 1 FROM {APART} AS a WHERE a.kid = s.kid AND NOT a.lost)"
            rows = self._session.one(f"SELECT count(*) FROM {STAGE} AS s WHERE {merged}")
        if self._by_value and once:
            old = self._session.one(f"SELECT count(*) FROM {APART} WHERE lost")
        elif self._by_value:
            old = self._session.one(
                "SELECT count(*) FROM (SELECT before OR height < max(height) OVER (PARTITION BY kid ORDER BY place) AS "
                "old FROM (SELECT s.kid, s.place, n.kid IS NOT NULL AND "
                f"{self._older('s')} AS before, rank() OVER (PARTITION BY s.kid ORDER BY s.by_number, s.by_text, "
                f"s.rank, s.number) AS height FROM {STAGE} AS s {self._beside_known('s', 'LEFT')} WHERE {merged}) "
                "AS ranked) AS judged WHERE old"
            )
        self._merged.applied += rows - old
        self._merged.superseded += old

    def _write_apart(self, memory: Memory, *, past: bool = False) -> None:
        """Write the rows of concerned keys one after the other."""
        self._session.run(
            f"INSERT INTO {ROWS} SELECT s.* FROM {STAGE} AS s JOIN {APART} AS a ON a.kid = s.kid WHERE NOT a.lost"
        )
        rows = self._session.rows(
            f"SELECT place, kid, lane, number, by_number, by_text, gone FROM {ROWS} ORDER BY place"
        )
        if not rows:
            if past or (self._own is not None and self._apart):
                memory.remember_apart({})
            return
        kids = [row[1] for row in rows]
        known = memory.known(sorted(set(kids)), self._bookkeeping, places=past)
        lanes = self._bookkeeping.lanes_of({row[2] for row in rows})
        values = [row[4] if row[5] is None else row[5] for row in rows]
        claims: list[Claim] = [lanes[row[2]] for row in rows]
        if self._by_value:
            claims = [
                (value, partition, hub, row[3])
                for value, (hub, partition), row in zip(values, claims, rows, strict=True)
            ]
        if past and not self._by_value:
            claims = [(*claim, row[3]) for claim, row in zip(claims, rows, strict=True)]
            order: KeyOrder = PastOrder(kids, claims, known)  # type: ignore[arg-type]  # a number for a key
        else:
            order = KeyOrder(kids, claims, known, by_value=self._by_value)  # type: ignore[arg-type]
        table = _Apart(self._session, self._layout, self._blame, rows, lanes)
        written = RowWriter(table, len(rows), order, rejects=self._session.spec.rejects_strangers).write()
        self._merged.applied += written.applied
        self._merged.superseded += written.superseded
        self._merged.broken |= {rows[index][0]: reason for index, reason in written.broken.items()}
        if isinstance(order, PastOrder):
            conflicts = order.conflicts.items()
            self._merged.broken |= {rows[index][0]: not_comparable(lane) for index, lane in conflicts}
        last: dict[Any, int] = dict(order.written())
        memory.remember_apart(
            {
                kid: (rows[index][2], rows[index][3], values[index] if self._by_value else None, rows[index][6])
                for kid, index in last.items()
            }
        )


class _Apart:
    """Rows that are written one after the other: `place, kid, lane, number, …` in the order of events."""

    def __init__(self, session: PostgresSession, layout: Layout, blame: Blame, rows: Sequence[Any], lanes: Any) -> None:
        self._session = session
        self._blame = blame
        self._rows = rows
        self._lanes = lanes
        table = session.names.table
        upserts = layout.upserts(table, f"{ROWS} AS s", "s.place = %(place)s", layout.is_row("s"))
        # Of two statements one has an effect, and so they may be one, which sees the table as it was before.
        self._upsert = upserts[0] if len(upserts) == 1 else f"WITH there AS ({upserts[0]}) {upserts[1]}"
        self._delete = f"DELETE FROM {table} AS t USING {ROWS} AS s WHERE s.place = %(place)s AND {layout.is_row('s')}"

    def attempt(self, winners: Sequence[int]) -> str | None:
        try:
            with self._session.savepoint():
                for gone, run in groupby(winners, lambda index: self._rows[index][6]):
                    self._session.many(
                        self._delete if gone else self._upsert, [{"place": self._rows[index][0]} for index in run]
                    )
        except psycopg.Error as error:
            return self._blame.reason(error)
        return None

    def conflict(self, index: int, claim: Claim) -> KeyFromTwoPartitions:
        _, kid, lane, number, *_ = self._rows[index]
        names = ", ".join(self._session.names.key_columns)
        [key] = self._session.rows(f"SELECT {names} FROM {KEYS} WHERE kid = %(kid)s", kid=kid)
        return two_partitions(self._session.spec, key, self._lanes[lane], number, (claim[0], claim[1]))
