"""The words for what becomes of events, and of the rows that are made of them, and the sums that they come to.

Owns these words: the results of batches, notices, metrics, log lines and the account of a run count by them, and
docs/watching.md explains them. Promises two equations, since the sums are not kept but worked out:

    read = filtered + refused + replayed + skipped + duplicates + parked + used
    rows = applied + superseded + rejected

An event counts under one name; `rows` are those that were made of the events that are used. What is counted apart is in
neither equation. Does no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from leasehold.printable import counted

__all__ = ["APART", "EVENTS", "NONE", "ROWS", "Counts"]

EVENTS = ("filtered", "refused", "replayed", "skipped", "duplicates", "parked", "used")
"""What becomes of events that were read."""
ROWS = ("applied", "superseded", "rejected")
"""What becomes of rows that were made of the events that are used."""
APART = ("untimely", "retried", "retried_rejected")
"""What is counted apart, in events."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of events and rows, of one batch or of many.

    Events that were read, each under the first of these names that fits:

    refused     they were read under an ownership that was another instance's by then, which reads them itself
    replayed    the table had them: they are at or below the watermark of their partition
    skipped     a person had noted that they are to be skipped; they are set aside
    duplicates  their producer had sent them before
    parked      they wait: their handler raised, or an earlier event of their entity waits
    used        a row was made of them, or a handler called for them
    filtered    the transform makes no row of them

    Rows that were made of the events that are used: rows of an entity table and of related tables, or an event that
    could not be read:

    applied     written, or their entity deleted. A row that a later one of the same batch replaces counts
    superseded  left out: older by `sequence_by` than what is known of their entity
    rejected    set aside with a reason: the body could not be read, a rule of the table is broken, a handler refuses it

    Apart:

    untimely          events that count as sent once, of which that is not certain: their times tell too little
    retried           events that were parked, and wait no more: they were tried again, and took effect or were rejected
    retried_rejected  those of them that were rejected
    """

    applied: int = 0
    superseded: int = 0
    rejected: int = 0
    used: int = 0
    filtered: int = 0
    refused: int = 0
    replayed: int = 0
    skipped: int = 0
    duplicates: int = 0
    parked: int = 0
    untimely: int = 0
    retried: int = 0
    retried_rejected: int = 0

    @property
    def read(self) -> int:
        """How many events were read."""
        return self.filtered + self.refused + self.replayed + self.skipped + self.duplicates + self.parked + self.used

    @property
    def rows(self) -> int:
        """How many rows were made of the events that are used."""
        return self.applied + self.superseded + self.rejected

    def plus(self, more: Counts) -> Self:
        """These and more."""
        return replace(self, **{name: getattr(self, name) + getattr(more, name) for name in (*EVENTS, *ROWS, *APART)})

    def of_events(
        self,
        *,
        used: int = 0,
        filtered: int = 0,
        refused: int = 0,
        replayed: int = 0,
        skipped: int = 0,
        duplicates: int = 0,
        parked: int = 0,
    ) -> Self:
        """The same rows, and these events."""
        return replace(
            self,
            used=used,
            filtered=filtered,
            refused=refused,
            replayed=replayed,
            skipped=skipped,
            duplicates=duplicates,
            parked=parked,
        )

    def named(self) -> dict[str, int]:
        """All of them by their names, the two sums first of what they are made of."""
        names = ("read", *EVENTS, "rows", *ROWS, *APART)
        return {name: getattr(self, name) for name in names}

    def said(self, what: str = "event") -> str:
        """For people: `5 events read: 2 replayed, 3 used; 3 rows: 2 applied, 1 rejected`. What is zero is left out."""
        found = [f"{counted(self.read, what)} read", f"{counted(self.rows, 'row')}"]
        for place, names in enumerate((EVENTS, ROWS)):
            parts = [f"{count:,} {name}" for name in names if (count := getattr(self, name))]
            found[place] += f": {', '.join(parts)}" if parts else ""
        apart = [f"{count:,} {name.replace('_', ' and ')}" for name in APART if (count := getattr(self, name))]
        return "; ".join([*found, *([f"apart: {', '.join(apart)}"] if apart else [])])


NONE = Counts()
"""Of nothing that was read."""
