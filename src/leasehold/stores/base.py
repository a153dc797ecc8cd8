"""What a store promises: ownership and checkpoints, each under rules of its own (leases: `lease_base.py`).

The two protocols may be served by different backends. Each sentence in their docstrings has a test in
`leasehold_testkit.contracts.stores`. Every method may raise `StoreUnavailable`; after that the write may or may not
have happened, and the caller finds out by listing. No method waits longer than the store's time-out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from leasehold.errors import NotTheOwner
from leasehold.model import Ask, Checkpoint, ConsumerGroup, Ownership, OwnershipListing, Presence

__all__ = [
    "CheckpointStore",
    "KnowsNamesakes",
    "OwnershipStore",
    "PipelineBinding",
    "SchemaChange",
    "SchemaKeeper",
    "StoreFeatures",
    "TellsWhetherMade",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFeatures:
    """What a store can do.

    shared               processes on different hosts may share it
    one_process          it lives in one process: not even those of one host may share it
    official_layout      it keeps its records as the official Event Hubs processors do, who may share it
    own_clock            ages come from a clock of its own; without one, from "unchanged since seen"
    clock_granularity    how many seconds too high the age of a record may be, by that clock
    presence             it keeps presence records and asks
    batches              many records are written in one request
    fenced_checkpoints   a lower owner level is refused, whichever client wrote the record
    native_leases        its leases are the service's own: renewed one by one, not by their session
    shortest_lease       the shortest duration of a session of leases, in seconds
    longest_lease        the longest one; a session without an end is possible whatever this says
    """

    shared: bool
    one_process: bool = False
    official_layout: bool = False
    own_clock: bool = True
    clock_granularity: float = 0.0
    presence: bool = True
    batches: bool = True
    fenced_checkpoints: bool = True
    native_leases: bool = False
    shortest_lease: float = 0.0
    longest_lease: float = math.inf


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """What `create_schema` did to the tables of a component: the versions before (0: none) and after.

    `remade` are the tables that should have been there and were not, and are made again, empty.
    """

    component: str
    before: int
    after: int
    remade: tuple[str, ...] = ()


@runtime_checkable
class SchemaKeeper(Protocol):
    """A store that has to make something before it can keep records, tables for example.

    The first use does so too. This is for doing it on purpose: ahead of time, or as a user who may.
    """

    def create_schema(self) -> SchemaChange | None:
        """Make what is missing. Idempotent, also by several at once. None if it cannot tell what it did."""
        ...


@runtime_checkable
class TellsStatements(Protocol):
    """A store with tables, which can say what makes them."""

    def schema_statements(self) -> tuple[str, ...]:
        """What makes those that are missing, as SQL: none where all are there. Makes and changes nothing."""
        ...


@runtime_checkable
class TellsWhetherMade(Protocol):
    """A store that would make what it keeps records in at its first use, and can say beforehand whether it is there."""

    def is_made(self) -> bool:
        """Whether there is something to read: a file, tables, a mark. Makes and changes nothing.

        Raises `StoreError` for what has another version, and `UsageError` where some of the tables are missing.
        """
        ...


@runtime_checkable
class KnowsNamesakes(Protocol):
    """What a store may do beside: see that others keep the records of a group under another spelling of its name."""

    def check_names(self, group: ConsumerGroup) -> None:
        """Raise `ConfigError` where they do: two worlds, in each of which every partition is owned. One listing."""
        ...


@runtime_checkable
class OwnershipStore(Protocol):
    """The owners of a consumer group's partitions, the presence of its instances, and their asks."""

    @property
    def features(self) -> StoreFeatures:
        """What this store can do. Without `presence` its three methods do nothing, and listings have none."""
        ...

    def list_ownership(self, group: ConsumerGroup) -> OwnershipListing:
        """All records of the group, also relinquished and expired ones, and none of another group.

        `as_of` and every `last_modified` come from one clock, the store's, so that the age of a record is
        `as_of - last_modified` whatever the clock of the caller says. A record that the store knows to be
        from before a restart of that clock is reported as infinitely old. A store without a clock of its own
        gives 0 for all of these, and the caller finds out ages by what changes and what does not.

        What others wrote never raises. A record that cannot be read, or says what cannot be (a capacity of zero, a
        level below zero), is in `unreadable`, with its ETag and age where these can be read, and nowhere else.
        """
        ...

    def claim_ownership(self, claims: Sequence[Ownership]) -> list[Ownership]:
        """Write those claims whose `etag` still is the record's, and return them as they now stand.

        An `etag` of `None` claims a record that must not exist. Each claim is decided alone: of many that
        name the same ETag exactly one wins, and the losers are simply not in the result. What is returned
        carries the new ETag and everything else of the claim, and is on disk.
        """
        ...

    def renew_ownership(self, held: Sequence[Ownership], presence: Presence | None = None) -> list[Ownership]:
        """Refresh the age of those records whose `etag` still is the record's, and return them.

        As `claim_ownership`, but owner and level must be the record's, and a renewal may be lost with the
        power: the record then only looks older than it is. `presence` is written too, in the same request
        where the store can: made if it is not there, else refreshed.
        """
        ...

    def relinquish_ownership(self, held: Sequence[Ownership]) -> list[Ownership]:
        """Give up those records whose `etag` still is the record's, and return them.

        The record stays, with an empty owner id and its level, so that the next level is higher, and with the
        successor, failures and last error that it is given here.
        """
        ...

    def withdraw_presence(self, group: ConsumerGroup, owner_ids: Sequence[str]) -> None:
        """Remove these presence records, as far as they are there."""
        ...

    def ask(self, asks: Sequence[Ask]) -> None:
        """Write asks, at most one a partition: a later one takes the place of an earlier one."""
        ...

    def withdraw_asks(self, asks: Sequence[Ask]) -> None:
        """Remove these asks, unless others have taken their place."""
        ...


RESETTING = "leasehold reset "


@dataclass(frozen=True, slots=True)
class UnendedReset:
    """A reset that has begun and has not ended: where to, as it was stated, and for which fixed share of partitions.

    Without `share` it is of all partitions of the hub.
    """

    to: str
    share: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PipelineBinding:
    """Which pipeline a consumer group belongs to: the pipeline's name, and the identity of its sink.

    While a reset moves the group's places, `RESETTING` stands before the sink, with what was asked for: a reset that
    did not end is seen by the next start.
    """

    pipeline: str
    sink: str

    @property
    def reset(self) -> UnendedReset | None:
        """The reset that has begun and has not ended; None where there is none."""
        return self._parts[1]

    @property
    def settled(self) -> PipelineBinding:
        """The binding without a reset that has begun."""
        return PipelineBinding(self.pipeline, self._parts[0])

    def resetting(self, reset: UnendedReset) -> PipelineBinding:
        """The binding for as long as this reset is under way."""
        said = json.dumps({"to": reset.to, "share": reset.share, "sink": self.sink})
        return PipelineBinding(self.pipeline, f"{RESETTING}{said}")

    @property
    def _parts(self) -> tuple[str, UnendedReset | None]:
        if not self.sink.startswith(RESETTING):
            return self.sink, None
        try:
            said = json.loads(self.sink.removeprefix(RESETTING))
            return str(said["sink"]), UnendedReset(str(said["to"]), tuple(map(str, said["share"])))
        except (ValueError, TypeError, KeyError):  # somebody else has written that
            return self.sink, UnendedReset("sink")


@runtime_checkable
class CheckpointStore(Protocol):
    """How far a consumer group has come in each partition."""

    def list_checkpoints(self, group: ConsumerGroup) -> list[Checkpoint]:
        """The checkpoint of every partition of the group that has one, and none of another group.

        What others wrote never raises. One that cannot be read is left out, which the store logs once.
        """
        ...

    def raise_owner_level(self, starts: Sequence[Checkpoint]) -> list[Checkpoint]:
        """Announce owner levels before anything is read, and return the records as they now stand.

        Where a partition has no checkpoint, the one given is written: the resolved start. Where it has one,
        its sequence number, offset and data stay and its level becomes the higher of the two. A returned level
        above the one given means that a later owner has been there already. What is returned is on disk.

        A checkpoint that cannot be read is not returned, and its place stays: no instance knows where to go on. A store
        raises its level where level and sequence number can be read. It takes a person, or an owner that is at work on
        the partition, to write another (`update_checkpoints`). Where another program keeps a checkpoint from being
        written, by a lease on its blob, the store raises the others and leaves it out: the call may be made again.
        """
        ...

    def update_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> list[NotTheOwner]:
        """Record progress, on disk, and return what was refused. Each checkpoint is decided alone.

        A level below the record's is refused with `OwnerLevelSuperseded`. A sequence number behind the
        record's at the same level is refused with `CheckpointStepBack`; the same sequence number is accepted.
        A higher level may step back. A refused checkpoint changes nothing. What is accepted has the data that it
        comes with, or none. Data that not every store can keep is a `ConfigError`, before anything is done. A record
        whose level or sequence number cannot be read refuses nothing, and is replaced.
        """
        ...

    def pipeline_binding(self, group: ConsumerGroup) -> PipelineBinding | None:
        """What the group is tied to, or None. Writes nothing."""
        ...

    def bind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> PipelineBinding:
        """Tie the group to a pipeline if it is not tied to one, and return what it is tied to."""
        ...

    def rebind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> None:
        """Tie the group to a pipeline whatever it was tied to: for repairs made by a person."""
        ...
