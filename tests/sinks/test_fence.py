"""The watermark rules, without a database."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.errors import OwnerLevelWentBack
from leasehold.model import BEFORE_FIRST
from leasehold.sinks.fence import Admission, Range, Refusal, Watermark, judge, plan

LANE = ("h", "0")


def test_the_first_range_of_a_partition_is_new() -> None:
    it = Range("h", "0", 1, 0, 9)
    made = plan({}, [it])
    assert made.admitted == (Admission(it, BEFORE_FIRST),)
    assert made.watermarks == {LANE: Watermark(9, 1)}


def test_what_is_at_or_below_the_watermark_was_applied_before() -> None:
    made = plan({LANE: Watermark(5, 1)}, [Range("h", "0", 1, 0, 9)])
    assert made.admitted[0].after == 5
    assert made.watermarks == {LANE: Watermark(9, 1)}


def test_a_full_replay_by_a_later_owner_raises_the_level_and_not_the_number() -> None:
    made = plan({LANE: Watermark(9, 1)}, [Range("h", "0", 2, 0, 9)])
    assert made.admitted[0].after == 9
    assert made.watermarks == {LANE: Watermark(9, 2)}


def test_a_lower_level_is_refused_and_changes_nothing() -> None:
    it = Range("h", "0", 2, 10, 19)
    made = plan({LANE: Watermark(5, 3)}, [it])
    assert (made.admitted, made.refused, made.watermarks) == ((), (Refusal(it, 3),), {})


def test_levels_of_one_batch_are_taken_in_their_order() -> None:
    late, early = Range("h", "0", 5, 15, 25), Range("h", "0", 3, 10, 20)
    made = plan({LANE: Watermark(9, 3)}, [late, early])
    assert made.admitted == (Admission(early, 9), Admission(late, 20))
    assert made.watermarks == {LANE: Watermark(25, 5)}
    again = plan(made.watermarks, [late, early])
    assert again.refused == (Refusal(early, 5),)
    assert again.admitted == (Admission(late, 25),)


def test_partitions_and_hubs_do_not_know_of_each_other() -> None:
    stored = {LANE: Watermark(5, 7)}
    made = plan(stored, [Range("h", "1", 1, 0, 3), Range("g", "0", 1, 0, 3)])
    assert not made.refused
    assert {each.after for each in made.admitted} == {BEFORE_FIRST}


@given(
    st.dictionaries(st.sampled_from(["0", "1"]), st.builds(Watermark, st.integers(-1, 9), st.integers(0, 4))),
    st.lists(
        st.tuples(st.sampled_from(["0", "1"]), st.integers(0, 4), st.integers(0, 9), st.integers(0, 5)), max_size=6
    ),
)
def test_watermarks_never_go_back_and_a_replay_admits_nothing(
    marks: dict[str, Watermark], drawn: list[tuple[str, int, int, int]]
) -> None:
    stored = {("h", partition): mark for partition, mark in marks.items()}
    ranges = [Range("h", p, level, first, first + more) for p, level, first, more in drawn]
    made = plan(stored, ranges)
    for lane, mark in made.watermarks.items():
        before = stored.get(lane, Watermark())
        assert mark.sequence_number >= before.sequence_number
        assert mark.owner_level >= before.owner_level
    assert len(made.admitted) + len(made.refused) == len(ranges)
    again = plan({**stored, **made.watermarks}, ranges)
    assert all(each.after >= each.range.last for each in again.admitted)


def test_a_refused_range_is_a_zombies_if_the_record_has_a_higher_level() -> None:
    judge(Refusal(Range("h", "0", 2, 0, 9), 3), 3)


@pytest.mark.parametrize(("record", "words"), [(None, "no record"), (2, "level 2"), (1, "level 1")])
def test_a_refused_range_of_the_current_owner_means_that_levels_went_back(record: int | None, words: str) -> None:
    with pytest.raises(OwnerLevelWentBack, match=r"partition 0.*level 2.*level 3") as error:
        judge(Refusal(Range("h", "0", 2, 0, 9), 3), record)
    assert words in str(error.value)
    assert "leasehold reset PIPELINE.toml --to sink" in str(error.value)
