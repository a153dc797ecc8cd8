"""What a sink may do beside `Sink`: the five features that there are, and the one way to ask a sink for one.

Owns the list. A sink says in `features` what it has, and nobody looks at the names of its methods: a method that is
called like one of ours may be a sink's own. `offered` gives the sink typed as the protocol of a feature, `require`
raises the error that names the sink, the feature and what to do.

A protocol has the methods of a feature; a class need not name it. The rules of what each keeps are in `sinks.beside`.
EVOLUTION has no methods of its own: `apply` acts on `TableSpec.schema_evolution`. Some batches need a feature:
`Batch.identities` BOOKKEEPING, `related` RELATED, and `parking`, `versioned`, `outbox` and `messages` STATES.
`leasehold_testkit.contracts.sinks` has the suites.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from leasehold.errors import ConfigError
from leasehold.sinks.base import Features, LevelOf, Sink, SinkFeature
from leasehold.sinks.beside.forgetting import AT_A_TIME

if TYPE_CHECKING:
    import pyarrow as pa

    from leasehold.sinks.beside.forgetting import Cleared, Forgotten, Retention
    from leasehold.sinks.beside.messages.contract import KnownOfMessage
    from leasehold.sinks.beside.messages.parking import ParkedMessages
    from leasehold.sinks.beside.outbox.contract import Outbox
    from leasehold.sinks.beside.parking.contract import ParkedRow
    from leasehold.sinks.beside.related import RelatedTable
    from leasehold.sinks.beside.skipping.contract import Noted
    from leasehold.sinks.rules.batch import Batch, KnownEntity
    from leasehold.sinks.rules.fence import Lane, Watermark
    from leasehold.sinks.rules.messages import MessageName
    from leasehold.sinks.rules.ordering import Key
    from leasehold.sinks.rules.parking import ParkedEvent
    from leasehold.sinks.rules.skipping import SkipNote
    from leasehold.sinks.rules.table_spec import BatchResult
    from leasehold.sinks.set_aside import EventId, Selection

__all__ = [
    "ALL",
    "BOOKKEEPING",
    "EVOLUTION",
    "RELATED",
    "STATES",
    "TOGETHER",
    "Features",
    "FillsTogether",
    "KeepsNotes",
    "KeepsStates",
    "RelatesTables",
    "SinkFeature",
    "SpoiledState",
    "offered",
    "require",
]

P = TypeVar("P")


class KeepsNotes(Protocol):
    """For BOOKKEEPING: keep notes of events and entities beside the table, and clear them."""

    # events that a person has noted: `sinks.beside.skipping`

    def note_skip(self, note: SkipNote) -> Noted:
        """Write a note, unless the event has been passed or is noted already: rule 1."""
        ...

    def skip_notes(self) -> list[SkipNote]:
        """The notes of events that no batch has come to yet, by hub, partition and sequence number. Makes nothing."""
        ...

    def noted(self, hub: str) -> dict[str, frozenset[int]]:
        """By partition of `hub`, the sequence numbers of the events that are noted. Makes nothing."""
        ...

    # what is kept of entities: `sinks.beside.forgetting`

    def forget_entity(self, key: Mapping[str, str]) -> Forgotten:
        """Forget the entity with these values in its key columns, as text: rule 5, in one transaction."""
        ...

    def clear(
        self,
        retention: Retention,
        now: float | None = None,
        after: tuple[object, ...] | None = None,
        at_most: int = AT_A_TIME,
    ) -> Cleared:
        """Clear some of what is old at `now` (seconds since 1970), in one short transaction: rules 1 to 3.

        Without `now`, the clock of the database says the time: one clock for all instances, so that an instance whose
        own clock is ahead does not clear early for all of them. Looks at most at `at_most` rows of each kind; of keys
        at those behind `after`.
        """
        ...


class KeepsStates(Protocol):
    """For STATES: give rows back, so that a handler can go on from an entity's state, and keep what handlers need.

    Who has raised the watermark's owner level (`raise_owner_levels`), reads the watermarks and then the states, and
    applies what it has computed with those as `Batch.read_under`, knows that nobody has written in between: a former
    owner's batch is refused, and `BatchResult.outdated` says that what was read may have been changed by a retry, by
    `forget` or by a reset.
    """

    def read_states(self, schema: pa.Schema, keys: Sequence[Key]) -> dict[Key, dict[str, Any]]:
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

    # parked events: `sinks.beside.parking`; `check_parked` comes first, but for what an operator does

    def check_parked(self) -> None:
        """Make what is missing for parked events."""
        ...

    def parked_entities(self, hub: str, partition: str) -> dict[Key, float]:
        """The entities of this partition that have parked events, each with the `next_at` of its first one.

        Infinite if that is of another partition: `versions`, rule 4.
        """
        ...

    def parked_events(self, hub: str, partition: str, keys: Collection[Key], at_most: int) -> list[ParkedEvent]:
        """The first this many parked events of these entities of this partition, in their order.

        None that waits behind another partition's.
        """
        ...

    def parked_rows(self, selection: Selection, limit: int, after: EventId | None = None) -> list[ParkedRow]:
        """At most `limit` parked events behind `after`, by hub, partition and sequence number.

        The reason of a selection is a part of the error. Empty where nothing has ever been parked.
        """
        ...

    def hurry_parked(self, events: Collection[EventId]) -> int:
        """Let these events be tried at once, each as soon as it is the first of its entity. How many there were."""
        ...

    def drop_parked(self, events: Sequence[EventId], reason: str) -> int:
        """Remove these events for good, and note each with `reason` among the dropped ones, without its body.

        How many there were. Their entities go on as if they had never been. Raises `ConfigError` without a reason.
        """
        ...

    # versions of entities whose events are in several partitions: `sinks.beside.versions`

    def check_entities(self) -> None:
        """Make what is missing for versions. It comes before the two below."""
        ...

    def read_entities(self, schema: pa.Schema, keys: Sequence[Key]) -> dict[Key, KnownEntity]:
        """What is known of each of these: rule 1."""
        ...

    def first_parked(self, keys: Collection[Key]) -> dict[Key, tuple[Lane, float]]:
        """Of those that have parked events, the hub and partition of the first one, and its `next_at`."""
        ...

    # what handlers emit: `sinks.beside.outbox`

    @property
    def outbox(self) -> Outbox:
        """The outbox of the table."""
        ...

    # messages of queues: `sinks.beside.messages`

    def check_messages(self, schema: pa.Schema) -> None:
        """Make what is missing, for states of this schema, before a message comes.

        Raises `ConfigError` for a table that a hub's events fill, or with constraints other than its keys, and
        `SchemaMismatch`.
        """
        ...

    def read_messages(self, schema: pa.Schema, key: Key, messages: Sequence[MessageName]) -> list[KnownOfMessage]:
        """See rule 1, of one or more messages of one queue and entity, all as of one moment.

        A key has the values of the key columns, in the order of the spec.
        """
        ...

    @property
    def parked_messages(self) -> ParkedMessages:
        """The messages that wait."""
        ...


class SpoiledState(dict[str, Any]):
    """A row that cannot be read as the state of its entity, for the `reason` given; empty as a dict."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return SpoiledState, (self.reason,)


class RelatesTables(Protocol):
    """For RELATED: write rows of related tables, and say beforehand what may be written (`sinks.beside.related`)."""

    def check_related(self, tables: Collection[str]) -> None:
        """Refuse what is not a table that may be written to. Raises `ConfigError`, `UsageError`."""
        ...

    def related_table(self, name: str) -> RelatedTable:
        """The table of this name. Raises what `check_related` raises."""
        ...


class FillsTogether(Protocol):
    """For TOGETHER: fill several tables of one database and schema in one transaction (`table_set`)."""

    def apply_together(self, batches: Sequence[tuple[Any, Batch]], level_of: LevelOf | None = None) -> BatchResult:
        """Apply to each of these sinks its batch as `apply` does: all of them, or nothing. This sink is the first.

        The sinks are of this one's class, and filled in the order that they are given in: the same for all who fill
        some of them. The batches have read the same ranges. Returns the sum, with the result of each.
        """
        ...

    def begin_at(self, hub: str, marks: Mapping[str, Watermark]) -> None:
        """Write these watermarks of a hub, but for partitions in which the table has one by then."""
        ...


BOOKKEEPING: SinkFeature[KeepsNotes] = SinkFeature(
    "BOOKKEEPING",
    "leaves out events that are noted or were sent twice, forgets entities, clears what is old",
    KeepsNotes,
)
EVOLUTION: SinkFeature[Sink] = SinkFeature("EVOLUTION", "adds the columns that its table has not, if asked to", Sink)
STATES: SinkFeature[KeepsStates] = SinkFeature(
    "STATES", "gives rows back as the states of entities, and keeps what waits for handlers or was emitted", KeepsStates
)
RELATED: SinkFeature[RelatesTables] = SinkFeature("RELATED", "writes rows of related tables", RelatesTables)
TOGETHER: SinkFeature[FillsTogether] = SinkFeature("TOGETHER", "fills several tables in one transaction", FillsTogether)

ALL: Features = frozenset({BOOKKEEPING, EVOLUTION, RELATED, STATES, TOGETHER})
"""Every feature that there is."""


def offered(sink: Sink, feature: SinkFeature[P]) -> P | None:
    """The sink, as what has this feature; None where it does not say so."""
    return cast("P", sink) if feature in sink.features else None


def require(sink: Sink, feature: SinkFeature[P], needed_by: str, remedy: str = "") -> P:
    """The sink, as what has this feature. Raises `ConfigError` where it does not say so.

    `needed_by` says what was asked for, as users know it, and `remedy` what to do in place of taking another sink.
    """
    if (found := offered(sink, feature)) is None:
        raise ConfigError(
            "sink",
            None,
            f"the table {sink.spec.called} is in a {type(sink).__name__}, which does not have the feature "
            f"{feature}: a sink that has it {feature.meaning}. It is needed by {needed_by}",
            remedy or "Take SQLite or Postgres; a sink of your own says in its attribute features which it has",
        )
    return found
