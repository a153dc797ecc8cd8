"""The table `leasehold_staged`, which all entity tables of a schema share: who may write it, and what is cleared of it.

A row is one of a batch, in the form that `cells` gives it:

    batch, attempt, task, n     the tokens that it was staged under, and its place: by task, then in the task
    hub, partition, owner_level, sequence_number
    aside                       whether the caller could not parse it: behind the others of its event
    by_number, by_text, gone    as in the temporary staging table (`leasehold.sinks.postgres.staging`)
    cells                       its values in the order of the DataFrame's columns, as text; NULL if it is set aside
    reason, body, is_text, source   why it is set aside, and what is kept of it then
    staged_at                   when, by the server's clock
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from leasehold.sinks.postgres.names import STAGED
from leasehold.sinks.postgres.session import Session

COLUMNS = (
    *("batch", "attempt", "task", "n", "hub", "partition", "owner_level", "sequence_number", "aside"),
    *("by_number", "by_text", "gone", "cells", "reason", "body", "is_text", "source"),
)
"""The columns that a task copies."""

SCHEMA = (
    """CREATE UNLOGGED TABLE IF NOT EXISTS {staged} (batch text COLLATE "C" NOT NULL, attempt text COLLATE "C" NOT NULL,
        task integer NOT NULL, n bigint NOT NULL, hub text COLLATE "C" NOT NULL, partition text COLLATE "C" NOT NULL,
        owner_level bigint NOT NULL, sequence_number bigint NOT NULL, aside boolean NOT NULL, by_number numeric,
        by_text text COLLATE "C", gone boolean NOT NULL, cells text[], reason text, body bytea, is_text boolean,
        source text, staged_at timestamptz NOT NULL DEFAULT now())""",
    'CREATE INDEX IF NOT EXISTS "leasehold_staged_batch" ON {staged} (batch)',
)

AGE = 6 * 3600
"""Seconds after which staged rows count as left behind: longer than a batch takes, from its first row to its end."""
AT_A_TIME = 50_000
_EVERY = 60.0
"""Seconds between two looks at what was left behind, by one sink."""
RIGHTS = ("SELECT", "INSERT", "DELETE")
"""What a user needs on the table."""


class LeftBehind:
    """What one sink is to clear behind its batches: those that it has given up, and from time to time what is old.

    A batch is given up while attempts of its tasks may be under way, or the server away: so it is cleared once more
    behind the next batch that is merged. Threads may call at once.
    """

    def __init__(self) -> None:
        self._looked: float | None = None
        self._given_up: set[str] = set()

    def note(self, batch: str) -> None:
        """The batch of this token will not be merged."""
        self._given_up.add(batch)

    def clear(self, using: Callable[[], AbstractContextManager[Session]], now: float) -> None:
        """Clear what there is to clear, in a session of `using`, which may raise: then it is cleared another time."""
        batches, due = list(self._given_up), self.is_due(now)
        if not batches and not due:
            return
        with using() as session:
            for batch in batches:
                discard(session, batch)
            if due:
                clear_old(session)
        self._given_up.difference_update(batches)

    def is_due(self, now: float) -> bool:
        """Whether it is time for a look, which counts as taken."""
        if self._looked is not None and now - self._looked < _EVERY:
            return False
        self._looked = now
        return True


def clear_old(session: Session, age: float = AGE) -> int:
    """Remove some of the rows that are older than `age` seconds, whoever has left them; returns how many.

    Waits for nobody: rows that somebody else removes just now are left out.
    """
    staged = session.names.of(STAGED)
    return session.run(
        f"DELETE FROM {staged} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {staged} "
        "WHERE staged_at < now() - make_interval(secs => %(age)s) LIMIT %(most)s FOR UPDATE SKIP LOCKED))",
        age=float(age),
        most=AT_A_TIME,
    )


def discard(session: Session, batch: str) -> int:
    """Remove all rows that were staged under this token."""
    return session.run(f"DELETE FROM {session.names.of(STAGED)} WHERE batch = %(batch)s", batch=batch)
