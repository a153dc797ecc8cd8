"""The memory of keys in Postgres: which event has written each key last, also after the entity was deleted.

Owns the table `leasehold_key_<table>` and the locks on its rows. A row is locked by whoever is about to write its
entity, until the transaction ends; that orders the batches of many writers by key. A key that is not known yet is
inserted at once, as if the batch's last event of it had been written, which it nearly always will be: others who come
with the same key wait for it. What was inserted for a key that nothing has written in the end is removed again.

Who waits for whom: everybody goes through the keys in their order, by one statement that inserts those that are
missing and locks the others. So whoever waits at a key holds none behind it, and no two wait for each other. A key that
somebody removes meanwhile (`forgetting`) is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg

from leasehold.database.statements import sent, unsent
from leasehold.errors import UsageError
from leasehold.sinks.postgres import own_values
from leasehold.sinks.postgres.bookkeeping import Bookkeeping
from leasehold.sinks.postgres.catalog import relation
from leasehold.sinks.postgres.layout import FILLFACTOR, Layout
from leasehold.sinks.postgres.names import Names
from leasehold.sinks.postgres.own_values import OwnColumn
from leasehold.sinks.postgres.session import PostgresSession, reason_of
from leasehold.sinks.postgres.staging import APART, FRESH, KEYS, KNOWN, STAGE, split
from leasehold.sinks.rules.ordering import UNKNOWN, Claim

_SHORT = 2000
"""Bytes, with which a key has room in an index: a third of a page is some 2,700."""
_CLAIM = "lane, number, by_number, by_text, gone"
_IN_MEMORY = "0.01"
"""What it costs to read a page that was just read, where the planner counts 4: or it reads the whole table instead."""


def make(session: PostgresSession, layout: Layout) -> None:
    """Make the table, which is missing."""
    declared = {column.name: column.declared for column in layout.relation.columns}
    session.run(statement(session.names, [declared[key.name] for key in layout.key_targets]))


def fit(session: PostgresSession, layout: Layout) -> None:
    """Make the table anew where it is empty and its keys are of other types: the entity table was dropped, and is made
    of other columns now. Raises `UsageError` for a user who does not own it."""
    declared = {column.name: column.declared for column in layout.relation.columns}
    types = [declared[key.name] for key in layout.key_targets]
    if not made_anew(session, types):
        return
    memory = unsent(session.names.memory)
    owned = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass(%(it)s)"
    if not session.one(owned, it=memory):
        raise UsageError(
            f"the table {memory} is empty, its keys are of other types than those of {session.spec.called}, and this "
            "user does not own it. Run leasehold init PIPELINE.toml --as its owner, which makes it anew"
        )
    session.run(f"LOCK TABLE {session.names.memory} IN ACCESS EXCLUSIVE MODE")
    for one in made_anew(session, types):  # a batch that was not committed yet may have filled it
        session.run(one)


def made_anew(session: PostgresSession, types: Sequence[str]) -> list[str]:
    """What makes the table, which is there, of keys of these types: nothing where it has them, or is not empty."""
    had = {column.name: column.declared for column in relation(session, session.spec.memory or "").columns}
    if [had.get(name) for name in session.names.key_columns] == types:
        return []
    if session.one(f"SELECT EXISTS (SELECT 1 FROM {session.names.memory})"):
        return []
    return [f"DROP TABLE {session.names.memory}", statement(session.names, types)]


def statement(names: Names, types: Sequence[str]) -> str:
    """The statement that makes the table, where the keys of the entity table have these types."""
    columns = ", ".join(f"{mine} {sent(type_)} NOT NULL" for mine, type_ in zip(names.key_columns, types, strict=True))
    return (
        f"CREATE TABLE {names.memory} ({columns}, lane bigint NOT NULL, number bigint NOT NULL, "
        'by_number numeric, by_text text COLLATE "C", gone boolean NOT NULL, '
        f"PRIMARY KEY ({', '.join(names.key_columns)})) WITH (fillfactor = {FILLFACTOR})"
    )


class Memory:
    """The memory of the keys of one batch, once they are staged."""

    def __init__(
        self, session: PostgresSession, layout: Layout, *, by_value: bool, own: OwnColumn | None = None
    ) -> None:
        self._session = session
        self._layout = layout
        self._by_value = by_value
        self._own = own
        self.keys = 0  # of the batch, once they are locked
        self._remembered = 0  # and those of them that were remembered before
        keys = session.names.key_columns
        self._same = " AND ".join(f"m.{key} = k.{key}" for key in keys)
        self._keys = ", ".join(keys)
        self._order = layout.order(keys)

    def gather(self) -> None:
        """Find the batch's last event of each key."""
        values = ", ".join(self._layout.key_values("s"))
        last = "by_number DESC, by_text DESC, rank DESC, number DESC, " if self._by_value else ""
        self._session.run(
            f"INSERT INTO {KEYS} (kid, place, lane, rank, number, by_number, by_text, gone, {self._keys}) "
            f"SELECT DISTINCT ON (kid) kid, place, lane, rank, number, by_number, by_text, gone, {values} "
            f"FROM {STAGE} AS s ORDER BY kid, {last}place DESC"
        )
        self._session.run(f"ANALYZE {KEYS}")

    def too_long(self) -> dict[int, str]:
        """The keys that are too long for an index, with the server's words. Writes nothing."""
        names, found = self._session.names, {}
        size = " + ".join(f"pg_column_size({key})" for key in names.key_columns)
        for (kid,) in self._session.rows(f"SELECT kid FROM {KEYS} WHERE {size} > {_SHORT} ORDER BY {self._keys}"):
            try:
                with self._session.savepoint():
                    self._session.run(
                        f"INSERT INTO {names.memory} ({self._keys}, {_CLAIM}) SELECT {self._keys}, {_CLAIM} "
                        f"FROM {KEYS} WHERE kid = %(kid)s ON CONFLICT DO NOTHING",
                        kid=kid,
                    )
                    raise psycopg.Rollback
            except psycopg.errors.ProgramLimitExceeded as error:
                found[kid] = reason_of(error)
        return found

    def lock(self) -> None:
        """Lock what is remembered of these keys, in their order, and load it."""
        run, names = self._session.run, self._session.names
        self.keys = self._session.one(f"SELECT count(*) FROM {KEYS}")
        # A row that is there is locked before WHERE is asked, and is not written.
        run(
            f"WITH made AS (INSERT INTO {names.memory} AS m ({self._keys}, {_CLAIM}) "
            f"SELECT {self._keys}, {_CLAIM} FROM {KEYS} ORDER BY {self._order} "
            f"ON CONFLICT ({self._keys}) DO UPDATE SET number = m.number WHERE false RETURNING {self._keys}) "
            f"INSERT INTO {FRESH} (kid) SELECT k.kid FROM made AS m JOIN {KEYS} AS k ON {self._same}"
        )
        self._remembered = run(
            f"INSERT INTO {KNOWN} (kid, at, now, lane, number, by_number, by_text) "
            "SELECT k.kid, m.ctid, k.lane, m.lane, m.number, m.by_number, m.by_text "
            f"FROM {KEYS} AS k JOIN {names.memory} AS m ON {self._same} "
            f"WHERE NOT EXISTS (SELECT 1 FROM {FRESH} AS f WHERE f.kid = k.kid)"
        )
        run(f"ANALYZE {KNOWN}, {FRESH}")
        if self._own is not None and self._remembered < self.keys:
            with self._session.setting("random_page_cost", _IN_MEMORY):
                found = own_values.load(self._session, self._layout, self._own)
            if found:
                run(f"ANALYZE {KNOWN}")

    def known(self, kids: Sequence[int], bookkeeping: Bookkeeping, *, places: bool = False) -> dict[int, Claim]:
        """What earlier batches have left of these keys; without `sequence_by`, with the sequence number if `places`."""
        rows = self._session.rows(
            f"SELECT kid, lane, number, by_number, by_text FROM {KNOWN} WHERE kid = ANY(%(kids)s::integer[])",
            kids=list(kids),
        )
        if self._by_value:
            return claims_of(rows, bookkeeping)
        lanes = bookkeeping.lanes_of({row[1] for row in rows})
        return {kid: (*lanes[lane], number) if places else lanes[lane] for kid, lane, number, _, _ in rows}

    def remember_merged(self, *, apart: bool) -> None:
        """Note the last event of each key that was merged set-wise; `apart` says whether there are others.

        A row is found by its place, where it stays while it is locked: by its key alone, that takes a reading of the
        whole table, which is only done if one is not there. Of a key that was not remembered it is noted already.
        """
        merged = f"NOT EXISTS (SELECT 1 FROM {APART} AS a WHERE a.kid = n.kid)" if apart else "true"
        note = (
            f"UPDATE {self._session.names.memory} AS m SET lane = k.lane, number = k.number, by_number = k.by_number, "
            f"by_text = k.by_text, gone = k.gone FROM {KEYS} AS k JOIN {KNOWN} AS n ON n.kid = k.kid "
            f"WHERE n.at IS NOT NULL AND {merged} AND {self._same}"
        )
        those = self._remembered
        if apart:
            those = self._session.one(f"SELECT count(*) FROM {KNOWN} AS n WHERE n.at IS NOT NULL AND {merged}")
        with self._session.setting("random_page_cost", _IN_MEMORY):
            noted = self._session.run(f"{note} AND m.ctid = n.at")
        if noted != those:
            self._session.run(note)

    def remember_apart(self, written: Mapping[int, tuple[Any, ...]]) -> None:
        """Note the events that have written keys row by row last, and forget those that nothing has written yet: of
        keys that were set apart, also because the table's row is later.

        `written` has for a key's number the lane, sequence number, value of sequence_by, and whether it was a delete.
        """
        self._session.many(
            f"UPDATE {self._session.names.memory} AS m SET lane = %s, number = %s, by_number = %s, by_text = %s, "
            f"gone = %s FROM {KEYS} AS k WHERE k.kid = %s AND {self._same}",
            [(lane, number, *split(value), gone, kid) for kid, (lane, number, value, gone) in sorted(written.items())],
        )
        self._session.run(
            f"DELETE FROM {self._session.names.memory} AS m USING {KEYS} AS k, {FRESH} AS f, {APART} AS a "
            f"WHERE {self._same} AND f.kid = k.kid AND a.kid = k.kid AND NOT k.kid = ANY(%(kids)s::integer[])",
            kids=list(written),
        )


def claims_of(rows: Iterable[Any], bookkeeping: Bookkeeping) -> dict[int, Claim]:
    """With `sequence_by`: the claims of keys of which `(kid, lane, number, by_number, by_text)` is remembered.

    A partition that nothing is known of is below the others.
    """
    rows = list(rows)
    lanes = bookkeeping.lanes_of({row[1] for row in rows})
    found: dict[int, Claim] = {}
    for kid, lane, number, by_number, by_text in rows:
        hub, partition = lanes.get(lane, ("", ""))
        value = by_number if by_text is None else by_text
        found[kid] = UNKNOWN if value is None else (value, partition, hub, number)
    return found
