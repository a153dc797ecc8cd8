"""How a consumer group is getting on, as anybody may see it from outside: partition by partition.

Owns the joining of what a hub and two stores say. Reads only; needs no instance to be running. In a store without a
clock nobody can tell at one look who is alive: there every owner counts as alive, and no age is given.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from leasehold.balancing import Member, target
from leasehold.balancing.suspects import SUSPECT_AFTER, stands_still
from leasehold.balancing.view import Limits, is_expired
from leasehold.hubs.base import Hub
from leasehold.model import (
    ConsumerGroup,
    EventPosition,
    Ownership,
    OwnershipListing,
    PartitionProperties,
    PositionKind,
    Positions,
    Presence,
    RecordKind,
)
from leasehold.printable import LONGEST, shortened
from leasehold.stores.base import CheckpointStore, OwnershipStore
from leasehold.stores.names import LONGEST_NAME


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """One partition: who holds it and how far it has come. Ages in seconds; None where there is nothing yet.

    `owner` is `""` where nobody holds it; `alive` says whether its holder renewed within the expiration.
    `unheld` is for how long nobody has held it: 0 while a live owner does, infinity if nobody ever has. `checkpoint` is
    the sequence number to go on from, `start` where a first owner would begin, as far as the starting position alone
    tells (else 0), and `lag` the number of events from there to `end`.
    `asked_by` waits for it to be handed over. `failures` owners in a row came to a bad end while the checkpoint
    stood still, the latest by `last_error`; `suspect` says that they are enough for it to be taken last. `waits`: none
    did, and `last_error` is what a person has to mend before the partition goes on. `unreadable` says why its ownership
    record cannot be read, where it cannot. `enqueued` is when the last event before the checkpoint was enqueued, in
    seconds since 1970, as the checkpoint has it.
    """

    partition: str
    owner: str
    alive: bool
    owner_level: int
    age: float | None
    checkpoint: int | None
    begin: int
    end: int
    lag: int
    asked_by: str = ""
    failures: int = 0
    last_error: str = ""
    unreadable: str = ""
    start: int = 0
    unheld: float | None = None
    enqueued: float | None = None

    @property
    def waits(self) -> bool:
        """Whether it stands until a person has mended what `last_error` says."""
        return bool(self.last_error) and not self.failures

    @property
    def place(self) -> int:
        """The sequence number that comes next for the group, whether the hub still has it or not."""
        return max(self.begin, self.start) if self.checkpoint is None else self.checkpoint

    @property
    def holder(self) -> str:
        """The owner, in words: with a remark where it is expired, and empty where there is none."""
        return f"{self.owner} (expired)" if self.owner and not self.alive else self.owner

    @property
    def suspect(self) -> bool:
        """Whether it is taken last."""
        return self.failures >= SUSPECT_AFTER


@dataclass(frozen=True, slots=True)
class InstanceProgress:
    """One live instance: what it holds and what it has declared. `pipeline` is `""` where it does not say."""

    owner_id: str
    partitions: int
    pipeline: str = ""
    capacity: float = 1.0
    maximum: int | None = None


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """All partitions in the order that the hub names them, the live instances, and what none of them has room for."""

    partitions: tuple[PartitionProgress, ...]
    instances: tuple[InstanceProgress, ...]
    unserved: tuple[str, ...]

    def bounded(self) -> GroupProgress:
        """The same, for whoever keeps looks: names of instances and errors are cut, since others may write any text.

        No store on a server takes a name that is cut here; owners whose names differ behind the cut alone count as one.
        """

        def name(text: str) -> str:
            return shortened(text, LONGEST_NAME)

        rows = [
            replace(
                row,
                owner=name(row.owner),
                asked_by=name(row.asked_by),
                last_error=shortened(row.last_error, LONGEST),
            )
            for row in self.partitions
        ]
        instances = [replace(one, owner_id=name(one.owner_id), pipeline=name(one.pipeline)) for one in self.instances]
        return replace(self, partitions=tuple(rows), instances=tuple(instances))

    def _repr_html_(self) -> str:
        """A table with a row for each partition, which notebooks show."""
        names = ("Partition", "Owner", "Level", "Checkpoint", "End", "Lag")
        lines = [_html_row("th", names)]
        for one in self.partitions:
            place = "-" if one.checkpoint is None else one.checkpoint
            values = (one.partition, one.holder or "-", one.owner_level, place, one.end, one.lag)
            lines.append(_html_row("td", values))
        lag = sum(one.lag for one in self.partitions)
        said = f"{len(self.partitions)} partitions, {len(self.instances)} instances, lag {lag}"
        return "\n".join(["<table>", f"<caption>{said}</caption>", *lines, "</table>"])


def _html_row(tag: str, values: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(str(value))}</{tag}>' for value in values)}</tr>"


def group_progress(
    hub: Hub,
    group: ConsumerGroup,
    ownership: OwnershipStore,
    checkpoints: CheckpointStore,
    expiration: float,
    own_share: Callable[[Collection[str]], tuple[str, ...]] = tuple,
    *,
    foreign_expiration: float | None = None,
    positions: Positions | None = None,
) -> GroupProgress:
    """How the group is getting on now. `own_share` tells which of the hub's partitions count.

    `expiration` in seconds, and `foreign_expiration` for records that other SDKs' processors wrote, if it is another.
    `positions` are where the group starts: what comes before is not unread. Only the hub knows where a time or an
    offset is, and it is not asked: there everything counts.
    """
    granularity = ownership.features.clock_granularity
    patience = expiration + granularity
    foreign = patience if foreign_expiration is None else foreign_expiration + granularity
    limits = Limits(expiration=patience, reservation=0.0, foreign=foreign)
    listing = ownership.list_ownership(group)
    found = hub.partition_properties()
    known = {partition: found[partition] for partition in own_share(found)}
    ages = ownership.features.own_clock
    rows = _partitions(listing, known, checkpoints, group, limits, positions or Positions(), ages=ages)
    instances = _instances(listing, rows, patience, ages=ages)
    return GroupProgress(tuple(rows), instances, _unserved(rows, instances))


def _partitions(
    listing: OwnershipListing,
    hub_partitions: Mapping[str, PartitionProperties],
    checkpoints: CheckpointStore,
    group: ConsumerGroup,
    limits: Limits,
    positions: Positions,
    *,
    ages: bool,
) -> list[PartitionProgress]:
    records = {record.partition: record for record in listing.records}
    unreadable = {one.name: one.reason for one in listing.unreadable if one.kind is RecordKind.OWNERSHIP}
    asks = {(ask.partition, ask.owner_level): ask.asker for ask in listing.asks}
    reached = {checkpoint.partition: checkpoint for checkpoint in checkpoints.list_checkpoints(group)}
    rows = []
    for partition, properties in hub_partitions.items():
        record = records.get(partition) or Ownership(group, partition, "", 0)
        checkpoint = reached.get(partition)
        following = checkpoint.next_sequence_number if checkpoint else None
        still = checkpoint is not None and stands_still(record, checkpoint)
        alive = bool(record.owner_id) and not (ages and is_expired(record, listing.as_of, limits.of(record)))
        start = _start(positions.of(partition), properties)
        reads_from = start if following is None else following
        rows.append(
            PartitionProgress(
                partition=partition,
                owner=record.owner_id,
                alive=alive,
                owner_level=max(record.owner_level, checkpoint.owner_level if checkpoint else 0),
                age=listing.as_of - record.last_modified if record.owner_id and ages else None,
                checkpoint=following,
                begin=properties.begin,
                end=properties.end,
                lag=max(0, properties.end - max(reads_from, properties.begin)),
                asked_by=asks.get((partition, record.owner_level), "") if alive else "",
                failures=record.failures if still else 0,
                last_error=record.last_error if still else "",
                unreadable=unreadable.get(partition, ""),
                start=start,
                enqueued=None if checkpoint is None else checkpoint.enqueued_time,
                unheld=_unheld(records.get(partition), listing.as_of, limits, alive=alive)
                if ages and partition not in unreadable
                else None,
            )
        )
    return rows


def _start(position: EventPosition, properties: PartitionProperties) -> int:
    """Where a first owner begins, as far as the position alone tells; else 0."""
    if position.kind is PositionKind.LATEST:
        return properties.end
    if position.kind is PositionKind.SEQUENCE_NUMBER:
        return min(position.sequence_number + (not position.inclusive), properties.end)
    return 0


def _unheld(record: Ownership | None, as_of: float, limits: Limits, *, alive: bool) -> float:
    """For how many seconds nobody has held a partition."""
    if record is None:
        return math.inf
    if alive:
        return 0.0
    age = as_of - record.last_modified
    return max(0.0, age - limits.of(record) if record.owner_id else age)


def _instances(
    listing: OwnershipListing, rows: Sequence[PartitionProgress], expiration: float, *, ages: bool
) -> tuple[InstanceProgress, ...]:
    owned: dict[str, int] = {}
    for row in rows:
        if row.alive:
            owned[row.owner] = owned.get(row.owner, 0) + 1
    present = {
        one.owner_id: one for one in listing.presences if not (ages and is_expired(one, listing.as_of, expiration))
    }
    return tuple(_instance(owner, owned.get(owner, 0), present.get(owner)) for owner in sorted({*owned, *present}))


def _instance(owner: str, partitions: int, presence: Presence | None) -> InstanceProgress:
    if presence is None:
        return InstanceProgress(owner, partitions)
    return InstanceProgress(owner, partitions, presence.pipeline, presence.capacity, presence.maximum)


def _unserved(rows: Sequence[PartitionProgress], instances: Sequence[InstanceProgress]) -> tuple[str, ...]:
    """What the maxima of all who are there leave out. Nothing while nobody is there: then nothing is served at all."""
    members = {one.owner_id: Member(one.capacity, one.maximum) for one in instances}
    if not members:
        return ()
    owned: dict[str, list[str]] = {}
    for row in rows:
        if row.alive:
            owned.setdefault(row.owner, []).append(row.partition)
    return target(owned, [row.partition for row in rows if not row.alive], members).unserved
