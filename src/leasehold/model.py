"""The words of Leasehold as frozen values.

Owns what passes between modules: nothing here does I/O, knows a backend or changes once made. Sequence
numbers count the events of one partition and are never compared across partitions; a range of them is
half-open, `[start, end)`. Times are seconds since the Unix epoch, as floats, unless a name says otherwise.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from leasehold.errors import ConfigError

__all__ = [
    "BEFORE_FIRST", "EARLIEST", "HIGHEST", "LATEST", "Ask", "Checkpoint", "ConsumerGroup", "Event", "EventPosition",
    "EventRange", "Lease", "LeaseSession", "OwnerId", "Ownership", "OwnershipListing", "PartitionProperties",
    "PositionKind", "Positions", "Presence", "RecordKind", "Unreadable",
]  # fmt: skip

BEFORE_FIRST = -1
"""The sequence number of a checkpoint at which nothing of the partition has been processed."""
HIGHEST = 2**63 - 1
"""The highest sequence number, and the highest owner level, that every store can keep."""


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """One independent reader of a hub: ownership and checkpoints are kept per group and partition.

    `hub` is the part of the hub identity that its backend keys records by: for an embedded log the UUID
    inside the file, so that two paths to one log are one hub and a log made anew is another.
    """

    namespace: str
    hub: str
    name: str = "$Default"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.hub}/{self.name}"


@dataclass(frozen=True, slots=True)
class OwnerId:
    """The unique name of one running processor instance, written `name/incarnation`.

    The incarnation is new in each process. A new incarnation of a name takes its predecessor's
    partitions at once, without waiting for them to expire.
    """

    name: str
    incarnation: str = field(default_factory=lambda: secrets.token_hex(6))

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w[\w.:@-]{0,99}", self.name):
            raise ConfigError(
                "owner_id",
                self.name,
                "1 to 100 letters, digits or any of . _ : @ -, the first a letter or digit",
                "Choose another name",
            )

    def __str__(self) -> str:
        return f"{self.name}/{self.incarnation}"


def owner_name(owner_id: str) -> str:
    """The name in a `name/incarnation`; the whole text where it has no incarnation (other SDKs' owners)."""
    return owner_id.rpartition("/")[0] or owner_id


@dataclass(frozen=True, slots=True)
class Ownership:
    """Who holds a partition. An `owner_id` of `""` means that it was relinquished.

    `owner_level` rises by one at every acquisition. `etag` changes with every write of the record and is
    `None` for a record that does not exist yet. `last_modified` is in the store's own time, to be compared
    only with the `as_of` of a listing of the same store.

    The rest is about how the partition came to its owner, and a store may be unable to keep it. `nonce` is
    new with each claim, so that a claim whose reply was lost is known again. `successor` is the instance
    that a relinquished partition was handed over to, which holds nothing until it has claimed. `claimed_at`
    is the sequence number that the checkpoint stood at when the partition was claimed, `failures` counts
    the owners that have come to a bad end since it last moved, and `last_error` says how the latest did.
    """

    group: ConsumerGroup
    partition: str
    owner_id: str
    owner_level: int
    etag: str | None = None
    last_modified: float = 0.0
    nonce: str = ""
    successor: str = ""
    claimed_at: int = BEFORE_FIRST
    failures: int = 0
    last_error: str = ""

    @property
    def foreign(self) -> bool:
        """Whether another SDK's processor wrote it, which knows no nonce: of meaning in a mixed fleet alone."""
        return bool(self.owner_id) and not self.nonce


@dataclass(frozen=True, slots=True)
class Presence:
    """An instance of a consumer group announces itself, so that one which owns nothing is counted.

    `pipeline` names what the instance works for, `""` where it does not say. `strategy`, `capacity` and
    `maximum` (of partitions, `None` for no limit) are what others need to know to plan its share.
    `created` is when the record was first written, in the store's own time as `last_modified` is; `etag`
    changes with every write. All three are the store's to set.
    """

    group: ConsumerGroup
    owner_id: str
    pipeline: str = ""
    strategy: str = ""
    capacity: float = 1.0
    maximum: int | None = None
    created: float = 0.0
    last_modified: float = 0.0
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """`asker` asks whoever owns a partition at `owner_level` to hand it over. Void at any other level."""

    group: ConsumerGroup
    partition: str
    owner_level: int
    asker: str


class RecordKind(StrEnum):
    """What a record in a store is about."""

    OWNERSHIP = "ownership"
    PRESENCE = "presence"
    ASK = "ask"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that is there and cannot be read: what it is about, and why not.

    `name` is the partition, or the owner of a presence. `etag` and `last_modified` are of an ownership record, where
    they at least can be read: with them the record can be replaced once it has not been renewed for long enough.
    """

    group: ConsumerGroup
    kind: RecordKind
    name: str
    reason: str
    etag: str | None = None
    last_modified: float = 0.0


@dataclass(frozen=True, slots=True)
class OwnershipListing:
    """All records of a group, and the store's own time at which they were read: 0 if it has no clock."""

    records: tuple[Ownership, ...]
    as_of: float
    presences: tuple[Presence, ...] = ()
    asks: tuple[Ask, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The last event of a partition that has been processed, with the owner level that wrote it.

    `sequence_number` is `BEFORE_FIRST` where nothing has been processed; `offset` is the hub's opaque
    text for the same event, where it has one. `data` is the user's own, from text to text, and at most a kilobyte
    (`leasehold.stores.checkpoint_data`); it belongs to this place, and the next checkpoint has its own or none.
    `enqueued_time` is when the hub received that event, in seconds since 1970, None where it is not known.
    """

    group: ConsumerGroup
    partition: str
    sequence_number: int
    owner_level: int
    offset: str | None = None
    data: Mapping[str, str] = field(default_factory=dict, hash=False)
    enqueued_time: float | None = None

    @property
    def next_sequence_number(self) -> int:
        """The sequence number to go on from."""
        return self.sequence_number + 1


@dataclass(frozen=True, slots=True)
class LeaseSession:
    """What leases hang on: as long as it lives they are held, and when it dies all of them are free.

    `id` is a UUID as text and the store's to make: whoever knows it may act for the session. `owner` is for people.
    `duration` is how long the session lives without a heartbeat, in seconds; `None` is for ever.
    """

    id: str
    owner: str
    duration: float | None


@dataclass(frozen=True, slots=True)
class Lease:
    """The exclusive hold of a session on `key`, which is unique in its `scope` (a pipeline, an application).

    `fence` is higher than any that was given for the key before, whatever happened in between: who writes
    elsewhere on the strength of a lease sends it along, and what is written to refuses a lower one.
    """

    scope: str
    key: str
    session: LeaseSession
    fence: int


@dataclass(frozen=True, slots=True)
class PartitionProperties:
    """Where a partition begins and ends: its events are `[begin, end)`; `begin == end` when it is empty.

    `last_enqueued` is when the event before `end` was enqueued, in seconds since 1970, where a hub tells that beside.
    """

    partition: str
    begin: int
    end: int
    last_enqueued: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, order=True)
class EventRange:
    """Events `[begin, end)` of one partition, read whole at one owner level.

    `left_out_from` is set where a reader leaves events out on purpose, since retention has removed them or a person has
    said so: events `[left_out_from, begin)` come in no batch, and a table whose watermark has reached
    `left_out_from - 1` may go on at `begin`. `enqueued_time` is when the hub received the last of them, in seconds
    since 1970, None where its reader does not tell.
    """

    hub: str
    partition: str
    owner_level: int
    begin: int
    end: int
    left_out_from: int | None = None
    enqueued_time: float | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a hub. `partition`, `sequence_number`, `offset` and `enqueued_time` are the hub's to set.

    `body` is None where somebody has sent a message without one (a tombstone of Kafka), and bytes in all that is sent.

    Hubs make events by the hundred thousand, and most have no properties: a map that a hub leaves out is empty, and is
    made when somebody looks at it. Two maps an event less for the garbage collector are a fifth of an event's cost.
    """

    body: bytes
    partition_key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    publisher: str | None = None
    partition: str = ""
    sequence_number: int = BEFORE_FIRST
    offset: str | None = None
    enqueued_time: float = 0.0
    system_properties: Mapping[str, str] = field(default_factory=dict)

    if not TYPE_CHECKING:  # which else would take any name for an attribute

        def __getattr__(self, name: str) -> Mapping[str, str]:
            if name not in ("properties", "system_properties"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            nothing: Mapping[str, str] = {}
            object.__setattr__(self, name, nothing)
            return nothing


class PositionKind(StrEnum):
    """The ways to say where in a partition to start or end."""

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"
    SEQUENCE_NUMBER = "sequence number"
    ENQUEUED_TIME = "enqueued time"
    OFFSET = "offset"


@dataclass(frozen=True, slots=True)
class EventPosition:
    """A place in a partition, to be resolved to a sequence number by the hub.

    Written as text: `earliest`, `latest`, `committed` (the group's checkpoint, and earliest where there is
    none), a whole number (a sequence number), an ISO 8601 timestamp with an offset from UTC (the first event
    enqueued at or after it) or `offset` and the hub's own text for a place. The last three are inclusive:
    `after 17`, `after 2026-01-31T08:00:00Z` and `after offset 4294967296` are the first event behind the place.
    """

    kind: PositionKind
    sequence_number: int = 0
    enqueued_time: float = 0.0
    offset: str = ""
    inclusive: bool = True

    @classmethod
    def parse(cls, text: str, field: str = "position", *, committed: bool = True) -> EventPosition:
        """Read a position from text; `field` names the setting in the error. Raises `ConfigError`.

        `committed=False` is for a place to set, which what is committed cannot be.
        """
        first, _, rest = text.strip().partition(" ")
        if first.lower() == "after":
            place = cls.parse(rest, field, committed=committed)
            if place.inclusive and place.kind in _PLACES:
                return replace(place, inclusive=False)
            raise ConfigError(field, text, f"nothing is after {rest.strip()}", "Name a number, an offset or a time")
        if first.lower() == PositionKind.OFFSET and rest.strip():
            return cls(PositionKind.OFFSET, offset=rest.strip())
        word = text.strip().lower()
        words = [PositionKind.EARLIEST, PositionKind.LATEST, *([PositionKind.COMMITTED] if committed else [])]
        for kind in words:
            if word == kind.value:
                return cls(kind)
        if re.fullmatch(r"\d{1,19}", word):  # of more digits Python makes no number, and no hub has one
            return cls(PositionKind.SEQUENCE_NUMBER, sequence_number=int(word))
        try:
            at = datetime.fromisoformat(text.strip())
        except ValueError:
            raise ConfigError(
                field,
                text,
                f"a position is {', '.join(words)}, a sequence number or an ISO 8601 timestamp, or offset and its "
                "text, or after and one of the last three",
                "For example 2026-01-31T08:00:00Z",
            ) from None
        if at.tzinfo is None:
            raise ConfigError(field, text, "a timestamp needs an offset from UTC", "For example add a Z at its end")
        return cls(PositionKind.ENQUEUED_TIME, enqueued_time=at.timestamp())

    def __str__(self) -> str:
        after = "" if self.inclusive else "after "
        if self.kind is PositionKind.SEQUENCE_NUMBER:
            return f"{after}{self.sequence_number}"
        if self.kind is PositionKind.ENQUEUED_TIME:
            return f"{after}{datetime.fromtimestamp(self.enqueued_time, UTC).isoformat()}"
        return f"{after}offset {self.offset}" if self.kind is PositionKind.OFFSET else self.kind.value


_PLACES = (PositionKind.SEQUENCE_NUMBER, PositionKind.ENQUEUED_TIME, PositionKind.OFFSET)
"""What an event can be after."""

EARLIEST = EventPosition(PositionKind.EARLIEST)
LATEST = EventPosition(PositionKind.LATEST)


@dataclass(frozen=True, slots=True)
class Positions:
    """A position for every partition: one for all, with exceptions by partition id."""

    default: EventPosition = EARLIEST
    by_partition: tuple[tuple[str, EventPosition], ...] = ()

    @classmethod
    def parse(cls, text: str, field: str = "position", *, fallback: EventPosition = EARLIEST) -> Positions:
        """Read positions from text, as `stated_positions` does. Raises `ConfigError`.

        A partition that the text does not name, neither by its id nor by `*`, has the position `fallback`.
        """
        stated = stated_positions(text, field)
        default = stated.pop(OTHERS, fallback)
        return cls(default, tuple(sorted(stated.items())))

    def of(self, partition: str) -> EventPosition:
        """The position for one partition."""
        return dict(self.by_partition).get(partition, self.default)


OTHERS = "*"
"""Stands for all partitions that are not named, where positions are stated by partition."""


def stated_positions(text: str, field: str = "position", *, committed: bool = True) -> dict[str, EventPosition]:
    """The positions that a text states, by partition id, or by `OTHERS`. Raises `ConfigError`.

    The text is one position, which is for all partitions, or a JSON object from partition ids to positions, in which
    the key `*` stands for all others. Each position is written as `EventPosition.parse` reads it.
    """
    if not text.lstrip().startswith("{"):
        return {OTHERS: EventPosition.parse(text, field, committed=committed)}
    try:
        stated = json.loads(text)
    except ValueError as error:
        raise ConfigError(field, text, f"not a JSON object ({error})", 'For example {"0": 17, "*": "latest"}') from None
    return {str(p): EventPosition.parse(str(at), f"{field}[{p!r}]", committed=committed) for p, at in stated.items()}
