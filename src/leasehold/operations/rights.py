"""What a pipeline needs in a Postgres database: the one list of rights, each with its object and why it is needed.

Owns the list, and the tables that it names. `leasehold init` makes these tables and grants these rights, `leasehold
check` and `leasehold reset` ask for them, and `run`, `status`, `reset` and every other command need no others. Pure:
what there is in the database comes in as `DatabaseState`.

Every pipeline has the same rights on the tables that all entity tables of a schema share, since some commands look
into each of them: `status` counts parked events, `forget` removes an entity from wherever it is kept. So a role that
fills one table of a schema may read what is kept of the others. Pipelines that must not do so have a schema each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from leasehold.database.rights import OWNER, Right, Thing
from leasehold.pipeline_file import PipelineFile
from leasehold.sinks.rules.table_name import TableName
from leasehold.sinks.rules.table_spec import ADD, TableSpec

SCHEMAS = "leasehold_schema"
STORES = ("leasehold_ownership", "leasehold_presence", "leasehold_ask", "leasehold_checkpoint", "leasehold_binding")
LEASES = ("leasehold_session", "leasehold_lease")
FENCE = "leasehold_fence"
"""The names of a store's tables, and of the sequence that numbers leases."""

ALL = ("SELECT", "INSERT", "UPDATE", "DELETE")

_HOLDS = {
    "leasehold_ownership": "has the owner of each partition",
    "leasehold_presence": "has the instances that are alive",
    "leasehold_ask": "has who asks for which partition",
    "leasehold_checkpoint": "has how far each partition has been read",
    "leasehold_binding": "has which pipeline a consumer group belongs to",
    "leasehold_session": "has the sessions of leases",
    "leasehold_lease": "has who leases which entity",
    "leasehold_table": "has which pipeline an entity table belongs to",
    "leasehold_watermark": "has how far each entity table has been filled",
    "leasehold_dropped": "has the rejected events that a person has dropped",
    "leasehold_skip": "has the events that are to be skipped",
    "leasehold_message": "has the messages of queues that are done",
    "leasehold_message_sent": "has what messages of queues were sent as",
    "leasehold_message_entity": "has the versions of entities that queues fill",
    "leasehold_message_parked": "has the messages of queues that wait for another try",
    "leasehold_place": "has where partitions were and when",
    "leasehold_cleared": "has up to where memories of keys were cleared",
    "leasehold_parked": "has the events that wait for another try of their handler",
    "leasehold_entity": "has the versions of entities whose events are in several partitions",
    "leasehold_outbox": "has what handlers have emitted",
}


@dataclass(frozen=True, slots=True)
class TableUse:
    """How a pipeline uses its entity table.

    deletes       whether events may delete rows
    deduplicated  whether it is remembered what producers have sent
    related       the tables to which a handler writes beside, as the pipeline file names them
    """

    spec: TableSpec
    deletes: bool = False
    deduplicated: bool = False
    related: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Use:
    """What a database is used for: by a store of ownership or checkpoints, one of leases, an entity table."""

    stores: bool = False
    leases: bool = False
    table: TableUse | None = None


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """What there is in a database already.

    database  its name
    schema    where the tables are, or are to be made
    there     the tables and sequences of that schema
    referred  by a table (schema, name): the tables to which a foreign key leads from it, or from which one leads to it
    drawn     by a table: the sequences from which its defaults take numbers
    """

    database: str
    schema: str
    there: frozenset[str] = frozenset()
    referred: Mapping[tuple[str, str], tuple[tuple[str, str], ...]] = field(default_factory=dict)
    drawn: Mapping[tuple[str, str], tuple[tuple[str, str], ...]] = field(default_factory=dict)


def uses_of(file: PipelineFile) -> dict[str, list[Use]]:
    """What the pipeline of a file uses which URL for: the store and the table of one URL may be in two schemas."""
    uses: dict[str, list[Use]] = {}
    for url in dict.fromkeys(url for url in (file.ownership_url, file.checkpoint_url) if url is not None):
        leases = file.sink.exclusive and url == file.ownership_url
        uses.setdefault(url, []).append(Use(stores=True, leases=leases))
    uses.setdefault(file.sink_url, []).extend(Use(table=table_use(one)) for one in file.tables)
    return uses


def table_use(file: PipelineFile) -> TableUse:
    """How the pipeline of a file uses its entity table; of several, the first."""
    sink = file.sink
    deletes = sink.delete_when is not None or sink.handler is not None
    return TableUse(file.table_spec(), deletes, file.source.deduplicate_by is not None, sink.related)


def tables_of(use: Use) -> tuple[str, ...]:
    """The tables and sequences of the schema that such a use needs, but for the entity table and related ones."""
    stores = [SCHEMAS] if use.stores or use.leases else []
    stores += STORES if use.stores else ()
    stores += (*LEASES, FENCE) if use.leases else ()
    beside = () if use.table is None else (*shared_tables(), *_own(use.table))
    return *stores, *beside


def shared_tables() -> tuple[str, ...]:
    """The names of the tables that all entity tables of a schema share. Needs PyArrow, which a store does not."""
    from leasehold.sinks.beside.tables import ALL_SHARED

    return tuple(table.name for table in ALL_SHARED)


def named_tables(use: Use, schema: str) -> list[tuple[str, str]]:
    """The tables (schema, name) that are a user's own: the entity table, and the related ones."""
    if use.table is None:
        return []
    names = [TableName.parse(name, "related") for name in use.table.related]
    return [(schema, use.table.spec.name), *((one.schema or schema, one.name) for one in names)]


def needed(use: Use, place: DatabaseState) -> list[Right]:
    """All that such a use of this place needs, each right once. The whole list for a database without these tables."""
    found = list(_needed(use, place))
    return [*{(one.thing, one.right): one for one in reversed(found)}.values()][::-1]


def _needed(use: Use, place: DatabaseState) -> Iterator[Right]:
    where = place.schema
    yield Right(Thing("DATABASE", place.database), "CONNECT", "is where the tables are")
    yield Right(Thing("SCHEMA", where), "USAGE", "is where the tables are")
    if use.stores or use.leases:
        yield Right(Thing("TABLE", SCHEMAS, where), "SELECT", "has the versions of a store's tables")
    if use.stores:
        yield from _on(where, STORES, ALL)
    if use.leases:
        yield from _on(where, LEASES, ALL)
        yield Right(Thing("SEQUENCE", FENCE, where), "USAGE", "gives each lease its number")
    if use.table is not None:
        yield from _of_table(use.table, place)


def _of_table(use: TableUse, place: DatabaseState) -> Iterator[Right]:
    where, spec = place.schema, use.spec
    yield Right(Thing("DATABASE", place.database), "TEMPORARY", "is where a batch is brought into temporary tables")
    own = Thing("TABLE", spec.name, where)
    for right in ("SELECT", "INSERT", *(("UPDATE",) if spec.keys else ()), *(("DELETE",) if use.deletes else ())):
        yield Right(own, right, "is the entity table")
    yield from _on(where, shared_tables(), ALL)
    left = () if use.deduplicated or spec.identities not in place.there else (spec.identities,)  # a reset empties it
    yield from _on(where, (*_own(use), *left), ALL, "is kept beside the entity table")
    yield from _around(place, (where, spec.name))
    for name in use.related:
        called = TableName.parse(name, "related")
        related = Thing("TABLE", called.name, called.schema or where)
        if related.schema != where:
            yield Right(Thing("SCHEMA", related.schema), "USAGE", f"has the related table {called.name}")
        for right in ALL:
            yield Right(related, right, "is a related table of the handler", spare=right == "DELETE")
        yield from _around(place, (related.schema, called.name))
    if spec.schema_evolution == ADD:
        yield Right(own, OWNER, 'gets new columns by schema_evolution = "add"', spare=True)


def _around(place: DatabaseState, table: tuple[str, str]) -> Iterator[Right]:
    """What a table of somebody's own brings along: foreign keys, and numbers that its defaults draw."""
    for schema, name in place.referred.get(table, ()):
        if schema != place.schema:
            yield Right(Thing("SCHEMA", schema), "USAGE", f"has the table {name}, with a foreign key of {table[1]}")
        yield Right(Thing("TABLE", name, schema), "SELECT", f"is tied to {table[1]} by a foreign key")
    for schema, name in place.drawn.get(table, ()):
        yield Right(Thing("SEQUENCE", name, schema), "USAGE", f"numbers rows of {table[1]}")


def _own(use: TableUse) -> tuple[str, ...]:
    spec = use.spec
    return (spec.rejected, *([spec.memory] if spec.memory else []), *([spec.identities] if use.deduplicated else []))


def _on(schema: str, tables: Collection[str], rights: Collection[str], why: str = "") -> Iterator[Right]:
    for name in tables:
        for right in rights:
            yield Right(Thing("TABLE", name, schema), right, why or _HOLDS[name])
