"""Which event of a key counts, without a database."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from leasehold.sinks.rules.ordering import UNKNOWN, KeyOrder, beside

A, B = ("a",), ("b",)


def by_lane(keys: Sequence[Any], claims: Sequence[Any], known: dict[Any, Any] | None = None) -> KeyOrder:
    return KeyOrder(keys, claims, known or {}, by_value=False)


def by_value(keys: Sequence[Any], claims: Sequence[Any], known: dict[Any, Any] | None = None) -> KeyOrder:
    return KeyOrder(keys, claims, known or {}, by_value=True)


def test_events_of_one_partition_all_count_and_the_last_one_stays() -> None:
    order = by_lane([A, B, A], [("h", "0")] * 3)
    step = order.judge(0, 3)
    assert (list(step.winners), step.stop) == ([0, 1, 2], 3)
    order.accept(step)
    assert order.written() == {A: 2, B: 1}


def test_judging_changes_nothing_until_it_is_accepted() -> None:
    order = by_lane([A, A], [("h", "0"), ("h", "1")])
    assert order.judge(0, 2).stop == 1
    assert order.judge(1, 2).stop == 2  # event 0 was not written after all


def test_a_key_from_another_partition_stops_the_judgement_there() -> None:
    order = by_lane([A, B, A], [("h", "0"), ("h", "1"), ("h", "1")])
    step = order.judge(0, 3)
    assert step.stop == 2
    order.accept(step)
    assert order.judge(2, 3).stop == 2
    assert order.known_claim(2) == ("h", "0")


def test_a_key_that_an_earlier_batch_wrote_from_another_hub_is_a_conflict() -> None:
    order = by_lane([A], [("g", "0")], {A: ("h", "0")})
    assert order.judge(0, 1).stop == 0
    assert order.known_claim(0) == ("h", "0")


def test_the_higher_value_wins_then_the_partition_then_the_sequence_number() -> None:
    claims = [(5, "0", "h", 1), (4, "9", "h", 9), (5, "1", "h", 0), (5, "0", "h", 7), (5, "1", "h", 0)]
    order = by_value([A] * 5, claims)
    step = order.judge(0, 5)
    assert list(step.winners) == [0, 2, 4]  # the last two rows of event 0 of partition 1 are equal
    assert step.superseded == 2


def test_an_older_event_does_not_win_against_what_is_remembered() -> None:
    order = by_value([A, B], [(3, "0", "h", 9), (3, "0", "h", 9)], {A: (4, "0", "h", 1), B: UNKNOWN})
    assert list(order.judge(0, 2).winners) == [1]


claims = st.tuples(st.integers(0, 3), st.sampled_from("01"), st.just("h"), st.integers(0, 9))


@given(st.lists(st.tuples(st.sampled_from([A, B]), claims), unique=True, max_size=12), st.randoms(), st.data())
def test_the_last_word_does_not_depend_on_arrival_or_on_chunks(
    events: list[tuple[Any, Any]], random: Any, data: st.DataObject
) -> None:
    expected = {key: max(claim for k, claim in events if k == key) for key in {key for key, _ in events}}
    random.shuffle(events)
    order = by_value([key for key, _ in events], [claim for _, claim in events])
    cuts = sorted({0, len(events), *data.draw(st.lists(st.integers(0, len(events))))})
    for start, end in pairwise(cuts):
        order.accept(order.judge(start, end))
    assert {key: events[index][1] for key, index in order.written().items()} == expected


@given(
    events=st.lists(st.tuples(st.sampled_from("abc"), st.tuples(st.integers(0, 5))), max_size=20),
    known=st.dictionaries(st.sampled_from("abcd"), st.one_of(st.tuples(st.integers(0, 5)), st.just(UNKNOWN))),
)
def test_what_is_known_can_be_brought_in_after_the_judgement(events: list[Any], known: dict[Any, Any]) -> None:
    keys, claims = [key for key, _ in events], [claim for _, claim in events]
    alone = by_value(keys, claims).judge(0, len(events))
    assert beside(alone, keys, claims, known) == by_value(keys, claims, known).judge(0, len(events))
