"""Leases and sessions that somebody has spoiled: nobody else is kept from anything, and fences still rise."""

from __future__ import annotations

import math
import secrets
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from azure.data.tables import TableClient, UpdateMode
from azure.storage.blob import ContainerClient

from leasehold.model import Lease
from leasehold.stores import LeaseStore, open_lease_store
from leasehold.stores.lease_base import ClearsLeases, ListsLeases
from tests.stores.azurite import Azurite
from tests.stores.servers import PostgresServer, RedisServer
from tests.waiting import NEVER

NOW = b"%d" % int((time.time() + 3600) * 1e6)
GARBAGE = [b"", b"x", b"\xff", b"\n", b"\n\n", b"null", b"[" * 50_000, b"9" * 400, b"-1\n-1\n[]", b"nan\nnan\n[]"]


def goes_on(store: LeaseStore, before: list[Lease]) -> None:
    """Others open sessions, take what is free, and look; what is won has a higher fence than what was before."""
    session = store.open_session("other", 60.0)
    assert store.acquire(session, "healthy", ["a", "b"])
    look(store)
    store.renew(before)
    store.change(before, session)
    for lease in store.acquire(session, "spoiled", ["a"]):
        assert lease.fence > before[0].fence
    store.release(before)
    store.close_session(session)
    store.break_leases("spoiled", ["a"])
    store.break_leases("healthy", ["a", "b"])


def look(store: LeaseStore) -> None:
    """What is listed and cleared raises nothing, and is of values that a lease may have."""
    found = store.holders("spoiled", ["a"])
    if isinstance(store, ListsLeases):
        listed = [*store.list_leases(most=100_000), *store.list_leases("spoiled"), *store.list_leases("spoiled", ["a"])]
        assert {"a", "b"} <= {one.lease.key for one in listed if one.lease.scope == "healthy"}
        assert all(one.remaining is None or math.isfinite(one.remaining) for one in listed)
        found += [one.lease for one in listed]
    for lease in found:
        "".join((lease.scope, lease.key, lease.session.id, lease.session.owner)).encode()
        assert lease.session.duration is None or 0 < lease.session.duration < math.inf
    if isinstance(store, ClearsLeases):
        store.clear_leases()


def spoiled(store: LeaseStore, run: Callable[[Any], object], poisons: list[Any]) -> None:
    for poison in poisons:
        session = store.open_session("me", 60.0)
        before = store.acquire(session, "spoiled", ["a"])
        assert before, poison
        run(poison)
        goes_on(store, before)
        store.close_session(session)


def test_in_redis(redis_server: RedisServer) -> None:
    prefix = f"poisoned{secrets.token_hex(8)}"
    store = open_lease_store(f"{redis_server.url}?prefix={prefix}", timeout=NEVER)
    sessions = [*GARBAGE, *(NOW + b"\n%s\n[]" % value for value in (b"", b"x", b"9" * 30, b"\xff"))]
    sessions += [b"%s\n60000000\n%s" % (NOW, value) for value in (b"", b"x", b"[", b"[1,2,3]", b'["\xff",1]', b"[[]]")]
    durations = (b"9" * 400, b"9" * 5_000, b"1e400", b"-1e400", b"NaN", b"Infinity", b"-Infinity", b"-1", b"0", b'"x"')
    sessions += [b'%s\n60000000\n["me", %s]' % (NOW, value) for value in durations]
    owners = (rb'"\ud800"', rb'"\u0000"', b"7", b"null", b"[[]]", b"{}", b'"%s"' % (b"x" * 100_000))
    sessions += [b"%s\n60000000\n[%s, 60.0]" % (NOW, value) for value in owners]
    with redis.Redis(port=redis_server.port) as other:

        def spoil(what: tuple[str, bytes]) -> None:
            kind, value = what
            if kind == "fence":
                other.set(f"{prefix}:{{leases}}:fence", value)
                return
            key = f"{prefix}:{{leases}}:{'sessions' if kind == 'session' else 'scope:spoiled'}"
            for name in other.hkeys(key):
                other.hset(key, name, value)

        poisons = [("session", value) for value in sessions]
        poisons += [("lease", value) for value in (*GARBAGE, b"1", b"x\nsession", b"\xff\n\xff", b"9" * 30 + b"\nx")]
        poisons += [("fence", value) for value in (b"", b"x", b"-1", b"1e400", b"nan", b"9" * 400, b"9" * 18, b"\xff")]
        spoiled(store, spoil, poisons)


def test_names_in_redis_that_no_lease_can_have_are_left_out(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    prefix = f"poisoned{secrets.token_hex(8)}"
    store = open_lease_store(f"{redis_server.url}?prefix={prefix}", timeout=NEVER)
    assert isinstance(store, ListsLeases)
    assert isinstance(store, ClearsLeases)
    session = store.open_session("me", NEVER)
    held = store.acquire(session, "scope", ["a", "b"])
    store.acquire(session, "another", ["a"])
    bad = (b"\xff", b"\xed\xa0\x80", b"", b"a\0b", b"x" * 2_000)
    fence = b"1\n%s" % session.id.encode()
    with redis.Redis(port=redis_server.port) as other:
        for name in bad:
            other.hset(f"{prefix}:{{leases}}:scopes", name, b"")
            other.hset(f"{prefix}:{{leases}}:scope:scope", name, fence)
        other.hset(f"{prefix}:{{leases}}:sessions", b"\xff", b'\n\n["me", null]')
        other.hset(f"{prefix}:{{leases}}:scope:scope", "by a session", b"1\n\xff")
        other.delete(f"{prefix}:{{leases}}:scope:another")
        other.set(f"{prefix}:{{leases}}:scope:another", "no hash")
    for _ in range(2):
        listed = [status.lease for status in store.list_leases()]
        assert [lease for lease in listed if lease.key != "by a session"] == held
        assert [lease.session.id for lease in listed if lease.key == "by a session"] == ["?"]
        assert [status.lease for status in store.list_leases("scope")] == listed
        assert store.clear_leases() == 0
    said = [message.partition(": ")[2] for message in caplog.messages if prefix in message]
    assert said == [
        f"5 names in the key {prefix}:{{leases}}:scopes are no names of leases: left out",
        f"the key {prefix}:{{leases}}:scope:another is not Leasehold's: what it holds is no hash. Delete it, or take "
        "another prefix (?prefix=NAME) or another database (/NUMBER) in the URL; until then, the scope 'another' is "
        "left out of what is listed and cleared",
        f"5 names in the key {prefix}:{{leases}}:scope:scope are no names of leases: left out",
    ]


def test_in_sqlite(tmp_path: Path) -> None:
    store = open_lease_store(f"sqlite:///{tmp_path}/leases.db")

    def spoil(setting: str) -> None:
        table = "leasehold_session" if setting.startswith(("owner", "duration", "until", "boot")) else "leasehold_lease"
        with closing(sqlite3.connect(tmp_path / "leases.db")) as file, file:
            file.execute(f"UPDATE {table} SET {setting}")

    spoiled(
        store,
        spoil,
        [
            *(f"owner = {value}" for value in ("CAST(x'ff' AS TEXT)", "x'00'", "''")),
            *(f"duration = {value}" for value in ("'x'", "-1", "9e999", "x'00'")),
            *(f"until = {value}" for value in ("'x'", "-9e999", "x'00'")),
            *(f"fence = {value}" for value in ("'x'", "x'00'")),
            *(f"session = {value}" for value in ("CAST(x'ff' AS TEXT)", "x'00'", "''", "'x'")),
        ],
    )


def test_in_postgres(postgres_server: PostgresServer) -> None:
    store = open_lease_store(postgres_server.url, timeout=NEVER)

    def spoil(setting: str) -> None:
        with psycopg.connect(postgres_server.url, autocommit=True) as other:
            other.execute(f"UPDATE leasehold_session SET {setting} WHERE owner = 'me'")

    spoiled(
        store,
        spoil,
        [
            *(f"duration = {value}" for value in ("'NaN'", "'infinity'", "'-infinity'", "-1", "0", "1e300", "-1e300")),
            *(f"until = {value}" for value in ("'infinity'", "'-infinity'", "'294000-01-01'")),
            "duration = 'NaN', until = 'infinity'",
        ],
    )
    with psycopg.connect(postgres_server.url, autocommit=True) as other:
        left = other.execute("SELECT count(*) FROM leasehold_session WHERE duration = 'NaN'").fetchall()
    assert left == [(0,)], "what cannot be is dead"


AZURE = [
    *(("fence", value) for value in ("", "abc", "-1", "1e9", "9" * 30, "9" * 5_000, "NaN", " ")),
    *(("duration", value) for value in ("", "abc", "-1", "NaN", "infinity", "1e999")),
    *((name, value) for name in ("owner", "key", "scope") for value in ("~%FF", "~%ED%A0%80")),
]


@pytest.mark.more
def test_in_an_azure_table(azurite: Azurite) -> None:
    name = f"poison{secrets.token_hex(6)}"
    azurite.make_table(name)
    store = open_lease_store(azurite.url("aztable", name), timeout=NEVER)
    with TableClient.from_connection_string(azurite.connection_string, name) as table:

        def spoil(change: tuple[str, str]) -> None:
            for entity in list(table.list_entities()):
                if "fence" in entity:
                    table.update_entity({**entity, change[0]: change[1]}, UpdateMode.REPLACE)

        spoiled(store, spoil, AZURE)


@pytest.mark.more
def test_in_azure_blobs(azurite: Azurite) -> None:
    name = f"poison-{secrets.token_hex(6)}"
    azurite.make_container(name)
    # A spoiled lease has no holder whom anybody can read: who wants the key breaks it after half of the time-out.
    store = open_lease_store(azurite.url("azblob", name), timeout=20.0)
    with ContainerClient.from_connection_string(azurite.connection_string, name) as container:

        def spoil(change: tuple[str, str]) -> None:
            for blob in list(container.list_blobs(include=["metadata"])):
                found = {key: value or "" for key, value in (blob.metadata or {}).items()}
                if held := found.get("leaseholdlease"):
                    changed = {**found, f"leasehold{change[0]}": change[1][:500]}
                    container.get_blob_client(blob.name).set_blob_metadata(changed, lease=held)

        spoiled(store, spoil, AZURE[1::4])
