"""A process that applies a batch of each kind, and ends before one of the steps of the door."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from leasehold.sinks import open_sink
from leasehold.sinks.base import Sink
from leasehold.sinks.beside.messages.contract import MessageOutcome, MessageStep
from leasehold.sinks.door import steps
from leasehold.sinks.door.open_batch import BatchKind, OpenBatch
from leasehold.sinks.features import BOOKKEEPING, STATES, require
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.emitted import EmittedEvent
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.parking import Parking
from leasehold.sinks.rules.table_spec import BatchResult
from leasehold.sinks.set_aside import RetryResult
from leasehold_testkit.contracts.sinks.duplicates import Sent, known_by
from leasehold_testkit.contracts.sinks.fixtures import HUB, UPSERT, Row, batch, read
from leasehold_testkit.contracts.sinks.messages import change
from leasehold_testkit.contracts.sinks.parking import waiting
from leasehold_testkit.contracts.sinks.rejected import event
from leasehold_testkit.contracts.sinks.skipping import note
from tests.sinks.processes import die

STATE = pa.schema({"entity": pa.string(), "value": pa.int64()})


@dataclass(frozen=True)
class Case:
    """A batch, what is there before it, what becomes of it, and what the table holds then."""

    kind: BatchKind
    before: Callable[[Sink], object]
    batch: Batch
    result: BatchResult
    rows: list[tuple[str, int]]


def _noted(sink: Sink) -> None:
    sink.apply(batch(Row("a", 1, 0), ranges=[read(0, 1)]))
    require(sink, BOOKKEEPING, "a test").note_skip(note(3))


def _parked(sink: Sink) -> None:
    sink.apply(batch(Row("a", 1, 0), ranges=[read(0, 1)]))
    require(sink, STATES, "a test").check_parked()
    require(sink, STATES, "a test").outbox.check()


def _rejected(sink: Sink) -> None:
    sink.apply(batch(Row("a", 1, 0), ranges=[read(0, 3)], rejected=[Row("?", 0, 1), Row("?", 0, 2)]))


def _checked(sink: Sink) -> None:
    require(sink, STATES, "a test").check_messages(STATE)


CASES = {
    "events": Case(
        BatchKind.EVENTS,
        _noted,
        known_by(
            batch(Row("a", 2, 1), Row("b", 3, 2), Row("c", 4, 3), ranges=[read(0, 5)], rejected=[Row("?", 0, 4)]),
            *(Sent("x", 1), Sent("x", 2), Sent("z", 3)),
        ),
        BatchResult(applied=1, rejected=1, used=2, filtered=1, duplicates=1, skipped=1, skipped_events=(note(3).said,)),
        [("a", 2)],
    ),
    "handled": Case(
        BatchKind.EVENTS,
        _parked,
        replace(
            batch(Row("b", 3, 1), ranges=[read(1, 3)]),
            read_under={(HUB, "0"): Watermark(0, 1, whole=True)},
            parking=Parking(HUB, "0", [waiting(2, "c")], ()),
            outbox=[EmittedEvent(HUB, "0", 1, 0, ("b",), b"{}")],
        ),
        BatchResult(applied=1, used=1, parked=1),
        [("a", 1), ("b", 3)],
    ),
    "again": Case(
        BatchKind.AGAIN,
        _rejected,
        replace(batch(Row("a", 5, 1), Row("b", 6, 2)), again=[event(1), event(2)]),
        BatchResult(again=RetryResult(applied=2)),
        [("a", 5), ("b", 6)],
    ),
    "messages": Case(
        BatchKind.MESSAGES,
        _checked,
        Batch.of_messages(MessageStep(STATE, [change(1, "a", 0, 1), change(2, "a", 1, 2)], 1e9)),
        BatchResult(messages=(MessageOutcome.APPLIED, MessageOutcome.APPLIED)),
        [("a", 2)],
    ),
}


def apply_and_die(url: str, base: Path, case: str, number: int) -> None:
    """End at once before the step of this number."""
    all_steps = steps.steps_of(CASES[case].kind)

    def last(open_: OpenBatch) -> None:
        die()

    mortal = tuple(replace(step, act=last) if at == number else step for at, step in enumerate(all_steps))
    steps.steps_of = lambda kind: mortal  # type: ignore[assignment]
    open_sink(url, UPSERT, base=base).apply(CASES[case].batch)
