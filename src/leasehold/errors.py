"""Every error Leasehold raises, in one tree.

    LeaseholdError
    ├── UsageError                      you: what was asked cannot be done as asked
    │   ├── ConfigError                 a setting, an option or a key of a pipeline file
    │   ├── MissingDependency           a driver that is not installed, with the extra that brings it
    │   ├── SchemaMismatch              a DataFrame or file that does not fit its table or hub
    │   └── AlreadyInUse                a consumer group or table that belongs to another pipeline
    ├── StoreError                      the store
    │   └── StoreUnavailable            … cannot be reached or is locked: try again       (passes)
    ├── HubError                        the hub
    │   ├── HubUnavailable              … cannot be reached or is locked: try again       (passes)
    │   ├── DataLoss                    events that were to be read are gone
    │   ├── EndWentBack                 a partition ends before a place that was read: acknowledged events are lost
    │   └── RangeTooLarge               a range of more bytes than a batch may have
    ├── QueueError                      the queue
    │   └── QueueUnavailable            … cannot be reached: try again                    (passes)
    ├── RegistryError                   the registry of schemas
    │   └── RegistryUnavailable         … cannot be reached: try again                    (passes)
    ├── SinkError                       the database of the entity table
    │   ├── SinkUnavailable             … cannot be reached or is locked: try again       (passes)
    │   ├── KeyFromTwoPartitions        an entity's events come from several partitions
    │   ├── OwnerLevelWentBack          the stores were wiped or restored behind the table's back
    │   ├── EventsMissing               the table was restored, or a checkpoint set forward: events would be left out
    │   └── StaleBatch                  rows of other events than those of the batch that they are applied as
    ├── SparkUnavailable                Spark's master cannot be reached: try again           (passes)
    ├── SparkEnded                      Spark's Java process has ended: start the instance again
    ├── HandlerUnavailable              most calls of a handler fail alike: try again         (passes)
    ├── LeaseBusy                       the lease of a key that another holder did not give up in the time waited
    ├── LeaseLost                       a lease that was held and is not any more
    ├── PipelineFailed                  a pipeline file's run stopped, and trying again does not mend it
    ├── BatchEnded                      the function of `foreachBatch` ended its thread in place of returning
    └── NotTheOwner                     lost ownership: somebody else holds the partition now
        ├── OwnerLevelSuperseded        a write that carries a lower owner level than the record
        ├── CheckpointStepBack          a checkpoint behind the one already written at its level
        ├── ReaderDisconnected          a read that the hub ended, since another reads the partition as its owner
        └── PartitionTaken              a range that cannot be read to its end, since another owns its partition now

A message says what was asked, what is wrong and what to do. Losing a race for a claim is not an error:
claims return what was won. Every error says what it asks for (`verdict`): a class has one, and whoever knows better
where the error is raised gives another one with it. Whoever has to go on acts on that value alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import SupportsIndex

from leasehold.installation import command_for
from leasehold.printable import span

__all__ = [
    "AlreadyInUse",
    "BatchEnded",
    "CheckpointStepBack",
    "ConfigError",
    "DataLoss",
    "EndWentBack",
    "EventsMissing",
    "HandlerUnavailable",
    "HubError",
    "HubUnavailable",
    "KeyFromTwoPartitions",
    "LeaseBusy",
    "LeaseLost",
    "LeaseholdError",
    "MissingDependency",
    "NotTheOwner",
    "OwnerLevelSuperseded",
    "OwnerLevelWentBack",
    "PartitionTaken",
    "PipelineFailed",
    "QueueError",
    "QueueUnavailable",
    "RangeTooLarge",
    "ReaderDisconnected",
    "RegistryError",
    "RegistryUnavailable",
    "SchemaMismatch",
    "SinkError",
    "SinkUnavailable",
    "SparkEnded",
    "SparkUnavailable",
    "StaleBatch",
    "StoreError",
    "StoreUnavailable",
    "UsageError",
    "Verdict",
]

_NAMED = 8  # partitions in a message


class Verdict(StrEnum):
    """What an error asks for.

    PASSES   nothing: the same call may succeed later, as it is
    MEND     a person has to mend something outside of this process: a right, a password, a disk. Then the same call
             succeeds, so a run that has worked before waits for it; one that has not ends
    RESTART  a person has to mend what this process has read once, or what it stands on: its settings, a driver, stores
             that were wiped. Then the process has to start again
    ROWS     nothing of that: events or rows are at fault, so only what they belong to is tried again, later
    TAKEN    another instance has the partition: plan again without it
    GONE     events are gone: go on without them, where that was asked for
    """

    PASSES = "passes"
    MEND = "mend"
    RESTART = "restart"
    ROWS = "rows"
    TAKEN = "taken"
    GONE = "gone"


class LeaseholdError(Exception):
    """The base of every error that Leasehold raises on purpose; `verdict` is what it asks for."""

    verdict = Verdict.RESTART

    def __init__(self, *args: object, verdict: Verdict | None = None) -> None:
        super().__init__(*args)
        if verdict is not None:
            self.verdict = verdict

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[object, ...]:
        """As the class has it, and with a verdict that is this error's own."""
        made = super().__reduce_ex__(protocol)
        if isinstance(made, tuple) and len(made) == 2 and "verdict" in vars(self):
            return *made, {"verdict": self.verdict}
        return made


class UsageError(LeaseholdError):
    """What was asked cannot be done as asked; asking again in the same words will not help."""


class ConfigError(UsageError):
    """A setting is missing, unknown, out of range or at odds with another.

    `field` is the setting's name as the user wrote it, `value` what was given, `rule` what holds for it
    and `remedy` what to write instead.
    """

    def __init__(self, field: str, value: object, rule: str, remedy: str = "") -> None:
        self.field, self.value, self.rule, self.remedy = field, value, rule, remedy
        message = f"{field} = {value!r}: {rule}" if value is not None else f"{field}: {rule}"
        super().__init__(_sentences(message, remedy))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, object, str, str]]:
        return type(self), (self.field, self.value, self.rule, self.remedy)


def _sentences(*parts: str) -> str:
    """The parts that are not empty, each with a mark at its end."""
    return " ".join(part if part[-1] in ".?!" else f"{part}." for part in parts if part)


class MissingDependency(UsageError):
    """A package that this backend needs is not installed; `extra` is the extra of Leasehold that brings it."""

    def __init__(self, what: str, extra: str) -> None:
        self.what, self.extra = what, extra
        super().__init__(f"{what} needs a package that is not installed: {command_for(extra)}")

    def __reduce__(self) -> tuple[type[MissingDependency], tuple[str, str]]:
        return type(self), (self.what, self.extra)


class SchemaMismatch(UsageError):
    """Columns that are missing, unknown or of another type than the table or hub they are meant for."""


class AlreadyInUse(UsageError):
    """A consumer group or an entity table already belongs to another pipeline."""


class StoreError(LeaseholdError):
    """The store answered with something that it should not have."""

    verdict = Verdict.MEND


class StoreUnavailable(StoreError):
    """The store cannot be reached, is locked or did not answer in time."""

    verdict = Verdict.PASSES


class HubError(LeaseholdError):
    """The hub answered with something that it should not have."""

    verdict = Verdict.ROWS


class HubUnavailable(HubError):
    """The hub cannot be reached, is locked or did not answer in time."""

    verdict = Verdict.PASSES


class RegistryError(LeaseholdError):
    """The registry of schemas refuses what it is asked."""

    verdict = Verdict.MEND


class RegistryUnavailable(RegistryError):
    """The registry of schemas cannot be reached, or did not answer in time; or what it gave cannot be compiled now."""

    verdict = Verdict.PASSES


class DataLoss(HubError):
    """Events `[start, end)` of `partition` were to be read and are gone from the hub (retention).

    `others` are further partitions of which events are gone.
    """

    verdict = Verdict.GONE

    def __init__(self, partition: str, start: int, end: int, remedy: str = "", rest: Sequence[str] = ()) -> None:
        self.partition, self.start, self.end, self.remedy, self.others = partition, start, end, remedy, tuple(rest)
        more = f" and {len(rest) - _NAMED} more" if len(rest) > _NAMED else ""
        too = f"Events are gone of partition {', '.join(rest[:_NAMED])}{more}, too. " if rest else ""
        super().__init__(
            f"partition {partition}: events [{start}, {end}) were to be read and are gone from the hub "
            f"(retention). {too}{remedy or 'Set failOnDataLoss=false to go on from the first event that is left.'}"
        )

    def __reduce__(self) -> tuple[type[DataLoss], tuple[str, int, int, str, tuple[str, ...]]]:
        return type(self), (self.partition, self.start, self.end, self.remedy, self.others)


class EndWentBack(HubError):
    """`partition` ends at `end`, and progress is at `position`: what comes next would not be what comes next."""

    verdict = Verdict.GONE

    def __init__(self, partition: str, position: int, end: int) -> None:
        self.partition, self.position, self.end = partition, position, end
        super().__init__(
            f"partition {partition}: progress is at sequence number {position}, and the hub ends at {end}: it has lost "
            "acknowledged events or was restored from an older copy. Restore the hub, or read it under another group."
        )

    def __reduce__(self) -> tuple[type[EndWentBack], tuple[str, int, int]]:
        return type(self), (self.partition, self.position, self.end)


class RangeTooLarge(HubError):
    """The first `events` of a range of `partition` have `size` bytes, more than a whole batch may have."""

    def __init__(self, partition: str, events: int, size: int, most: int) -> None:
        self.partition, self.events, self.size, self.most = partition, events, size, most
        super().__init__(
            f"partition {partition}: {events} events have {size} bytes, and a batch may have {most}. The loop plans "
            "smaller ranges; where it does not help, raise max_bytes_per_trigger"
        )

    def __reduce__(self) -> tuple[type[RangeTooLarge], tuple[str, int, int, int]]:
        return type(self), (self.partition, self.events, self.size, self.most)


class QueueError(LeaseholdError):
    """The queue answered with something that it should not have, or a message cannot be treated as asked."""

    verdict = Verdict.RESTART


class QueueUnavailable(QueueError):
    """The queue cannot be reached or did not answer in time."""

    verdict = Verdict.PASSES


class SinkError(LeaseholdError):
    """The database of the entity table answered with something that it should not have."""

    verdict = Verdict.MEND


class SinkUnavailable(SinkError):
    """The database of the entity table cannot be reached or is locked."""

    verdict = Verdict.PASSES


class KeyFromTwoPartitions(SinkError):
    """An upsert met a key last written from another partition, and no `sequence_by` says which is later."""

    verdict = Verdict.RESTART


class OwnerLevelWentBack(SinkError):
    """The current owner's level is below the highest that the table has seen: a store was wiped or restored."""

    verdict = Verdict.RESTART


class EventsMissing(SinkError):
    """A batch begins above the watermark: events that the table was not given, or has lost, would be left out."""

    verdict = Verdict.RESTART


class StaleBatch(SinkError):
    """The rows that were to be applied are not those of this batch: they were computed for another, or in part."""

    verdict = Verdict.RESTART


class SparkUnavailable(LeaseholdError):
    """Spark's master cannot be reached."""

    verdict = Verdict.PASSES


class SparkEnded(LeaseholdError):
    """Spark's Java process has ended under a running loop."""

    def __init__(self) -> None:
        super().__init__(
            "Spark's Java process has ended: it was killed, or ran out of memory (spark.driver.memory). Start this "
            "instance again; what it held goes to the others or comes back to it"
        )

    def __reduce__(self) -> tuple[type[SparkEnded], tuple[()]]:
        return type(self), ()


class HandlerUnavailable(LeaseholdError):
    """Most of a partition's entities fail alike in their handler: an outage of what it calls, or a mistake.

    Or the process that calls it does not start. Nothing of the batch was applied, parked or set aside.
    """

    verdict = Verdict.PASSES


class LeaseBusy(LeaseholdError):
    """`holder` holds the lease of `key` in `scope`, and did not give it up within the time that the caller waited.

    `remaining` is for how many seconds more the store keeps the lease for its holder unless the holder renews it; None
    if the lease has no end or the store cannot tell.
    """

    verdict = Verdict.PASSES

    def __init__(self, scope: str, key: str, holder: str, remaining: float | None, waited: float) -> None:
        self.scope, self.key, self.holder, self.remaining, self.waited = scope, key, holder, remaining, waited
        left = "for a time that the store does not tell" if remaining is None else f"for {span(remaining)} more"
        super().__init__(
            f"the lease of {key!r} in scope {scope!r} is held by {holder!r}, {left} unless that holder renews it; "
            f"waited {span(waited)}. Try later, wait longer, or free it with `leasehold leases break`"
        )

    def __reduce__(self) -> tuple[type[LeaseBusy], tuple[str, str, str, float | None, float]]:
        return type(self), (self.scope, self.key, self.holder, self.remaining, self.waited)


class LeaseLost(LeaseholdError):
    """The lease of `key` in `scope`, with this `fence`, was lost: `reason` says how. Others may hold it by now."""

    verdict = Verdict.TAKEN

    def __init__(self, scope: str, key: str, fence: int, reason: str) -> None:
        self.scope, self.key, self.fence, self.reason = scope, key, fence, reason
        super().__init__(
            f"the lease of {key!r} in scope {scope!r} with fence {fence} is lost: {reason}. Stop working on it: "
            "another may hold it, with a higher fence"
        )

    def __reduce__(self) -> tuple[type[LeaseLost], tuple[str, str, int, str]]:
        return type(self), (self.scope, self.key, self.fence, self.reason)


class PipelineFailed(LeaseholdError):
    """The pipeline stopped because of an error that trying again does not mend."""


class BatchEnded(LeaseholdError):
    """The function of `foreachBatch` ended its thread in place of returning."""


class NotTheOwner(LeaseholdError):
    """Somebody else holds `partition` now; whatever was done for it since does not count."""

    verdict = Verdict.TAKEN

    partition: str


class OwnerLevelSuperseded(NotTheOwner):
    """A write for `partition` carries `owner_level`, and the record has already seen `highest`."""

    def __init__(self, partition: str, owner_level: int, highest: int) -> None:
        self.partition, self.owner_level, self.highest = partition, owner_level, highest
        super().__init__(
            f"partition {partition}: a checkpoint at owner level {owner_level} is refused, since level {highest} "
            "has claimed the partition. Stop working on it: its new owner goes on from the last checkpoint."
        )

    def __reduce__(self) -> tuple[type[OwnerLevelSuperseded], tuple[str, int, int]]:
        return type(self), (self.partition, self.owner_level, self.highest)


class CheckpointStepBack(NotTheOwner):
    """A checkpoint for `partition` at `sequence_number` is behind `latest`, written at the same owner level."""

    def __init__(self, partition: str, sequence_number: int, latest: int) -> None:
        self.partition, self.sequence_number, self.latest = partition, sequence_number, latest
        super().__init__(
            f"partition {partition}: a checkpoint at sequence number {sequence_number} is refused, since "
            f"{latest} was written at the same owner level. Checkpoints only go forward within a level."
        )

    def __reduce__(self) -> tuple[type[CheckpointStepBack], tuple[str, int, int]]:
        return type(self), (self.partition, self.sequence_number, self.latest)


class ReaderDisconnected(NotTheOwner):
    """The hub refused or ended a read of `partition` at `owner_level`: another reads it at that level or above.

    `position` is the sequence number that it would have gone on from.
    """

    def __init__(self, partition: str, owner_level: int, position: int) -> None:
        self.partition, self.owner_level, self.position = partition, owner_level, position
        super().__init__(
            f"partition {partition}: the hub has ended the reading at owner level {owner_level}, since another reads "
            "it at that level or above in this consumer group. Stop working on it: its owner goes on from the last "
            "checkpoint. If nobody of this fleet owns it, somebody else reads in this consumer group: give them one "
            "of their own."
        )

    def __reduce__(self) -> tuple[type[ReaderDisconnected], tuple[str, int, int]]:
        return type(self), (self.partition, self.owner_level, self.position)


class PartitionTaken(NotTheOwner):
    """A range of `partition` at `owner_level` cannot be read to its end: another instance owns the partition now."""

    def __init__(self, partition: str, owner_level: int) -> None:
        self.partition, self.owner_level = partition, owner_level
        super().__init__(
            f"partition {partition}: another instance has taken it while it was read at owner level {owner_level}. "
            "The batch is read again without it."
        )

    def __reduce__(self) -> tuple[type[PartitionTaken], tuple[str, int]]:
        return type(self), (self.partition, self.owner_level)


def verdict_of(error: BaseException) -> Verdict | None:
    """What an error asks for; None for one that is not ours, of which nobody knows."""
    return error.verdict if isinstance(error, LeaseholdError) else None


def is_waited_out(error: BaseException, *, worked: bool) -> bool:
    """Whether to try again after a pause: it passes by itself, or a person will have mended it meanwhile.

    For a person only what has `worked` before waits: a start that is refused is told at once.
    """
    verdict = verdict_of(error)
    return verdict is Verdict.PASSES or (worked and verdict is Verdict.MEND)
