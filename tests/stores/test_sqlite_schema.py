"""Versions of a SQLite store's tables: from each to the newest, by several at once, and none backwards."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from leasehold.errors import StoreError, StoreUnavailable, UsageError
from leasehold.model import BEFORE_FIRST, Ask, Checkpoint, ConsumerGroup, Ownership, Presence
from leasehold.stores import open_existing, open_lease_store, open_store
from leasehold.stores.base import PipelineBinding
from leasehold.stores.sqlite.layout import SCHEMA
from leasehold.stores.sqlite.schema import Schema
from leasehold.stores.sqlite.store import SqliteStore

GROUP = ConsumerGroup("n", "h")
VERSION_1 = """
CREATE TABLE leasehold_ownership (
    namespace TEXT, hub TEXT, consumer_group TEXT, partition TEXT,
    owner_id TEXT NOT NULL, owner_level INTEGER NOT NULL, etag TEXT NOT NULL,
    boot_id TEXT NOT NULL, last_modified REAL NOT NULL,
    PRIMARY KEY (namespace, hub, consumer_group, partition)) WITHOUT ROWID;
CREATE TABLE leasehold_checkpoint (
    namespace TEXT, hub TEXT, consumer_group TEXT, partition TEXT,
    sequence_number INTEGER NOT NULL, owner_level INTEGER NOT NULL, "offset" TEXT,
    PRIMARY KEY (namespace, hub, consumer_group, partition)) WITHOUT ROWID;
CREATE TABLE leasehold_binding (
    namespace TEXT, hub TEXT, consumer_group TEXT,
    pipeline TEXT NOT NULL, sink TEXT NOT NULL,
    PRIMARY KEY (namespace, hub, consumer_group)) WITHOUT ROWID;
INSERT INTO leasehold_ownership VALUES ('n', 'h', '$Default', '0', 'a/1', 7, 'etag-0', 'boot', 12.5);
INSERT INTO leasehold_ownership VALUES ('n', 'h', '$Default', '1', '', 3, 'etag-1', 'boot', 11.5);
INSERT INTO leasehold_checkpoint VALUES ('n', 'h', '$Default', '0', 41, 7, 'forty-one');
INSERT INTO leasehold_binding VALUES ('n', 'h', '$Default', 'flights', 'sink');
CREATE TABLE of_others (a TEXT);
INSERT INTO of_others VALUES ('kept');
PRAGMA journal_mode = WAL;
"""
"""A file as the release before versions left it."""

VERSION_2_UNSTATED = f"""{VERSION_1}
DROP TABLE leasehold_ownership;
CREATE TABLE leasehold_ownership (
    namespace TEXT, hub TEXT, consumer_group TEXT, partition TEXT,
    owner_id TEXT NOT NULL, owner_level INTEGER NOT NULL, etag TEXT NOT NULL,
    boot_id TEXT NOT NULL, last_modified REAL NOT NULL,
    nonce TEXT NOT NULL, successor TEXT NOT NULL, claimed_at INTEGER NOT NULL,
    failures INTEGER NOT NULL, last_error TEXT NOT NULL,
    PRIMARY KEY (namespace, hub, consumer_group, partition)) WITHOUT ROWID;
CREATE TABLE leasehold_presence (
    namespace TEXT, hub TEXT, consumer_group TEXT, owner_id TEXT,
    pipeline TEXT NOT NULL, strategy TEXT NOT NULL, capacity REAL NOT NULL, maximum INTEGER,
    boot_id TEXT NOT NULL, created REAL NOT NULL, last_modified REAL NOT NULL, etag TEXT NOT NULL,
    PRIMARY KEY (namespace, hub, consumer_group, owner_id)) WITHOUT ROWID;
CREATE TABLE leasehold_ask (
    namespace TEXT, hub TEXT, consumer_group TEXT, partition TEXT,
    owner_level INTEGER NOT NULL, asker TEXT NOT NULL,
    PRIMARY KEY (namespace, hub, consumer_group, partition)) WITHOUT ROWID;
INSERT INTO leasehold_ownership VALUES
    ('n', 'h', '$Default', '0', 'a/1', 7, 'etag-0', 'boot', 12.5, '', '', -1, 0, ''),
    ('n', 'h', '$Default', '1', '', 3, 'etag-1', 'boot', 11.5, '', '', -1, 0, '');
"""
"""A file from between the two commits that brought the new columns and the versions."""

VERSION_2 = f"""{VERSION_2_UNSTATED}
CREATE TABLE leasehold_schema (component TEXT PRIMARY KEY, version INTEGER NOT NULL);
INSERT INTO leasehold_schema VALUES ('stores', 2);
"""
"""A file as the release before checkpoints had data left it."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def test_who_only_reads_leaves_older_tables_to_the_instances_that_use_them(path: Path) -> None:
    make(path, VERSION_1)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(UsageError, match=r"version 1, of an older release.*leasehold init.* to version 3"):
            open_existing(f"sqlite:///{path}")
    assert path.read_bytes() == before
    assert SqliteStore(path).create_schema().before == 1
    assert len(open_existing(f"sqlite:///{path}").list_checkpoints(GROUP)) == 1


def make(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.executescript(script)


def layout(path: Path) -> dict[str, list[str]]:
    """The columns of each table."""
    with closing(sqlite3.connect(path)) as file:
        tables = [name for (name,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {one: sorted(row[1] for row in file.execute(f"PRAGMA table_info({one})")) for one in sorted(tables)}


def versions(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as file:
        return dict(file.execute("SELECT component, version FROM leasehold_schema"))


@pytest.mark.parametrize(
    "script", [VERSION_1, VERSION_2_UNSTATED, VERSION_2], ids=["version 1", "version 2, unstated", "version 2"]
)
def test_an_older_file_is_brought_up_to_date_in_place(path: Path, tmp_path: Path, script: str) -> None:
    make(path, script)
    store = SqliteStore(path)
    listed = {record.partition: record for record in store.list_ownership(GROUP).records}
    assert {p: (r.owner_id, r.owner_level, r.etag) for p, r in listed.items()} == {
        "0": ("a/1", 7, "etag-0"),
        "1": ("", 3, "etag-1"),
    }
    assert {(r.nonce, r.successor, r.claimed_at, r.failures, r.last_error) for r in listed.values()} == {
        ("", "", BEFORE_FIRST, 0, "")
    }
    assert store.list_checkpoints(GROUP) == [Checkpoint(GROUP, "0", 41, 7, "forty-one")]
    assert store.bind_pipeline(GROUP, PipelineBinding("another", "x")) == PipelineBinding("flights", "sink")
    assert len(store.renew_ownership([listed["0"]], Presence(GROUP, "a/1"))) == 1
    store.ask([Ask(GROUP, "1", 3, "a/1")])
    assert len(store.claim_ownership([Ownership(GROUP, "2", "a/1", 1, nonce="new")])) == 1

    fresh = tmp_path / "fresh.db"
    SqliteStore(fresh).list_ownership(GROUP)
    made = layout(path)
    assert made.pop("of_others") == ["a"]
    assert made == layout(fresh)
    assert versions(path) == versions(fresh) == {"stores": SCHEMA.version}


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


def test_processes_bring_files_up_to_date_at_once(
    tmp_path: Path, start_peer: Callable[[list[str]], subprocess.Popen[str]]
) -> None:
    paths = [tmp_path / f"{number}.db" for number in range(20)]
    for one in paths:
        make(one, VERSION_1)
    peers = [start_peer([str(one) for one in paths]) for _ in range(3)]
    for peer in peers:
        assert peer.stdout
        assert peer.stdout.readline() == "ready\n"
    for peer in peers:
        assert peer.stdin
        peer.stdin.write("\n")
        peer.stdin.flush()
    assert [json.loads(peer.communicate(timeout=120)[0]) for peer in peers] == [[2] * len(paths)] * 3
    assert all(versions(one) == {"stores": SCHEMA.version, "leases": 1} for one in paths)


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
        with pytest.raises(StoreError, match=rf"store\.db: its tables for {component} have version 9.*up to . ?: pip"):
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
    make(path, VERSION_1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            SqliteStore(path, timeout=0.05).list_ownership(GROUP)  # impatient: another holds the lock
    assert len(SqliteStore(path).list_ownership(GROUP).records) == 2


def test_a_migration_that_fails_leaves_the_version_before(path: Path) -> None:
    whole = Schema("x", [["CREATE TABLE x (a)"], ["ALTER TABLE x ADD COLUMN b", "ALTER TABLE x ADD COLUMN c"]])
    broken = Schema("x", [whole.migrations[0], [whole.migrations[1][0], "ALTER TABLE gone ADD COLUMN c"]])
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        Schema("x", whole.migrations[:1]).lay_out(file)
        with pytest.raises(sqlite3.OperationalError, match="no such table: gone"):
            broken.lay_out(file)
        assert broken.stated(file) == 1
        whole.lay_out(file)
        assert whole.stated(file) == 2
    assert layout(path)["x"] == ["a", "b", "c"]
