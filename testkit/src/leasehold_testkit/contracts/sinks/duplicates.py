"""The contract of a sink that remembers what events are known by, as tests: at least one for each rule of
`sinks.rules.duplicates`.

Subclass it as `SinkContract`, with the fixtures `open_table`, `contents` and `set_aside`, for a sink with the feature
BOOKKEEPING.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pytest

from leasehold.errors import KeyFromTwoPartitions
from leasehold.model import BEFORE_FIRST
from leasehold.sinks.base import Sink
from leasehold.sinks.features import BOOKKEEPING
from leasehold.sinks.rules.batch import Batch, Identities
from leasehold.sinks.rules.duplicates import FEWEST_FORGOTTEN
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.set_aside import RetryResult, Selection
from leasehold_testkit.contracts.sinks.fixtures import (
    APPEND,
    HUB,
    UPSERT,
    Row,
    SinkFixtures,
    batch,
    one_row_each,
    read,
    retried,
)
from leasehold_testkit.contracts.sinks.rejected import event

Open = Callable[[TableSpec], Sink]
Contents = Callable[[], list[tuple[str, int]]]
WINDOW = 60.0
FAR_AHEAD = 4_102_444_800
"""The year 2100."""


class Sent(NamedTuple):
    """An event of the contract's hub, what a producer calls it, and the second in which it was enqueued."""

    identity: str | None
    number: int
    second: int | None = 0
    partition: str = "0"


def known_by(batch: Batch, *sent: Sent, expression: str = "id") -> Batch:
    """The batch with the identities of these events."""
    rows = pa.table(
        {
            "hub": pa.array([HUB] * len(sent), pa.string()),
            "partition": pa.array([one.partition for one in sent], pa.string()),
            "sequenceNumber": pa.array([one.number for one in sent], pa.int64()),
            "identity": pa.array([one.identity for one in sent], pa.string()),
            "enqueuedTime": pa.array(
                [None if one.second is None else one.second * 1_000_000 for one in sent], pa.timestamp("us", "UTC")
            ),
        }
    )
    return replace(batch, identities=Identities(rows, expression, WINDOW))


class DuplicatesContract(SinkFixtures):
    """What every sink must do that has the feature BOOKKEEPING."""

    of = (BOOKKEEPING,)

    def test_the_second_is_dropped_with_its_rows_and_counted(
        self, open_table: Open, contents: Contents, set_aside: Contents
    ) -> None:
        sink = open_table(APPEND)
        rows = (Row("a", 1, 0), Row("b", 2, 1), Row("b", 3, 1), Row("c", 4, 2))
        some = known_by(batch(*rows, rejected=[Row("?", 0, 3)], ranges=[read(0, 5)]),
                        Sent("x", 0), Sent("x", 1), Sent("y", 2), Sent("y", 3))  # fmt: skip
        assert sink.apply(some) == one_row_each(applied=2, duplicates=2, filtered=1)
        assert (contents(), set_aside()) == ([("a", 1), ("c", 4)], [])
        assert sink.watermarks(HUB) == {"0": Watermark(4, 1, whole=True)}

    def test_it_is_remembered_for_later_batches_of_any_partition(self, open_table: Open, contents: Contents) -> None:
        open_table(APPEND).apply(known_by(batch(Row("a", 1, 0)), Sent("x", 0)))
        later = known_by(batch(Row("a", 2, 0, "1"), Row("a", 3, 1, "1")), Sent("x", 0, 5, "1"), Sent("z", 1, 5, "1"))
        assert open_table(APPEND).apply(later) == one_row_each(applied=1, duplicates=1)
        assert contents() == [("a", 1), ("a", 3)]

    def test_each_of_several_ranges_of_a_partition_is_judged(self, open_table: Open, contents: Contents) -> None:
        """The partition changed hands within the batch."""
        sink = open_table(APPEND)
        rows = (Row("a", 1, 0), Row("a", 2, 1), Row("b", 3, 2), Row("c", 4, 3, level=2), Row("b", 5, 4, level=2))
        ranges = [read(0, 3), read(3, 5, level=2)]
        sent = Sent("x", 0), Sent("x", 1), Sent("y", 2), Sent("z", 3), Sent("y", 4)
        assert sink.apply(known_by(batch(*rows, ranges=ranges), *sent)) == one_row_each(applied=3, duplicates=2)
        assert contents() == [("a", 1), ("b", 3), ("c", 4)]
        later = known_by(batch(Row("a", 9, 5, level=2), ranges=[read(5, 6, level=2)]), Sent("x", 5))
        assert sink.apply(later) == one_row_each(duplicates=1)

    def test_an_event_without_identity_is_never_one(self, open_table: Open, contents: Contents) -> None:
        some = known_by(batch(Row("a", 1, 0), Row("a", 2, 1), Row("a", 3, 2)), Sent(None, 0), Sent(None, 1))
        assert open_table(APPEND).apply(some) == one_row_each(applied=3)

    def test_outside_of_the_window_it_is_none_and_counts_as_the_first_from_then_on(self, open_table: Open) -> None:
        sink = open_table(APPEND)
        sink.apply(known_by(batch(Row("a", 1, 0)), Sent("x", 0, 100)))
        assert sink.apply(known_by(batch(Row("a", 2, 1)), Sent("x", 1, 161))).duplicates == 0
        assert sink.apply(known_by(batch(Row("a", 3, 2)), Sent("x", 2, 221))).duplicates == 1
        assert sink.apply(known_by(batch(Row("a", 4, 3)), Sent("x", 3, 101))).duplicates == 1  # clocks go back

    def test_another_expression_begins_anew(self, open_table: Open) -> None:
        sink = open_table(APPEND)
        sink.apply(known_by(batch(Row("a", 1, 0)), Sent("x", 0)))
        assert sink.apply(known_by(batch(Row("a", 2, 1)), Sent("x", 1), expression="other")).duplicates == 0

    def test_a_replay_counts_no_duplicates(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(APPEND)
        some = batch(Row("a", 1, 0), Row("b", 2, 1), Row("c", 3, 2))
        sent = Sent("x", 0), Sent("x", 1), Sent("z", 2)
        sink.apply(known_by(some, *sent))
        assert sink.apply(known_by(some, *sent)) == one_row_each(replayed=3)
        longer = batch(Row("c", 3, 2, level=2), Row("d", 4, 3, level=2))
        assert sink.apply(known_by(longer, Sent("z", 2), Sent("d", 3))) == one_row_each(applied=1, replayed=1)
        assert contents() == [("a", 1), ("c", 3), ("d", 4)]

    @pytest.mark.parametrize("anew", [False, True])
    def test_a_reset_finds_the_same_firsts_again(self, open_table: Open, contents: Contents, anew: bool) -> None:
        sink = open_table(UPSERT)
        rows = (Row("a", 1, 0), Row("a", 2, 1), Row("b", 3, 2))
        sink.apply(known_by(batch(*rows), Sent("x", 0), Sent("x", 1), Sent("y", 2)))
        sink.set_watermarks(HUB, {"0": Watermark(BEFORE_FIRST, 2)}, anew=anew)
        second = known_by(batch(*(row._replace(level=2) for row in rows[1:2])), Sent("x", 1))
        # Cut otherwise: the second comes without the first, which is remembered.
        assert sink.apply(second) == one_row_each(duplicates=1)
        sink.set_watermarks(HUB, {"0": Watermark(BEFORE_FIRST, 3)}, anew=anew)
        again = known_by(batch(*(row._replace(level=3) for row in rows)), Sent("x", 0), Sent("x", 1), Sent("y", 2))
        assert sink.apply(again) == one_row_each(applied=2, duplicates=1)
        assert contents() == [("a", 1), ("b", 3)]

    def test_an_event_that_is_tried_again_is_judged_and_remembered(self, open_table: Open, contents: Contents) -> None:
        """The first could not be read, so that the second was applied."""
        sink = open_table(APPEND)
        rejected = [Row("?", 0, number) for number in (0, 2, 3, 4)]
        sink.apply(known_by(batch(Row("a", 1, 1), rejected=rejected), Sent("x", 1), Sent("y", 4)))
        late = batch(*(Row("b", number, number) for number in (0, 2, 3, 4)))
        again = known_by(late, Sent("x", 0), Sent("z", 2), Sent("z", 3), Sent("y", 4))
        result = retried(sink, again, [event(number) for number in (0, 2, 3, 4)])
        assert result == RetryResult(applied=2, duplicates=2)
        assert contents() == [("a", 1), ("b", 2), ("b", 4)]
        assert sink.rejected_rows.rows(Selection(), 9) == []
        assert sink.apply(known_by(batch(Row("c", 5, 5)), Sent("z", 5))) == one_row_each(duplicates=1)

    def test_nothing_is_remembered_of_a_batch_that_fails(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(UPSERT)
        sink.apply(known_by(batch(Row("a", 1, 0)), Sent("w", 0)))
        bad = known_by(batch(Row("b", 1, 0, "1"), Row("a", 2, 1, "1")), Sent("x", 0, 0, "1"), Sent("y", 1, 0, "1"))
        with pytest.raises(KeyFromTwoPartitions):
            sink.apply(bad)
        assert sink.apply(known_by(batch(Row("c", 3, 1)), Sent("x", 1))) == one_row_each(applied=1)
        assert contents() == [("a", 1), ("c", 3)]

    def test_a_former_owners_events_are_not_remembered(self, open_table: Open) -> None:
        sink = open_table(APPEND)
        sink.raise_owner_levels(HUB, {"0": 5})
        assert sink.apply(known_by(batch(Row("z", 9, 0, level=4)), Sent("x", 0))).refused == 1
        assert sink.apply(known_by(batch(Row("a", 1, 7, level=5)), Sent("x", 7))) == one_row_each(applied=1)

    def test_what_nobody_asks_for_is_forgotten_in_small_steps(self, open_table: Open) -> None:
        """A duplicate beyond the window is none anyway: seen by the time that goes back into the window of the old."""
        sink = open_table(APPEND)
        many = 3 * FEWEST_FORGOTTEN
        rows = [Row("a", number, number) for number in range(many)]
        sink.apply(known_by(batch(*rows), *(Sent(f"{number}", number, number % 2) for number in range(many))))

        def remembered(start: int) -> int:
            late = [Sent(f"{number}", start + number, 0, "1") for number in range(many)]
            return sink.apply(known_by(batch(ranges=[read(start, start + many, partition="1")]), *late)).duplicates

        assert remembered(0) == many
        far = 10_000
        for number in range(many, many + 4):
            sink.apply(known_by(batch(Row("b", 0, number)), Sent(f"new {number}", number, far + number)))
        assert remembered(many) == 0

    def test_one_clock_that_is_wrong_does_not_keep_the_rest_from_being_forgotten(self, open_table: Open) -> None:
        sink = open_table(APPEND)
        many, begin, far = 2 * FEWEST_FORGOTTEN, 100_000, 200_000

        def known(start: int) -> int:
            again = [Sent(f"{number}", start + number, begin, "1") for number in range(many)]
            return sink.apply(known_by(batch(ranges=[read(start, start + many, partition="1")]), *again)).duplicates

        sink.apply(known_by(batch(ranges=[read(0, many)]), *(Sent(f"{one}", one, begin) for one in range(many))))
        assert known(0) == many
        at = many
        for turn in range(4):
            others = [Sent(f"new {number}", number, far + turn) for number in range(at, at + 3)]
            wrong = (
                Sent(f"1970 {turn}", at + 3),
                Sent(f"2100 {turn}", at + 4, FAR_AHEAD),
                Sent(f"? {turn}", at + 5, None),
            )
            sink.apply(known_by(batch(ranges=[read(at, at + 6)]), *others, *wrong))
            at += 6
        assert known(many) == 0

    @pytest.mark.parametrize("second", [0, FAR_AHEAD, None])
    def test_a_repeat_is_found_by_when_it_comes_where_its_clock_is_wrong(
        self, open_table: Open, second: int | None
    ) -> None:
        """In the same batch, and in a later one, however much is forgotten between them; for two windows."""
        sink = open_table(APPEND)
        sink.apply(known_by(batch(ranges=[read(0, 1)]), Sent("first", 0, 100_000)))
        two = Sent("x", 1, second), Sent("x", 2, second)
        assert sink.apply(known_by(batch(ranges=[read(1, 3)]), *two)) == one_row_each(
            filtered=1, duplicates=1, untimely=1
        )
        others = [Sent(f"{number}", number, 100_000 + number) for number in range(3, 13)]
        sink.apply(known_by(batch(ranges=[read(3, 13)]), *others))
        assert sink.apply(known_by(batch(ranges=[read(13, 14)]), Sent("x", 13, second))).duplicates == 1
        later = [Sent(f"{number}", number, 101_000) for number in range(14, 17)]
        sink.apply(known_by(batch(ranges=[read(14, 17)]), *later))
        if second is None:  # by a time of their own they would be repeats still
            assert sink.apply(known_by(batch(ranges=[read(17, 18)]), Sent("x", 17, second))).untimely == 1

    def test_a_batch_with_nothing_but_a_clock_in_the_future_makes_nothing_be_forgotten(self, open_table: Open) -> None:
        sink = open_table(APPEND)
        sink.apply(known_by(batch(ranges=[read(0, 2)]), Sent("x", 0, 100_000), Sent("y", 1, 100_000)))
        for number in range(2, 5):
            ahead = known_by(batch(ranges=[read(number, number + 1)]), Sent(f"{number}", number, FAR_AHEAD))
            assert sink.apply(ahead).untimely == 1
        again = Sent("x", 5, 100_030), Sent("y", 6, 100_060)
        assert sink.apply(known_by(batch(ranges=[read(5, 7)]), *again)) == one_row_each(duplicates=2)

    def test_what_the_table_has_reached_does_not_go_back(self, open_table: Open) -> None:
        """A batch of nothing but old events: what others have sent since is remembered, and the old are told apart."""
        open_table(APPEND).apply(known_by(batch(ranges=[read(0, 1)]), Sent("x", 0, 100_000)))
        sink = open_table(APPEND)
        old = known_by(batch(ranges=[read(0, 2, partition="1")]), Sent("a", 0, 5, "1"), Sent("b", 1, 6, "1"))
        assert sink.apply(old) == one_row_each(filtered=2, untimely=2)
        assert sink.apply(known_by(batch(ranges=[read(1, 2)]), Sent("x", 1, 100_060))).duplicates == 1
        again = known_by(batch(ranges=[read(2, 3, partition="1")]), Sent("a", 2, 5, "1"))
        assert sink.apply(again).duplicates == 1

    def test_after_a_reset_old_events_are_timely_again(self, open_table: Open) -> None:
        sink = open_table(UPSERT)
        for number in range(3):
            sink.apply(known_by(batch(ranges=[read(number, number + 1)]), Sent(f"{number}", number, number * 1_000)))
        sink.set_watermarks(HUB, {"0": Watermark(BEFORE_FIRST, 2)}, anew=True)
        again = known_by(batch(ranges=[read(0, 2, level=2)]), Sent("0", 0, 0), Sent("0", 1, 60))
        assert sink.apply(again) == one_row_each(filtered=1, duplicates=1)

    def test_many_apply_events_of_the_same_identities_and_one_of_each_counts(
        self, open_table: Open, contents: Contents
    ) -> None:
        open_table(APPEND).apply(known_by(batch(Row("first", 0, 0)), Sent("first", 0)))

        def apply_all(partition: str) -> int:
            sink = open_table(APPEND)
            applied = 0
            for number in range(1, 21):
                some = batch(Row(f"k{number}", number, number, partition))
                applied += sink.apply(known_by(some, Sent(f"k{number}", number, 0, partition))).applied
            sink.close()
            return applied

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(apply_all, "1234")) == 20
        assert len(contents()) == 21
