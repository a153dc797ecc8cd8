"""Ages of records in a store without a clock: from what changes and what does not, on my own clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leasehold.balancing.sightings import Sightings
from leasehold.model import ConsumerGroup, Ownership, OwnershipListing, Presence

GROUP = ConsumerGroup("n", "h")


def listing(*etags: str | None, presences: str = "") -> OwnershipListing:
    """Partitions 0, 1 … with these ETags, and presences of one letter with an ETag each, as in `a1 b1`."""
    return OwnershipListing(
        tuple(Ownership(GROUP, str(p), "o/1", 1, etag) for p, etag in enumerate(etags) if etag),
        0.0,
        tuple(Presence(GROUP, one[0], etag=one[1:]) for one in presences.split()),
    )


def ages(dated: OwnershipListing) -> dict[str, float]:
    return {record.partition: dated.as_of - record.last_modified for record in dated.records} | {
        presence.owner_id: dated.as_of - presence.last_modified for presence in dated.presences
    }


def test_who_starts_sees_everybody_as_fresh() -> None:
    assert ages(Sightings().dated(listing("x", "y", presences="a1"), 100.0, 101.0)) == {"0": 0, "1": 0, "a": 0}


def test_an_age_counts_from_the_reply_that_showed_it_first_to_the_request_that_shows_it_again() -> None:
    seen = Sightings()
    seen.dated(listing("x", presences="a1"), 100.0, 102.0)
    assert ages(seen.dated(listing("x", presences="a1"), 110.0, 115.0)) == {"0": 8, "a": 8}
    assert ages(seen.dated(listing("x", presences="a1"), 130.0, 130.5)) == {"0": 28, "a": 28}


def test_what_changes_is_fresh_again() -> None:
    seen = Sightings()
    seen.dated(listing("x", "y", presences="a1 b1"), 100.0, 100.0)
    dated = seen.dated(listing("x", "z", presences="a1 b2"), 130.0, 131.0)
    assert ages(dated) == {"0": 30, "1": 0, "a": 30, "b": 0}
    assert ages(seen.dated(listing("x", "z", presences="a1 b2"), 140.0, 140.0)) == {"0": 40, "1": 9, "a": 40, "b": 9}


def test_what_goes_and_comes_back_is_fresh_again() -> None:
    seen = Sightings()
    seen.dated(listing("x"), 100.0, 100.0)
    seen.dated(listing(None), 110.0, 110.0)
    assert ages(seen.dated(listing("x"), 120.0, 120.0)) == {"0": 0}


def test_an_instance_that_is_named_like_a_partition_is_another_record() -> None:
    seen = Sightings()
    seen.dated(listing("x", presences="0y"), 100.0, 100.0)
    dated = seen.dated(listing("x", presences="0z"), 110.0, 110.0)
    assert dated.as_of - dated.records[0].last_modified == 10
    assert dated.as_of - dated.presences[0].last_modified == 0


def appeared(dated: OwnershipListing) -> dict[str, float]:
    return {presence.owner_id: presence.created for presence in dated.presences}


def test_who_was_there_first_is_who_was_seen_first() -> None:
    seen = Sightings()
    assert appeared(seen.dated(listing(presences="a1 b1"), 100.0, 101.0)) == {"a": 100, "b": 100}
    assert appeared(seen.dated(listing(presences="a2 b1 c1"), 110.0, 111.0)) == {"a": 101, "b": 101, "c": 110}
    assert appeared(seen.dated(listing(presences="a3 c2"), 120.0, 121.0)) == {"a": 101, "c": 111}
    assert appeared(seen.dated(listing(presences="b1"), 130.0, 131.0)) == {"b": 130}, "it had gone"


def test_nobody_is_last_heard_of_before_it_appeared() -> None:
    """Else two of one name that are found together would look like one and its successor."""
    seen = Sightings()
    for asked in (100.0, 110.0, 120.0):
        dated = seen.dated(listing(presences="a1 b1"), asked, asked + 3)
        assert {one.created <= one.last_modified for one in dated.presences} == {True}
        assert len({one.created for one in dated.presences} | {one.last_modified for one in dated.presences}) == 1


def test_all_else_stays_as_it_was_listed() -> None:
    asked = listing("x", presences="a1")
    dated = Sightings().dated(asked, 100.0, 100.0)
    assert [(r.partition, r.owner_id, r.etag) for r in dated.records] == [("0", "o/1", "x")]
    assert [(p.owner_id, p.etag) for p in dated.presences] == [("a", "1")]
    assert dated.asks == asked.asks


@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0, 5), st.floats(0, 5), st.booleans()), min_size=1, max_size=20))
def test_no_record_is_older_than_it_seems(story: list[tuple[float, float, float, bool]]) -> None:
    """Whenever within a listing's call the store was read, and whenever before that the record was written."""
    seen, now, written, etag = Sightings(), 0.0, 0.0, 0
    for pause, before, after, write in story:
        now += pause
        if write:
            written, etag = now, etag + 1
        asked, read, answered = now, now + before, now + before + after
        age = ages(seen.dated(listing(str(etag)), asked, answered))["0"]
        assert 0 <= age <= max(0.0, read - written)
        now = answered
