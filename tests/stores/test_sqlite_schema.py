"""Versions of a SQLite store's tables: made by several at once, and those of another version refused."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from leasehold.errors import StoreError, StoreUnavailable
from leasehold.model import ConsumerGroup
from leasehold.stores import open_existing, open_lease_store, open_store
from leasehold.stores.sql.versions import VERSIONS, Component
from leasehold.stores.sqlite.schema import SqliteStoreSession
from leasehold.stores.sqlite.store import SqliteStore

GROUP = ConsumerGroup("n", "h")
UNSTATED = """
CREATE TABLE leasehold_ownership (
    namespace TEXT, hub TEXT, consumer_group TEXT, partition TEXT,
    owner_id TEXT NOT NULL, owner_level INTEGER NOT NULL, etag TEXT NOT NULL,
    boot_id TEXT NOT NULL, last_modified REAL NOT NULL,
    PRIMARY KEY (namespace, hub, consumer_group, partition)) WITHOUT ROWID;
INSERT INTO leasehold_ownership VALUES ('n', 'h', '$Default', '0', 'a/1', 7, 'etag-0', 'boot', 12.5);
CREATE TABLE of_others (a TEXT);
INSERT INTO of_others VALUES ('kept');
"""
"""A file with a table of the first version, which says none."""

OLDER = f"""{UNSTATED}
CREATE TABLE leasehold_schema (component TEXT PRIMARY KEY, version INTEGER NOT NULL);
INSERT INTO leasehold_schema VALUES ('stores', 2);
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.mark.parametrize(("script", "said"), [(UNSTATED, "no format"), (OLDER, "format 2")])
def test_a_file_of_an_older_version_is_refused_by_name_and_left_alone(path: Path, script: str, said: str) -> None:
    make(path, script)
    before = path.read_bytes()
    uses: list[Callable[[], object]] = [
        lambda: SqliteStore(path).list_ownership(GROUP),
        lambda: SqliteStore(path).create_schema(),
        lambda: open_existing(f"sqlite:///{path}"),
    ]
    for use_it in uses:
        with pytest.raises(
            StoreError, match=rf"store\.db: its tables for stores have {said}, .* format 3 alone"
        ) as raised:
            use_it()
        assert "drop leasehold_ownership, leasehold_presence, " in str(raised.value)
    assert path.read_bytes() == before
    assert not path.with_name("store.db-wal").exists()


def make(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.executescript(script)


def versions(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as file:
        return dict(file.execute("SELECT component, version FROM leasehold_schema"))


OPEN = """
import json, sys
from pathlib import Path
from leasehold.model import ConsumerGroup
from leasehold.stores import open_lease_store, open_store
print("ready", flush=True)
sys.stdin.readline()
counts = []
for path in json.loads(sys.argv[1]):
    store = open_store(f"sqlite:///{path}", timeout=60.0)
    counts.append(len(store.list_ownership(ConsumerGroup("n", "h")).records))
    open_lease_store(f"sqlite:///{path}", timeout=60.0).open_session("me", 60.0)
print(json.dumps(counts))
"""


@pytest.fixture
def start_peer() -> Iterator[Callable[[list[str]], subprocess.Popen[str]]]:
    peers: list[subprocess.Popen[str]] = []

    def start(paths: list[str]) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", OPEN, json.dumps(paths)]
        peers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return peers[-1]

    yield start
    for peer in peers:
        peer.kill()
        with peer:
            pass


@pytest.mark.more
def test_processes_make_files_at_once(tmp_path: Path, start_peer: Callable[[list[str]], subprocess.Popen[str]]) -> None:
    paths = [tmp_path / f"{number}.db" for number in range(20)]
    peers = [start_peer([str(one) for one in paths]) for _ in range(3)]
    for peer in peers:
        assert peer.stdout
        assert peer.stdout.readline() == "ready\n"
    for peer in peers:
        assert peer.stdin
        peer.stdin.write("\n")
        peer.stdin.flush()
    assert [json.loads(peer.communicate(timeout=120)[0]) for peer in peers] == [[0] * len(paths)] * 3
    assert all(versions(one) == {"stores": 3, "leases": 1} for one in paths)


@pytest.mark.parametrize("component", ["stores", "leases"])
def test_a_file_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path, path: Path, component: str) -> None:
    opener = {"stores": open_store, "leases": open_lease_store}[component]
    for one in (open_store, open_lease_store):
        use(one("sqlite:///store.db", base=tmp_path))
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE leasehold_schema SET version = 9 WHERE component = ?", (component,))
    before = dump(path)
    newer = opener("sqlite:///store.db", base=tmp_path)
    for _ in range(2):
        with pytest.raises(StoreError, match=rf"store\.db: its tables for {component} have format 9.*up to .: pip"):
            use(newer)
    assert dump(path) == before
    use({"stores": open_lease_store, "leases": open_store}[component]("sqlite:///store.db", base=tmp_path))


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as file:
        return list(file.iterdump())


def use(store: object) -> None:
    if hasattr(store, "holders"):
        store.holders("scope", ["a"])
    else:
        assert isinstance(store, SqliteStore)
        store.list_ownership(GROUP)


def test_what_is_up_to_date_waits_for_no_writer(path: Path) -> None:
    SqliteStore(path).list_ownership(GROUP)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert SqliteStore(path, timeout=30.0).list_ownership(GROUP).records == ()


def test_what_is_not_waits_for_the_time_out(path: Path) -> None:
    make(path, "CREATE TABLE of_others (a TEXT); PRAGMA journal_mode = WAL;")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            SqliteStore(path, timeout=0.05).list_ownership(GROUP)  # impatient: another holds the lock
    assert SqliteStore(path).list_ownership(GROUP).records == ()


def test_a_statement_that_fails_leaves_nothing(path: Path) -> None:
    def made(*statements: str) -> Component:
        return Component("x", 1, {"leasehold_x": statements}, VERSIONS.in_sqlite())

    makes = "CREATE TABLE leasehold_x (a)"
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        with pytest.raises(sqlite3.OperationalError, match="no such table: leasehold_gone"):
            made(makes, "ALTER TABLE leasehold_gone ADD COLUMN c").create("here", SqliteStoreSession(file))
        assert [*file.iterdump()] == ["BEGIN TRANSACTION;", "COMMIT;"]
        assert made(makes).create("here", SqliteStoreSession(file)).before == 0
    assert versions(path) == {"x": 1}
