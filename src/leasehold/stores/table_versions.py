"""The tables of a store as data: what makes them, which version they have, and what is said of others' tables.

Owns the value that describes a set of tables, for every store with tables, and the errors. A database says in
`leasehold_schema` which version each set has. Nobody uses tables of another version, or tables that say none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from leasehold.errors import StoreError, StoreUnavailable, UsageError
from leasehold.stored_formats import refusal


@dataclass(frozen=True, slots=True)
class Component:
    """A set of tables, its version, and the `statements` that make it.

    Each statement is about one table, or sequence: the first that it names. So one that somebody has removed is made
    again by the statements that are about it. `again` is what to do, beside making it, to one that was removed.
    """

    name: str
    version: int
    statements: Sequence[str]
    again: Mapping[str, str] = field(default_factory=dict)

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables, and sequences, in the order in which they are made."""
        return tuple(dict.fromkeys(_about(statement) for statement in self.statements))

    def missing(self, there: Collection[str]) -> list[str]:
        """Those that are not `there`."""
        return [name for name in self.tables if name not in there]

    def makings(self, tables: Iterable[str]) -> list[str]:
        """The statements that make these tables."""
        names = set(tables)
        return [statement for statement in self.statements if _about(statement) in names]

    def remakings(self, removed: Iterable[str]) -> list[str]:
        """The statements that make these tables again."""
        names = list(removed)
        return [*self.makings(names), *(self.again[name] for name in names if name in self.again)]

    def check(self, where: str, stated: int | None, there: Collection[str]) -> None:
        """Refuse tables of another version. `stated` is what the database says; `there` are the tables that it has.

        Read `there` first: who makes tables and states their version does so in one transaction.
        """
        if stated is None and not set(self.tables).intersection(there):
            return
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


def removed(where: str, missing: Sequence[str]) -> UsageError:
    """The error of who only reads, where tables are missing."""
    return UsageError(
        f"{where}: {_are_gone(missing)}, and who only reads makes none. `leasehold init STORE_URL` makes what is "
        "missing again, empty, and so does the next instance that starts"
    )


def gone(where: str, missing: Sequence[str] = ()) -> StoreUnavailable:
    """The error of a store that has seen its tables before, and does not make empty ones behind its own back."""
    what = _are_gone(missing) if missing else "the tables of Leasehold are gone"
    return StoreUnavailable(
        f"{where}: {what}, and were there before (was the database restored?). `leasehold init STORE_URL` makes what "
        "is missing again, empty, and so does the next instance that starts"
    )


def _are_gone(missing: Sequence[str]) -> str:
    return f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} gone"


def _about(statement: str) -> str:
    found = re.search(r"leasehold_\w+", statement)
    assert found is not None
    return found[0]
