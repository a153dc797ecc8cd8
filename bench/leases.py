"""Leases: how many keys a second one process acquires and releases, a thousand a call and one a call.

The ratio is to plain SQLite: the same rows inserted and deleted in transactions of the same size, without
sessions, fences or answers.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from leasehold.stores.lease_base import LeaseStore
from leasehold.stores.memory.leases import MemoryLeaseStore
from leasehold.stores.sqlite.leases import SqliteLeaseStore

Row = tuple[str, float, str, float | None, str]
"""What was measured, the figure, its unit, its ratio to plain SQLite, and the goal."""

KEYS = 1_000
ENTITIES = 100_000


def run(quick: bool) -> list[Row]:
    """Measure; `quick` takes about a second."""
    calls, results = 20 if quick else 200, list[Row]()
    with tempfile.TemporaryDirectory() as folder:
        with closing(sqlite3.connect(Path(folder) / "plain.db", isolation_level=None)) as plain:
            figure = _best(lambda: _plain(plain, calls))
        store = SqliteLeaseStore(Path(folder) / "leases.db")
        pairs = _best(lambda: _pairs(store, calls, KEYS))
        results.append(
            ("sqlite leases, 1,000 a call: acquire + release", pairs, "pairs/s", pairs / figure, ">= 200,000")
        )
        results.append(("plain INSERT + DELETE of equal rows", figure, "pairs/s", None, ""))
        results.append(("sqlite leases, one a call", _best(lambda: _pairs(store, 5 * calls, 1)), "pairs/s", None, ""))
        results.append(("sqlite leases: a heartbeat for 100,000", _heartbeat(store), "ms", None, ""))
        memory = _best(lambda: _pairs(MemoryLeaseStore(), calls, KEYS))
        results.append(("memory leases, 1,000 a call", memory, "pairs/s", None, ""))
    return results


def _names(call: int, keys: int) -> list[str]:
    return [f"entity-{(call * 7_919 + n * 31) % ENTITIES}" for n in range(keys)]


def _pairs(store: LeaseStore, calls: int, keys: int) -> float:
    session = store.open_session("bench", 60.0)
    batches = [_names(call, keys) for call in range(calls)]
    started = time.perf_counter()
    for batch in batches:
        assert len(store.release(store.acquire(session, "flights", batch))) == keys
    taken = time.perf_counter() - started
    store.close_session(session)
    return calls * keys / taken


def _plain(connection: sqlite3.Connection, calls: int) -> float:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS lease (scope TEXT, key TEXT, session TEXT, fence INTEGER, "
        "PRIMARY KEY (scope, key)) WITHOUT ROWID"
    )
    batches = [[("flights", name, "0" * 36, call) for name in _names(call, KEYS)] for call in range(calls)]
    started = time.perf_counter()
    for batch in batches:
        for statement, rows in (
            ("INSERT INTO lease VALUES (?, ?, ?, ?)", batch),
            ("DELETE FROM lease WHERE scope = ? AND key = ?", [row[:2] for row in batch]),
        ):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(statement, rows)
            connection.execute("COMMIT")
    return calls * KEYS / (time.perf_counter() - started)


def _heartbeat(store: LeaseStore) -> float:
    session = store.open_session("bench", 60.0)
    for call in range(100):
        store.acquire(session, "held", [f"{call}-{n}" for n in range(KEYS)])
    started = time.perf_counter()
    for _ in range(100):
        assert store.heartbeat(session)
    return 1_000 * (time.perf_counter() - started) / 100


def _best(measure: Callable[[], float]) -> float:
    return max(measure() for _ in range(3))
