"""The SQLite store: the contract, and what real processes, signals and a vanishing file do to it."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest

from leasehold.clock import SystemClock, boot_id
from leasehold.errors import StoreUnavailable
from leasehold.model import Checkpoint, ConsumerGroup, Ownership
from leasehold.stores import open_store
from leasehold.stores.base import PipelineBinding
from leasehold.stores.sqlite.store import SqliteStore
from leasehold_testkit.clock import ManualClock
from leasehold_testkit.contracts.stores import CheckpointStoreContract, OwnershipStoreContract
from leasehold_testkit.contracts.stores.ownership_records import claim, records
from tests.stores.opened import answers
from tests.waiting import NEVER, until

GROUP = ConsumerGroup("n", "h")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@contextmanager
def locked(path: Path) -> Iterator[SqliteStore]:
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        yield SqliteStore(path, timeout=0.1)  # impatient: all its writes wait for that lock


class TestOwnership(OwnershipStoreContract):
    @pytest.fixture
    def store(self, path: Path) -> SqliteStore:
        return SqliteStore(path, timeout=NEVER)

    @pytest.fixture
    def reopen(self, path: Path) -> Callable[[], SqliteStore]:
        return lambda: SqliteStore(path, timeout=NEVER)

    @pytest.fixture
    def hung(self, path: Path) -> AbstractContextManager[SqliteStore]:
        return locked(path)


class TestCheckpoints(CheckpointStoreContract):
    @pytest.fixture
    def store(self, path: Path) -> SqliteStore:
        return SqliteStore(path, timeout=NEVER)

    @pytest.fixture
    def reopen(self, path: Path) -> Callable[[], SqliteStore]:
        return lambda: SqliteStore(path, timeout=NEVER)

    @pytest.fixture
    def hung(self, path: Path) -> AbstractContextManager[SqliteStore]:
        return locked(path)


# Real processes

PRELUDE = """
import json, sys
from dataclasses import replace
from pathlib import Path
from leasehold.errors import StoreUnavailable
from leasehold.model import *
from leasehold.stores.sqlite.store import SqliteStore
GROUP = ConsumerGroup("n", "h")
arguments = json.loads(sys.argv[1])

def meet(word):
    print(word, flush=True)
    sys.stdin.readline()

class StoppingClock:
    '''The store asks for the time inside its write transaction: a good place to be stopped at.'''
    def wall(self): raise AssertionError("the store must not ask for the wall time")
    def monotonic(self):
        meet("inside")
        return 1.0
"""


class Peer:
    """A process that runs a script and can be met at a line of its own."""

    def __init__(self, script: str, arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + script, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def reaches(self, word: str) -> None:
        assert self.process.stdout
        assert self.process.stdout.readline().strip() == word

    def goes_on(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def answer(self) -> object:
        out, _ = self.process.communicate(timeout=120)
        assert self.process.returncode == 0
        return json.loads(out)

    def end(self) -> None:
        self.process.kill()
        with self.process:
            pass


StartPeer = Callable[[str, object], Peer]


@pytest.fixture
def start_peer() -> Iterator[StartPeer]:
    peers: list[Peer] = []

    def start(script: str, arguments: object) -> Peer:
        peers.append(Peer(script, arguments))
        return peers[-1]

    yield start
    for peer in peers:
        peer.end()


ROUNDS = """
name, path, rounds = arguments
store = SqliteStore(Path(path), timeout=60.0)
meet("ready")
won = []
for _ in range(rounds):
    listed = {record.partition: record for record in store.list_ownership(GROUP).records}
    now = [listed.get(str(p), Ownership(GROUP, str(p), "", 0)) for p in range(10)]
    claims = [replace(record, owner_id=name, owner_level=record.owner_level + 1) for record in now]
    won += [(record.partition, record.owner_level) for record in store.claim_ownership(claims)]
print(json.dumps(won))
"""


@pytest.mark.more
def test_processes_that_claim_at_once_have_one_winner_a_record(path: Path, start_peer: StartPeer) -> None:
    peers = [start_peer(ROUNDS, [f"peer-{n}", str(path), 20]) for n in range(4)]
    for peer in peers:
        peer.reaches("ready")
    for peer in peers:
        peer.goes_on()
    won: list[tuple[str, int]] = []
    for peer in peers:
        answer = peer.answer()
        assert isinstance(answer, list)
        won += [(partition, level) for partition, level in answer]
    final = records(SqliteStore(path, timeout=NEVER), GROUP)
    assert len(final) == 10
    for partition, record in final.items():
        levels = sorted(level for p, level in won if p == partition)
        assert levels == list(range(1, record.owner_level + 1)), f"partition {partition}: a level won twice, or lost"
        assert record.owner_level >= 20, "in each round somebody must win"


CREATE = """
name, paths = arguments
meet("ready")
won = 0
for path in paths:
    store = SqliteStore(Path(path), timeout=60.0)
    won += len(store.claim_ownership([Ownership(GROUP, name, name, 1)]))
print(json.dumps(won))
"""


@pytest.mark.more
def test_processes_create_the_file_at_once(tmp_path: Path, start_peer: StartPeer) -> None:
    paths = [tmp_path / "not yet there" / f"{number}.db" for number in range(12)]
    peers = [start_peer(CREATE, [str(n), [str(one) for one in paths]]) for n in range(4)]
    for peer in peers:
        peer.reaches("ready")
    for peer in peers:
        peer.goes_on()
    assert [peer.answer() for peer in peers] == [len(paths)] * 4
    for one in paths:
        assert set(records(SqliteStore(one, timeout=NEVER), GROUP)) == {"0", "1", "2", "3"}


CLAIM_AND_STOP = """
[path] = arguments
store = SqliteStore(Path(path), clock=StoppingClock())
print(json.dumps(len(store.claim_ownership([Ownership(GROUP, "0", "stopped", 1)]))))
"""


def test_killed_inside_a_transaction(path: Path, start_peer: StartPeer) -> None:
    store = SqliteStore(path, timeout=NEVER)
    peer = start_peer(CLAIM_AND_STOP, [str(path)])
    peer.reaches("inside")
    peer.process.send_signal(signal.SIGKILL)
    peer.process.wait()
    assert records(store, GROUP) == {}
    assert claim(store, GROUP, owner="next").owner_id == "next"


@pytest.mark.parametrize("then", ["goes on", "is killed"])
def test_stopped_inside_a_transaction(path: Path, start_peer: StartPeer, then: str) -> None:
    patient = SqliteStore(path, timeout=NEVER)
    before = claim(patient, GROUP, "1")
    store = SqliteStore(path, timeout=0.2)  # impatient: writes while another holds the lock
    peer = start_peer(CLAIM_AND_STOP, [str(path)])
    peer.reaches("inside")
    peer.process.send_signal(signal.SIGSTOP)

    started = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"store\.db.*locked for 0\.2 s"):
        store.renew_ownership([before])
    assert time.monotonic() - started >= 0.2
    assert records(patient, GROUP) == {"1": before}, "reading goes on"

    if then == "is killed":
        peer.process.send_signal(signal.SIGKILL)
        peer.process.wait()
    else:
        peer.process.send_signal(signal.SIGCONT)
        peer.goes_on()
        assert peer.answer() == 1
    assert len(patient.renew_ownership([before])) == 1
    assert len(patient.claim_ownership([Ownership(GROUP, "0", "me", 1)])) == (then == "is killed")


KEEPS_CLAIMING = """
[path] = arguments
store = SqliteStore(Path(path), timeout=60.0)
meet("ready")
for turn in range(100):
    try:
        [won] = store.claim_ownership([Ownership(GROUP, f"peer-{turn}", "peer", 1)])
    except StoreUnavailable:
        meet("unavailable")
    else:
        meet("claimed")
"""

VICTIMS = pytest.mark.parametrize("victims", ["store.db", "store.db*"])
GONE = r"store\.db: unable to open database file \(the file does not exist: check the path\)"


def move_away(path: Path, victims: str) -> Callable[[], None]:
    """Move the files away. Returns what puts them back."""
    away = path.parent / "away"
    away.mkdir()
    moved = [(one, away / one.name) for one in path.parent.glob(victims)]
    for before, after in moved:
        before.rename(after)

    def put_back() -> None:
        for before, after in moved:
            after.rename(before)

    return put_back


@pytest.mark.more(but=2)
@VICTIMS
@pytest.mark.parametrize("then", ["put back", "made by another"])
def test_file_goes_missing_under_two_processes(path: Path, start_peer: StartPeer, victims: str, then: str) -> None:
    store = SqliteStore(path, timeout=NEVER)
    peer = start_peer(KEEPS_CLAIMING, [str(path)])
    peer.reaches("ready")
    peer.goes_on()
    peer.reaches("claimed")
    claim(store, GROUP, "mine")
    assert set(records(store, GROUP)) == {"mine", "peer-0"}
    put_back = move_away(path, victims)
    with pytest.raises(StoreUnavailable, match=GONE):
        store.list_ownership(GROUP)
    peer.goes_on()
    peer.reaches("unavailable")
    assert not path.exists(), "neither of them makes an empty one"
    if then == "put back":
        put_back()
        left = {"mine", "peer-0"}
    else:
        claim(SqliteStore(path, timeout=NEVER), GROUP, "theirs")
        left = {"theirs"}
    peer.goes_on()
    peer.reaches("claimed")
    claim(store, GROUP, "mine, later")
    assert set(records(store, GROUP)) == left | {"peer-2", "mine, later"}
    assert set(records(SqliteStore(path, timeout=NEVER), GROUP)) == left | {"peer-2", "mine, later"}
    peer.end()
    assert set(records(store, GROUP)) == left | {"peer-2", "mine, later"}


# A file that goes away, comes back or is no store


@VICTIMS
def test_file_moved_away_and_put_back(path: Path, victims: str) -> None:
    """An empty store in its place would forget owner levels and progress."""
    store = SqliteStore(path, timeout=NEVER)
    first = claim(store, GROUP, level=7)
    checkpoint = Checkpoint(GROUP, "0", 10, 7)
    store.update_checkpoints([checkpoint])
    put_back = move_away(path, victims)
    uses: list[Callable[[SqliteStore], object]] = [
        *WRITES.values(),
        lambda store: store.list_ownership(GROUP),
        lambda store: store.list_checkpoints(GROUP),
    ]
    for use in uses:
        with pytest.raises(StoreUnavailable, match=GONE):
            use(store)
        assert not path.exists()
    put_back()
    assert records(store, GROUP) == {"0": first}
    assert store.list_checkpoints(GROUP) == [checkpoint]
    [renewed] = store.renew_ownership([first])
    assert records(SqliteStore(path, timeout=NEVER), GROUP) == {"0": renewed}


@VICTIMS
def test_file_deleted_underneath_and_made_by_another(path: Path, victims: str) -> None:
    store = SqliteStore(path, timeout=NEVER)
    first = claim(store, GROUP, level=7)
    for victim in path.parent.glob(victims):
        victim.unlink()
    with pytest.raises(StoreUnavailable, match=GONE):
        store.renew_ownership([first])
    assert not path.exists()
    assert records(SqliteStore(path, timeout=NEVER), GROUP) == {}
    assert store.renew_ownership([first]) == [], "a record that is gone is not renewed"
    again = claim(store, GROUP, level=8)
    assert records(SqliteStore(path, timeout=NEVER), GROUP) == {"0": again}


def test_folder_deleted_underneath(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "folder" / "store.db", timeout=NEVER)
    claim(store, GROUP)
    shutil.rmtree(tmp_path / "folder")
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=GONE):
            store.list_ownership(GROUP)
    assert not (tmp_path / "folder").exists()
    assert records(SqliteStore(tmp_path / "folder" / "store.db", timeout=NEVER), GROUP) == {}
    claim(store, GROUP)


def test_file_replaced_by_a_copy_made_earlier(path: Path) -> None:
    store = SqliteStore(path, timeout=NEVER)
    first = claim(store, GROUP)
    backup = path.with_name("backup.db")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(backup)) as target:
        source.backup(target)
    [renewed] = store.renew_ownership([first])
    for stale in path.parent.glob("store.db-*"):  # SQLite would apply the WAL of the old file to the new one
        stale.unlink()
    backup.replace(path)
    assert records(store, GROUP) == {"0": first}
    assert store.renew_ownership([renewed]) == [], "what the copy does not know is not renewed"
    assert len(store.renew_ownership([first])) == 1


def test_file_that_is_no_database(path: Path) -> None:
    path.write_bytes(b"id,name\n1,a\n" * 1000)
    with pytest.raises(StoreUnavailable, match=r"store\.db: file is not a database"):
        SqliteStore(path, timeout=NEVER).list_ownership(GROUP)
    assert path.read_bytes() == b"id,name\n1,a\n" * 1000


def test_path_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="it is a folder"):
        SqliteStore(tmp_path, timeout=NEVER).list_ownership(GROUP)


def test_a_folder_of_the_path_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match="file"):
        SqliteStore(tmp_path / "file" / "store.db", timeout=NEVER).list_ownership(GROUP)


def test_found_by_url(tmp_path: Path) -> None:
    store = open_store("sqlite:///sub%20folder/store.db", base=tmp_path, timeout=NEVER)
    claimed = claim(store, GROUP)
    again = open_store(f"sqlite:///{tmp_path}/sub folder/store.db")
    assert records(again, GROUP) == {"0": claimed}


# No call waits longer than the time-out

WRITES: dict[str, Callable[[SqliteStore], object]] = {
    "claim": lambda store: store.claim_ownership([Ownership(GROUP, "9", "me", 1)]),
    "renew": lambda store: store.renew_ownership([Ownership(GROUP, "0", "me", 1, "etag")]),
    "relinquish": lambda store: store.relinquish_ownership([Ownership(GROUP, "0", "me", 1, "etag")]),
    "raise": lambda store: store.raise_owner_level([Checkpoint(GROUP, "0", 1, 1)]),
    "update": lambda store: store.update_checkpoints([Checkpoint(GROUP, "0", 1, 1)]),
    "bind": lambda store: store.bind_pipeline(GROUP, PipelineBinding("p", "s")),
    "rebind": lambda store: store.rebind_pipeline(GROUP, PipelineBinding("p", "s")),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_every_write_gives_up_at_the_time_out(path: Path, write: Callable[[SqliteStore], object]) -> None:
    patient = SqliteStore(path, timeout=NEVER)
    claim(patient, GROUP)
    store = SqliteStore(path, timeout=0.05)  # impatient: writes while another holds the lock
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        started = time.monotonic()
        with pytest.raises(StoreUnavailable, match="locked"):
            write(store)
        assert time.monotonic() - started >= 0.05
        assert len(patient.list_ownership(GROUP).records) == 1
        assert patient.list_checkpoints(GROUP) == []
    until(lambda: answers(lambda: write(store)), "the same store to write")


# Its clock


def test_a_record_of_another_boot_is_infinitely_old(path: Path) -> None:
    clock = ManualClock(monotonic=50_000.0)
    before = claim(SqliteStore(path, clock=clock, boot="before"), GROUP)
    clock = ManualClock(monotonic=50_001.0)
    store = SqliteStore(path, clock=clock, boot="after")
    listing = store.list_ownership(GROUP)
    assert listing.records[0].last_modified == -math.inf
    assert listing.as_of - listing.records[0].last_modified == math.inf
    [mine] = store.claim_ownership([dataclasses.replace(before, owner_id="b", owner_level=2)])
    assert records(store, GROUP) == {"0": mine}
    assert mine.last_modified == 50_001.0


def test_a_clock_that_went_back_makes_a_record_infinitely_old(path: Path) -> None:
    claim(SqliteStore(path, clock=ManualClock(monotonic=50_000.0), boot="same"), GROUP)
    store = SqliteStore(path, clock=ManualClock(monotonic=10.0), boot="same")
    assert store.list_ownership(GROUP).records[0].last_modified == -math.inf


def test_ages_are_of_the_monotonic_clock_and_the_wall_clock_plays_no_role(path: Path) -> None:
    clock = ManualClock()
    store = SqliteStore(path, clock=clock)
    claim(store, GROUP)
    for wall in (0.0, 4e9, 1e9):
        clock.set_wall(wall)
        listing = store.list_ownership(GROUP)
        assert listing.as_of == listing.records[0].last_modified == clock.monotonic()
    clock.advance(31.0)
    listing = store.list_ownership(GROUP)
    assert listing.as_of - listing.records[0].last_modified == 31.0


def test_the_wall_clock_of_the_system_plays_no_role(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody_asks() -> float:
        raise AssertionError("the store must not ask for the wall time")

    monkeypatch.setattr(time, "time", nobody_asks)
    monkeypatch.setattr(SystemClock, "wall", nobody_asks)
    store = SqliteStore(path, timeout=NEVER)
    [renewed] = store.renew_ownership([claim(store, GROUP)])
    assert 0 <= store.list_ownership(GROUP).as_of - renewed.last_modified < 60


def test_two_stores_of_one_host_share_the_clock(path: Path) -> None:
    assert boot_id() == boot_id()
    claimed = claim(SqliteStore(path, timeout=NEVER), GROUP)
    assert 0 <= SqliteStore(path, timeout=NEVER).list_ownership(GROUP).as_of - claimed.last_modified < 60
