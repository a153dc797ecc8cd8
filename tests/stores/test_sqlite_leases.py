"""Leases in SQLite: the contract, and what real processes, a reboot and the loss of power do to them."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest

from leasehold.clock import UNKNOWN_BOOT, SystemClock
from leasehold.database import sqlite
from leasehold.errors import StoreError
from leasehold.model import Checkpoint, ConsumerGroup, Lease
from leasehold.stores import open_lease_store, open_store
from leasehold.stores.sqlite.leases import SqliteLeaseStore
from leasehold_testkit.clock import ManualClock
from leasehold_testkit.contracts.stores import LeaseStoreContract
from tests.waiting import NEVER, until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@contextmanager
def locked(path: Path) -> Iterator[SqliteLeaseStore]:
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        yield SqliteLeaseStore(path, timeout=0.1)  # impatient: all its writes wait for that lock


class TestLeases(LeaseStoreContract):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def reopen(self, path: Path, clock: ManualClock) -> Callable[[], SqliteLeaseStore]:
        return lambda: SqliteLeaseStore(path, timeout=NEVER, clock=clock)

    @pytest.fixture
    def store(self, reopen: Callable[[], SqliteLeaseStore]) -> SqliteLeaseStore:
        return reopen()

    @pytest.fixture
    def wait(self, clock: ManualClock) -> Callable[[float], None]:
        return clock.advance

    @pytest.fixture
    def hung(self, path: Path) -> AbstractContextManager[SqliteLeaseStore]:
        return locked(path)


# Real processes

HOLD = """
import sys
from leasehold.stores import open_lease_store
store = open_lease_store(sys.argv[1], timeout=60.0)
session = store.open_session("peer", float(sys.argv[2]))
print(*(lease.fence for lease in store.acquire(session, "scope", ["a", "b"])), flush=True)
sys.stdin.readline()
"""


def test_a_killed_process_loses_its_leases_without_a_sweep(path: Path) -> None:
    store = SqliteLeaseStore(path, timeout=NEVER)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, f"sqlite:///{path}", "1.0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as peer:
        assert peer.stdout
        [fence, _] = map(int, peer.stdout.readline().split())
        peer.kill()
    session = store.open_session("me", NEVER)
    mine: list[Lease] = []

    def acquired() -> bool:
        mine.extend(store.acquire(session, "scope", ["a", "b"]))
        return bool(mine)

    until(acquired, "the leases of the dead process")
    assert [one.key for one in mine] == ["a", "b"]
    assert mine[0].fence > fence


def test_processes_see_one_another(path: Path) -> None:
    store = SqliteLeaseStore(path, timeout=NEVER)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, f"sqlite:///{path}", str(NEVER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as peer:
        assert peer.stdout
        peer.stdout.readline()
        assert store.acquire(store.open_session("me", NEVER), "scope", ["a", "b"]) == []
        assert {one.session.owner for one in store.holders("scope", ["a", "b"])} == {"peer"}
        peer.kill()


# Reboots and the loss of power


def test_a_session_from_before_a_reboot_is_dead_unless_it_has_no_end(path: Path) -> None:
    before = SqliteLeaseStore(path, clock=ManualClock(50_000.0), boot="before")
    session, endless = before.open_session("me", NEVER), before.open_session("me", None)
    [lost] = before.acquire(session, "scope", ["a"])
    kept = before.acquire(endless, "scope", ["b"])
    after = SqliteLeaseStore(path, clock=ManualClock(50_001.0), boot="after")
    assert not after.heartbeat(session)
    assert after.heartbeat(endless)
    assert after.holders("scope", ["a", "b"]) == after.renew([lost, *kept]) == kept
    [again] = after.acquire(after.open_session("me", NEVER), "scope", ["a", "b"])
    assert again.key == "a"
    assert again.fence > lost.fence


def test_a_clock_that_went_back_kills_a_session(path: Path) -> None:
    before = SqliteLeaseStore(path, clock=ManualClock(50_000.0), boot=UNKNOWN_BOOT)
    session = before.open_session("me", NEVER)
    before.acquire(session, "scope", ["a"])
    after = SqliteLeaseStore(path, clock=ManualClock(10.0), boot=UNKNOWN_BOOT)
    assert not after.heartbeat(session)
    assert len(after.acquire(after.open_session("me", NEVER), "scope", ["a"])) == 1


def test_fences_lost_with_the_power_are_not_given_again(path: Path, tmp_path: Path) -> None:
    """What was not written durably is undone here as a power loss would: back to the last reservation."""
    store = SqliteLeaseStore(path, boot="before")
    session = store.open_session("me", NEVER)
    [first] = store.acquire(session, "scope", ["a"])
    copy = tmp_path / "after the power loss.db"
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    store.release([first])
    [lost] = store.acquire(session, "scope", ["a"])
    after = SqliteLeaseStore(copy, boot="after")
    [again] = after.acquire(after.open_session("me", NEVER), "scope", ["a"])
    assert again.fence > lost.fence > first.fence


def test_a_block_of_fences_is_reserved_durably_before_one_of_it_is_given(path: Path) -> None:
    store = SqliteLeaseStore(path, timeout=NEVER)
    session = store.open_session("me", NEVER)
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        for _ in range(3):
            file.execute("UPDATE leasehold_fence SET last = reserved")
            (reserved,) = file.execute("SELECT reserved FROM leasehold_fence").fetchone()
            [lease] = store.acquire(session, "scope", ["a"])
            assert lease.fence == reserved + 1
            assert file.execute("SELECT reserved > last FROM leasehold_fence").fetchone() == (1,)
            store.release([lease])


def test_a_count_that_was_lost_is_said(path: Path) -> None:
    store = SqliteLeaseStore(path, timeout=NEVER)
    session = store.open_session("me", NEVER)
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("DELETE FROM leasehold_fence")
    with pytest.raises(StoreError, match=r"store\.db: no fence can be reserved.*lost its row"):
        store.acquire(session, "scope", ["a"])
    assert store.heartbeat(session)


class WatchingClock(SystemClock):
    """Notes which transactions were durable, by what SQLite says inside of them: there the store asks for the time."""

    def __init__(self) -> None:
        self.noted: list[bool] = []

    def monotonic(self) -> float:
        here = threading.get_ident()
        (connection,) = (one for one in sqlite._connections if one.used and one.thread == here)
        (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
        self.noted.append(synchronous == 2)
        return super().monotonic()


@pytest.mark.parametrize(
    ("duration", "boot", "durable"), [(60.0, "boot", False), (None, "boot", True), (60.0, UNKNOWN_BOOT, True)]
)
def test_changes_are_durable_where_a_power_loss_would_matter(
    path: Path, duration: float | None, boot: str, durable: bool
) -> None:
    clock = WatchingClock()
    store = SqliteLeaseStore(path, clock=clock, boot=boot)
    session, heir = (store.open_session("me", duration) for _ in range(2))
    store.release(store.acquire(session, "scope", ["a"]))  # reserves the first block
    clock.noted.clear()
    leases = store.acquire(session, "scope", ["a"])
    changed = store.change(leases, heir)
    assert clock.noted == [durable, durable]
    clock.noted.clear()
    store.release(changed)
    store.close_session(session)
    assert clock.noted == [duration is None] * 2
    clock.noted.clear()
    store.break_leases("scope", ["a"])
    assert clock.noted == [True]


# Its file


def test_found_by_url_and_in_one_file_with_the_other_store(tmp_path: Path) -> None:
    url = "sqlite:///one.db"
    leases, store = open_lease_store(url, base=tmp_path), open_store(url, base=tmp_path)
    group = ConsumerGroup("n", "h")
    store.update_checkpoints([Checkpoint(group, "0", 1, 1)])
    won = leases.acquire(leases.open_session("me", NEVER), "scope", ["a"])
    assert open_lease_store(url, base=tmp_path).holders("scope", ["a"]) == won
    assert open_store(url, base=tmp_path).list_checkpoints(group) == [Checkpoint(group, "0", 1, 1)]


def test_rows_of_the_dead_are_removed_when_a_session_is_opened(path: Path) -> None:
    clock = ManualClock()
    store = SqliteLeaseStore(path, clock=clock)
    kept = store.open_session("me", 600.0)
    store.acquire(kept, "scope", ["kept"])
    for _ in range(3):
        store.acquire(store.open_session("me", 1.0), "scope", [f"{clock.monotonic()} {n}" for n in range(10)])
        clock.advance(1.0)
    store.close_session(store.open_session("me", 1.0))
    store.open_session("me", 1.0)
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT key FROM leasehold_lease").fetchall() == [("kept",)]
        assert file.execute("SELECT count(*) FROM leasehold_session").fetchone() == (2,)
