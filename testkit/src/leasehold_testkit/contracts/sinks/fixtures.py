"""What the contract of sinks is made of: the fixtures that a subclass gives, and events as batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, TypeVar

import pyarrow as pa
import pytest

from leasehold.model import EventRange
from leasehold.sinks.base import Compared, Sink, SinkFeature
from leasehold.sinks.features import offered
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.table_spec import BatchResult, RefusedRange, TableSpec
from leasehold.sinks.set_aside import EventId, RetryResult

P = TypeVar("P")

HUB = "contract-hub"
UPSERT = TableSpec(name="entities", pipeline="contract", keys=("entity",))
APPEND = TableSpec(name="entities", pipeline="contract", mode="append")
ORDERED = TableSpec(name="entities", pipeline="contract", keys=("entity",), sequence_by="version")


class Row(NamedTuple):
    """A row of one event. `version` is its value of `sequence_by`, and `gone` deletes the entity, where asked for."""

    entity: str
    value: int
    number: int
    partition: str = "0"
    level: int = 1
    version: int = 0
    gone: bool = False


def table_of(rows: Sequence[Row], **other_columns: pa.Array) -> pa.Table:
    """The rows as the transform would give them, and columns of the fence."""
    return pa.table(
        {
            "entity": pa.array([row.entity for row in rows], pa.string()),
            "value": pa.array([row.value for row in rows], pa.int64()),
            "hub": pa.array([HUB] * len(rows), pa.string()),
            "partition": pa.array([row.partition for row in rows], pa.string()),
            "sequenceNumber": pa.array([row.number for row in rows], pa.int64()),
            "ownerLevel": pa.array([row.level for row in rows], pa.int64()),
            **other_columns,
        }
    )


def one_row_each(
    applied: int = 0,
    replayed: int = 0,
    refused_ranges: tuple[RefusedRange, ...] = (),
    superseded: int = 0,
    rejected: int = 0,
    **more: Any,
) -> BatchResult:
    """The result of a batch of whose events each has one row, or none (`filtered`)."""
    return BatchResult(
        applied=applied,
        superseded=superseded,
        rejected=rejected,
        used=applied + superseded + rejected,
        refused=sum(one.rows for one in refused_ranges),
        replayed=replayed,
        refused_ranges=refused_ranges,
        **more,
    )


def batch(
    *rows: Row,
    ranges: Sequence[EventRange] | None = None,
    rejected: Sequence[Row] = (),
    by_version: bool = False,
    deletes: bool = False,
) -> Batch:
    """The rows as a batch; `rejected` are events whose body could not be read."""
    aside = None
    if rejected:
        bodies = pa.array([b"?"] * len(rejected), pa.binary())
        reasons = pa.array(["not JSON"] * len(rejected), pa.string())
        aside = table_of(rejected, body=bodies, reason=reasons).drop_columns(["entity", "value"])
    versions = pa.array([row.version for row in rows], pa.int64())
    gone = pa.array([row.gone for row in rows], pa.bool_())
    return Batch(
        table_of(rows),
        aside,
        pa.chunked_array([versions]) if by_version else None,
        pa.chunked_array([gone]) if deletes else None,
        ranges,
    )


def read(begin: int, end: int, *, level: int = 1, partition: str = "0") -> EventRange:
    """The events `[begin, end)`, read whole."""
    return EventRange(HUB, partition, level, begin, end)


def retried(sink: Sink, batch: Batch, events: Collection[EventId]) -> RetryResult:
    """What became of these rejected events, which the batch tries again."""
    result = sink.apply(replace(batch, again=events)).again
    assert result is not None
    return result


def asked(sink: Sink, feature: SinkFeature[P]) -> P:
    """The sink, as what has this feature; where it does not say so, the test is skipped."""
    if (found := offered(sink, feature)) is None:
        pytest.skip(f"{type(sink).__name__} does not have the feature {feature}")
    return found


def compared(sink: Sink, schema: pa.Schema | None) -> Compared:
    """What `compare` has found; where the sink leaves it at its default, the test is skipped."""
    if (found := sink.compare(schema)) is None:
        pytest.skip(f"{type(sink).__name__} leaves compare at its default")
    return found


class SinkFixtures:
    """See `leasehold_testkit.contracts.sinks.contracts` for what a subclass gives.

    `of` are the features that a suite is about: it is skipped for a sink that does not say all of them.
    """

    of: ClassVar[tuple[SinkFeature[Any], ...]] = ()

    @pytest.fixture(autouse=True)
    def features_of_the_suite(self, open_table: Callable[[TableSpec], Sink]) -> None:
        """Skips the test where the sink does not say what the suite is about."""
        for feature in self.of:
            asked(open_table(UPSERT), feature)

    @pytest.fixture
    def open_table(self) -> Callable[[TableSpec], Sink]:
        """Opens a table of the test's own, empty database: the same database at each call, as another process would."""
        raise NotImplementedError("give a fixture open_table")

    @pytest.fixture
    def contents(self) -> Callable[[], list[tuple[str, int]]]:
        """Reads what the table `entities` of that database has: its columns `entity` and `value`, sorted by both."""
        raise NotImplementedError("give a fixture contents")

    @pytest.fixture
    def set_aside(self) -> Callable[[], list[tuple[str, int]]]:
        """Reads the partitions and sequence numbers of the rejected events of that table, sorted."""
        raise NotImplementedError("give a fixture set_aside")
