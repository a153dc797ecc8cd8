"""The hand-over of a partition, and whatever can stop in the middle of it.

The instances work all the time: each reads what it holds, one event a step, and records it at once. So in each story
the events of a partition must have been read once each, in order, by whoever held it; and no partition may be without
a live owner for longer than the story allows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest

from leasehold.config import OwnershipSettings
from leasehold.errors import StoreUnavailable
from leasehold.model import Ask
from leasehold.notices import HandOverAsked, OwnershipClaimed, OwnershipRelinquished
from tests.processor.fleet import GROUP, Instance, Scene, unavailable

SETTINGS = OwnershipSettings(settle_delay=0)
INTERVAL = SETTINGS.load_balancing_interval
EXPIRATION = SETTINGS.partition_expiration
LOOKS = INTERVAL + INTERVAL / 2
"""Within this, an instance that lives has looked, and has looked again where everybody seems to have gone."""
AT_ONCE = 0.25 * INTERVAL + 1
"""An asker looks every quarter of an interval."""
RESERVED = INTERVAL + SETTINGS.request_timeout
STEP = 0.5


class Story:
    """Instances that live by their own due times, and what they read."""

    def __init__(self, partitions: int = 2) -> None:
        self.scene = Scene(partitions)
        self.alive: list[Instance] = []
        self.slow: set[Instance] = set()
        self.paused: set[Instance] = set()
        self.read: dict[str, list[int]] = {p: [] for p in self.scene.hub.ends}
        self._places: dict[tuple[str, str, int], int] = {}
        self._held_at: dict[str, float] = {}
        self.gap = 0.0

    @property
    def now(self) -> float:
        return self.scene.clock.monotonic()

    def join(self, name: str, settings: OwnershipSettings = SETTINGS) -> Instance:
        self.alive.append(self.scene.start(name, settings=settings))
        return self.alive[-1]

    def owner(self, name: str = "a") -> Instance:
        """One that owns everything, and has read some of it."""
        instance = self.join(name)
        self.run(2 * INTERVAL)
        assert set(instance.levels) == set(self.scene.hub.ends)
        instance.take()
        return instance

    def forget_asks(self) -> None:
        """As where the store has lost them."""
        self.scene.ownership.withdraw_asks(self.scene.ownership.list_ownership(GROUP).asks)

    def die(self, *instances: Instance) -> None:
        self.alive = [one for one in self.alive if one not in instances]

    def restart(self, instance: Instance) -> Instance:
        self.die(instance)
        return self.join(instance.name)

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        end = self.now + seconds
        while self.now < end and not until():
            self.scene.clock.advance(STEP)
            for one in self.alive:
                if one not in self.paused:
                    self.work(one)
                    if self.now >= one.manager.due or one.manager.attention.is_set():
                        one.manager.attention.clear()
                        one.manager.tick()
            self.look()

    def work(self, one: Instance) -> None:
        one.manager.note_progress()
        for partition, hold in one.manager.held().items():
            if hold.asked_by:
                if one not in self.slow:
                    assert one.manager.let_go(partition, hold.owner_level)
                continue
            place = one.id, partition, hold.owner_level
            number = self._places.setdefault(place, hold.start)
            try:
                recorded = one.manager.update_checkpoint(partition, hold.owner_level, number)
            except StoreUnavailable:
                continue
            if recorded:
                self.read[partition].append(number)
                self._places[place] = number + 1

    def look(self) -> None:
        for partition, numbers in self.read.items():
            assert numbers == list(range(len(numbers))), f"partition {partition} was read twice, or not at all"
            if any(partition in one.levels for one in self.alive):
                self._held_at[partition] = self.now
            self.gap = max(self.gap, self.now - self._held_at.setdefault(partition, self.now))

    def until(self, handed_over: bool) -> None:
        """Until the owner has handed over, or only until it is asked."""
        if handed_over:
            self.until_handed_over()
        else:
            self.until_asked()

    def until_asked(self, seconds: float = INTERVAL) -> None:
        self.run(seconds, lambda: bool(self.scene.asks()))
        assert self.scene.asks()

    def until_handed_over(self) -> None:
        def handed_over() -> bool:
            return any(record.successor for record in self.scene.records().values())

        self.run(2 * INTERVAL, handed_over)
        assert handed_over()

    def ends_well(self, within: float, gap: float) -> None:
        """In time the live share everything evenly, all of it is read, and no asks are left over."""

        def shared() -> bool:
            sizes = [len(one.levels) for one in self.alive]
            return sum(sizes) == len(self.read) and max(sizes) - min(sizes) <= 1

        self.run(within, shared)
        assert shared(), [one.levels for one in self.alive]
        assert self.gap <= gap, f"without a live owner for {self.gap} s"
        before = {partition: len(numbers) for partition, numbers in self.read.items()}
        self.run(2 * INTERVAL)
        assert shared(), "and leave it at that"
        assert all(len(self.read[partition]) >= number + 10 for partition, number in before.items())
        assert self.scene.asks() == {}


@pytest.fixture
def story() -> Story:
    return Story()


# As it should be


@pytest.mark.parametrize("strategy", ["planned", "balanced", "greedy"])
def test_asked_for_drained_and_handed_over(strategy: str) -> None:
    story = Story(8)
    a = story.owner()
    b = story.join("b", dataclasses.replace(SETTINGS, strategy=strategy))
    story.until_asked()
    assert set(story.scene.asks().values()) == {b.id}
    assert len(a.levels) == 8, "it does not know yet"
    story.ends_well(INTERVAL + (AT_ONCE if strategy != "balanced" else 4 * INTERVAL), gap=AT_ONCE)
    heard = [notice for notice in a.take() if isinstance(notice, HandOverAsked)]
    assert {(notice.asker, notice.owner_level) for notice in heard} == {(b.id, 1)}
    assert {notice.partition for notice in heard} == set(b.levels)
    assert set(b.levels.values()) == {2}
    assert {n.previous_owner for n in b.take() if isinstance(n, OwnershipClaimed)} == {""}


def test_a_hand_over_names_its_successor_and_is_reported(story: Story) -> None:
    a, b = story.owner(), story.join("b")
    story.until_handed_over()
    [partition] = [record.partition for record in story.scene.records().values() if record.successor]
    assert story.scene.records()[partition].owner_id == ""
    assert story.scene.records()[partition].successor == b.id
    assert [n for n in a.take() if isinstance(n, OwnershipRelinquished)] == [OwnershipRelinquished(partition, 1, b.id)]
    story.ends_well(AT_ONCE, gap=AT_ONCE)
    assert story.scene.records()[partition].successor == ""


def test_what_was_handed_over_is_taken_by_nobody_else(story: Story) -> None:
    """A third one is there all the time, and has room; it does not take what is on its way."""
    story = Story(3)
    story.owner()
    b = story.join("b")
    story.until_handed_over()
    [partition] = [record.partition for record in story.scene.records().values() if record.successor]
    story.paused.add(b)
    c = story.join("c")
    story.run(RESERVED - 1)
    assert partition not in c.levels
    story.paused.clear()
    story.run(STEP)
    assert partition in b.levels
    story.ends_well(3 * INTERVAL, gap=RESERVED + 1)


def test_while_it_drains_it_begins_nothing(story: Story) -> None:
    a = story.owner()
    story.slow.add(a)
    story.join("b")
    story.run(INTERVAL + 1)
    [asked] = [partition for partition, hold in a.manager.held().items() if hold.asked_by]
    before = len(story.read[asked])
    story.run(INTERVAL)
    assert asked in a.levels, "still held"
    assert len(story.read[asked]) == before, "and not read"
    story.slow.clear()
    story.ends_well(AT_ONCE, gap=AT_ONCE)


def test_what_it_cannot_go_on_with_is_given_up_to_anybody(story: Story) -> None:
    a = story.owner()
    assert a.manager.let_go("0", 1, "event 7 cannot be read")
    assert set(a.levels) == {"1"}
    seen = []
    a.ownership.after["relinquish_ownership"] = lambda: seen.append(story.scene.records()["0"])
    a.manager.tick()
    assert [(record.owner_id, record.successor, record.last_error) for record in seen] == [
        ("", "", "event 7 cannot be read")
    ]
    assert a.levels == {"0": 2, "1": 1}, "it is a's share still"


def test_letting_go_of_what_is_not_held_does_nothing(story: Story) -> None:
    a = story.owner()
    a.manager.attention.clear()
    assert not a.manager.let_go("0", 2)
    assert not a.manager.let_go("9", 1)
    assert a.levels == {"0": 1, "1": 1}


# The asker dies


def test_the_asker_dies_before_it_is_heard(story: Story) -> None:
    """The owner hands over to it all the same, and has it back when it is known to be gone."""
    story.owner()
    b = story.join("b")
    story.until_asked()
    story.die(b)
    story.run(INTERVAL)
    assert [record.successor for record in story.scene.records().values() if not record.owner_id] == [b.id]
    story.ends_well(EXPIRATION, gap=EXPIRATION + LOOKS)


def test_the_asker_dies_while_the_owner_drains(story: Story) -> None:
    """Its presence expires, the ask is void, and the owner goes on at the same level."""
    a = story.owner()
    story.slow.add(a)
    b = story.join("b")
    story.until_asked()
    story.die(b)
    story.run(INTERVAL)
    assert any(hold.asked_by for hold in a.manager.held().values())
    story.run(EXPIRATION + STEP, lambda: not any(hold.asked_by for hold in a.manager.held().values()))
    story.ends_well(STEP, gap=0)
    assert a.levels == {"0": 1, "1": 1}


def test_the_asker_dies_after_the_hand_over(story: Story) -> None:
    a, b = story.owner(), story.join("b")
    story.until_handed_over()
    story.die(b)
    story.ends_well(EXPIRATION + INTERVAL, gap=EXPIRATION + LOOKS)
    assert sorted(a.levels.values()) == [1, 2]


def test_the_asker_leaves_while_the_owner_drains(story: Story) -> None:
    a = story.owner()
    story.slow.add(a)
    b = story.join("b")
    story.run(INTERVAL + 1)
    b.manager.relinquish()
    story.die(b)
    story.ends_well(INTERVAL, gap=0)
    story.run(INTERVAL)
    assert a.levels == {"0": 1, "1": 1}
    assert not any(hold.asked_by for hold in a.manager.held().values()), "it went at once, with its presence"


def test_the_asker_pauses_for_more_than_an_expiration(story: Story) -> None:
    story.owner()
    b = story.join("b")
    story.until_asked()
    story.paused.add(b)
    story.run(60)
    assert b.levels == {}
    story.paused.clear()
    story.ends_well(2 * INTERVAL + AT_ONCE, gap=EXPIRATION + LOOKS)


# The asker restarts


def test_the_asker_restarts_before_it_is_heard(story: Story) -> None:
    """The ask of the one before is void; the new one asks for itself."""
    story.owner()
    b = story.join("b")
    story.until_asked()
    again = story.restart(b)
    story.ends_well(EXPIRATION, gap=RESERVED + AT_ONCE)
    assert len(again.levels) == 1


def test_the_asker_restarts_after_the_hand_over(story: Story) -> None:
    """What was handed over to its predecessor is its own: it takes it in its first cycle."""
    story.owner()
    b = story.join("b")
    story.until_handed_over()
    again = story.restart(b)
    story.run(STEP)
    assert len(again.levels) == 1
    story.ends_well(INTERVAL, gap=AT_ONCE)


def test_the_asker_restarts_under_another_name(story: Story) -> None:
    story.owner()
    b = story.join("b")
    story.until_handed_over()
    story.die(b)
    story.join("c")
    story.ends_well(EXPIRATION + INTERVAL, gap=EXPIRATION + LOOKS)


# The owner dies


@pytest.mark.parametrize("heard", [False, True], ids=["before it has heard", "while it drains"])
def test_the_owner_dies(story: Story, heard: bool) -> None:
    a = story.owner()
    story.slow.add(a)
    b = story.join("b")
    story.until_asked()
    if heard:
        story.run(INTERVAL + 1)
        assert any(hold.asked_by for hold in a.manager.held().values())
    story.die(a)
    story.ends_well(EXPIRATION + LOOKS, gap=EXPIRATION + LOOKS)
    assert len(b.levels) == 2


def test_the_owner_dies_between_letting_go_and_writing_it_down(story: Story) -> None:
    a = story.owner()
    story.slow.add(a)
    b = story.join("b")
    story.run(INTERVAL + 1)
    [asked] = [partition for partition, hold in a.manager.held().items() if hold.asked_by]
    a.manager.let_go(asked, 1)
    story.die(a)
    assert story.scene.records()[asked].owner_id == a.id
    story.ends_well(EXPIRATION + LOOKS, gap=EXPIRATION + LOOKS)
    assert len(b.levels) == 2


def test_the_owner_dies_after_the_hand_over(story: Story) -> None:
    a, b = story.owner(), story.join("b")
    story.until_handed_over()
    story.die(a)
    story.run(AT_ONCE)
    assert len(b.levels) == 1, "what was handed over is there at once"
    story.ends_well(EXPIRATION + LOOKS, gap=EXPIRATION + LOOKS)


def test_the_owner_pauses_while_it_drains(story: Story) -> None:
    a = story.owner()
    story.slow.add(a)
    story.join("b")
    story.run(INTERVAL + 1)
    story.paused.add(a)
    story.run(60)
    assert a.levels == {}, "it does not trust itself any more"
    story.paused.clear()
    story.slow.clear()
    story.ends_well(3 * INTERVAL, gap=EXPIRATION + LOOKS)


# The owner restarts


@pytest.mark.parametrize("heard", [False, True], ids=["before it has heard", "while it drains"])
def test_the_owner_restarts(story: Story, heard: bool) -> None:
    """What it is not asked for it takes over at once; the rest is the asker's, which need not ask one that is gone."""
    a = story.owner()
    story.slow.add(a)
    b = story.join("b")
    story.until_asked()
    if heard:
        story.run(INTERVAL + 1)
    [asked] = story.scene.asks()
    again = story.restart(a)
    story.run(STEP)
    assert again.levels == {partition: 2 for partition in story.read if partition != asked}
    story.ends_well(AT_ONCE, gap=AT_ONCE)
    assert b.levels == {asked: 2}


def test_the_owner_restarts_after_the_hand_over(story: Story) -> None:
    a, b = story.owner(), story.join("b")
    story.until_handed_over()
    again = story.restart(a)
    story.ends_well(INTERVAL, gap=AT_ONCE)
    assert (list(again.levels.values()), list(b.levels.values())) == ([2], [2])


# Both


@pytest.mark.parametrize("handed_over", [False, True], ids=["after the ask", "after the hand-over"])
def test_both_die_and_a_third_one_has_it(handed_over: bool) -> None:
    story = Story(4)
    a, c = story.owner(), story.join("c")
    story.ends_well(2 * INTERVAL, gap=AT_ONCE)
    b = story.join("b")
    story.until(handed_over)
    story.die(a, b)
    story.ends_well(EXPIRATION + RESERVED + LOOKS, gap=EXPIRATION + LOOKS)
    assert len(c.levels) == 4


@pytest.mark.parametrize("handed_over", [False, True], ids=["after the ask", "after the hand-over"])
def test_both_die_and_nobody_is_left_until_somebody_comes(story: Story, handed_over: bool) -> None:
    a, b = story.owner(), story.join("b")
    story.until(handed_over)
    story.die(a, b)
    c = story.join("c")
    story.ends_well(EXPIRATION + LOOKS, gap=EXPIRATION + LOOKS)
    assert len(c.levels) == 2


@pytest.mark.parametrize("handed_over", [False, True], ids=["after the ask", "after the hand-over"])
def test_both_restart(story: Story, handed_over: bool) -> None:
    a, b = story.owner(), story.join("b")
    story.until(handed_over)
    story.restart(a)
    story.restart(b)
    story.ends_well(EXPIRATION + LOOKS, gap=RESERVED + AT_ONCE)


def test_the_owner_dies_and_the_asker_restarts(story: Story) -> None:
    a, b = story.owner(), story.join("b")
    story.until_asked()
    story.die(a)
    again = story.restart(b)
    story.ends_well(EXPIRATION + LOOKS, gap=EXPIRATION + LOOKS)
    assert len(again.levels) == 2


# Something is lost on its way


@pytest.mark.parametrize("when", ["before", "after"], ids=["on its way there", "its reply"])
def test_the_ask_is_lost(story: Story, when: str) -> None:
    story.owner()
    b = story.join("b")
    getattr(b.ownership, when)["ask"] = unavailable
    story.ends_well(INTERVAL + 2 * AT_ONCE, gap=AT_ONCE)


def test_an_ask_that_vanishes_is_made_again(story: Story) -> None:
    story.owner()
    story.join("b")
    story.until_asked()
    story.forget_asks()
    story.ends_well(INTERVAL + 2 * AT_ONCE, gap=AT_ONCE)


def test_no_ask_ever_comes_through(story: Story) -> None:
    """The deadline ends the waiting: it is stolen, from a thief's view; the owner reads on until that moment."""
    a = story.owner()
    b = story.join("b")
    start = story.now
    while not b.levels:
        assert story.now <= start + SETTINGS.hand_over_timeout + AT_ONCE
        story.run(STEP)
        if not b.levels:
            story.forget_asks()
    assert story.now >= start + SETTINGS.hand_over_timeout
    assert [n.previous_owner for n in b.take() if isinstance(n, OwnershipClaimed)] == [a.id]
    story.ends_well(INTERVAL, gap=0)


@pytest.mark.parametrize("level", [0, 2])
def test_an_ask_at_another_level_is_void_and_taken_away(story: Story, level: int) -> None:
    """One from before the owner acquired it anew, late on its way; its asker lives."""
    story = Story(1)
    a, b = story.owner(), story.join("b")
    story.run(2 * INTERVAL)
    story.paused.add(b)  # else it would take it back itself
    story.scene.ownership.ask([Ask(GROUP, "0", level, b.id)])
    story.run(INTERVAL)
    assert story.scene.asks() == {}
    story.paused.clear()
    assert a.levels == {"0": 1}, "not handed over"
    assert not [notice for notice in a.take() if isinstance(notice, HandOverAsked)]
    story.ends_well(STEP, gap=0)


@pytest.mark.parametrize("when", ["before", "after"], ids=["on its way there", "its reply"])
def test_the_hand_over_is_lost(story: Story, when: str) -> None:
    a = story.owner()
    story.join("b")
    getattr(a.ownership, when)["relinquish_ownership"] = unavailable
    story.ends_well(INTERVAL + 3 * AT_ONCE, gap=2 * AT_ONCE)


def test_the_hand_over_never_comes_through(story: Story) -> None:
    a = story.owner()
    b = story.join("b")
    start = story.now

    def lost() -> None:
        a.ownership.before["relinquish_ownership"] = lost
        unavailable()

    a.ownership.before["relinquish_ownership"] = lost
    story.run(SETTINGS.hand_over_timeout + LOOKS, lambda: bool(b.levels))
    assert b.levels
    assert story.now >= start + SETTINGS.hand_over_timeout - INTERVAL
    a.ownership.before.clear()
    story.ends_well(EXPIRATION, gap=SETTINGS.hand_over_timeout + AT_ONCE)


@pytest.mark.parametrize(("store", "method"), [("ownership", "claim_ownership"), ("checkpoints", "raise_owner_level")])
def test_the_reply_to_the_claim_is_lost(story: Story, store: str, method: str) -> None:
    """It is known again by its nonce, and held at the same level."""
    story.owner()
    b = story.join("b")
    story.until_handed_over()
    getattr(b, store).after[method] = unavailable
    story.ends_well(2 * AT_ONCE, gap=2 * AT_ONCE)
    assert list(b.levels.values()) == [2]


def test_the_claim_is_lost_on_its_way_there(story: Story) -> None:
    story.owner()
    b = story.join("b")
    story.until_handed_over()
    b.ownership.before["claim_ownership"] = unavailable
    story.ends_well(2 * AT_ONCE, gap=2 * AT_ONCE)
    assert list(b.levels.values()) == [2]


# The deadline


def test_an_owner_that_never_hands_over_is_stolen_from_at_the_deadline(story: Story) -> None:
    a = story.owner()
    story.slow.add(a)
    b = story.join("b")
    story.until_asked()
    asked_at = story.now
    story.run(SETTINGS.hand_over_timeout - 1)
    assert b.levels == {}
    story.run(AT_ONCE + 1, lambda: bool(b.levels))
    assert len(b.levels) == 1
    assert asked_at + SETTINGS.hand_over_timeout <= story.now
    assert [n.previous_owner for n in b.take() if isinstance(n, OwnershipClaimed)] == [a.id]
    story.ends_well(INTERVAL, gap=0)


def test_an_owner_without_presence_is_stolen_from_at_once(story: Story) -> None:
    a = story.owner()
    story.paused.add(a)
    story.scene.unheard(a)
    b = story.join("b")
    story.run(STEP)
    assert len(b.levels) == 1
    assert story.scene.asks() == {}


def test_what_nobody_wants_any_more_is_kept_or_given_to_all(story: Story) -> None:
    """The ask is taken back: what is not drained yet goes on, what is drained is free for whoever's share it is."""
    story = Story(3)
    a = story.owner()
    story.slow.add(a)
    story.join("b")
    story.run(INTERVAL + 1)
    [asked] = [partition for partition, hold in a.manager.held().items() if hold.asked_by]
    story.forget_asks()
    story.die(story.alive[1])
    story.run(INTERVAL + 1)
    assert not a.manager.held()[asked].asked_by
    a.manager.let_go(asked, 1)
    a.manager.tick()
    assert OwnershipRelinquished(asked, 1, "") in a.take()


def test_trust_in_what_drains_ends_as_in_anything_else(story: Story) -> None:
    a = story.owner()
    story.slow.add(a)
    story.join("b")
    story.run(INTERVAL + 1)
    [asked] = [partition for partition, hold in a.manager.held().items() if hold.asked_by]
    story.scene.clock.advance(math.ceil(EXPIRATION))
    assert not a.manager.let_go(asked, 1), "another may have it by now"
