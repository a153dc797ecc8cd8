"""The steps of the one transaction in which an entity table is written, in their order.

Owns the order, and says of each step which batches take it, what it reads, what it locks, and what it may refuse. The
table in docs/how-it-works.md is made of this list (`table`), and `tests/sinks/test_door.py` compares them.

Who may be doing what at the same time: any number of threads and processes open batches of one table. Those of the same
partitions follow one another by the lock on the watermarks, and those of the same keys by the lock on what is known of
them (SQLite: all of them, by the lock on the database). A process that stops before COMMIT, at any step, has written
nothing, and holds up those who want what it has locked until the server ends its transaction (SQLite: until it goes
on, or ends). When it goes on it finds its transaction ended, or commits what nobody could have overtaken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache

from leasehold.sinks.door import again, events, messages, shared
from leasehold.sinks.door.open_batch import BatchKind, OpenBatch
from leasehold.sinks.rules.table_spec import BatchResult

__all__ = ["STEPS", "DoorStep", "run", "steps_of", "table"]

_E, _A, _M = BatchKind.EVENTS, BatchKind.AGAIN, BatchKind.MESSAGES


@dataclass(frozen=True, slots=True)
class DoorStep:
    """One step of the transaction.

    kinds    which batches take it
    does     what it does, in a few words
    reads    the tables that it reads or writes
    locks    what stays as it is from this step until the transaction ends
    refuses  the errors, and the results, that end the batch here with nothing applied
    act      does it; a result ends the batch, and what was written until then is committed
    """

    kinds: Collection[BatchKind]
    does: str
    act: Callable[[OpenBatch], BatchResult | None]
    reads: str = ""
    locks: str = ""
    refuses: str = ""


STEPS = (
    DoorStep(
        (_E, _A, _M),
        "See that the table is this pipeline's, in the database where this process first saw it",
        shared.take_claim,
        "`leasehold_table`",
        refuses="`AlreadyInUse`, `SinkError`",
    ),
    DoorStep(
        (_E, _A),
        "Make the table, add columns, or compare it with the columns of the batch",
        shared.fit,
        "the table's definition",
        refuses="`SchemaMismatch`",
    ),
    DoorStep(
        (_M,),
        "Compare the table with the columns of a state",
        messages.fit,
        "the table's definition",
        refuses="`SchemaMismatch`",
    ),
    DoorStep(
        (_E,),
        "Lock the watermarks of the batch's partitions, and read them",
        events.lock,
        "`leasehold_watermark`",
        "these watermarks, also missing ones",
        "`AlreadyInUse`; outdated, where one has changed since the batch's states were read",
    ),
    DoorStep(
        (_A,),
        "Lock the watermarks of the events' partitions, and read them",
        again.lock,
        "`leasehold_watermark`",
        "these watermarks",
    ),
    DoorStep(
        (_E,),
        "Judge each range by its watermark and owner level, and raise the levels",
        events.judge_ranges,
        "`leasehold_watermark`",
        refuses="`EventsMissing`, `OwnerLevelWentBack`; of a former owner, the range",
    ),
    DoorStep(
        (_A,),
        "Read the rejected rows of the events, and choose those that the watermark has passed",
        again.choose,
        "`<table>_rejected`",
        "these rejected rows",
        "events that are gone or not yet read",
    ),
    DoorStep(
        (_E,),
        "See that the parked events that were tried are parked still",
        events.check_parked,
        "`leasehold_parked`",
        refuses="outdated",
    ),
    DoorStep(
        (_E,),
        "Of a spread table: lock the versions of its entities, and compute those again that have moved",
        events.lock_entities,
        "`leasehold_entity`",
        "these versions",
        "outdated, where that has to be computed outside",
    ),
    DoorStep(
        (_E,),
        "Leave out what was applied before, and events that a person has had skipped",
        events.leave_out,
        "`leasehold_skip`",
    ),
    DoorStep(
        (_E,),
        "Leave out events that a producer has sent before, and remember the others",
        events.leave_out_duplicates,
        "`leasehold_identity_<table>`",
        "what is remembered of these events",
    ),
    DoorStep(
        (_A,),
        "Leave out events that a producer has sent before, and remember the others",
        again.leave_out_duplicates,
        "`leasehold_identity_<table>`",
        "what is remembered of these events",
    ),
    DoorStep(
        (_E,),
        "Write rows of related tables, event by event, each with the state that it belongs to",
        events.relate,
        "the table, related tables",
        refuses="events whose rows the database refuses",
    ),
    DoorStep(
        (_E, _A),
        "Read what orders the table's rows",
        shared.take_order,
        "`leasehold_table`",
        refuses="`ConfigError` for another `sequence_by`",
    ),
    DoorStep(
        (_E, _A),
        "With `unavailable_value`: fill in what events leave as it is, or set aside those of which that is not known",
        shared.fill_in,
        "the table, `leasehold_key_<table>`, `<table>_rejected`",
    ),
    DoorStep(
        (_E, _A),
        "Write the last row of each key, and what is known of the keys",
        shared.write,
        "the table, `leasehold_key_<table>`",
        "what is known of these keys",
        "`KeyFromTwoPartitions`",
    ),
    DoorStep(
        (_E,), "See that the database has taken each state of a handler", events.check_states, refuses="those events"
    ),
    DoorStep(
        (_E,),
        "Set rejected and skipped events aside, in the place of what an earlier reading has set aside",
        events.set_aside,
        "`<table>_rejected`, `leasehold_skip`",
    ),
    DoorStep((_E,), "Park events, and remove those that are done", events.park, "`leasehold_parked`"),
    DoorStep((_E,), "Put events that handlers have emitted into the outbox", events.emit, "`leasehold_outbox`"),
    DoorStep((_E,), "Write the watermarks of what was read", events.set_watermarks, "`leasehold_watermark`"),
    DoorStep(
        (_A,),
        "Count the change, so that what handlers have computed of these partitions is computed again",
        again.count_change,
        "`leasehold_watermark`",
    ),
    DoorStep(
        (_A,),
        "Remove the rejected rows, and set aside what has failed again",
        again.replace_rejected,
        "`<table>_rejected`",
    ),
    DoorStep(
        (_M,),
        "Lock the entity; for each message that is not done, and that finds the version which was read: note that it "
        "is done, raise the version, and write the last state",
        messages.apply,
        "the table, `leasehold_message`, `leasehold_message_sent`, `leasehold_message_entity`, "
        "`leasehold_message_parked`",
        "the entity's version",
        "overtaken; done before",
    ),
)
"""All steps, in their order."""


@cache
def steps_of(kind: BatchKind) -> tuple[DoorStep, ...]:
    """The steps that batches of this kind take."""
    return tuple(step for step in STEPS if kind in step.kinds)


def run(open_: OpenBatch) -> BatchResult:
    """Take the steps of a batch, up to the first that has a result. Raises what they refuse."""
    for step in steps_of(BatchKind.of(open_.batch)):
        if (result := step.act(open_)) is not None:
            return result
    raise AssertionError("the last step of each kind has a result")


def table() -> str:
    """The steps as a table in Markdown, for the docs."""
    lines = ["| | batch of | step | reads or writes | locks | may refuse |", "|---|---|---|---|---|---|"]
    for number, step in enumerate(STEPS, 1):
        kinds = ", ".join(step.kinds)
        lines.append(f"| {number} | {kinds} | {step.does} | {step.reads} | {step.locks} | {step.refuses} |")
    return "\n".join(lines)
