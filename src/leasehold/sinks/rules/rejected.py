"""A row that is set aside, as a value, and what is said of a table that cannot hold it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from leasehold.errors import SchemaMismatch
from leasehold.sinks.rules.table_spec import TableSpec


class Rejected(NamedTuple):
    """A row that was set aside. `place` counts from 0; `source` is JSON."""

    hub: str
    partition: str
    sequence_number: int
    place: int
    body: object
    reason: str
    source: str | None


def other_columns(spec: TableSpec, columns: Iterable[str]) -> SchemaMismatch:
    """The error for a table of the name that rejected rows have, and other columns than these."""
    return SchemaMismatch(
        f"{spec.beside(spec.rejected)} is where rejected events go, and has other columns than {', '.join(columns)}. "
        "Rename it, or the entity table"
    )
