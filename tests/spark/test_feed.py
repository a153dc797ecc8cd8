"""What the loop plans next, with a real hub and store: places, hand-over, what is given back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from leasehold.errors import SinkError, StoreError, StoreUnavailable
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Ask, Event, Presence
from leasehold.spark import MicroBatches
from leasehold.spark.loop.feed import Feed
from leasehold.spark.loop.orders import task_order
from leasehold.spark.loop.settings import loop_settings
from leasehold.spark.loop.tasks import ReadSpec, Tally, run_task
from leasehold.spark.plan.share import Share
from leasehold_testkit.clock import ManualClock
from tests.spark.places import QUICK
from tests.waiting import NEVER, until


@pytest.fixture
def hub(tmp_path: Path) -> LogHub:
    return LogHub.create(tmp_path / "hub.db", partitions=1)


@pytest.fixture
def share(hub: LogHub, tmp_path: Path) -> Iterator[Share]:
    settings = loop_settings(
        {
            **QUICK,
            "hub": hub.url,
            "store": f"sqlite:///{tmp_path}/stores.db",
            "hand_over_timeout": NEVER,
            "max_events_per_trigger": 5,
        }
    )
    share = Share(settings.source, owner_name="me", alive=lambda: True)
    share.start()
    until(lambda: share.held(), "the partition to be held")
    yield share
    share.close()


@pytest.fixture
def feed(share: Share) -> Feed:
    return Feed(share, loop_settings({"hub": "log:///x", "store": "sqlite:///x", "max_events_per_trigger": 5}))


def span(feed: Feed) -> list[tuple[int, int]]:
    return [(one.begin, one.end) for one in feed.next()]


def test_places_go_on_and_what_is_given_back_comes_again(hub: LogHub, share: Share, feed: Feed) -> None:
    hub.send([Event(b"x")] * 12, partition="0")
    first = feed.next()
    assert [(one.begin, one.end) for one in first] == [(0, 5)]
    assert span(feed) == [(5, 10)], "one ahead of what is committed"
    feed.committed(first)
    assert [c.next_sequence_number for c in share.checkpoints.list_checkpoints(share.group)] == [5]
    feed.give_back()
    assert span(feed) == [(5, 10)]
    assert feed.narrow(first)
    feed.give_back()
    assert span(feed) == [(5, 7)], "half as many"


def test_events_of_a_running_batch_count_as_lag(hub: LogHub, feed: Feed) -> None:
    hub.send([Event(b"x")] * 12, partition="0")
    first, second = feed.next(), feed.next()
    assert feed.lag() == {"0": 12}
    feed.committed(first)
    assert feed.lag() == {"0": 12 - len(first[0])}
    feed.committed(second)
    assert feed.lag() == {"0": 12 - len(first[0]) - len(second[0])}


def test_one_that_another_asks_for_is_drained_and_goes_on_where_it_was(hub: LogHub, share: Share, feed: Feed) -> None:
    hub.send([Event(b"x")] * 20, partition="0")
    first = feed.next()
    feed.committed(first)
    second = feed.next()
    level = first[0].owner_level
    share.ownership.renew_ownership([], Presence(share.group, "other/1"))
    share.ownership.ask([Ask(share.group, "0", level, "other/1")])
    until(lambda: not share.held(with_asked=False), "the ask to be heard")
    assert feed.next() == (), "nothing new is begun"
    feed.record()
    assert share.held(), "it is not handed over while a batch of it is under way"
    share.ownership.withdraw_asks([Ask(share.group, "0", level, "other/1")])
    until(lambda: share.held(with_asked=False), "the ask to be gone")
    assert span(feed) == [(10, 15)], "not where it was acquired"
    feed.committed(second)
    assert [c.next_sequence_number for c in share.checkpoints.list_checkpoints(share.group)] == [10]


def checkpoints(share: Share) -> list[tuple[int, int]]:
    return [(c.owner_level, c.next_sequence_number) for c in share.checkpoints.list_checkpoints(share.group)]


def held_above(share: Share, level: int) -> None:
    """Wait until the partition is held again, at a higher owner level."""
    until(lambda: (hold := share.held().get("0")) is not None and hold.owner_level > level, "a claim at a higher level")


def test_one_that_is_claimed_again_goes_on_behind_what_is_committed(
    hub: LogHub, share: Share, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although its checkpoint waits for the store meanwhile, which refuses it at the lower level. But not where another
    owner was between."""
    hub.send([Event(b"x")] * 20, partition="0")

    def away(*args: object, **options: object) -> None:
        raise StoreUnavailable("away")

    def taken() -> bool:
        (record,) = share.ownership.list_ownership(share.group).records
        return bool(share.ownership.claim_ownership([replace(record, owner_id="other/1", owner_level=other)]))

    (first,) = feed.next()
    level = first.owner_level
    with monkeypatch.context() as patched:
        patched.setattr(share.manager, "update_checkpoints", away)
        feed.committed([first])
        share.manager.lose("0", level)
        held_above(share, level)
    assert share.held()["0"].start == 0, "where its checkpoint says"
    feed.write()
    (second,) = feed.next()
    assert (second.owner_level, second.begin) == (level + 1, 5)
    feed.record()
    assert checkpoints(share) == [(level + 1, 5)], "also where nothing follows"
    share.manager.lose("0", level + 1)
    held_above(share, level + 1)
    feed.committed([second])  # claimed again before that
    level += 1
    assert feed.lag() == {"0": 15}
    (third,) = feed.next()
    assert (third.owner_level, third.begin) == (level + 1, 10)
    feed.record()
    assert checkpoints(share) == [(level + 1, 10)]
    assert feed.lag() == {"0": 10}

    with monkeypatch.context() as patched:
        patched.setattr(share.manager, "update_checkpoints", away)
        feed.committed([third])
        other = level + 2  # and this instance has had the one before
        until(taken, "another to claim it")
        (record,) = share.ownership.list_ownership(share.group).records
        share.ownership.relinquish_ownership([record])
        held_above(share, other)
    assert span(feed) == [(10, 15)], "from the checkpoint"


def test_an_interval_is_from_batch_to_batch_and_the_first_comes_at_once(hub: LogHub, share: Share) -> None:
    hub.send([Event(b"x")] * 12, partition="0")
    given = {"hub": "log:///x", "store": "sqlite:///x", "max_events_per_trigger": 5, "trigger_interval": "1h"}
    feed = Feed(share, loop_settings(given))
    assert span(feed) == [(0, 5)]
    assert span(feed) == []


def test_a_gap_with_nothing_behind_it_is_a_range_without_events(hub: LogHub, share: Share) -> None:
    hub.send([Event(b"x")] * 12, partition="0")
    given = {"hub": "log:///x", "store": "sqlite:///x", "fail_on_data_loss": False, "min_events_per_trigger": 100}
    feed = Feed(share, loop_settings({**given, "max_trigger_delay": "1h"}))
    hub.retain(max_age=0)
    gap = feed.next()
    assert [(one.begin, one.end, one.left_out_from) for one in gap] == [(12, 12, 0)]
    order = feed.order(gap, 4)
    assert [*map(len, order.tasks)] == [0], "a task that reads nothing, and says so"
    assert feed.next() == (), "it comes once"
    feed.give_back()
    assert feed.next() == gap, "and again if it could not be committed"
    assert feed.lost_events == 12
    feed.committed(gap)
    assert [c.next_sequence_number for c in share.checkpoints.list_checkpoints(share.group)] == [12]
    assert feed.lag() == {"0": 0}
    hub.send([Event(b"x")] * 100, partition="0")
    assert [(one.begin, one.end, one.left_out_from) for one in feed.next()] == [(12, 112, None)]


def test_a_person_is_not_waited_for_where_there_is_an_end_to_come_to(
    hub: LogHub, share: Share, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--available-now` the run went on for ever once the right to write checkpoints was revoked."""

    def refused(*args: object, **options: object) -> None:
        raise StoreError("no right")

    hub.send([Event(b"x")] * 12, partition="0")
    feed.committed(feed.next())
    second = feed.next()
    with monkeypatch.context() as patched:
        patched.setattr(share.manager, "update_checkpoints", refused)
        feed.committed(second)  # waits
        share.waits_for_people = False
        with pytest.raises(StoreError, match="no right"):
            feed.write()


@pytest.mark.parametrize(
    ("error", "by_partition"),
    [(SinkError("no right"), {}), (ValueError("no such tail"), {"0": "ValueError: no such tail"})],
    ids=["a person", "the body"],
)
def test_what_a_person_has_to_mend_is_no_bad_end_of_the_batch_that_it_ends(
    hub: LogHub, share: Share, feed: Feed, error: Exception, by_partition: dict[str, str]
) -> None:
    """Its partitions were suspects then, taken last and one by one."""
    hub.send([Event(b"x")] * 12, partition="0")
    left: list[dict[str, str]] = []
    loop: Any = object.__new__(MicroBatches)
    loop._totals = {}
    loop._engine, loop._told, loop._give_back = SimpleNamespace(share=share, leave=left.append), 0, None
    loop._jobs = SimpleNamespace(end=lambda: None)
    loop._current = SimpleNamespace(
        batch=SimpleNamespace(is_applied=False, ranges=feed.next()), watched=SimpleNamespace(end=lambda: None)
    )
    loop.__exit__(type(error), error, None)
    assert left == [by_partition]
    if not by_partition:
        records = share.ownership.list_ownership
        until(lambda: records(share.group).records[0].last_error == "no right", "the record to say it")
        assert records(share.group).records[0].failures == 0


def test_checkpoints_wait_for_their_store_which_is_tried_now_and_then_and_said_once(
    hub: LogHub, share: Share, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = share.clock = ManualClock()
    feed = Feed(share, loop_settings({"hub": "log:///x", "store": "sqlite:///x", "max_events_per_trigger": 5}))
    hub.send([Event(b"x")] * 12, partition="0")
    tries: list[float] = []

    def away(*args: object, **options: object) -> None:
        tries.append(clock.monotonic())
        clock.advance(takes)
        raise StoreUnavailable("away")

    def gaps(tries: list[float]) -> list[float]:
        return [round(after - before, 2) for before, after in pairwise(tries)]

    with monkeypatch.context() as patched:
        patched.setattr(share.manager, "update_checkpoints", away)
        takes = 0.0
        feed.committed(feed.next())
        for _ in range(400):
            clock.advance(0.01)
            feed.record()
        pauses = [0.05, 0.1, 0.2, 0.4, 0.5, 0.5]
        assert all(0 <= gap - pause < 0.02 for gap, pause in zip(gaps(tries), pauses, strict=False))
        assert len(tries) > len(pauses)
        takes = 3.0
        clock.advance(1.0)
        feed.committed(feed.next())
        for _ in range(310):
            clock.advance(0.01)
            feed.record()
        assert 6.0 <= gaps(tries)[-1] < 6.1, "half of the time is left for batches"
    feed.record()
    assert [c.next_sequence_number for c in share.checkpoints.list_checkpoints(share.group)] == [0], "not yet"
    feed.write()  # as at a stop
    assert [c.next_sequence_number for c in share.checkpoints.list_checkpoints(share.group)] == [10]
    said = [message for message in caplog.messages if message.startswith("checkpoints")]
    assert said == ["checkpoints wait until their store is there: away", "checkpoints are written again"]


def test_tasks_are_told_which_events_of_their_ranges_are_to_be_skipped(hub: LogHub, share: Share) -> None:
    noted = {"0": frozenset({9, 3, 1}), "1": frozenset({0})}
    settings = loop_settings({"hub": "log:///x", "store": "sqlite:///x", "max_events_per_trigger": 5})
    feed = Feed(share, settings, lambda: noted)
    hub.send([Event(b"%d" % number) for number in range(12)], partition="0")
    for expected in ([1, 3], [9], []):
        ranges = feed.next()
        order = feed.order(ranges, 1)
        assert order.skipped == ({"0": expected} if expected else {})
        task, tally = task_order(order.text(), 0), Tally({}, {}, [])
        read = pa.Table.from_batches(run_task(ReadSpec(hub.url, ("body", "sequenceNumber"), 100), task, tally))
        (one,) = ranges
        left = [number for number in range(one.begin, one.end) if number not in expected]
        assert read["sequenceNumber"].to_pylist() == left
        assert tally.events == {"0": len(one)}, "they were read"
        feed.committed(ranges)
