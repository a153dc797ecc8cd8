"""Ownership and checkpoints in a Redis server, for any number of hosts.

`redis://USER:PASSWORD@HOST:PORT/NUMBER`, or `rediss://` for TLS; a password that the URL leaves out comes from
`LEASEHOLD_REDIS_PASSWORD`. `?prefix=NAME` keeps several fleets apart in one server, `?cluster=true` is for a Redis
Cluster. Owns the keys `leasehold:{NAMESPACE/HUB/GROUP}:…`. Its clock is the server's `TIME`. Should that clock step
back, a record from the future is as old as its first listing afterwards; should it leap ahead, live owners look
expired, and the fence has to do. Refuses names longer than 512 bytes and names with a NUL.

What was acknowledged is on disk only if the server runs with `appendonly yes` and `appendfsync always`. With
`everysec` the last second is lost with the power, without `appendonly` everything since the last snapshot is lost with
the process; and a failover to a replica loses what had not reached it (`min-replicas-to-write` bounds that). Then
levels can go back, which the entity table refuses loudly, or checkpoints, which costs a re-read. Keep checkpoints in
another store where that is not acceptable. A store warns at first use of a server that does not keep what it is told.

Concurrency: each call is one script a consumer group, however many records it carries, and the server runs one at a
time: a record is compared and written with nobody in between. A script holds up everybody else meanwhile (2,048
records: some ten milliseconds). Threads, forks and time-outs: `server.py`.
"""

from __future__ import annotations

import dataclasses
import json
import re
import secrets
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from leasehold.errors import NotTheOwner
from leasehold.model import (
    Ask,
    Checkpoint,
    ConsumerGroup,
    Ownership,
    OwnershipListing,
    Presence,
    RecordKind,
    Unreadable,
)
from leasehold.printable import shortened
from leasehold.stores.base import PipelineBinding, SchemaChange, StoreFeatures
from leasehold.stores.checkpoint_data import data_text, with_data
from leasehold.stores.names import check_group, check_name, check_records, legible
from leasehold.stores.readable import listing, read, read_binding
from leasehold.stores.redis import scripts as lua
from leasehold.stores.redis.server import Call, RedisServer, Script
from leasehold.stores.rules import refusal
from leasehold.stores.server_clock import brought_back, is_ahead
from leasehold.stores.skipped import Skipped

_Pair = tuple[str, str]
"""The name of a record, and what it holds."""
R = TypeVar("R", Ownership, Checkpoint, Ask)


class RedisStore:
    """Ownership and checkpoints in the server at `url`. `timeout` is the longest that a call takes, in seconds."""

    features = StoreFeatures(shared=True)

    def __init__(self, url: str, *, timeout: float = 3.0) -> None:
        self._server = RedisServer(url, timeout, "stores")
        self._skipped = Skipped(self._server.shown)

    def __repr__(self) -> str:
        return f"RedisStore({self._server.shown!r})"

    def create_schema(self) -> SchemaChange:
        """Mark the data with its version, which the first use does too, and say what was done."""
        return self._server.create_schema()

    def is_made(self) -> bool:
        """Whether the data is marked as Leasehold's; marks nothing."""
        return self._server.is_made()

    def close(self) -> None:
        """Close the connections of this process. The store may be used again afterwards."""
        self._server.close()

    # Ownership

    def list_ownership(self, group: ConsumerGroup) -> OwnershipListing:
        check_group(group)
        keys = [self._server.group_key(group, kind) for kind in ("ownership", "presence", "ask")]
        now, owned, present, asked = self._server.call(lua.LIST, keys, [])
        listed = listing(
            [read(RecordKind.OWNERSHIP, group, p[0], partial(_ownership, group), p, tag=_tag) for p in _pairs(owned)],
            _seconds(now),
            [read(RecordKind.PRESENCE, group, p[0], partial(_presence, group), p) for p in _pairs(present)],
            [read(RecordKind.ASK, group, p[0], partial(_ask, group), p) for p in _pairs(asked)],
        )
        if is_ahead(listed):
            self._server.call(lua.BRING_BACK, keys[:2], [])
            return brought_back(listed)
        return listed

    def claim_ownership(self, claims: Sequence[Ownership]) -> list[Ownership]:
        return self._write("claim", claims)

    def renew_ownership(self, held: Sequence[Ownership], presence: Presence | None = None) -> list[Ownership]:
        return self._write("renew", held, presence)

    def relinquish_ownership(self, held: Sequence[Ownership]) -> list[Ownership]:
        return self._write("relinquish", [dataclasses.replace(record, owner_id="") for record in held])

    def _write(self, how: str, records: Sequence[Ownership], presence: Presence | None = None) -> list[Ownership]:
        check_records(records)
        by_group = _by_group(records)
        if presence is not None:
            check_group(presence.group)
            check_name("owner id", presence.owner_id)
            by_group.setdefault(presence.group, [])
        calls: list[Call] = []
        etags: list[list[str]] = []
        for group, some in by_group.items():
            here = presence if presence is not None and presence.group == group else None
            values = [how, *_presence_values(here)]
            etags.append([secrets.token_hex(8) for _ in some])
            for etag, (_, record) in zip(etags[-1], some, strict=True):
                values += [record.partition, "" if record.etag is None else f"{record.etag}\n", *_values(record, etag)]
            calls.append(
                (lua.WRITE, [self._server.group_key(group, kind) for kind in ("ownership", "presence")], values)
            )
        won = {}
        answers = self._server.calls(calls) if calls else []
        for some, new, (now, numbers) in zip(by_group.values(), etags, answers, strict=True):
            for number in numbers:
                position, record = some[number]
                won[position] = dataclasses.replace(
                    record, etag=new[number], last_modified=_seconds(now), last_error=legible(record.last_error)
                )
        return [won[position] for position in sorted(won)]

    def withdraw_presence(self, group: ConsumerGroup, owner_ids: Sequence[str]) -> None:
        check_group(group)
        if owner_ids:
            self._server.command("HDEL", self._server.group_key(group, "presence"), *owner_ids)

    def ask(self, asks: Sequence[Ask]) -> None:
        check_records(asks)
        for group, some in _by_group(asks).items():
            fields = [text for _, ask in some for text in (ask.partition, _ask_text(ask))]
            self._server.command("HSET", self._server.group_key(group, "ask"), *fields)

    def withdraw_asks(self, asks: Sequence[Ask]) -> None:
        check_records(asks)
        for group, some in _by_group(asks).items():
            fields = [text for _, ask in some for text in (ask.partition, _ask_text(ask))]
            self._server.call(lua.WITHDRAW_ASKS, [self._server.group_key(group, "ask")], fields)

    # Checkpoints

    def list_checkpoints(self, group: ConsumerGroup) -> list[Checkpoint]:
        check_group(group)
        found = self._server.command("HGETALL", self._server.group_key(group, "checkpoint"))
        return self._skipped.left(_read_checkpoint(group, pair) for pair in found.items())

    def raise_owner_level(self, starts: Sequence[Checkpoint]) -> list[Checkpoint]:
        check_records(starts)
        by_group = _by_group(starts)
        answers = self._server.calls([self._checkpoint_call(lua.RAISE_OWNER_LEVEL, *some) for some in by_group.items()])
        stands = {
            position: _read_checkpoint(start.group, (start.partition, text))
            for some, texts in zip(by_group.values(), answers, strict=True)
            for (position, start), text in zip(some, texts, strict=True)
        }
        return self._skipped.left(stands[position] for position in sorted(stands))

    def update_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> list[NotTheOwner]:
        check_records(checkpoints)
        by_group = _by_group(checkpoints)
        answers = self._server.calls(
            [self._checkpoint_call(lua.UPDATE_CHECKPOINTS, *some) for some in by_group.items()]
        )
        refused = {}
        for some, answer in zip(by_group.values(), answers, strict=True):
            for number, level, sequence_number in answer:
                position, checkpoint = some[number]
                stands = Checkpoint(checkpoint.group, checkpoint.partition, int(sequence_number), int(level))
                reason = refusal(stands, checkpoint)
                assert reason is not None, "the script refuses by the same rules"
                refused[position] = reason
        return [refused[position] for position in sorted(refused)]

    def _checkpoint_call(
        self, script: Script, group: ConsumerGroup, checkpoints: Iterable[tuple[int, Checkpoint]]
    ) -> Call:
        values: list[str] = []
        for _, one in checkpoints:
            data = data_text(one)
            rest = json.dumps(one.offset) if data is None else f"{json.dumps(one.offset)}\n{data}"
            values += [one.partition, str(one.owner_level), str(one.sequence_number), rest]
        return script, [self._server.group_key(group, "checkpoint")], values

    def pipeline_binding(self, group: ConsumerGroup) -> PipelineBinding | None:
        check_group(group)
        stands = self._server.command("GET", self._server.group_key(group, "binding"))
        return None if stands is None else read_binding(self._server.shown, group, json.loads, stands)

    def bind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> PipelineBinding:
        check_group(group)
        key = self._server.group_key(group, "binding")
        stands = self._server.call(lua.BIND, [key], [_binding_text(binding)])
        return read_binding(self._server.shown, group, json.loads, stands)

    def rebind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> None:
        check_group(group)
        self._server.command("SET", self._server.group_key(group, "binding"), _binding_text(binding))


def _by_group(records: Iterable[R]) -> dict[ConsumerGroup, list[tuple[int, R]]]:
    """The records with their positions, one list for each group."""
    groups: dict[ConsumerGroup, list[tuple[int, R]]] = {}
    for position, record in enumerate(records):
        groups.setdefault(record.group, []).append((position, record))
    return groups


def _pairs(flat: Sequence[str]) -> Iterable[_Pair]:
    return zip(flat[::2], flat[1::2], strict=True) if flat else ()  # Lua knows no empty list


def _seconds(microseconds: str) -> float:
    """A time as the scripts write it, and bring it back from the future: in digits. Of very many, it is infinite."""
    if not re.fullmatch("-?[0-9]+", microseconds):
        raise ValueError(f"not a time in microseconds: {shortened(repr(microseconds), 40)}")
    return float(microseconds) / 1e6


def _values(record: Ownership, etag: str) -> tuple[str, str, str]:
    """The ETag, identity and values of an ownership, as the scripts take them."""
    rest = (record.nonce, record.successor, record.claimed_at, record.failures, legible(record.last_error))
    return etag, json.dumps([record.owner_id, record.owner_level]), json.dumps(rest)


def _ownership(group: ConsumerGroup, pair: _Pair) -> Ownership:
    partition, text = pair
    etag, modified, identity, rest = text.split("\n")
    owner_id, owner_level = json.loads(identity)
    return Ownership(group, partition, owner_id, owner_level, etag, _seconds(modified), *json.loads(rest))


def _tag(pair: _Pair) -> tuple[object, object]:
    etag, modified, *_ = pair[1].split("\n")
    return etag, _seconds(modified)


def _presence_values(presence: Presence | None) -> tuple[str, str, str]:
    if presence is None:
        return "", "", ""
    values = (presence.pipeline, presence.strategy, presence.capacity, presence.maximum)
    return presence.owner_id, secrets.token_hex(8), json.dumps(values)


def _presence(group: ConsumerGroup, pair: _Pair) -> Presence:
    owner_id, text = pair
    etag, created, modified, values = text.split("\n")
    pipeline, strategy, capacity, maximum = json.loads(values)
    times = _seconds(created), _seconds(modified)
    return Presence(group, owner_id, pipeline, strategy, capacity, maximum, *times, etag)


def _ask_text(ask: Ask) -> str:
    return json.dumps([ask.owner_level, ask.asker])


def _ask(group: ConsumerGroup, pair: _Pair) -> Ask:
    return Ask(group, pair[0], *json.loads(pair[1]))


def _read_checkpoint(group: ConsumerGroup, pair: _Pair) -> Checkpoint | Unreadable:
    return read(RecordKind.CHECKPOINT, group, pair[0], partial(_checkpoint, group), pair)


def _checkpoint(group: ConsumerGroup, pair: _Pair) -> Checkpoint:
    partition, text = pair
    level, sequence_number, offset, *data = text.split("\n")
    if not text.isascii():
        raise ValueError("what is written here is ASCII")
    if len(data) > 1:
        raise ValueError("more lines than a checkpoint has")
    place = Checkpoint(group, partition, _exact(sequence_number), _exact(level), json.loads(offset))
    return with_data(place, data[0] if data else None)


def _exact(text: str) -> int:
    """A whole number, as the scripts compare it: by its digits."""
    number = int(text)
    if str(number) != text:
        raise ValueError(f"not the spelling of a whole number: {text!r}")
    return number


def _binding_text(binding: PipelineBinding) -> str:
    return json.dumps([binding.pipeline, binding.sink])


def open_redis_store(url: str, base: Path, timeout: float) -> RedisStore:
    """The store in the server that a `redis://` or `rediss://` URL names; `base` has no meaning here."""
    return RedisStore(url, timeout=timeout)
