"""The WAL of a file whose readers leave no moment without one: how long it gets."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leasehold.database import sqlite
from leasehold.database.sqlite import DatabaseFile
from leasehold.errors import StoreUnavailable
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from tests.waiting import PATIENCE

SCHEMA = ("CREATE TABLE IF NOT EXISTS entry (value BLOB)",)
MEGABYTE = 1 << 20

READER = """
import itertools, sys
from pathlib import Path
from leasehold.errors import StoreUnavailable
from leasehold.database.sqlite import DatabaseFile

files = [DatabaseFile(Path(sys.argv[1]), schema=(), unavailable=StoreUnavailable, create=False) for _ in range(2)]
work = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 30000) SELECT count(*) FROM n"
held = None
for file in itertools.cycle(files):
    view = file.reading()
    connection = view.__enter__()
    if held is None:
        print("reads", flush=True)
    else:
        held.__exit__(None, None, None)  # the next view was taken before: this process reads without a pause
    held = view
    connection.execute(work).fetchall()
"""


@contextmanager
def reading(path: Path, script: str, processes: int) -> Iterator[None]:
    """This many processes read the file, until the block ends."""
    running: list[subprocess.Popen[str]] = []
    try:
        for _ in range(processes):
            running.append(
                subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
            )
        for process in running:
            assert process.stdout
            assert process.stdout.readline() == "reads\n"
        yield
    finally:
        for process in running:
            process.kill()
            process.communicate()


def made(path: Path) -> DatabaseFile:
    file = DatabaseFile(path, schema=SCHEMA, unavailable=StoreUnavailable, create=True, timeout=60)
    with file.reading():
        return file


def longest(path: Path, write: Callable[[], object], times: int) -> int:
    """The most bytes that the WAL had after one of this many writes."""
    sizes = []
    for _ in range(times):
        write()
        sizes.append(Path(f"{path.resolve()}-wal").stat().st_size)
    return max(sizes)


def add_a_megabyte(file: DatabaseFile) -> None:
    with file.writing() as connection:
        connection.execute("INSERT INTO entry VALUES (zeroblob(?))", (MEGABYTE,))


@pytest.mark.more
def test_readers_without_a_pause_do_not_make_the_wal_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "LONGEST_WAL", 2 * MEGABYTE)
    monkeypatch.setattr(sqlite, "_WAL_PATIENCE", PATIENCE)  # each view ends, however busy the machine is
    path = tmp_path / "file.db"
    file = made(path)
    with reading(path, READER, 2):
        assert longest(path, lambda: add_a_megabyte(file), 30) < 8 * MEGABYTE


def test_a_reader_that_does_not_end_holds_nobody_up_and_its_end_shortens_the_wal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "LONGEST_WAL", 2 * MEGABYTE)
    monkeypatch.setattr(sqlite, "_WAL_PATIENCE", 0.01)  # impatient: the reader does not end
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "link.db"
    path.symlink_to(tmp_path / "elsewhere" / "file.db")
    file, other = made(path), made(path)
    with other.reading() as connection:
        assert longest(path, lambda: add_a_megabyte(file), 8) >= 8 * MEGABYTE
        assert connection.execute("SELECT count(*) FROM entry").fetchone() == (0,)
    longest(path, lambda: add_a_megabyte(file), 3)
    assert longest(path, lambda: add_a_megabyte(file), 9) < 5 * MEGABYTE
    with file.reading() as connection:
        assert connection.execute("SELECT count(*) FROM entry").fetchone() == (20,)


@pytest.mark.soak
def test_the_wal_of_a_log_that_eight_processes_read_for_a_minute_and_a_half(tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    hub = LogHub.create(path, partitions=1)
    end = time.monotonic() + 90
    sizes = []
    with reading(path, READER, 8):
        while time.monotonic() < end:
            sizes.append(longest(path, lambda: hub.send([Event(bytes(MEGABYTE))], partition="0"), 10))
    hub.close()
    assert 10 * len(sizes) * MEGABYTE > 3 * sqlite.LONGEST_WAL, "so much was sent that it matters"
    assert max(sizes) < 3 * sqlite.LONGEST_WAL
