"""Makes what a pipeline needs before its first start, as somebody who may, or says by which SQL it is made.

Owns the order: the tables of stores, those of the entity table, then the rights on them. The tables are those of the
database's own packages, the rights are the one list (`operations.rights`). Making is idempotent, also by several at
once; killed at any line, what is missing is made by running it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold.backends import check_scheme, masked
from leasehold.database.rights import OWNER, grants
from leasehold.errors import UsageError
from leasehold.operations.asking_rights import asked_for, has_rights, said_of
from leasehold.operations.rights import Use
from leasehold.printable import counted
from leasehold.stores import BACKENDS, LEASE_BACKENDS, open_lease_store, open_store
from leasehold.stores.base import SchemaChange, SchemaKeeper, TellsStatements

if TYPE_CHECKING:
    import pyarrow as pa

    from leasehold.sinks.base import Sink


@dataclass(frozen=True, slots=True)
class Part:
    """A database and what it is used for.

    url     by which it is found
    acting  the same, by the user who makes the tables
    role    who is given the rights
    columns those of the entity table; None where it is there, or is to be left out
    """

    url: str
    use: Use
    acting: str
    role: str = ""
    columns: pa.Schema | None = None

    @property
    def is_by_another(self) -> bool:
        """Whether somebody else makes the tables, or for somebody else: then rights are granted."""
        return has_rights(self.url) and bool(self.role)


Made = tuple[str, str, int | None]
"""What was made: for what, what was done, and the version of the tables."""


def part_of(url: str, use: Use, *, acting: str | None, role: str | None, timeout: float) -> Part:
    """A part whose tables the user `acting` makes, and `role` is to use: by default the user of the URL."""
    if not has_rights(url) or (acting is None and role is None):
        return Part(url, use, url)
    from leasehold.database.postgres.other_user import acting_as, user_of

    role = role or user_of(url)
    return Part(url, use, url if acting is None else acting_as(url, acting, role, timeout), role)


def make(part: Part, timeout: float) -> Iterator[Made]:
    """Make what is missing, and grant what the role lacks. Raises `UsageError` where that may not be."""
    if part.is_by_another:
        _check_trusted(part, timeout)
    for component, keeper in _keepers(part, timeout):
        if isinstance(keeper, SchemaKeeper):
            yield (component, *_outcome(keeper.create_schema()))
        else:
            yield component, "nothing to make", None
    if part.use.table is not None:
        yield "entity tables", _made_tables(part, timeout), None
    if part.is_by_another:
        yield "rights", _granted(part, timeout), None


def statements(part: Part, timeout: float) -> Iterator[str]:
    """What `make` would run, with every GRANT of the list: for whoever runs it. Makes and changes nothing."""
    for component, keeper in _keepers(part, timeout):
        if isinstance(keeper, TellsStatements):
            yield from keeper.schema_statements()
        else:
            yield f"-- {masked(part.url)}: no SQL makes what the {component} need; leasehold init does"
    if part.use.table is not None:
        sink = sink_of(part, timeout)
        yield from sink.table_statements(part.columns, duplicates=part.use.table.deduplicated)
        sink.close()
    if has_rights(part.url):
        from leasehold.database.postgres.other_user import user_of

        role = part.role or user_of(part.url)
        answer = asked_for(part.acting, part.use, timeout=timeout, role=role)
        yield from grants(answer.rights, role)


def table_is_there(part: Part, timeout: float) -> bool:
    """Whether the entity table is there, or is not to be made."""
    sink = sink_of(part, timeout)
    found = sink.table_is_there()
    sink.close()
    return found


def sink_of(part: Part, timeout: float) -> Sink:
    """The entity table of the part, as the user who makes it."""
    from leasehold.sinks import open_sink

    assert part.use.table is not None
    return open_sink(part.acting, part.use.table.spec, timeout=timeout)


def _keepers(part: Part, timeout: float) -> Iterator[tuple[str, object]]:
    """What keeps records at the URL of a store."""
    if not (part.use.stores or part.use.leases):
        return
    scheme = check_scheme(part.url, "store", BACKENDS | LEASE_BACKENDS, "leasehold.stores")
    if part.use.stores and (scheme in BACKENDS or scheme not in LEASE_BACKENDS):
        yield "stores", open_store(part.acting, timeout=timeout)
    if part.use.leases and scheme in LEASE_BACKENDS:
        yield "leases", open_lease_store(part.acting, timeout=timeout)


def _made_tables(part: Part, timeout: float) -> str:
    assert part.use.table is not None
    sink = sink_of(part, timeout)
    try:
        made = sink.make_tables(part.columns, duplicates=part.use.table.deduplicated)
        return "made" if made else "was as it should be"
    finally:
        sink.close()


def _check_trusted(part: Part, timeout: float) -> None:
    from leasehold.database.postgres.connections import Connections
    from leasehold.database.postgres.other_user import check_trusted

    schema = asked_for(part.acting, part.use, timeout=timeout, role=part.role).schema
    connections = Connections(part.acting, timeout, lambda connection: None, schema=schema)
    try:
        connections.run(lambda connection: check_trusted(connection, schema, part.role))
    finally:
        connections.close()


def _granted(part: Part, timeout: float) -> str:
    """Grant what the role lacks, and look again."""
    from leasehold.database.postgres.connections import Connection, Connections

    answer = asked_for(part.acting, part.use, timeout=timeout, role=part.role)
    given = [one for one in answer.lacking if one.right != OWNER]

    def grant(connection: Connection) -> None:
        with connection.transaction():
            for statement in grants(given, part.role):
                connection.execute(statement)

    connections = Connections(part.acting, timeout, lambda connection: None, schema=answer.schema)
    try:
        connections.run(grant)
    finally:
        connections.close()
    left = asked_for(part.acting, part.use, timeout=timeout, role=part.role)
    if told := [f"{said}. {remedy}" for said, remedy in said_of(left, "PIPELINE.toml")]:
        raise UsageError("the tables are made, and not all rights on them could be granted: " + "; ".join(told))
    return f"{part.role} was given {counted(len(given), 'right')}" if given else f"{part.role} had all rights"


def _outcome(change: SchemaChange | None) -> tuple[str, int | None]:
    if change is None:
        return "made, or was there", None
    if change.before == 0:
        return "made", change.after
    if change.remade:
        return f"made again, empty: {', '.join(change.remade)}", change.after
    return "was there", change.after
