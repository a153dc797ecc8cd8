"""The tables of a store in SQL: their columns and keys, whatever the database.

Owns what the statements rely on, as values; a database makes them from these (`database.tables`). The columns are a
format (`versions.Component`). When a record was written is in the columns of the database's own clock, which it brings
with it; another time is of the kind of that clock.
"""

from __future__ import annotations

from collections.abc import Mapping

from leasehold.database.tables import Kind, Table

OWNERSHIP = "leasehold_ownership"
PRESENCE = "leasehold_presence"
ASK = "leasehold_ask"
CHECKPOINT = "leasehold_checkpoint"
BINDING = "leasehold_binding"
SESSION = "leasehold_session"
LEASE = "leasehold_lease"

GROUP: dict[str, Kind] = {"namespace": "text", "hub": "text", "consumer_group": "text"}
PARTITION: dict[str, Kind] = {**GROUP, "partition": "text"}
OWNER: dict[str, Kind] = {**GROUP, "owner_id": "text"}

OWNED: dict[str, Kind] = {
    "owner_id": "text",
    "owner_level": "bigint",
    "nonce": "text",
    "successor": "text",
    "claimed_at": "bigint",
    "failures": "bigint",
    "last_error": "text",
}
PRESENT: dict[str, Kind] = {
    "pipeline": "text",
    "strategy": "text",
    "capacity": "double precision",
    "maximum": "bigint",
}
ASKED: dict[str, Kind] = {"owner_level": "bigint", "asker": "text"}
PROGRESS: dict[str, Kind] = {"sequence_number": "bigint", "owner_level": "bigint", "offset": "text", "data": "text"}
BOUND: dict[str, Kind] = {"pipeline": "text", "sink": "text"}


def store_tables(written: Mapping[str, Kind], time: Kind) -> tuple[Table, ...]:
    """Those of ownership and checkpoints. `written` are the columns of the clock, and `time` is the kind of a time."""
    return (
        Table(OWNERSHIP, {**PARTITION, **OWNED, "etag": "text", **written}, key=(*PARTITION,), updated=True),
        Table(
            PRESENCE,
            {**OWNER, **PRESENT, "etag": "text", "created": time, **written},
            key=(*OWNER,),
            nullable=frozenset({"maximum"}),
            updated=True,
        ),
        Table(ASK, {**PARTITION, **ASKED}, key=(*PARTITION,)),
        Table(
            CHECKPOINT,
            {**PARTITION, **PROGRESS},
            key=(*PARTITION,),
            nullable=frozenset({"offset", "data"}),
            updated=True,
        ),
        Table(BINDING, {**GROUP, **BOUND}, key=(*GROUP,)),
    )


def lease_tables(until: Mapping[str, Kind]) -> tuple[Table, ...]:
    """Those of leases. `until` are the columns of the clock that say how long a session lives."""
    return (
        Table(
            SESSION,
            {"id": "text", "owner": "text", "duration": "double precision", **until},
            key=("id",),
            nullable=frozenset({"duration"}),
            updated=True,
        ),
        Table(
            LEASE,
            {"scope": "text", "key": "text", "fence": "bigint", "session": "text"},
            key=("scope", "key"),
            nullable=frozenset({"session"}),
            updated=True,
        ),
    )
