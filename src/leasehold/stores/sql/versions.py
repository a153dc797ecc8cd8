"""The tables of a component of a store: which version they have, and that they are made, in either database.

Owns the table `leasehold_schema` (a row per component: the stores, the leases), the value that describes a component,
and the errors. Promises that of several processes one makes the tables, in one transaction, and the others find it
done. Refuses tables of another version, and tables that say none, and changes nothing where they are.

A table that should be there and was removed is made again, empty, by `create`, and by a store that starts: levels are
kept in the ownership and in the checkpoint, so that the one knows what the other has forgotten. A store that has seen
it makes it not: an empty one would forget owner levels and progress.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from leasehold.database.tables import Table
from leasehold.errors import StoreError, StoreUnavailable, UsageError
from leasehold.stored_formats import refusal
from leasehold.stores.base import SchemaChange

VERSIONS = Table("leasehold_schema", {"component": "text", "version": "bigint"}, key=("component",))
_VERSION = f"SELECT version FROM {VERSIONS.name} WHERE component = %(component)s"
_STATED = f"INSERT INTO {VERSIONS.name} (component, version) VALUES ('{{name}}', {{version}})"


class StoreSession(Protocol):
    """A connection, in the words of its database."""

    def rows(self, statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows."""
        ...

    def relations(self) -> set[str]:
        """The tables, and sequences, where ours are."""
        ...

    def making(self) -> AbstractContextManager[object]:
        """A transaction in which no other process makes any."""
        ...


@dataclass(frozen=True, slots=True)
class Component:
    """A set of tables and sequences, its version, and the statements that make each of them, in this order.

    `versions` are those that make `leasehold_schema`. `again` is what to do, beside making it, to one that was removed.
    """

    name: str
    version: int
    makings: Mapping[str, Sequence[str]]
    versions: Sequence[str]
    again: Mapping[str, str] = field(default_factory=dict)

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables, and sequences, in the order in which they are made."""
        return tuple(self.makings)

    def check(self, where: str, session: StoreSession) -> tuple[bool, list[str]]:
        """Whether the tables are there, and which of them are not. Refuses those of another version."""
        relations = session.relations()  # first: who makes tables states their version in the same transaction
        stated = None
        if VERSIONS.name in relations:
            rows = session.rows(_VERSION, {"component": self.name})
            stated = rows[0][0] if rows else None
        if stated is not None or set(self.tables) & relations:
            self._check(where, stated)
        return stated is not None, [name for name in self.tables if name not in relations]

    def is_there(self, where: str, session: StoreSession) -> bool:
        """Whether there are tables. Refuses those of another version. Makes and changes nothing."""
        there, missing = self.check(where, session)
        if there and missing:  # another process may have made them between the two looks
            there, missing = self.check(where, session)
        if there and missing:
            raise UsageError(
                f"{where}: {_are_gone(missing)}, and who only reads makes none. `leasehold init` of the "
                "pipeline file, or of the URL, makes what is missing again, empty, and so does the next "
                "instance that starts"
            )
        return there

    def create(self, where: str, session: StoreSession) -> SchemaChange:
        """Make what is missing, and say what was. What is as it should be is only read, which waits for no writer."""
        there, missing = self.check(where, session)
        if not there or missing:
            with session.making():
                there, missing = self.check(where, session)
                for statement in self.statements(missing, there=there):
                    session.rows(statement, {})
        return SchemaChange(self.name, self.version if there else 0, self.version, tuple(missing) if there else ())

    def missing_statements(self, where: str, session: StoreSession) -> list[str]:
        """What makes the tables that are missing, as SQL: none where all are there. Makes and changes nothing."""
        there, missing = self.check(where, session)
        return self.statements(missing, there=there)

    def statements(self, missing: Collection[str] = (), *, there: bool = False) -> list[str]:
        """What makes these tables where others are `there`; all of them where none is."""
        made = [
            statement
            for name in (missing if there else self.tables)
            for statement in (*self.makings[name], *([self.again[name]] if there and name in self.again else []))
        ]
        return made if there else [*made, *self.versions, _STATED.format(name=self.name, version=self.version)]

    def prepare(self, where: str, session: StoreSession, *, seen: bool) -> None:
        """Before a new connection is used: the tables are as they should be.

        Makes those that are missing, unless the store has `seen` them: then they are gone.
        """
        there, missing = self.check(where, session)
        if seen and missing:
            raise gone(where, missing)
        if missing or not there:
            self.create(where, session)

    def _check(self, where: str, stated: int | None) -> None:
        remedy = (
            f"Stop every instance; drop {', '.join(self.tables)} and the row {self.name} of leasehold_schema, or name "
            "another file or schema; then, for each pipeline, leasehold reset PIPELINE.toml --to sink"
        )
        if stated is None:
            remedy = (
                "If somebody has removed leasehold_schema, or its row of them, put it back: CREATE TABLE IF NOT EXISTS "
                "leasehold_schema (component TEXT PRIMARY KEY, version INTEGER NOT NULL); INSERT INTO leasehold_schema "
                f"VALUES ('{self.name}', {self.version}). If not: {remedy}"
            )
        if refused := refusal(f"{where}: its tables for {self.name} have", stated, self.version, remedy):
            raise StoreError(refused)


def gone(where: str, missing: Collection[str] = ()) -> StoreUnavailable:
    """The error of a store that has seen its tables before, and does not make empty ones behind its own back."""
    what = _are_gone(missing) if missing else "the tables of Leasehold are gone"
    return StoreUnavailable(
        f"{where}: {what}, and were there before (was the database restored?). `leasehold init` of the pipeline "
        "file, or of the URL, makes what is missing again, empty, and so does the next instance that "
        "starts"
    )


def _are_gone(missing: Collection[str]) -> str:
    return f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} gone"
