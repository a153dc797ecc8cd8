"""What a transaction does beside its table where nobody else writes meanwhile: it has locked the whole database.

Owns what needs no locks then: watermarks, versions and identities stay as they are read, and old keys are cleared row
by row. A database brings a way to make a table. (Postgres, which locks rows, does without this.)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection

from leasehold.database.tables import Table
from leasehold.sinks.beside import entities, identities
from leasehold.sinks.beside.session import Places
from leasehold.sinks.beside.tables import WHEN_NEEDED
from leasehold.sinks.beside.transaction import ChangesBeside
from leasehold.sinks.rules.duplicates import Memory
from leasehold.sinks.rules.fence import Lane
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.table_spec import TableSpec


class ChangesAlone(ChangesBeside):
    """Of a transaction that has locked the whole database, what it does beside its table.

    A database extends it by `session`, `make`, `claim`, `fit` and `write`. Its memory of keys has the columns
    `key_columns`, `hub`, `partition`, `sequence_number` and `deleted`.
    """

    @abstractmethod
    def make(self, table: Table) -> None:
        """Make this table where it is missing, with its indexes."""

    def need(self, *tables: str) -> None:
        """See `BesideTransaction`."""
        for name in tables:
            self.make(WHEN_NEEDED[name])

    def lock_watermarks(self, lanes: Collection[Lane], *, whole_table: bool = False) -> None:
        """The whole database is locked."""

    def lock_partitions(self, lanes: Collection[Lane]) -> None:
        """The whole database is locked."""

    def lock_versions(self, keys: Collection[Key]) -> dict[Key, int]:
        """See `UnwrittenFeatures`."""
        return entities.versions(self.session, keys)

    def known_identities(self, digests: Collection[str]) -> Memory:
        """See `RemembersIdentities`."""
        return identities.known(self.session, digests)

    def remember_identities(self, memory: Memory) -> None:
        """See `RemembersIdentities`."""
        if memory:
            self.make(identities.table(self.session.spec))
            identities.remember(self.session, memory)

    def identities_reached(self) -> int | None:
        """See `RemembersIdentities`."""
        return identities.reached(self.session)

    def identities_reach(self, time: int | None) -> None:
        """See `RemembersIdentities`."""
        identities.reach(self.session, time)

    def forget_identities(self, before: int, at_most: int) -> None:
        """See `RemembersIdentities`."""
        identities.forget(self.session, before, at_most)

    def clear_keys(
        self, old: Places, old_of_deleted: Places, after: tuple[object, ...] | None, at_most: int
    ) -> tuple[list[tuple[Lane, int]], tuple[object, ...] | None]:
        """See `BesideTransaction`. The memory of keys is there."""
        session, columns = self.session, key_columns(self.session.spec)
        memory, names, width = session.of(session.spec.memory or ""), ", ".join(columns), len(columns)
        given = [f"%({name})s" for name in columns]
        where = f"WHERE ({names}) > ({', '.join(given)})" if after is not None else ""
        rows = session.rows(
            f"SELECT {names}, hub, partition, sequence_number, deleted FROM {memory} {where} "
            f"ORDER BY {names} LIMIT %(at_most)s",
            **dict(zip(columns, after or (), strict=False)),
            at_most=at_most,
        )
        keys: list[dict[str, object]] = []
        gone: list[tuple[Lane, int]] = []
        for row in rows:
            hub, partition, number, deleted = row[width:]
            if number <= (old_of_deleted if deleted else old).get((hub, partition), -1):
                keys.append(dict(zip(columns, row, strict=False)))
                gone.append(((hub, partition), number))
        same = " AND ".join(f"{name} = {value}" for name, value in zip(columns, given, strict=True))
        session.many(f"DELETE FROM {memory} WHERE {same}", keys)
        return gone, tuple(rows[-1][:width]) if len(rows) == at_most else None


def key_columns(spec: TableSpec) -> tuple[str, ...]:
    """The key's columns in the memory of keys, by their numbers: a key may well be called hub, or partition."""
    return tuple(f"key_{place}" for place in range(1, len(spec.keys) + 1))
