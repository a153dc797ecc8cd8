"""Several tables that one pipeline fills in one transaction, each with its part of the same events.

Owns what a batch for several tables is (`Batch.beside`), in which order they are filled, and what is said of all of
them: how far they have come, how much they hold. Each table keeps its own watermarks, rejected events and memory, and
passes the door by itself (`sinks.door.steps`), so all that holds of one table holds of each. The one transaction adds
that they are as one: whoever reads them sees all of an event's rows or none.

Promises that a table which was left out for a while, and is filled again, loses nothing in silence: its own watermark
says what it has, and a batch that begins above it is refused. A table that is new begins where the others are, and is
named.

An event that could not be read might be any table's: each sets it aside, and tries it again by itself.

Tables are filled in the order of the file, so that a row may refer to one of a table before its own. Each table judges
by its own watermarks who is a former owner. One that was left out while owner levels rose may take rows of such an
owner that the others refuse, until its first batch of the present owner.

Concurrency: as of one table. Who is paused or killed inside the transaction has changed none of them. Two files with
the same tables in another order may wait for each other's rows; the server undoes one of the transactions then, and it
is done again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from leasehold.errors import ConfigError, UsageError
from leasehold.model import BEFORE_FIRST
from leasehold.sinks.base import Compared, LevelOf, Sink, TableContents
from leasehold.sinks.features import BOOKKEEPING, TOGETHER, offered, require
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import BatchResult, folded
from leasehold.sinks.set_aside import RejectedRows, SetAsideCounts

if TYPE_CHECKING:
    import pyarrow as pa

    from leasehold.sinks.rules.batch import Batch

logger = logging.getLogger(__name__)

T = TypeVar("T")
_NOTHING = Watermark()


class TableSet(Sink):
    """The tables of `sinks`, of one database, schema and pipeline. `spec` and identity are those of the first.

    Raises `ConfigError` for a table that is named twice, and sinks that cannot fill several in one transaction.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._tables = tuple(sinks)
        self.spec = self.tables[0].spec
        names = [folded(one.spec.name) for one in self.tables]
        if twice := [one.spec.name for place, one in enumerate(self.tables) if folded(one.spec.name) in names[:place]]:
            raise ConfigError("table", twice[0], "two tables of the pipeline have this name", "Name each table once")
        self._said: set[str] = set()
        self._met: set[str] = set()  # hubs, of which each table has watermarks
        self._together = [require(one, TOGETHER, "several tables of a pipeline") for one in self.tables]

    @property
    def tables(self) -> tuple[Sink, ...]:
        """The sink of each table, in the order that they were given in."""
        return self._tables

    def apply(self, batch: Batch, level_of: LevelOf | None = None) -> BatchResult:
        """Apply to each table its part of `batch`, which has one for each, in one transaction. See `Sink`."""
        if batch.ranges is None or batch.again is not None:
            rule = "several tables are filled by batches that say which events were read"
            raise ConfigError("ranges", None, rule, "Apply it to one of the tables")
        for hub in {one.hub for one in batch.ranges}:
            self._admit_newcomers(hub)
        return self._together[0].apply_together(list(zip(self.tables, batch.each(), strict=True)), level_of)

    def check(self, schema: pa.Schema) -> None:
        """See `Sink`; each table stores of the columns what it says."""
        for one in self.tables:
            one.check(schema)

    def identity(self) -> str:
        """See `Sink`."""
        return self.tables[0].identity()

    def recorded_identity(self) -> str | None:
        """See `Sink`."""
        return self.tables[0].recorded_identity()

    def compare(self, schema: pa.Schema | None) -> Compared | None:
        """See `Sink`: there are all tables, or they are not there."""
        looks = [one.compare(schema) for one in self.tables]
        told = [look for look in looks if look is not None]
        added = tuple(name for look in told for name in look.added)
        return Compared(all(one.there for one in told), added, sum(one.uncounted for one in told)) if told else None

    def row_count(self) -> int:
        """How many rows the tables have together."""
        return sum(one.row_count() for one in self.tables)

    @property
    def rejected_rows(self) -> RejectedRows:
        """Each table has its own. Raises `UsageError`."""
        names = ", ".join(str(one.spec.called) for one in self.tables)
        raise UsageError(f"the tables {names} have rejected rows of their own each: name one of the tables")

    def set_aside_counts(self) -> SetAsideCounts:
        """How much is set aside beside all tables. What belongs to handlers is beside none of them."""
        each = [one.set_aside_counts() for one in self.tables]
        return SetAsideCounts(
            rejected=sum(one.rejected for one in each),
            to_skip=max(one.to_skip for one in each),
            rejected_of={str(one.spec.called): it.rejected for one, it in zip(self.tables, each, strict=True)},
        )

    def contents(self) -> TableContents:
        """How much the tables hold together."""
        each = [one.contents() for one in self.tables]
        return TableContents(sum(one.rows for one in each), sum(one.rejected for one in each))

    def advice(self) -> tuple[str, ...]:
        """See `Sink`."""
        return tuple(said for one in self.tables for said in one.advice())

    def table_is_there(self) -> bool:
        """See `Sink`; whether all of them are."""
        return all(one.table_is_there() for one in self.tables)

    def close(self) -> None:
        """See `Sink`."""
        for one in self.tables:
            one.close()

    # Watermarks: those of the table that is behind the others

    def watermarks(self, hub: str) -> dict[str, Watermark]:
        """How far all tables have come; the highest owner level of any.

        A table that has read of the hub, and not of a partition that others have read, has come to nothing there; one
        that has read nothing of the hub is new, and counts nowhere. Says once which are behind, and which are new.
        """
        marks = self._marks(hub)
        for name, own in marks.items():
            if not own and any(marks.values()):
                self._say_once(
                    f"table {name} is new beside tables that have read of the hub: it gets rows of what comes next, "
                    "and has none of what was before. leasehold reset has all tables read again what the hub still has"
                )
            elif behind := [partition for partition, mark in own.items() if _is_behind(mark, partition, marks)]:
                self._say_once(
                    f"table {name} is behind other tables of the pipeline in partition {', '.join(behind[:8])}: it was "
                    "left out for a while, or restored. leasehold reset --to sink has it read what it lacks"
                )
        return _lowest(marks.values())

    def _marks(self, hub: str) -> dict[str, dict[str, Watermark]]:
        """The watermarks of each table, by its name: of one that has any, in each partition that a table has read."""
        marks = {str(one.spec.called): one.watermarks(hub) for one in self.tables}
        read = {name for own in marks.values() for name, mark in own.items() if mark.sequence_number != BEFORE_FIRST}

        def whole(own: Mapping[str, Watermark]) -> dict[str, Watermark]:
            lacking = (name for name in read if own.get(name, _NOTHING).sequence_number == BEFORE_FIRST)
            return {**own, **{name: replace(own.get(name, _NOTHING), whole=True) for name in lacking}}

        return {name: whole(own) if own else {} for name, own in marks.items()}

    def _admit_newcomers(self, hub: str) -> None:
        """Let tables that have read nothing of the hub begin where the others are, in each partition, for good."""
        if hub in self._met:
            return
        marks = self._marks(hub)
        if any(marks.values()):
            begin = _lowest(marks.values())
            for one, together in zip(self.tables, self._together, strict=True):
                if not marks[str(one.spec.called)]:
                    together.begin_at(hub, begin)
        self._met.add(hub)

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            logger.warning("%s", text)

    def raise_owner_levels(self, hub: str, levels: Mapping[str, int]) -> dict[str, Watermark]:
        """See `Sink`. A table that is new begins where the others are."""
        self._admit_newcomers(hub)
        self._each(lambda one: one.raise_owner_levels(hub, levels))
        return _lowest(self._marks(hub).values())

    def confirm_watermarks(self, hub: str, marks: Mapping[str, Watermark]) -> None:
        """See `Sink`; each table stays where it is, also one that is ahead of another."""
        for one in self.tables:
            own = one.watermarks(hub)
            reached = {name: own.get(name, mark).sequence_number for name, mark in marks.items()}
            one.set_watermarks(
                hub,
                {
                    name: replace(mark, sequence_number=max(mark.sequence_number, reached[name]))
                    for name, mark in marks.items()
                },
            )

    def check_watermarks(self, hub: str, marks: Mapping[str, Watermark], *, is_part: bool = False) -> None:
        """See `Sink`."""
        self._each(lambda one: one.check_watermarks(hub, marks, is_part=is_part))

    def set_watermarks(self, hub: str, marks: Mapping[str, Watermark], *, anew: bool = False) -> None:
        """See `Sink`; a transaction for each table. Who stops in between runs the same reset again."""
        self._each(lambda one: one.set_watermarks(hub, marks, anew=anew))

    def noted(self, hub: str) -> dict[str, frozenset[int]]:
        """By partition of `hub`, the events that are noted to be skipped at every table."""
        notes = [offered(one, BOOKKEEPING) for one in self.tables]
        each = [{} if one is None else one.noted(hub) for one in notes]
        shared = set(each[0]).intersection(*each[1:])
        both = {partition: frozenset.intersection(*(one[partition] for one in each)) for partition in shared}
        return {partition: numbers for partition, numbers in both.items() if numbers}

    def _each(self, act: Callable[[Sink], T]) -> list[T]:
        return [act(one) for one in self.tables]


def _is_behind(mark: Watermark, partition: str, marks: Mapping[str, Mapping[str, Watermark]]) -> bool:
    others = (of_table[partition].sequence_number for of_table in marks.values() if partition in of_table)
    return mark.sequence_number < max(others)


def _lowest(marks: Iterable[Mapping[str, Watermark]]) -> dict[str, Watermark]:
    lowest: dict[str, Watermark] = {}
    for of_table in marks:
        for partition, mark in of_table.items():
            other = lowest.setdefault(partition, mark)
            level = max(mark.owner_level, other.owner_level)
            lowest[partition] = replace(min(mark, other, key=lambda one: one.sequence_number), owner_level=level)
    return lowest
