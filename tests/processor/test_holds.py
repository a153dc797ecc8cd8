"""The map of holds: what is trusted, what is on its way out, and many threads at it at once."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from dataclasses import replace

import pytest

from leasehold.model import Checkpoint, ConsumerGroup, Ownership
from leasehold.ownership.holds import Hold, Holds
from leasehold_testkit.clock import ManualClock
from leasehold_testkit.contracts.stores.groups import at_once

GROUP = ConsumerGroup("n", "h")


def hold(partition: str = "0", level: int = 1, until: float = 10.0, *, proven: bool = True) -> Hold:
    return Hold(Ownership(GROUP, partition, "a/1", level, f"e{level}", claimed_at=7), 8, until, proven=proven)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def holds(clock: ManualClock) -> Holds:
    held = Holds(clock)
    start = clock.monotonic()
    held.add(hold("0", 1, start + 10))
    held.add(hold("1", 1, start + 20))
    return held


def test_trust_ends_on_time(holds: Holds, clock: ManualClock) -> None:
    clock.advance(9.999)
    assert (set(holds.trusted()), set(holds.lapsed())) == ({"0", "1"}, set())
    clock.advance(0.001)
    assert (set(holds.trusted()), set(holds.lapsed())) == ({"1"}, {"0"})
    assert set(holds.all()) == {"0", "1"}, "until it is dropped"


def test_what_is_returned_does_not_change_any_more(holds: Holds) -> None:
    before = holds.trusted(), holds.all(), holds.leaving(), holds.names()
    holds.let_go("0", 1)
    holds.take_all()
    assert [len(one) for one in before] == [2, 2, 0, 2]


def test_what_was_let_go_is_on_its_way_out(holds: Holds) -> None:
    assert holds.let_go("0", 1, "an error")
    assert set(holds.trusted()) == set(holds.all()) == {"1"}
    assert holds.names() == {"0", "1"}, "not to be claimed by anybody here"
    assert [one.error for one in holds.leaving().values()] == ["an error"]
    assert not holds.let_go("0", 1), "once"
    holds.gone(["0", "9"])
    assert holds.names() == {"1"}


def test_what_hangs_is_given_up_also_when_trust_in_it_has_run_out(holds: Holds, clock: ManualClock) -> None:
    clock.advance(15)
    assert not holds.let_go("0", 1, "an error")
    holds.drop(holds.lapsed())
    assert holds.names() == {"1"}
    assert not holds.give_up("0", 2, "another level's")
    assert holds.give_up("0", 1, "it hung")
    assert not holds.give_up("0", 1, "it hung"), "once"
    assert {p: one.error for p, one in holds.leaving().items()} == {"0": "it hung"}
    holds.gone(["0"])
    clock.advance(10)
    assert holds.give_up("1", 1, "it hung, too"), "not dropped yet"
    assert {p: one.error for p, one in holds.leaving().items()} == {"1": "it hung, too"}


def test_what_was_dropped_is_forgotten_when_it_is_acquired_anew(holds: Holds, clock: ManualClock) -> None:
    holds.drop({"0": holds.all()["0"]})
    holds.add(hold("0", 2, clock.monotonic() + 10))
    assert not holds.give_up("0", 1, "what hung there before")
    assert holds.trusted()["0"].owner_level == 2


def test_nothing_is_let_go_at_another_level_or_without_trust(holds: Holds, clock: ManualClock) -> None:
    assert not holds.let_go("0", 2)
    assert not holds.let_go("9", 1)
    clock.advance(10)
    assert not holds.let_go("0", 1)
    assert holds.leaving() == {}


def test_a_renewal_extends_trust_at_its_level(holds: Holds, clock: ManualClock) -> None:
    later = clock.monotonic() + 100
    renewed = [replace(hold("0").record, etag="new"), replace(hold("1", 2).record, etag="new")]
    assert holds.extend(renewed, later) == {}
    assert (holds.all()["0"].trusted_until, holds.all()["0"].record.etag) == (later, "new")
    assert holds.all()["1"].record.etag == "e1", "another acquisition"


def test_a_renewal_that_comes_too_late_extends_nothing(holds: Holds, clock: ManualClock) -> None:
    clock.advance(10)
    lapsed = holds.extend([replace(hold("0").record, etag="new")], clock.monotonic() + 100)
    assert set(lapsed) == set(holds.lapsed()) == {"0"}


def test_a_renewal_gives_its_etag_to_what_is_on_its_way_out(holds: Holds, clock: ManualClock) -> None:
    """It was under way while the work let go: without it, the store would refuse to write down the end."""
    holds.let_go("0", 1)
    holds.extend([replace(hold("0").record, etag="new")], clock.monotonic() + 100)
    assert holds.leaving()["0"].record.etag == "new"
    assert "0" not in holds.all()


def test_only_that_level_is_dropped(holds: Holds) -> None:
    old = holds.all()
    holds.add(hold("0", 2))
    assert set(holds.drop(old)) == {"1"}
    assert {p: one.owner_level for p, one in holds.all().items()} == {"0": 2}


def test_who_is_not_named_asks_no_more(holds: Holds) -> None:
    holds.set_askers({"0": "b/1", "9": "b/1"})
    assert {p: one.asked_by for p, one in holds.all().items()} == {"0": "b/1", "1": ""}
    holds.set_askers({"1": "c/1"})
    assert {p: one.asked_by for p, one in holds.all().items()} == {"0": "", "1": "c/1"}


def test_who_asked_is_known_when_it_has_gone(holds: Holds) -> None:
    holds.set_askers({"0": "b/1"})
    holds.let_go("0", 1)
    holds.set_askers({})
    assert holds.leaving()["0"].asked_by == "b/1"


@pytest.mark.parametrize(("number", "level", "proven"), [(7, 1, False), (8, 1, True), (6, 1, False)])
def test_a_suspect_is_proven_by_a_checkpoint_that_moves(holds: Holds, number: int, level: int, proven: bool) -> None:
    holds.add(hold("2", level, proven=False))
    holds.prove([Checkpoint(GROUP, "2", number, level), Checkpoint(GROUP, "9", 99, 1)])
    assert holds.all()["2"].proven == proven


def test_everything_is_taken_once(holds: Holds) -> None:
    holds.let_go("0", 1)
    assert set(holds.take_all()) == {"0", "1"}
    assert holds.take_all() == {}
    assert holds.names() == frozenset()


# Threads


def test_of_many_that_let_go_one_does(clock: ManualClock) -> None:
    holds = Holds(clock)
    names = [str(p) for p in range(200)]
    for name in names:
        holds.add(hold(name, until=clock.monotonic() + 1))
    done: list[str] = []

    def work() -> None:
        done.extend(name for name in names if holds.let_go(name, 1))

    at_once([work] * 8)
    assert Counter(done) == dict.fromkeys(names, 1)
    assert set(holds.leaving()) == set(names)


def test_a_partition_is_never_held_and_leaving_at_once_nor_lost_in_between(clock: ManualClock) -> None:
    """One thread acquires, renews and writes down, as the dispatch thread does; others let go and look."""
    holds = Holds(clock)
    names = [str(p) for p in range(20)]
    until = clock.monotonic() + 1_000
    ended = threading.Event()
    let_go: Counter[tuple[str, int]] = Counter()
    written: Counter[tuple[str, int]] = Counter()
    count = threading.Lock()

    def dispatch() -> None:
        for level in range(1, 300):
            for name in names:
                if name not in holds.names():
                    holds.add(hold(name, level, until))
            before = holds.all()
            holds.extend([replace(one.record, etag=f"r{level}") for one in before.values()], until + level)
            holds.set_askers(dict.fromkeys(names[::2], "b/1"))
            leaving = holds.leaving()
            for name, one in leaving.items():
                assert name not in holds.all()
                written[name, one.owner_level] += 1
            holds.gone(leaving)
        ended.set()

    def work(start: int) -> None:
        for name in itertools.cycle(names[start:] + names[:start]):
            if ended.is_set():
                return
            one = holds.trusted().get(name)
            if one is not None and holds.let_go(name, one.owner_level):
                with count:
                    let_go[name, one.owner_level] += 1

    at_once([dispatch, *(lambda start=start: work(start) for start in (0, 7, 13))])
    for name, one in holds.leaving().items():
        written[name, one.owner_level] += 1
    assert written == let_go
    assert set(let_go.values()) == {1}
    assert holds.names() <= set(names)
