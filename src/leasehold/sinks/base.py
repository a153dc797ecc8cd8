"""What a sink promises: an entity table, and beside it the watermarks that make a batch exactly once.

Owns the contract. A sink keeps rows and watermarks in one database, and changes both in one transaction. The rules that
decide what of a batch counts are in `fence` (which events are new, whose range is refused) and `ordering` (which event
of a key wins); a sink acts on them, and does not restate them.

Every method may raise `SinkUnavailable`; after that the change may or may not have been made, and the same call may be
made again: a batch that is there already counts as replayed. A sink may be used by many threads and processes at once.
No method waits longer for another writer than the time-out that the sink was opened with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import BatchResult, TableSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from leasehold.sinks.rules.batch import Batch

__all__ = [
    "ComparesSchema",
    "Features",
    "KeepsStates",
    "LevelOf",
    "MakesTables",
    "Sink",
    "SinkFeature",
    "TableContents",
    "TellsContents",
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


class Watermarked(Protocol):
    """What keeps a watermark for each partition of a hub, and lets a person's reset move them."""

    def watermarks(self, hub: str) -> dict[str, Watermark]:
        """The watermark of each partition of `hub` that has one."""
        ...

    def raise_owner_levels(self, hub: str, levels: Mapping[str, int]) -> dict[str, Watermark]:
        """Announce owner levels before anything is read, and return the watermarks of `hub` as they now stand.

        Batches of lower levels are refused from then on. A partition that has no watermark gets one, before the first
        event. Raises `UsageError`, with nothing changed, where a higher level has been.
        """
        ...

    def check_watermarks(self, hub: str, marks: Mapping[str, Watermark], *, is_part: bool = False) -> None:
        """Raise the `UsageError` that `set_watermarks` would.

        With `is_part` other partitions stay where they are. Then raises `SinkError` as well where the table has been
        dropped: it would be made anew without their events.
        """
        ...

    def set_watermarks(self, hub: str, marks: Mapping[str, Watermark], *, anew: bool = False) -> None:
        """Write watermarks as they are given, also lower ones; `anew` if all events are read as if for the first time.

        The rows of the table stay, and events above a lowered watermark are applied again. With `anew` what is known of
        keys is forgotten. Raises `UsageError`, with nothing changed, where a higher owner level has been, and where a
        table would hold events twice.
        """
        ...


class Sink(Watermarked, Protocol):
    """One entity table, in whatever database."""

    @property
    def spec(self) -> TableSpec:
        """What the table was asked to be. A sink whose database has no schemas refuses one with a `schema`."""
        ...

    @property
    def features(self) -> Features:
        """What this sink does beside (`leasehold.sinks.features`). The same for as long as the sink is there."""
        ...

    def check(self, schema: pa.Schema) -> None:
        """Make the table, or compare it with what is there, before there is any row.

        Raises `SchemaMismatch`, and `ConfigError` for another `sequence_by` than the table's.
        """
        ...

    def apply(self, batch: Batch, level_of: LevelOf | None = None) -> BatchResult:
        """Apply what is new in `batch`, in one transaction: whole, or not at all.

        A range below the watermark's owner level is dropped if `level_of` says that a former owner has read it, and
        else raises `OwnerLevelWentBack`; without `level_of` it is dropped with a warning. Raises `SchemaMismatch`,
        `KeyFromTwoPartitions`, `StaleBatch` and `EventsMissing` with nothing applied. What was returned for is on disk.
        """
        ...

    def identity(self) -> str:
        """Names this pipeline's table for good: made on first use, and lost only with the database."""
        ...

    def row_count(self) -> int:
        """How many rows the table has; 0 if it has not been made yet."""
        ...

    def close(self) -> None:
        """Give back what this thread holds. The sink may be used again afterwards."""
        ...


@dataclass(frozen=True, slots=True)
class TableContents:
    """How much a table holds: its rows, and the events that were set aside beside it."""

    rows: int
    rejected: int


class TellsContents(Protocol):
    """What a sink may do beside: say how much it holds, to somebody who only looks."""

    def contents(self) -> TableContents:
        """How much the table holds now; nothing where it has not been made yet. Makes and changes nothing.

        It may be a good estimate where counting takes long.
        """
        ...


class SpoiledState(dict[str, Any]):
    """A row that cannot be read as the state of its entity, for the `reason` given; empty as a dict."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return SpoiledState, (self.reason,)


class KeepsStates(Protocol):
    """What a sink may do beside: give rows back, so that a handler can go on from an entity's state.

    Who has raised the watermark's owner level (`raise_owner_levels`), reads the watermarks and then the states, and
    applies what it has computed with those as `Batch.read_under`, knows that nobody has written in between: a former
    owner's batch is refused, and `BatchResult.outdated` says that what was read may have been changed by a retry, by
    `forget` or by a reset.
    """

    def read_states(self, schema: pa.Schema, keys: Sequence[tuple[Any, ...]]) -> dict[tuple[Any, ...], dict[str, Any]]:
        """The rows of these keys that are there, by key: the columns of `schema`, as the values that were written.

        Keys are values of the key columns, in the order of the spec; columns are flat, and numbers with a fraction,
        dates and times come back as `Decimal`, `float`, `date` and `datetime`. Sees every commit before the call. A row
        that somebody else has written, and which cannot be read so, is a `SpoiledState`: the others are none the worse.
        """
        ...

    def check_states(self, *, referred: bool = False) -> None:
        """Refuse a table that has constraints other than its keys: a state comes from several events, which such a
        constraint would set aside together. It may be `referred` to by related tables. Raises `ConfigError`."""
        ...


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


class ComparesSchema(Protocol):
    """What a sink may do beside: look whether a table could be written to, for `leasehold check`."""

    def compare(self, schema: pa.Schema | None) -> Compared:
        """Check as `Sink.check` does, and that this user may write, with no row and no entity table made or changed.

        What a database needs beside its tables may be made. Without `schema` its columns and rows are not looked at.
        With one, a row may be written on trial and undone, so that what the table's definition runs is tried. Raises
        what `Sink.check` and `Sink.apply` raise.
        """
        ...

    def recorded_identity(self) -> str | None:
        """`Sink.identity` as it is recorded, or None while the table is no pipeline's. Makes nothing."""
        ...

    def advice(self) -> tuple[str, ...]:
        """What to change in the table, so that batches are written faster: a sentence each. Changes nothing."""
        ...


class MakesTables(Protocol):
    """What a sink may do beside: make its tables ahead of time, or say how, for `leasehold init`. Writes no row."""

    def table_is_there(self) -> bool:
        """Whether the entity table is. Makes and changes nothing."""
        ...

    def table_statements(self, schema: pa.Schema | None, *, duplicates: bool = False) -> tuple[str, ...]:
        """What makes that which is missing, as SQL: the tables that all entity tables share, this one, what is beside.

        Without `schema`, where the entity table is not there, only the first; with `duplicates` also the memory of what
        producers have sent. Makes and changes nothing.
        """
        ...

    def make_tables(self, schema: pa.Schema | None = None, *, duplicates: bool = False) -> bool:
        """Run `table_statements`, as a user who may; whether there were any."""
        ...
