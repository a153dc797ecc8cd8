"""Who only reads a store makes nothing in it: what is not there is refused, on every server."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import redis
from psycopg import sql

from leasehold.errors import LeaseholdError, UsageError
from leasehold.model import ConsumerGroup
from leasehold.stores import open_existing, open_store
from leasehold.stores.base import SchemaKeeper
from tests.stores.azurite import Azurite
from tests.stores.servers import PostgresServer, RedisServer
from tests.waiting import NEVER

GROUP = ConsumerGroup("n", "h", "g")


def read_and_make(url: str, untouched: Callable[[], bool]) -> None:
    """What is not there is refused and not made; what was made is read."""
    for _ in range(2):
        with pytest.raises(UsageError, match=r"there is no store at .*leasehold init") as refused:
            open_existing(url, timeout=NEVER)
        assert "password" not in str(refused.value)
        assert untouched()
    store = open_store(url, timeout=NEVER)
    assert isinstance(store, SchemaKeeper)
    store.create_schema()
    assert open_existing(url, timeout=NEVER).list_checkpoints(GROUP) == []


def test_sqlite(tmp_path: Path) -> None:
    read_and_make(f"sqlite:///{tmp_path}/store.db", lambda: not list(tmp_path.iterdir()))


def test_a_sqlite_file_of_another_is_left_as_it_is(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE of_another (a)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(UsageError, match="there is no store"):
        open_existing(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_postgres(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"reading_{secrets.token_hex(4)}"
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
    url = f"{postgres_server.url}{'&' if '?' in postgres_server.url else '?'}options=-csearch_path%3D{name}"

    def untouched() -> bool:
        with psycopg.connect(postgres_server.url) as connection:
            found = connection.execute("SELECT 1 FROM information_schema.tables WHERE table_schema = %s", [name])
            return found.fetchall() == []

    read_and_make(url, untouched)


def test_redis(redis_server: RedisServer) -> None:
    prefix = f"reading-{secrets.token_hex(4)}"
    client = redis.Redis.from_url(redis_server.url)
    url = f"{redis_server.url}{'&' if '?' in redis_server.url else '?'}prefix={prefix}"
    read_and_make(url, lambda: client.keys(f"{prefix}*") == [])
    client.close()


@pytest.mark.parametrize(("scheme", "place"), [("azblob", "container"), ("aztable", "table")])
def test_azure_says_what_is_missing_and_makes_nothing(azurite: Azurite, scheme: str, place: str) -> None:
    store = open_existing(azurite.url(scheme, f"reading{secrets.token_hex(4)}"), timeout=NEVER)
    for ask in (lambda: store.list_ownership(GROUP), lambda: store.list_checkpoints(GROUP)) * 2:
        with pytest.raises(LeaseholdError, match=rf"there is no such {place}.*leasehold init"):
            ask()
