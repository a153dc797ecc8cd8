"""Events that are appended once, however often their source brings them.

Owns the table `appended_once`: for each source the names of what was appended, and when. It is made in the log's file
when it is first needed. A name and its event are written in one
transaction, so that a source which brings something again, after a crash or because another process of its own was too
slow, finds it there. A name is forgotten after a time; what its source brings again later than that comes twice. Some
are forgotten with each append, the oldest first, and twice as many as are new: so an append takes no longer where there
are millions, and a process whose clock is ahead does not forget at once what others have only just brought.

Concurrency: any number of processes may append from one source. Each looks first what is new, prepares it, and looks
again within the transaction; where another was quicker, it prepares the rest anew. A process that stops between the two
holds up nobody; one that stops within the transaction holds up whoever appends, as any append does.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

import pyarrow as pa

from leasehold.hubs.log.file import LogFile
from leasehold.model import Event

Prepared = dict[str, list[tuple[int, pa.Buffer]]]
"""Payloads by partition, each with the number of its events."""

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS appended_once (source TEXT NOT NULL, name TEXT NOT NULL, at INTEGER NOT NULL,"
    " PRIMARY KEY (source, name)) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS appended_once_at ON appended_once (source, at)",
)
FORGET = (
    "DELETE FROM appended_once WHERE (source, name) IN "
    "(SELECT source, name FROM appended_once WHERE source = ? AND at < ? ORDER BY at LIMIT ?)"
)
FEWEST_FORGOTTEN = 20
"""An append forgets at least this many names that are old, if there are as many."""


def append_once(
    file: LogFile,
    source: str,
    events: Sequence[tuple[str, Event]],
    prepare: Callable[[list[Event]], Prepared],
    now: Callable[[], float],
    remember: float,
) -> int:
    """Append the events whose names the source has not brought before, in one transaction; return how many.

    A name that is twice among `events` counts once, the first time. `remember` is in seconds.
    """
    named: dict[str, Event] = {}
    for name, event in events:
        named.setdefault(name, event)
    with file.reading() as connection:
        known = _known(connection, source, list(named))
    while True:
        new = [name for name in named if name not in known]
        if not new:
            return 0
        prepared = prepare([named[name] for name in new])
        with file.writing() as connection:
            for statement in SCHEMA:
                connection.execute(statement)
            known = _known(connection, source, list(named))
            if known.isdisjoint(new):
                for partition, payloads in prepared.items():
                    file.append_in(connection, partition, payloads, now)
                moment = round(now() * 1e6)
                rows = [(source, name, moment) for name in new]
                connection.executemany("INSERT INTO appended_once VALUES (?, ?, ?)", rows)
                most = max(FEWEST_FORGOTTEN, 2 * len(new))
                connection.execute(FORGET, (source, moment - round(remember * 1e6), most))
                return len(new)


def _known(connection: sqlite3.Connection, source: str, names: Sequence[str]) -> set[str]:
    """Those of the names that the source has brought before."""
    there = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'appended_once'").fetchone()
    if there is None:
        return set()
    query = "SELECT name FROM appended_once WHERE source = ? AND name = ?"
    found = (connection.execute(query, (source, name)).fetchone() for name in names)
    return {row[0] for row in found if row is not None}
