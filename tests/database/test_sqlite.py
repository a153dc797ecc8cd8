"""The embedded engine: locks and time-outs, durability, forks, files that go away, threads."""

from __future__ import annotations

import errno
import gc
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from leasehold.database.sqlite import DatabaseFile
from leasehold.errors import ConfigError, LeaseholdError, SchemaMismatch, StoreUnavailable, Verdict
from leasehold.hubs.log.hub import LogHub
from leasehold.model import ConsumerGroup, Event
from leasehold.sinks import TableSpec, open_sink
from leasehold.stores import open_lease_store, open_store
from leasehold_testkit.contracts.stores.groups import at_once
from tests.many_files import no_more_files
from tests.waiting import PATIENCE, take, until

SCHEMA = ("CREATE TABLE IF NOT EXISTS entry (value TEXT)",)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "file.db"


@pytest.fixture
def file(path: Path) -> DatabaseFile:
    return make(path)


def make(path: Path, *, timeout: float = 60.0, create: bool = True, schema: tuple[str, ...] = SCHEMA) -> DatabaseFile:
    return DatabaseFile(path, schema=schema, unavailable=StoreUnavailable, create=create, timeout=timeout)


def add(file: DatabaseFile, value: str) -> None:
    with file.writing() as connection:
        connection.execute("INSERT INTO entry VALUES (?)", (value,))


def entries(file: DatabaseFile) -> list[str]:
    with file.reading() as connection:
        return sorted(value for (value,) in connection.execute("SELECT value FROM entry"))


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


# Transactions


@pytest.mark.parametrize(("stated", "mode"), [(None, 0o600), ("640", 0o640), ("0660", 0o660)])
def test_files_are_their_owners_alone_unless_another_mode_is_stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stated: str | None, mode: int
) -> None:
    monkeypatch.setenv("LEASEHOLD_FILE_MODE", stated) if stated else monkeypatch.delenv(
        "LEASEHOLD_FILE_MODE", raising=False
    )
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o022)
    try:
        log = LogHub.create(tmp_path / "log.db", partitions=1)
        log.send([Event(b"{}")])
        stores = open_store("sqlite:///store.db"), open_lease_store("sqlite:///leases.db")
        stores[0].list_checkpoints(ConsumerGroup("n", "h"))
        session = stores[1].open_session("me", 30.0)
        sink = open_sink("sqlite:///sink.db", TableSpec(name="t", pipeline="p", keys=("id",)))
        sink.watermarks("hub")
        add(make(tmp_path / "file.db"), "x")
    finally:
        os.umask(before)
    names = {one.name: one.stat().st_mode & 0o777 for one in tmp_path.iterdir() if one.is_file()}
    assert {"log.db", "store.db", "leases.db", "file.db"} <= names.keys()
    assert [name for name in names if name.endswith(("-wal", "-shm"))], "those beside a file that is open"
    assert set(names.values()) == {mode}, names
    log.close()
    assert session


def test_a_file_that_is_there_keeps_its_mode_and_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    add(make(tmp_path / "file.db"), "x")
    (tmp_path / "file.db").chmod(0o664)
    add(make(tmp_path / "file.db"), "y")
    assert (tmp_path / "file.db").stat().st_mode & 0o777 == 0o664
    (tmp_path / "link.db").symlink_to(tmp_path / "folder" / "real.db")
    add(make(tmp_path / "link.db"), "x")
    assert (tmp_path / "folder" / "real.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("stated", ["rw", "6", "400", "9999", "-1", "01640"])
def test_what_is_no_mode_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stated: str) -> None:
    monkeypatch.setenv("LEASEHOLD_FILE_MODE", stated)
    with pytest.raises(ConfigError, match=r"LEASEHOLD_FILE_MODE = .*octal"):
        add(make(tmp_path / "file.db"), "x")
    assert not (tmp_path / "file.db").exists()


def test_committed_when_the_block_ends(file: DatabaseFile, path: Path) -> None:
    with file.writing() as connection:
        connection.execute("INSERT INTO entry VALUES ('a')")
        assert entries(make(path)) == []
    assert entries(make(path)) == ["a"]


def test_rolled_back_when_the_block_raises(file: DatabaseFile) -> None:
    def fail() -> None:
        with file.writing() as connection:
            connection.execute("INSERT INTO entry VALUES ('a')")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert entries(file) == []
    add(file, "b")
    assert entries(file) == ["b"]


def test_reading_sees_one_state_for_the_length_of_the_block(file: DatabaseFile, path: Path) -> None:
    add(file, "a")
    with file.reading() as connection:
        add(make(path), "b")
        assert connection.execute("SELECT count(*) FROM entry").fetchone() == (1,)
    assert entries(file) == ["a", "b"]


def test_a_reader_comes_beside_a_writer(file: DatabaseFile, path: Path) -> None:
    add(file, "a")
    with file.writing() as connection:
        connection.execute("INSERT INTO entry VALUES ('b')")
        assert entries(make(path, timeout=PATIENCE)) == ["a"]
        assert entries(make(path, timeout=PATIENCE, create=False)) == ["a"]
    assert entries(make(path)) == ["a", "b"]


@pytest.mark.parametrize(("durable", "synchronous"), [(True, 2), (False, 1)])
def test_durability(file: DatabaseFile, durable: bool, synchronous: int) -> None:
    for earlier in (not durable, durable):
        with file.writing(durable=earlier) as connection:
            pass
    with file.writing(durable=durable) as connection:
        assert pragma(connection, "synchronous") == synchronous
        assert pragma(connection, "journal_mode") == "wal"


def test_durable_is_the_default(file: DatabaseFile) -> None:
    with file.writing() as connection:
        assert pragma(connection, "synchronous") == 2


# Locks


def test_a_locked_file_is_unavailable_after_the_time_out(file: DatabaseFile, path: Path) -> None:
    impatient = make(path, timeout=0.1)  # impatient: it is asked only while the file is locked
    add(file, "a")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match=r"file\.db: database is locked \(another process kept it locked"):
            add(impatient, "b")
    add(file, "c")
    assert entries(file) == ["a", "c"]


def test_a_writer_waits_for_another(file: DatabaseFile) -> None:
    inside, done = threading.Event(), threading.Event()

    def hold() -> None:
        with file.writing() as connection:
            inside.set()
            until(lambda: file._turns[os.getpid()].waiting or done.is_set(), "the other one to wait")
            assert not done.is_set(), "the other one writes while this one holds the lock"
            connection.execute("INSERT INTO entry VALUES ('first')")

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    with file.writing() as connection:
        done.set()
        assert connection.execute("SELECT value FROM entry").fetchall() == [("first",)]
    thread.join()


def test_no_writer_is_lost_among_many(file: DatabaseFile, path: Path) -> None:
    def writer(number: int) -> Callable[[], None]:
        mine = file if number % 2 else make(path)

        def write() -> None:
            for turn in range(10):
                add(mine, f"{number}-{turn}")

        return write

    at_once([writer(n) for n in range(8)])
    assert entries(file) == sorted(f"{n}-{turn}" for n in range(8) for turn in range(10))


# Opening


def test_a_missing_file_is_not_made_unless_told_to(path: Path) -> None:
    file = make(path, create=False)
    with pytest.raises(StoreUnavailable, match=r"file\.db.*the file does not exist: check the path"):
        entries(file)
    assert not path.parent.exists()
    add(make(path), "a")
    assert entries(file) == ["a"]


def test_a_full_disk_is_to_be_mended_and_a_file_that_was_there_comes_back(path: Path) -> None:
    schema, pragmas = ["CREATE TABLE IF NOT EXISTS t (x)"], ["max_page_count = 10"]
    file = DatabaseFile(path, schema=schema, unavailable=StoreUnavailable, create=True, pragmas=pragmas)
    with pytest.raises(StoreUnavailable, match="make room") as full, file.writing() as connection:
        connection.execute("INSERT INTO t VALUES (zeroblob(1000000))")
    assert full.value.verdict is Verdict.MEND
    path.rename(f"{path}.away")
    missing = DatabaseFile(path, schema=[], unavailable=StoreUnavailable, create=False)
    for opened, passes in ((file, True), (missing, False)):
        with pytest.raises(StoreUnavailable, match="the file does not exist") as away, opened.reading():
            pass
        assert (away.value.verdict is Verdict.PASSES) is passes, "one that could be opened may come back"


@pytest.mark.parametrize(
    ("number", "verdict"),
    [(errno.EACCES, Verdict.MEND), (errno.ESTALE, Verdict.PASSES), (errno.EIO, Verdict.PASSES)],
    ids=["no right", "another file system", "a disk"],
)
def test_a_file_that_was_there_and_cannot_be_looked_at(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int, verdict: Verdict
) -> None:
    file = make(path, create=False)
    add(make(path), "one")
    add(file, "two")
    file.close()
    path.rename(f"{path}.away")

    def refuse(*args: object, **options: object) -> os.stat_result:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", refuse)
        with pytest.raises(StoreUnavailable) as refused, file.reading():
            pass
    assert refused.value.verdict is verdict


def test_threads_open_a_missing_file_at_once(tmp_path: Path) -> None:
    for turn in range(10):
        file = make(tmp_path / str(turn) / "folder" / "file.db")
        at_once([partial(add, file, str(n)) for n in range(8)])
        assert entries(file) == [str(n) for n in range(8)]


def test_processes_open_a_missing_file_at_once(tmp_path: Path) -> None:
    """Each in several threads, through one object that was made before the fork and has opened nothing yet."""
    files = [make(tmp_path / str(turn) / "folder" / "file.db") for turn in range(10)]
    gate = os.pipe()
    children = []
    for number in range(3):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(gate[1])
                os.read(gate[0], 1)
                for file in files:
                    at_once([partial(add, file, f"{number}-{n}") for n in range(2)])
                status = 0
            finally:
                os._exit(status)
        children.append(pid)
    os.close(gate[0])
    os.close(gate[1])  # which lets all of them go on
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
    for file in files:
        assert entries(file) == [f"{number}-{n}" for number in range(3) for n in range(2)]


def test_the_limit_of_open_files_is_named_and_passes(path: Path, file: DatabaseFile) -> None:
    """SQLite says what it says of a missing right. In a child, where no thread of another test gives files back."""
    add(file, "a")

    def work() -> None:
        other = make(path, create=False)
        new = make(path.with_name("new.db"))
        with no_more_files():
            for one in (other, new):
                with pytest.raises(StoreUnavailable, match=r"as many files open as it may, \d+: raise the") as raised:
                    entries(one)
                assert raised.value.verdict is Verdict.PASSES
        assert entries(other) == ["a"]
        assert entries(new) == []

    in_child(work)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="it is a folder"):
        entries(make(tmp_path))
    gc.collect()  # a connection that was never opened ends in silence


def test_a_path_with_the_characters_of_a_url(tmp_path: Path) -> None:
    path = tmp_path / "a?mode=ro&b#c%20d é.db"
    add(make(path), "a")
    assert path.exists()
    assert entries(make(path, create=False)) == ["a"]


def test_what_is_no_database_is_broken(tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    path.write_text("not a database " * 100)

    class Broken(LeaseholdError):
        pass

    for broken, expected in ((None, StoreUnavailable), (Broken, Broken)):
        file = DatabaseFile(path, schema=SCHEMA, unavailable=StoreUnavailable, create=True, broken=broken)
        with pytest.raises(expected, match="restore it, or name another file"):
            entries(file)
    assert path.read_text() == "not a database " * 100


def test_check_comes_before_any_change(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE somebody_elses (x)")
        connection.commit()
    before = path.read_bytes()

    def check(connection: sqlite3.Connection) -> None:
        if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'somebody_elses'").fetchone():
            raise SchemaMismatch("not ours")

    file = DatabaseFile(path, schema=SCHEMA, unavailable=StoreUnavailable, create=True, check=check)
    for _ in range(2):
        with pytest.raises(SchemaMismatch, match="not ours"):
            entries(file)
    assert path.read_bytes() == before


def test_pragmas_and_setup_hold_on_each_connection(path: Path) -> None:
    file = DatabaseFile(
        path,
        schema=SCHEMA,
        unavailable=StoreUnavailable,
        create=True,
        pragmas=("page_size = 8192", "cache_size = -123"),
        setup=lambda connection: connection.create_function("twice", 1, lambda x: 2 * x),
    )

    def look() -> tuple[object, ...]:
        with file.reading() as connection:
            twice = connection.execute("SELECT twice(21)").fetchone()[0]
            return pragma(connection, "page_size"), pragma(connection, "cache_size"), twice

    assert at_once([look, look]) == [(8192, -123, 42)] * 2


# Files that go away


GONE = r"file\.db: unable to open database file \(the file does not exist: check the path\)"
VICTIMS = pytest.mark.parametrize("victims", ["file.db", "file.db*"])
CREATE = pytest.mark.parametrize("create", [True, False])


def is_gone(file: DatabaseFile) -> None:
    """Every use of the file says that it does not exist, and none makes it."""
    uses: tuple[Callable[[], object], ...] = (
        lambda: entries(file),
        lambda: add(file, "in vain"),
        file.checkpoint,
        lambda: entries(file),
    )
    for use in uses:
        with pytest.raises(StoreUnavailable, match=GONE):
            use()
        assert not file.path.exists()


@VICTIMS
@CREATE
def test_a_file_that_goes_missing_is_unavailable_until_it_is_put_back(path: Path, victims: str, create: bool) -> None:
    add(make(path), "a")
    file = make(path, create=create)
    add(file, "b")
    away = path.parent / "away"
    away.mkdir()
    moved = sorted(path.parent.glob(victims))
    for one in moved:
        one.rename(away / one.name)
    is_gone(file)
    for one in moved:
        (away / one.name).rename(one)
    assert entries(file) == ["a", "b"]
    add(file, "c")
    assert entries(make(path, create=False)) == ["a", "b", "c"]


@VICTIMS
@CREATE
def test_a_deleted_file_is_not_made_anew_but_another_may_take_its_place(path: Path, victims: str, create: bool) -> None:
    add(make(path), "a")
    file = make(path, create=create)
    assert entries(file) == ["a"]
    for victim in path.parent.glob(victims):
        victim.unlink()
    is_gone(file)
    add(make(path), "b")
    assert entries(file) == ["b"]
    add(file, "c")
    assert entries(make(path)) == ["b", "c"]


@CREATE
def test_a_folder_that_goes_missing(path: Path, create: bool) -> None:
    add(make(path), "a")
    file = make(path, create=create)
    assert entries(file) == ["a"]
    path.parent.rename(path.parent.with_name("moved"))
    is_gone(file)
    assert not path.parent.exists()
    path.parent.with_name("moved").rename(path.parent)
    assert entries(file) == ["a"]


def test_a_file_that_goes_missing_is_so_for_every_thread_and_child_and_after_closing(
    file: DatabaseFile, path: Path
) -> None:
    """What counts is that this object has opened it, in whichever thread."""
    add(file, "a")
    path.rename(path.with_name("moved"))
    at_once([partial(is_gone, file)] * 3)
    in_child(partial(is_gone, file))
    file.close()
    is_gone(file)
    path.with_name("moved").rename(path)
    assert at_once([partial(entries, file)] * 3) == [["a"]] * 3


def test_a_first_opening_that_fails_is_none(path: Path) -> None:
    """Until it has been opened, the file may still be made: a refusal by `check` changes nothing about that."""
    answers = iter([False, True])

    def check(connection: sqlite3.Connection) -> None:
        if not next(answers):
            raise SchemaMismatch("not yet")

    file = DatabaseFile(path, schema=SCHEMA, unavailable=StoreUnavailable, create=True, check=check)
    with pytest.raises(SchemaMismatch):
        entries(file)
    path.unlink()
    assert entries(file) == []


def test_a_replaced_file_is_noticed(file: DatabaseFile, path: Path, tmp_path: Path) -> None:
    add(file, "a")
    other = make(tmp_path / "other.db")
    add(other, "b")
    other.checkpoint()
    other.close()
    for stale in path.parent.glob("file.db-*"):
        stale.unlink()
    (tmp_path / "other.db").replace(path)
    assert entries(file) == ["b"]
    add(file, "c")
    assert entries(make(path)) == ["b", "c"]


def test_checkpoint_empties_the_wal(file: DatabaseFile, path: Path) -> None:
    add(file, "a" * 10_000)
    wal = path.with_name("file.db-wal")
    assert wal.stat().st_size > 0
    file.checkpoint()
    assert wal.stat().st_size == 0
    assert entries(file) == ["a" * 10_000]


def test_closed_and_used_again(file: DatabaseFile, path: Path) -> None:
    add(file, "a")
    file.close()
    file.close()
    assert not path.with_name("file.db-wal").exists()
    assert entries(file) == ["a"]


# Threads and forks


def descriptors(path: Path) -> int:
    """How many files this process has open of a database."""
    gc.collect()
    opened = [os.path.realpath(one) for one in Path("/proc/self/fd").iterdir()]  # one may be gone by now
    return sum(one.startswith(str(path.resolve())) for one in opened)


def test_a_thread_leaves_nothing_open(file: DatabaseFile, path: Path) -> None:
    add(file, "a")

    before = descriptors(path)
    for _ in range(5):
        thread = threading.Thread(target=partial(entries, file))
        thread.start()
        thread.join()
        assert descriptors(path) <= before + 1


def test_many_threads_keep_few_connections_and_lose_no_turn(path: Path) -> None:
    """A connection for each thread was two files for each, and hundreds of writers kept each other from the file."""
    file = make(path)
    opened: list[int] = []
    together = threading.Barrier(100, lambda: opened.append(descriptors(path)))

    def work() -> None:
        for _ in range(5):
            add(file, "a")
            assert "a" in entries(file)
        together.wait(PATIENCE)  # until here no thread has ended

    at_once([work] * 100)
    assert len(entries(file)) == 500
    assert opened[0] <= 2 * 16 + 8, "two for each connection that is kept, and some for the file itself"


def test_a_thread_waits_as_long_as_those_before_it_get_on(path: Path) -> None:
    """Of 300 partitions in one process some found the store away, under load: others came again before them."""
    file = make(path, timeout=5.0)
    add(file, "made")

    def work() -> None:
        with file.writing() as connection:
            connection.execute("INSERT INTO entry VALUES ('a')")
            take(0.1)  # as on a slow disk

    at_once([work] * 80)
    assert len(entries(file)) == 81


@pytest.mark.timeout(60)  # far less than one time-out after the other
def test_threads_behind_a_file_that_is_locked_give_up_together(path: Path) -> None:
    file, refused = make(path, timeout=0.5), []  # impatient: all wait for a lock that another holds
    add(file, "made")

    def work() -> None:
        try:
            add(file, "a")
        except StoreUnavailable as error:
            refused.append(error)

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        at_once([work] * 150)
    assert len(refused) == 150
    assert entries(file) == ["made"]


def in_child(work: Callable[[], None]) -> None:
    """Fork, do the work in the child, and expect it to end well."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


def test_parent_and_child_of_a_fork_both_write(file: DatabaseFile) -> None:
    add(file, "before")

    def work() -> None:
        assert entries(file) == ["before"]
        add(file, "child")

    in_child(work)
    add(file, "parent")
    assert entries(file) == ["before", "child", "parent"]


def test_what_a_child_commits_survives_its_parents_closing(file: DatabaseFile, path: Path) -> None:
    """The child must not believe in locks that only its parent has: the parent would empty the WAL under it."""
    add(file, "before")
    closer = make(path)
    entries(closer)
    to_child, to_parent = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            add(file, "child")
            os.write(to_parent[1], b".")
            os.read(to_child[0], 1)
            add(file, "child, later")
            status = 0
        finally:
            os._exit(status)
    os.read(to_parent[0], 1)
    closer.close()
    file.close()
    os.write(to_child[1], b".")
    assert os.waitpid(pid, 0)[1] == 0
    assert entries(file) == ["before", "child", "child, later"]


def test_a_fork_beside_threads_that_write(file: DatabaseFile) -> None:
    stop = threading.Event()
    written = [0, 0]

    def write(number: int) -> None:
        while not stop.is_set():
            add(file, f"thread-{number}-{written[number]}")
            written[number] += 1

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for turn in range(5):
        in_child(partial(add, file, f"child-{turn}"))
    stop.set()
    for thread in threads:
        thread.join()
    expected = [f"child-{turn}" for turn in range(5)]
    expected += [f"thread-{number}-{turn}" for number in range(2) for turn in range(written[number])]
    assert entries(file) == sorted(expected)
    with file.reading() as connection:
        assert pragma(connection, "integrity_check") == "ok"


def test_a_fork_inside_a_transaction_leaves_it_to_the_parent(file: DatabaseFile) -> None:
    add(file, "before")
    with file.writing() as connection:
        connection.execute("INSERT INTO entry VALUES ('parent')")
        in_child(lambda: None)
    assert entries(file) == ["before", "parent"]
