"""Rows of related tables, which a handler writes with its entity's state, in the batch's one transaction.

Owns the rules of `RelatesTables`, and its values.

1. A related table is in the same database (Postgres) or file (SQLite) as the entity table: in the schema that its name
   states (`rules.table_name`), or else in the entity table's. Somebody else makes it, with whatever constraints; a
   `Row` needs a unique index, or the primary key, on just its keys.
2. What events make of their entities is written event by event in the order of the batch: a state before its rows, and
   its deletion behind them. So rows may refer to their entity, and one event may make room for the next one.
3. An event whose rows, or whose deletion, the database refuses is undone, with the later ones of its entity. All others
   are tried, and then nothing of the batch is applied: `BatchResult.violations` says which events those are, and why.
   Who has brought the batch computes it again without them. So it is with an entity's state that the database refuses;
   of that alone, it names the last of its events, and given all states in between (`Computed.by_steps`) the right one.
4. Nobody but the batches of the entity's partition need write these rows; who does so beside waits for their
   transaction, and they for it. Two that wait for each other over a unique value are a deadlock, which the server ends
   by undoing one, and that one is done again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold.errors import ConfigError
from leasehold.sinks.rules.table_name import TableName
from leasehold.sinks.rules.table_spec import TableSpec, folded

if TYPE_CHECKING:
    from leasehold.sinks.rules.related import Gone, Row

__all__ = ["RelatedTable"]


@dataclass(frozen=True, slots=True)
class RelatedTable:
    """What a handler may write to: the columns that it may give, and those that name a row (`Row.keys`), in each way.

    `missing` are the rights on the table that this user has not, of SELECT, INSERT, UPDATE and DELETE.
    """

    columns: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]
    missing: tuple[str, ...] = ()


def check_names(spec: TableSpec, tables: Collection[str], schema: str = "") -> None:
    """Refuse names that are no related tables'; the entity table is in this schema. Raises `ConfigError`."""
    for text in tables:
        called = TableName.parse(text, "related")
        name, beside = folded(called.name), called.schema in ("", schema)
        if name.startswith(("leasehold_", "sqlite_")) or (
            beside and name in (folded(spec.name), folded(spec.rejected))
        ):
            raise ConfigError(
                "related",
                text,
                "it is a table of Leasehold's own, or the handler's",
                "Name other tables, which are there",
            )


def missing(spec: TableSpec, name: str) -> ConfigError:
    """The error for a related table that is not there."""
    return ConfigError(
        "related", name, f"there is no such table beside {spec.called}", "Make it; Leasehold makes no related tables"
    )


def wrong_columns(row: Row | Gone, strangers: Collection[str], columns: Iterable[str]) -> str:
    """What is wrong with a row that has other columns than its table."""
    return f"{row.table} has no column {', '.join(strangers)}; it has {', '.join(columns)}"


def no_unique_index(row: Row) -> str:
    """What is wrong with a row whose keys nothing makes unique."""
    keys = ", ".join(row.keys)
    return (
        f"{row.table} has no unique index on just {keys}: CREATE UNIQUE INDEX ON it, or give Row the keys that it has"
    )
