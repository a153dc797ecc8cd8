"""Stores: claims and leases a second, one listing of 2,048 partitions, and requests of an idle instance.

The servers are real ones on this machine, with their data in a temporary folder and each write on disk before it is
acknowledged. The plain operation beside each figure is the least that the same server can do for the same rows: it
compares nothing, knows no sessions and gives no answer. A call is one request, whatever it carries; not so on
Azure (`on_azurite.py`), where it is one a record or more, and fewer records are measured.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import redis

sys.path.append(str(Path(__file__).parent.parent))

from tests.stores.servers import PostgresServer, RedisServer

from leasehold.clock import SystemClock
from leasehold.config import OwnershipSettings
from leasehold.model import ConsumerGroup, OwnerId, Ownership, Positions
from leasehold.ownership import PartitionManager
from leasehold.runtime import Runtime
from leasehold.stores import Store, open_lease_store, open_store
from leasehold_testkit.simulation.hub import SimulatedHub
from on_azurite import Plain, blobs, requests_counted, tables

Row = tuple[str, float, str, float | None, str]
"""What was measured, the figure, its unit, its share of the plain limit, and the goal."""

MANY = 1_000
PARTITIONS = 2_048
_EACH_A_REQUEST = ("azblob", "aztable")
_LEASE_GOALS = {"postgresql": ">= 60,000", "redis": ">= 30,000", "sqlite": ">= 200,000"}


def run(quick: bool) -> list[Row]:
    """Measure; `quick` takes about ten seconds, most of them for starting servers."""
    results: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="leasehold-bench-") as folder:
        root = Path(folder)
        root.chmod(0o755)  # Postgres' own user must get in, where this one is root
        for name, place in (("sqlite", _sqlite), ("postgresql", _postgres), ("redis", _redis)):
            (root / name).mkdir()
            with place(root / name) as (url, plain):
                results += _measure(name, url, plain, rounds=5 if quick else 40)
        for name, place in (("azblob", blobs), ("aztable", tables)):
            with place(root) as (url, plain):
                results += _measure(
                    name, url, plain, rounds=1 if quick else 3, most=100, largest=256 if quick else PARTITIONS
                )
    return results


@contextmanager
def _sqlite(folder: Path) -> Iterator[tuple[str, Plain]]:
    connection = sqlite3.connect(folder / "plain.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE plain (k TEXT PRIMARY KEY, v TEXT) WITHOUT ROWID")

    def together(statement: str, rows: Sequence[tuple[str, ...]]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(statement, rows)
        connection.execute("COMMIT")

    yield (
        f"sqlite:///{folder}/store.db",
        Plain(
            lambda rows: together("INSERT INTO plain VALUES (?, ?) ON CONFLICT DO UPDATE SET v = excluded.v", rows),
            lambda rows: together("DELETE FROM plain WHERE k = ?", [row[:1] for row in rows]),
            lambda: connection.execute("SELECT * FROM plain").fetchall(),
        ),
    )
    connection.close()


@contextmanager
def _postgres(folder: Path) -> Iterator[tuple[str, Plain]]:
    server = PostgresServer(folder)
    try:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE plain (k text PRIMARY KEY, v text) WITH (fillfactor = 50)")
            rows_given = "SELECT * FROM json_each_text(%s::json)"
            yield (
                server.url,
                Plain(
                    lambda rows: connection.execute(
                        f"INSERT INTO plain {rows_given} ON CONFLICT (k) DO UPDATE SET v = excluded.v",
                        [json.dumps(dict(rows))],
                    ),
                    lambda rows: connection.execute(
                        f"DELETE FROM plain USING ({rows_given}) AS gone WHERE k = gone.key", [json.dumps(dict(rows))]
                    ),
                    lambda: connection.execute("SELECT * FROM plain").fetchall(),
                ),
            )
    finally:
        server.end()


@contextmanager
def _redis(folder: Path) -> Iterator[tuple[str, Plain]]:
    server = RedisServer(folder)
    try:
        with redis.Redis(port=server.port, decode_responses=True) as client:
            yield (
                server.url,
                Plain(
                    lambda rows: client.hset("plain", items=[word for row in rows for word in row]),
                    lambda rows: client.hdel("plain", *(key for key, _ in rows)),
                    lambda: list(client.hgetall("plain").items()),
                ),
            )
    finally:
        server.end()


def _measure(name: str, url: str, plain: Plain, rounds: int, most: int = MANY, largest: int = PARTITIONS) -> list[Row]:
    results: list[Row] = []
    store, leases = open_store(url, timeout=30.0), open_lease_store(url, timeout=30.0)
    turns = itertools.count()

    def rows(many: int) -> list[tuple[str, str]]:
        value = f"{next(turns):0100}"  # another each time: SQLite writes nothing where nothing changes
        return [(f"entity-{n:05}", value) for n in range(many)]

    def plain_pair(many: int) -> None:
        given = rows(many)
        plain.write(given)
        plain.remove(given)

    longest = leases.features.longest_lease
    for many, how in ((1, "one a call"), (most, f"{most:,} a call")):
        times = rounds * (10 if many == 1 else 1)
        written = many / _fastest(lambda m=many: plain.write(rows(m)), times)  # type: ignore[misc]
        claimed = many / _fastest(_renewing_claims(store, many), times)
        results.append((f"{name} claims, {how}", claimed, "claims/s", claimed / written, ""))
        results.append((f"{name}, plain write of equal rows", written, "rows/s", None, ""))
        session, keys = leases.open_session("bench", min(600.0, longest)), [key for key, _ in rows(many)]

        def pair(keys: list[str] = keys, session: Any = session) -> None:
            assert len(leases.release(leases.acquire(session, "bench", keys))) == len(keys)

        limit = many / _fastest(lambda m=many: plain_pair(m), times)  # type: ignore[misc]
        pairs = many / _fastest(pair, times)
        goal = _LEASE_GOALS.get(name, "") if many == MANY else ""
        results.append((f"{name} leases, {how}: acquire + release", pairs, "pairs/s", pairs / limit, goal))
        results.append((f"{name}, plain write + delete of equal rows", limit, "pairs/s", None, ""))
    for partitions in (32, largest):
        what = f"{name}: requests of an idle instance a cycle, {partitions:,} owned"
        results.append(
            (what, _requests(url, partitions), "requests", None, "" if name in _EACH_A_REQUEST else "the same")
        )
    group = _idle(largest)
    plain.write(rows(largest))
    assert len(store.list_ownership(group).records) == largest
    listed, read = (1_000 * _fastest(use, rounds) for use in (lambda: store.list_ownership(group), plain.read))
    results.append((f"{name}: one listing of {largest:,} partitions", listed, "ms", read / listed, ""))
    results.append((f"{name}, plain read of as many rows", read, "ms", None, ""))
    return results


def _renewing_claims(store: Store, many: int) -> Callable[[], None]:
    """Claims of records by the ETags that the claims before have given them."""
    group = ConsumerGroup("bench", f"claims of {many}")
    held = store.claim_ownership([Ownership(group, str(p), "bench/1", 1) for p in range(many)])

    def claim() -> None:
        held[:] = store.claim_ownership([dataclasses.replace(one, owner_level=one.owner_level + 1) for one in held])
        assert len(held) == many

    return claim


def _fastest(use: Callable[[], object], times: int) -> float:
    """The least time, in seconds: other work on the machine only ever adds to it."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        use()
        taken.append(time.perf_counter() - start)
    return min(taken)


def _idle(partitions: int) -> ConsumerGroup:
    """The group in which one instance owns that many partitions and does nothing."""
    return ConsumerGroup("bench", f"idle {partitions}")


def _requests(url: str, partitions: int) -> float:
    """How many times an instance that owns everything speaks to its store in a cycle in which nothing happens."""
    store: Any = open_store(url, timeout=120.0)
    hub = SimulatedHub(partitions, 0.0, lambda: 0.0)
    manager = PartitionManager(
        hub,
        _idle(partitions),
        store,
        store,
        owner_id=OwnerId("bench"),
        settings=OwnershipSettings(strategy="greedy", partition_expiration=600.0),  # claims on Azure take a minute
        positions=Positions(),
        runtime=Runtime(clock=SystemClock(), rng=Random(1)),
    )
    while len(manager.held()) < partitions:
        manager.tick()
    asked = 0

    def counted(use: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any, **options: Any) -> Any:
            nonlocal asked
            asked += 1
            return use(*arguments, **options)

        return count

    inside = {"_connections": ("run",), "_server": ("call", "command"), "_file": ("reading", "writing")}
    for part, methods in inside.items():
        for method in methods if hasattr(store, part) else ():
            owner = getattr(store, part)
            setattr(owner, method, counted(getattr(owner, method)))
    with requests_counted() as sent:
        manager.tick()
    assert len(manager.held()) == partitions
    return float(asked + sent[0])


if __name__ == "__main__":
    for what, figure, unit, ratio, goal in run(quick="--quick" in sys.argv):
        print(f"{what:70} {figure:>12,.2f} {unit:9} {'' if ratio is None else f'{ratio:.2f}':>6} {goal}")
