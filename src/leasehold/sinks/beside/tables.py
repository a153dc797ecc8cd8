"""The tables that all entity tables of a database share: their columns, keys and indexes, whatever the database.

Owns what the SQL of `sinks.beside` relies on, as values; a database makes them from these (`database.tables`). The
columns are a format.

Beside each entity table are three more, which are a database's own altogether: the memory of keys
(`TableSpec.memory`), the rejected rows (`TableSpec.rejected`, whose columns `set_aside.rejected` reads), and with
DUPLICATES the memory of identities (`TableSpec.identities`).
"""

from __future__ import annotations

from functools import partial

from leasehold.database.tables import Index, Kind, Table
from leasehold.sinks.beside.clearing import CLEARED, PLACE
from leasehold.sinks.beside.entities import ENTITY
from leasehold.sinks.beside.messages.table import MESSAGE, MESSAGE_ENTITY, MESSAGE_PARKED, MESSAGE_SENT
from leasehold.sinks.beside.outbox.table import OUTBOX
from leasehold.sinks.beside.parking.table import PARKED
from leasehold.sinks.beside.record import TABLE
from leasehold.sinks.beside.set_aside.dropping import DROPPED
from leasehold.sinks.beside.skipping.table import SKIP
from leasehold.sinks.beside.watermarks import WATERMARK

__all__ = ["ALL_SHARED", "ALWAYS", "WHEN_NEEDED"]

SharedTable = partial(Table, folded=frozenset({"name", "entity_table"}))
"""A table with the name of an entity table in it, which is compared as the database compares names of tables."""

_OF: dict[str, Kind] = {"pipeline": "text", "entity_table": "text"}
_LANE: dict[str, Kind] = {"hub": "text", "partition": "text"}
_MINE = ("pipeline", "entity_table")

ALWAYS = (
    SharedTable(
        TABLE,
        {
            "name": "text",
            "format": "bigint",
            "pipeline": "text",
            "mode": "text",
            "keys": "text",
            "sequence_by": "text",  # the kind of its values
            "made": "boolean",
            "sink_id": "text",
            "ordered_by": "text",
            "deletes": "boolean",
            "rows_count": "boolean",  # rule 6 of `remembered_order`
        },
        key=("name",),
        nullable=frozenset({"sequence_by", "ordered_by", "deletes"}),
        defaults={"made": "false", "rows_count": "true"},
    ),
    SharedTable(
        WATERMARK,
        {
            "id": "bigint",  # stands for the partition where a table keeps many
            **_OF,
            "hub": "text",
            "consumer_group": "text",
            "partition": "text",
            "sequence_number": "bigint",
            "owner_level": "bigint",
            "whole": "boolean",
            "disputed": "boolean",
            "changes": "bigint",
            "enqueued_time": "double precision",
        },
        key=(*_MINE, "consumer_group", "hub", "partition"),
        nullable=frozenset({"enqueued_time"}),
        defaults={"whole": "false", "disputed": "false", "changes": "0"},
        numbered="id",
        updated=True,
    ),
)
"""Those that every entity table needs: a sink makes them before `record.claim`."""

_WHEN_NEEDED = (
    SharedTable(
        DROPPED,
        {
            "number": "bigint",
            **_OF,
            **_LANE,
            "sequence_number": "bigint",
            "place": "bigint",
            "reason": "text",
            "rejected_at": "timestamptz",
            "dropped_for": "text",
            "dropped_at": "timestamptz",
        },
        key=("number",),
        numbered="number",
    ),
    SharedTable(
        SKIP,
        {
            **_OF,
            **_LANE,
            "sequence_number": "bigint",
            "body": "bytea",
            "source": "text",
            "because": "text",
            "noted_by": "text",
            "noted_at": "double precision",
        },
        key=(*_MINE, "hub", "partition", "sequence_number"),
        nullable=frozenset({"body"}),
    ),
    SharedTable(
        MESSAGE,
        {**_OF, "queue": "text", "message": "text", "done_at": "double precision"},
        key=(*_MINE, "queue", "message"),
        indexes=(Index("leasehold_message_done_at", MESSAGE, (*_MINE, "done_at")),),
    ),
    SharedTable(
        MESSAGE_SENT,
        {**_OF, "queue": "text", "sent_as": "text", "done_at": "double precision"},
        key=(*_MINE, "queue", "sent_as"),
        indexes=(Index("leasehold_message_sent_done_at", MESSAGE_SENT, (*_MINE, "done_at")),),
    ),
    SharedTable(
        MESSAGE_ENTITY,
        {
            **_OF,
            "key": "text",
            "version": "bigint",
            "queue": "text",
            "sequence_number": "bigint",
            "enqueued_time": "double precision",
        },
        key=(*_MINE, "key"),
        updated=True,
    ),
    SharedTable(
        MESSAGE_PARKED,
        {
            **_OF,
            "queue": "text",
            "message": "text",
            "key": "text",
            "enqueued_time": "double precision",
            "sequence_number": "bigint",
            "body": "bytea",
            "about": "text",
            "deliveries": "bigint",
            "next_at": "double precision",
            "error": "text",
            "parked_at": "double precision",
        },
        key=(*_MINE, "queue", "message"),
        nullable=frozenset({"body"}),
        indexes=(
            Index(
                "leasehold_message_parked_key",
                MESSAGE_PARKED,
                (*_MINE, "queue", "key", "enqueued_time", "sequence_number"),
            ),
            Index("leasehold_message_parked_next", MESSAGE_PARKED, (*_MINE, "queue", "next_at")),
        ),
    ),
    SharedTable(
        PLACE,
        {**_OF, "consumer_group": "text", "at": "double precision", **_LANE, "sequence_number": "bigint"},
        key=(*_MINE, "consumer_group", "at", "hub", "partition"),
    ),
    SharedTable(CLEARED, {**_OF, **_LANE, "sequence_number": "bigint"}, key=(*_MINE, "hub", "partition")),
    SharedTable(
        PARKED,
        {
            **_OF,
            **_LANE,
            "sequence_number": "bigint",
            "key": "text",
            "body": "bytea",
            "enqueued_time": "double precision",
            "deliveries": "bigint",
            "next_at": "double precision",
            "error": "text",
            "parked_at": "double precision",
        },
        key=(*_MINE, "hub", "partition", "sequence_number"),
        indexes=(Index("leasehold_parked_key", PARKED, (*_MINE, "hub", "partition", "key", "sequence_number")),),
    ),
    SharedTable(
        ENTITY,
        {**_OF, "key": "text", "version": "bigint", "latest": "text"},  # latest is JSON
        key=(*_MINE, "key"),
        nullable=frozenset({"latest"}),
        updated=True,
        indexes=(Index("leasehold_parked_entity", PARKED, (*_MINE, "key", "parked_at")),),
    ),
    SharedTable(
        OUTBOX,
        {
            "number": "bigint",
            **_OF,
            **_LANE,
            "sequence_number": "bigint",
            "place": "bigint",
            "entity": "text",
            "key": "text",
            "body": "bytea",
            "properties": "text",
            "emitted_at": "double precision",
            "refused": "text",
        },
        key=("number",),
        nullable=frozenset({"key", "refused"}),
        numbered="number",
        indexes=(Index("leasehold_outbox_lane", OUTBOX, (*_MINE, "hub", "partition", "number")),),
    ),
)

WHEN_NEEDED = {table.name: table for table in _WHEN_NEEDED}
"""The others by their names: `BesideTransaction.need` makes them. `ENTITY` is asked for behind `PARKED`."""

ALL_SHARED = (*ALWAYS, *_WHEN_NEEDED)
"""All of them, in the order in which they are made."""
