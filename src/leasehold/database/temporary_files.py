"""Where SQLite makes its temporary files: what undoes a large statement or savepoint, and sorts that are large.

Owns the one place of a process for them. SQLite looks for a folder by itself: `SQLITE_TMPDIR`, `TMPDIR`, `/var/tmp`,
`/usr/tmp`, `/tmp`, the current one. A container with a read-only root has none of these, and then SQLite writes small
batches and says of large ones that it is "unable to open database file". So `place` tries, and names the folder of a
database where nothing else will do: that one can be written, since the `-wal` is there. Refuses to keep all in memory,
which would take as much as a batch needs; and to move what has a folder that is full: `room` says which it is.

Concurrency: one thread at a time, the caller sees to that. The place counts for all connections of the process, the
programs' own included, and is set only where they can make no temporary files either.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path

_VARIABLE = "SQLITE_TMPDIR"
_FOLDERS = ("/var/tmp", "/usr/tmp", "/tmp", ".")  # noqa: S108  SQLite's own, in its order


def place(database: Path) -> str:
    """Have SQLite make temporary files in the folder of this database if it can make none elsewhere.

    Returns what is wrong and what becomes of it; nothing where SQLite could make them.
    """
    if _can_be_made():
        return ""
    beside = Path(os.path.realpath(database)).parent
    with closing(sqlite3.connect(":memory:")) as connection, suppress(sqlite3.Error, UnicodeError):
        quoted = str(beside).replace("'", "''")
        connection.execute(f"PRAGMA temp_store_directory = '{quoted}'")  # a pragma takes no bound value
    if _can_be_made():
        return "SQLite found no folder for temporary files; from now on it makes them beside the database"
    return (
        f"SQLite can make no temporary files, and none beside the database either: name a folder that this user may "
        f"write, and in which there is room, in {_VARIABLE}"
    )


def room(database: Path, environment: Mapping[str, str]) -> str:
    """What to do where SQLite says that a disk is full: its database's, or the one of its temporary files."""
    beside = Path(os.path.realpath(database)).parent
    temporary = _folder(environment)
    try:
        if temporary is None or temporary.stat().st_dev == beside.stat().st_dev:
            return "the disk is full: make room"
        free = [f"{shutil.disk_usage(each).free / (1 << 20):,.1f} MiB" for each in (beside, temporary)]
    except OSError:
        return "the disk is full: make room"
    return (
        f"there are {free[0]} free for the database, and {free[1]} for SQLite's temporary files in {temporary}: make "
        f"room where it is needed, or name another folder for temporary files in {_VARIABLE}"
    )


def _can_be_made() -> bool:
    """Whether SQLite can make a temporary file: it tries. One for which there is no room could be made."""
    with closing(sqlite3.connect("", isolation_level=None)) as connection:
        try:
            connection.execute("PRAGMA cache_size = 1")  # what is larger goes to a file
            connection.execute("CREATE TABLE filler AS SELECT zeroblob(100000)")
        except sqlite3.OperationalError as error:
            return error.sqlite_errorcode == sqlite3.SQLITE_FULL
    return True


def _folder(environment: Mapping[str, str]) -> Path | None:
    """The folder that SQLite takes, as far as it can be known: it has read the environment at its first use."""
    with closing(sqlite3.connect(":memory:")) as connection:
        named = [folder for (folder,) in connection.execute("PRAGMA temp_store_directory")]
    stated = (environment.get(_VARIABLE), environment.get("TMPDIR"))
    folders = (Path(each) for each in (*named, *stated, *_FOLDERS) if each)
    return next((each for each in folders if each.is_dir() and os.access(each, os.W_OK | os.X_OK)), None)
