"""SQLite where there is no folder for temporary files, or a full one: each in a process with mounts of its own."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from leasehold.database.temporary_files import place, room
from tests.namespaces import in_namespaces
from tests.repository import ROOT
from tests.waiting import PATIENCE

READ_ONLY = """
for folder in /var/tmp /usr/tmp /tmp; do
  if [ -d $folder ]; then mount --rbind $folder $folder; mount -o remount,bind,ro $folder; fi
done
mount --bind "$1" "$1"; mount -o remount,bind,rw "$1"
"""
"""A machine on which SQLite can write in the folder that is given, and in no other."""
FULL = 'mkdir "$1/small"; mount -t tmpfs -o {0} none "$1/small"; export SQLITE_TMPDIR="$1/small";'
RUN = 'cd /proc; exec "$2" -c "$3" "$1"'

TABLE = """
import sys
from pathlib import Path
from leasehold.errors import SinkUnavailable
from tests.sinks.events import E, batch, sink

table = sink(Path(sys.argv[1]) / "table.db")
size = 10_000
for turn in range(2):
    rows = [E(f"{n % size}", "x" * 200, number=turn * size + n) for n in range(size)]
    try:
        print(table.apply(batch(rows)).applied)
    except SinkUnavailable as error:
        print(error.verdict, error)
print(table.row_count())
"""

SORT = """
import sys
from pathlib import Path
from leasehold.errors import StoreUnavailable
from leasehold.database.sqlite import DatabaseFile

file = DatabaseFile(Path(sys.argv[1]) / "file.db", schema=(), unavailable=StoreUnavailable, create=True)
NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000)"
for turn in range(2):
    try:
        with file.reading() as connection:
            print(len(connection.execute(f"{NUMBERS} SELECT i, randomblob(1000) AS b FROM n ORDER BY b").fetchall()))
    except StoreUnavailable as error:
        print(error.verdict, error)
"""


def said(folder: Path, mounts: str, program: str) -> list[str]:
    """The lines that a program prints, with these mounts, which it alone has."""
    before = in_namespaces("--user", "--map-root-user", "--mount")
    environment = {name: value for name, value in os.environ.items() if name not in ("TMPDIR", "SQLITE_TMPDIR")}
    ran = subprocess.run(
        [*before, "sh", "-ec", f"{mounts}\n{RUN}", "sh", str(folder), sys.executable, program],
        env={**environment, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.more
def test_a_large_batch_and_a_large_sort_go_beside_the_database_where_there_is_no_other_folder(tmp_path: Path) -> None:
    assert said(tmp_path, READ_ONLY, SORT) == ["9000", "9000"]
    written = said(tmp_path, READ_ONLY, TABLE)
    assert written == 3 * ["10000"]
    assert not [each for each in tmp_path.iterdir() if each.name.startswith("etilqs")]


def test_a_folder_without_room_for_another_file_is_none(tmp_path: Path) -> None:
    assert said(tmp_path, FULL.format("nr_inodes=1"), SORT) == ["9000", "9000"]


@pytest.mark.parametrize(("size", "free"), [("1m", "1.0"), ("64k", "0.1")], ids=["later", "at the start"])
def test_a_folder_that_is_full_is_named(tmp_path: Path, size: str, free: str) -> None:
    for line in said(tmp_path, FULL.format(f"size={size}"), SORT):
        assert line.startswith(f"mend {tmp_path}/file.db: database or disk is full (there are ")
        assert f"database, and {free} MiB for SQLite's temporary files in {tmp_path}/small: make room" in line
        assert line.endswith("or name another folder for temporary files in SQLITE_TMPDIR)")


def test_a_folder_that_goes_is_replaced_in_a_process_that_runs(tmp_path: Path) -> None:
    start, loop = SORT.split("for turn")
    lost = f"""{start}
import subprocess
with file.reading() as connection:
    pass
subprocess.run(["mount", "-o", "remount,nr_inodes=1", sys.argv[1] + "/small"], check=True)
for turn{loop}"""
    first, second = said(tmp_path, FULL.format("nr_inodes=100"), lost)
    assert first == (
        f"mend {tmp_path}/file.db: unable to open database file (SQLite found no folder for temporary files; "
        "from now on it makes them beside the database)"
    )
    assert second == "9000"


def test_where_sqlite_has_a_folder_nothing_is_set(tmp_path: Path) -> None:
    assert place(tmp_path / "file.db") == ""
    with closing(sqlite3.connect(":memory:")) as connection:
        assert connection.execute("PRAGMA temp_store_directory").fetchall() == []


@pytest.mark.parametrize("variable", ["SQLITE_TMPDIR", "TMPDIR"])
def test_one_disk_is_one_disk(tmp_path: Path, variable: str) -> None:
    assert room(tmp_path / "file.db", {variable: str(tmp_path)}) == "the disk is full: make room"
