"""Ownership and checkpoints in a Postgres database, for any number of hosts.

`postgresql://USER:PASSWORD@HOST:PORT/DATABASE?OPTION=VALUE`, as libpq reads it; what the URL leaves out comes
from libpq's environment (`PGPASSWORD`, `PGPASSFILE`, …). Owns the tables that `schema.py` makes on
first use. Its clock is the server's, read with `clock_timestamp()`. Should that clock step back, a record from
the future is as old as its first listing afterwards; should it leap ahead, live owners look expired, and the
fence has to do. Refuses hot standbys, names longer than 512 bytes and names with a NUL.

What a claim or checkpoint returned is on disk (`synchronous_commit` is switched on where it is off); renewals,
presences and asks may be lost with the power. A failover to an asynchronous replica can lose claims that were
acknowledged: use a synchronous one (`synchronous_standby_names`), or levels may go back, which sinks refuse.

Concurrency: each call is one statement, which is its own transaction, however many records it carries; it locks
rows in the order of their keys, so that two of them do not wait for each other, and one that the server rolls
back nevertheless is sent again. A record is compared and written under its row lock: of many claims that name
one ETag, the first to lock it wins and the others find another ETag. Where this process stops for a minute, no
lock is held meanwhile. Threads, forks and time-outs: `connections.py`.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from leasehold.database.postgres.connections import Connections, Errors, Row
from leasehold.errors import NotTheOwner
from leasehold.model import Ask, Checkpoint, ConsumerGroup, Ownership, OwnershipListing, Presence, RecordKind
from leasehold.stores.base import PipelineBinding, SchemaChange, StoreFeatures
from leasehold.stores.checkpoint_data import data_text, with_data
from leasehold.stores.names import check_group, check_name, check_records, legible
from leasehold.stores.postgres import statements as sql
from leasehold.stores.postgres.schema import STORES, PostgresSchema
from leasehold.stores.readable import listing, read
from leasehold.stores.rules import raised, refusal
from leasehold.stores.server_clock import brought_back, is_ahead
from leasehold.stores.skipped import Skipped
from leasehold.stores.table_versions import gone

_Key = tuple[str, str, str, str]
R = TypeVar("R", Ownership, Checkpoint, Ask)


class PostgresStore:
    """Ownership and checkpoints in the database at `url`. `timeout` is the longest that a call takes, in seconds."""

    features = StoreFeatures(shared=True)

    def __init__(self, url: str, *, timeout: float = 3.0) -> None:
        self._connections = Connections(
            url,
            timeout,
            lambda connection: self._schema.prepare(connection),
            errors=Errors(gone=lambda shown, _: gone(shown)),
        )
        self._schema = PostgresSchema(STORES, self._connections.shown)
        self._skipped = Skipped(self._connections.shown)

    def __repr__(self) -> str:
        return f"PostgresStore({self._connections.shown!r})"

    def create_schema(self) -> SchemaChange:
        """Make the tables, which the first use does too, and say what was done."""
        return self._connections.once(self._schema.create)

    def schema_statements(self) -> tuple[str, ...]:
        """What makes the tables that are missing, as SQL."""
        return self._connections.once(self._schema.missing_statements)

    def is_made(self) -> bool:
        """Whether the tables are there; makes none."""
        return self._connections.once(self._schema.is_there)

    def close(self) -> None:
        """Close the connections that no thread uses now. The store may be used again afterwards."""
        self._connections.close()

    # Ownership

    def list_ownership(self, group: ConsumerGroup) -> OwnershipListing:
        check_group(group)
        [[as_of, owned, present, asked]] = self._connections.rows(sql.LIST_OWNERSHIP, _group_values(group))
        listed = listing(
            [read(RecordKind.OWNERSHIP, group, row[0], partial(_ownership, group), row, tag=_tag) for row in owned],
            as_of,
            [read(RecordKind.PRESENCE, group, row[0], partial(_presence, group), row) for row in present],
            [read(RecordKind.ASK, group, row[0], partial(_ask, group), row) for row in asked],
        )
        if is_ahead(listed):
            self._connections.rows(sql.BRING_BACK, _group_values(group))
            return brought_back(listed)
        return listed

    def claim_ownership(self, claims: Sequence[Ownership]) -> list[Ownership]:
        return self._write(sql.CLAIM, claims)

    def renew_ownership(self, held: Sequence[Ownership], presence: Presence | None = None) -> list[Ownership]:
        present = "[]"
        if presence is not None:
            check_group(presence.group)
            check_name("owner id", presence.owner_id)
            present = json.dumps([{**_presence_values(presence), "etag": secrets.token_hex(8)}])
            if not held:
                self._connections.rows(sql.RENEW, {"records": "[]", "presence": present})
        return self._write(sql.RENEW, held, presence=present)

    def relinquish_ownership(self, held: Sequence[Ownership]) -> list[Ownership]:
        return self._write(sql.RELINQUISH, [dataclasses.replace(record, owner_id="") for record in held])

    def _write(self, statement: str, records: Sequence[Ownership], **values: str) -> list[Ownership]:
        check_records(records)
        won: dict[int, Ownership] = {}
        for apart in _keys_apart(records):
            written = {secrets.token_hex(8): one for one in apart}
            sent = [
                {**_ownership_values(record), "expected": record.etag, "etag": etag}
                for etag, (_, record) in written.items()
            ]
            for etag, modified in self._connections.rows(statement, {"records": json.dumps(sent), **values}):
                position, record = written[etag]
                won[position] = dataclasses.replace(
                    record, etag=etag, last_modified=modified, last_error=legible(record.last_error)
                )
        return [won[position] for position in sorted(won)]

    def withdraw_presence(self, group: ConsumerGroup, owner_ids: Sequence[str]) -> None:
        check_group(group)
        self._connections.rows(sql.WITHDRAW_PRESENCE, {**_group_values(group), "owner_ids": json.dumps([*owner_ids])})

    def ask(self, asks: Sequence[Ask]) -> None:
        check_records(asks)
        for apart in _keys_apart(asks):
            self._connections.rows(sql.ASK, {"records": json.dumps([_ask_values(ask) for _, ask in apart])})

    def withdraw_asks(self, asks: Sequence[Ask]) -> None:
        check_records(asks)
        if asks:
            self._connections.rows(sql.WITHDRAW_ASKS, {"records": json.dumps([_ask_values(ask) for ask in asks])})

    # Checkpoints

    def list_checkpoints(self, group: ConsumerGroup) -> list[Checkpoint]:
        check_group(group)
        rows = self._connections.rows(sql.LIST_CHECKPOINTS, _group_values(group))
        return self._skipped.left(
            read(RecordKind.CHECKPOINT, group, row[0], partial(_checkpoint, group), row) for row in rows
        )

    def raise_owner_level(self, starts: Sequence[Checkpoint]) -> list[Checkpoint]:
        check_records(starts)
        if not starts:
            return []
        wanted: dict[_Key, Checkpoint] = {}
        for start in starts:
            wanted[_key(start)] = raised(wanted.get(_key(start)), start)
        sent = json.dumps([_checkpoint_values(wanted[key]) for key in sorted(wanted)])
        rows = self._connections.rows(sql.RAISE_OWNER_LEVEL, {"records": sent})
        stands = {tuple(row[:4]): tuple(row[4:]) for row in rows}
        return self._skipped.left(
            read(
                RecordKind.CHECKPOINT,
                start.group,
                start.partition,
                partial(_checkpoint, start.group),
                (start.partition, *stands[_key(start)]),
            )
            for start in starts
        )

    def update_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> list[NotTheOwner]:
        check_records(checkpoints)
        refused: dict[int, NotTheOwner] = {}
        for apart in _keys_apart(checkpoints):
            left = list(apart)
            while left:  # once, unless a refused one can no longer be told why: its record has just been deleted
                sent = {"records": json.dumps([_checkpoint_values(checkpoint) for _, checkpoint in left])}
                taken = set(self._connections.rows(sql.UPDATE_CHECKPOINTS, sent))
                left = [(position, checkpoint) for position, checkpoint in left if _key(checkpoint) not in taken]
                reasons = dict(self._reasons(left))
                refused |= reasons
                left = [(position, checkpoint) for position, checkpoint in left if position not in reasons]
        return [refused[position] for position in sorted(refused)]

    def _reasons(self, refused: Sequence[tuple[int, Checkpoint]]) -> Iterator[tuple[int, NotTheOwner]]:
        """Why these were refused, from the records as they stand by now: those only ever rise."""
        if not refused:
            return
        sent = {"records": json.dumps([_checkpoint_values(checkpoint) for _, checkpoint in refused])}
        stands = {
            (*names, partition): (sequence_number, level)
            for *names, partition, sequence_number, level in self._connections.rows(sql.READ_CHECKPOINTS, sent)
        }
        for position, checkpoint in refused:
            if (found := stands.get(_key(checkpoint))) is not None:
                reason = refusal(Checkpoint(checkpoint.group, checkpoint.partition, *found), checkpoint)
                if reason is not None:
                    yield position, reason

    def pipeline_binding(self, group: ConsumerGroup) -> PipelineBinding | None:
        check_group(group)
        return next((PipelineBinding(*row) for row in self._connections.rows(sql.BINDING, _group_values(group))), None)

    def bind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> PipelineBinding:
        return self._bind(sql.BIND, group, binding)

    def rebind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> None:
        self._bind(sql.REBIND, group, binding)

    def _bind(self, statement: str, group: ConsumerGroup, binding: PipelineBinding) -> PipelineBinding:
        check_group(group)
        values = {**_group_values(group), "pipeline": binding.pipeline, "sink": binding.sink}
        [[pipeline, sink]] = self._connections.rows(statement, values)
        return PipelineBinding(pipeline, sink)


def _ownership(group: ConsumerGroup, row: Row) -> Ownership:
    partition, owner, level, etag, modified, *rest = row
    return Ownership(group, partition, owner, level, etag, _seconds(modified), *rest)


def _tag(row: Row) -> tuple[object, object]:
    return row[3], _seconds(row[4])


def _presence(group: ConsumerGroup, row: Row) -> Presence:
    owner, pipeline, strategy, capacity, maximum, created, modified, etag = row
    times = _seconds(created), _seconds(modified)
    return Presence(group, owner, pipeline, strategy, _seconds(capacity), maximum, *times, etag)


def _seconds(number: Any) -> float:
    """A number, which JSON writes as 1 for 1.0, and as text where it is infinite or none at all."""
    return float(number)


def _ask(group: ConsumerGroup, row: Row) -> Ask:
    return Ask(group, *row)


def _checkpoint(group: ConsumerGroup, row: Row) -> Checkpoint:
    partition, number, level, offset, data = row
    return with_data(Checkpoint(group, partition, number, level, offset), data)


def _keys_apart(records: Sequence[R]) -> Iterable[list[tuple[int, R]]]:
    """The records with their positions, in key order: one list, and one more for each time that a key comes again."""
    lists: list[dict[_Key, tuple[int, R]]] = []
    times: dict[_Key, int] = {}
    for position, record in enumerate(records):
        key = _key(record)
        times[key] = nth = times.get(key, -1) + 1
        if nth == len(lists):
            lists.append({})
        lists[nth][key] = position, record
    return [[one[key] for key in sorted(one)] for one in lists]


def _key(record: Ownership | Checkpoint | Ask) -> _Key:
    return record.group.namespace, record.group.hub, record.group.name, record.partition


def _group_values(group: ConsumerGroup) -> dict[str, Any]:
    return {"namespace": group.namespace, "hub": group.hub, "consumer_group": group.name}


def _key_values(record: Ownership | Checkpoint | Ask) -> dict[str, Any]:
    return {**_group_values(record.group), "partition": record.partition}


def _ownership_values(record: Ownership) -> dict[str, Any]:
    return {
        **_key_values(record),
        "owner_id": record.owner_id,
        "owner_level": record.owner_level,
        "nonce": record.nonce,
        "successor": record.successor,
        "claimed_at": record.claimed_at,
        "failures": record.failures,
        "last_error": legible(record.last_error),
    }


def _presence_values(presence: Presence) -> dict[str, Any]:
    return {
        **_group_values(presence.group),
        "owner_id": presence.owner_id,
        "pipeline": presence.pipeline,
        "strategy": presence.strategy,
        "capacity": presence.capacity,
        "maximum": presence.maximum,
    }


def _ask_values(ask: Ask) -> dict[str, Any]:
    return {**_key_values(ask), "owner_level": ask.owner_level, "asker": ask.asker}


def _checkpoint_values(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        **_key_values(checkpoint),
        "sequence_number": checkpoint.sequence_number,
        "owner_level": checkpoint.owner_level,
        "offset": checkpoint.offset,
        "data": data_text(checkpoint),
    }


def open_postgres_store(url: str, base: Path, timeout: float) -> PostgresStore:
    """The store in the database that a `postgresql://` URL names; `base` has no meaning here."""
    return PostgresStore(url, timeout=timeout)
