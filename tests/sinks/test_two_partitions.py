"""An event whose key was last written from another partition, in a table that is asked to reject it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from leasehold.errors import ConfigError, KeyFromTwoPartitions
from leasehold.sinks import Sink, TableSpec
from leasehold.sinks.set_aside import EventId, RetryResult, Selection
from leasehold_testkit.contracts.sinks.fixtures import HUB, UPSERT, Row, batch, one_row_each, read, retried
from tests.sinks.databases import OnPostgres, OnSqlite

REJECTING = replace(UPSERT, on_two_partitions="reject")
Open = Callable[[TableSpec], Sink]
Contents = Callable[[], list[tuple[str, int]]]


class RejectsStrangers:
    """What every database does in a table with the policy `reject`."""

    def test_it_is_set_aside_alone_and_the_watermark_moves(
        self, open_table: Open, contents: Contents, set_aside: Contents
    ) -> None:
        sink = open_table(REJECTING)
        sink.apply(batch(Row("a", 1, 0), ranges=[read(0, 1)]))
        rows = [Row("b", 2, 0, "1"), Row("a", 3, 1, "1"), Row("c", 4, 2, "1"), Row("a", 5, 3, "1")]
        result = sink.apply(batch(*rows, ranges=[read(0, 4, partition="1")]))
        assert result == one_row_each(applied=2, rejected=2)
        assert contents() == [("a", 1), ("b", 2), ("c", 4)]
        assert set_aside() == [("1", 1), ("1", 3)]
        assert sink.watermarks(HUB)["1"].sequence_number == 3
        row, _ = sink.rejected_rows.rows(Selection(), 10)
        assert row.reason.startswith("the entity was last written from partition 0, whose sequence numbers")
        assert sink.apply(batch(Row("a", 6, 1))).applied == 1, "its own partition goes on"

    def test_of_two_partitions_in_one_batch_the_first_to_be_applied_counts(
        self, open_table: Open, contents: Contents, set_aside: Contents
    ) -> None:
        sink = open_table(REJECTING)
        sink.apply(batch(Row("a", 2, 0, "1"), Row("a", 1, 0), Row("b", 3, 1, "1"), Row("a", 4, 1)))
        assert contents() == [("a", 4), ("b", 3)]
        assert set_aside() == [("1", 0)]

    def test_a_delete_is_rejected_as_well_and_what_was_deleted_is_remembered(
        self, open_table: Open, contents: Contents, set_aside: Contents
    ) -> None:
        sink = open_table(REJECTING)
        sink.apply(batch(Row("a", 1, 0), Row("b", 2, 1), deletes=True))
        sink.apply(batch(Row("a", 0, 0, "1", gone=True), Row("c", 3, 1, "1"), deletes=True))
        assert contents() == [("a", 1), ("b", 2), ("c", 3)]
        sink.apply(batch(Row("a", 0, 2, gone=True), deletes=True))
        sink.apply(batch(Row("a", 4, 2, "1"), deletes=True))
        assert contents() == [("b", 2), ("c", 3)]
        assert set_aside() == [("1", 0), ("1", 2)]

    def test_one_that_is_tried_again_stays_rejected(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(REJECTING)
        sink.apply(batch(Row("a", 1, 0)))
        sink.apply(batch(Row("a", 2, 0, "1")))
        assert retried(sink, batch(Row("a", 2, 0, "1")), [EventId(HUB, "1", 0)]) == RetryResult(rejected=1)
        assert contents() == [("a", 1)]

    def test_the_policy_may_change_at_any_start(self, open_table: Open, contents: Contents) -> None:
        open_table(UPSERT).apply(batch(Row("a", 1, 0)))
        stranger = batch(Row("a", 2, 0, "1"))
        with pytest.raises(KeyFromTwoPartitions, match=r'on_two_partitions="reject".*leasehold skip .* --event 1:0 '):
            open_table(UPSERT).apply(stranger)
        assert open_table(REJECTING).apply(stranger).rejected == 1
        assert contents() == [("a", 1)]


class TestOnSqlite(OnSqlite, RejectsStrangers):
    pass


class TestOnPostgres(OnPostgres, RejectsStrangers):
    pass


@pytest.mark.parametrize(
    "given",
    [
        {"on_two_partitions": "drop"},
        {"on_two_partitions": "reject", "sequence_by": "version"},
        {"on_two_partitions": "reject", "mode": "append", "keys": ()},
    ],
)
def test_a_policy_that_says_nothing_is_refused(given: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigError, match="on_two_partitions"):
        replace(UPSERT, **given)
