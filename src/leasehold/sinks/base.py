"""What a sink promises: an entity table, and beside it the watermarks that make a batch exactly once.

Owns the contract. A sink keeps rows, watermarks and rejected rows in one database, and changes them in one transaction.
The rules that decide what of a batch counts are in `fence` (which events are new, whose range is refused), `ordering`
(which event of a key wins) and `sinks.set_aside` (what may be done with rejected rows); a sink acts on them, and
does not restate them.

A sink extends `Sink`. Its abstract methods are what every sink does. The others have a default, which says what a sink
does that cannot do better. What only some sinks do is a feature (`leasehold.sinks.features`).

Every method may raise `SinkUnavailable`; after that the change may or may not have been made, and the same call may be
made again: a batch that is there already counts as replayed. A sink may be used by many threads and processes at once.
No method waits longer for another writer than the time-out that the sink was opened with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import BatchResult, TableSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from leasehold.sinks.rules.batch import Batch
    from leasehold.sinks.set_aside import RejectedRows, SetAsideCounts

__all__ = [
    "Compared",
    "Features",
    "LevelOf",
    "Sink",
    "SinkFeature",
    "TableContents",
    "Watermarked",
]

P = TypeVar("P")

LevelOf = Callable[[str, str], int | None]
"""From a hub and a partition to the owner level in its ownership record, `None` if there is no record."""


@dataclass(frozen=True, slots=True)
class SinkFeature(Generic[P]):
    """Something that a sink may do beside `Sink`; those that there are: `leasehold.sinks.features`.

    meaning   what a sink does that has it, in a few words
    protocol  what such a sink implements
    """

    name: str
    meaning: str
    protocol: type

    def __str__(self) -> str:
        return self.name


Features = frozenset[SinkFeature[Any]]
"""What a sink says that it has."""


@dataclass(frozen=True, slots=True)
class TableContents:
    """How much a table holds: its rows, and the events that were set aside beside it."""

    rows: int
    rejected: int


@dataclass(frozen=True, slots=True)
class Compared:
    """What a look at a table has found.

    there      whether the table is there
    added      the columns, each with its type in the database's words, that the first batch of the schema would add:
               none for a table that is not there, and without `schema_evolution`
    uncounted  how many rows are there before the first event, and do not count by what they hold, since `sequence_by`
               names no column that is written
    """

    there: bool
    added: tuple[str, ...] = ()
    uncounted: int = 0


class Watermarked(ABC):
    """What keeps a watermark for each partition of a hub, and lets a person's reset move them."""

    @abstractmethod
    def watermarks(self, hub: str) -> dict[str, Watermark]:
        """The watermark of each partition of `hub` that has one."""

    @abstractmethod
    def raise_owner_levels(self, hub: str, levels: Mapping[str, int]) -> dict[str, Watermark]:
        """Announce owner levels before anything is read, and return the watermarks of `hub` as they now stand.

        Batches of lower levels are refused from then on. A partition that has no watermark gets one, before the first
        event. Raises `UsageError`, with nothing changed, where a higher level has been.
        """

    @abstractmethod
    def check_watermarks(self, hub: str, marks: Mapping[str, Watermark], *, is_part: bool = False) -> None:
        """Raise the `UsageError` that `set_watermarks` would.

        With `is_part` other partitions stay where they are. Then raises `SinkError` as well where the table has been
        dropped: it would be made anew without their events.
        """

    @abstractmethod
    def set_watermarks(self, hub: str, marks: Mapping[str, Watermark], *, anew: bool = False) -> None:
        """Write watermarks as they are given, also lower ones; `anew` if all events are read as if for the first time.

        The rows of the table stay, and events above a lowered watermark are applied again. With `anew` what is known of
        keys is forgotten. Raises `UsageError`, with nothing changed, where a higher owner level has been, and where a
        table would hold events twice.
        """

    def confirm_watermarks(self, hub: str, marks: Mapping[str, Watermark]) -> None:
        """Write watermarks where they are already, at new owner levels: for a person's reset to what `watermarks` says.

        A table that is further than the mark stays there: it is ahead of another one (`TableSet`). Raises `UsageError`,
        with nothing changed, where a higher level has been. Default: `set_watermarks`.
        """
        self.set_watermarks(hub, marks)


class Sink(Watermarked):
    """One entity table, in whatever database."""

    spec: TableSpec
    """What the table was asked to be. A sink whose database has no schemas refuses one with a `schema`."""
    features: Features = frozenset()
    """What this sink does beside (`leasehold.sinks.features`). The same for as long as the sink is there."""

    @property
    def tables(self) -> tuple[Sink, ...]:
        """The sink of each table that this one fills: several of `TableSet`, otherwise itself alone."""
        return (self,)

    @abstractmethod
    def check(self, schema: pa.Schema) -> None:
        """Make the table, or compare it with what is there, before there is any row.

        Raises `SchemaMismatch`, and `ConfigError` for another `sequence_by` than the table's.
        """

    @abstractmethod
    def apply(self, batch: Batch, level_of: LevelOf | None = None) -> BatchResult:
        """Apply what is new in `batch`, in one transaction: whole, or not at all.

        A range below the watermark's owner level is dropped if `level_of` says that a former owner has read it, and
        else raises `OwnerLevelWentBack`; without `level_of` it is dropped with a warning. Raises `SchemaMismatch`,
        `KeyFromTwoPartitions`, `StaleBatch` and `EventsMissing` with nothing applied. What was returned for is on disk.
        """

    @abstractmethod
    def identity(self) -> str:
        """Names this pipeline's table for good: made on first use, and lost only with the database."""

    @abstractmethod
    def row_count(self) -> int:
        """How many rows the table has; 0 if it has not been made yet."""

    @property
    @abstractmethod
    def rejected_rows(self) -> RejectedRows:
        """The rejected rows of the table."""

    @abstractmethod
    def set_aside_counts(self) -> SetAsideCounts:
        """How much is set aside now; nothing where nothing has been made yet. Makes and changes nothing."""

    def contents(self) -> TableContents:
        """How much the table holds now; nothing where it has not been made yet. Makes and changes nothing.

        It may be a good estimate where counting takes long. Default: `row_count` and `set_aside_counts`.
        """
        return TableContents(self.row_count(), self.set_aside_counts().rejected)

    def compare(self, schema: pa.Schema | None) -> Compared | None:
        """Check as `check` does, and that this user may write, with no row and no entity table made or changed.

        What a database needs beside its tables may be made. Without `schema` its columns and rows are not looked at.
        With one, a row may be written on trial and undone, so that what the table's definition runs is tried. Raises
        what `check` and `apply` raise. Default: None, it cannot be told before the start.
        """
        return None

    def recorded_identity(self) -> str | None:
        """`identity` as it is recorded, or None while the table is no pipeline's. Makes nothing.

        Default: `identity`, for a sink of which `compare` tells nothing.
        """
        return self.identity()

    def advice(self) -> tuple[str, ...]:
        """What to change in the table, so that batches are written faster: a sentence each. Changes nothing.

        Default: nothing.
        """
        return ()

    def table_is_there(self) -> bool:
        """Whether the entity table is, or is not to be made ahead of time. Makes and changes nothing. Default: yes."""
        return True

    def table_statements(self, schema: pa.Schema | None, *, duplicates: bool = False) -> tuple[str, ...]:
        """What makes that which is missing, as SQL: the tables that all entity tables share, this one, what is beside.

        Without `schema`, where the entity table is not there, only the first; with `duplicates` also the memory of what
        producers have sent. Makes and changes nothing. Default: none, the first start makes all of it.
        """
        return ()

    def make_tables(self, schema: pa.Schema | None = None, *, duplicates: bool = False) -> bool:
        """Run `table_statements`, as a user who may, and write no row; whether there were any. Default: nothing."""
        return False

    def close(self) -> None:
        """Give back what this thread holds. The sink may be used again afterwards. Default: nothing is held."""
