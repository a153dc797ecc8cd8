"""A poison partition: whoever reads it dies. It must not stop the others; it is tried last, alone, ever more rarely."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest

from leasehold.balancing.suspects import LONGEST_BACKOFF, SUSPECT_AFTER
from leasehold.config import STRATEGY_NAMES, OwnershipSettings
from leasehold.model import Checkpoint, Ownership
from leasehold.notices import CycleFailed, PartitionSuspected
from leasehold.ownership.mending import Mending
from tests.processor.fleet import GROUP, Instance, Scene

SETTINGS = OwnershipSettings(settle_delay=0)
INTERVAL = SETTINGS.load_balancing_interval
EXPIRATION = SETTINGS.partition_expiration
STEP = 1.0


class Plague:
    """Instances that read what they hold and are started again when they die; who reads a poisoned partition dies."""

    def __init__(self, partitions: int, instances: int, poisoned: set[str], strategy: str, *, restart_after: float):
        self.scene = Scene(partitions)
        self.scene.hub.ends = dict.fromkeys(self.scene.hub.ends, 10**6)
        self.poisoned = poisoned
        self.restart_after = restart_after
        self.settings = OwnershipSettings(settle_delay=0, strategy=strategy)
        self.alive: list[Instance] = []
        self.started: dict[str, float] = {f"i{number}": 0.0 for number in range(instances)}
        self.taken: list[tuple[float, str, str]] = []
        self.deaths = 0
        self.read = dict.fromkeys(self.scene.hub.ends, 0)
        self.suspicions: list[PartitionSuspected] = []

    @property
    def now(self) -> float:
        return self.scene.clock.monotonic()

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.scene.clock.advance(STEP)
            for name, at in list(self.started.items()):
                if self.now >= at:
                    del self.started[name]
                    one = self.scene.start(name, settings=self.settings, last_error=f"{name} was killed")
                    one.manager.notices.subscribe(self.suspicions.append, PartitionSuspected)
                    self.alive.append(one)
            for one in list(self.alive):
                one.manager.note_progress()
                if self.now >= one.manager.due or one.manager.attention.is_set():
                    one.manager.attention.clear()
                    one.manager.tick()
                self.work(one)

    def work(self, one: Instance) -> None:
        for partition, hold in one.manager.held().items():
            if partition in self.poisoned:
                others = set(one.levels) - {partition}
                self.taken.append((self.now, partition, f"{one.id} {len(others & self.poisoned)}"))
                self.alive.remove(one)
                self.started[one.name] = self.now + self.restart_after
                self.deaths += 1
                return
            if hold.asked_by:
                one.manager.let_go(partition, hold.owner_level)
                continue
            if one.manager.update_checkpoint(partition, hold.owner_level, self.read[partition]):
                self.read[partition] += 1

    def times(self, partition: str) -> list[float]:
        return [at for at, taken, _ in self.taken if taken == partition]


@pytest.mark.more
@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
@pytest.mark.parametrize("restart_after", [1.0, 45.0], ids=["restarted at once", "restarted after expiry"])
def test_a_poison_partition_does_not_stop_the_others(strategy: str, restart_after: float) -> None:
    plague = Plague(8, 2, {"3"}, strategy, restart_after=restart_after)
    plague.run(3_000)
    times = plague.times("3")
    gaps = [two - one for one, two in pairwise(times)]
    backoffs = [0.0, *(min(2**number, LONGEST_BACKOFF) * INTERVAL for number in range(len(gaps) - 1))]
    assert all(gap >= backoff for gap, backoff in zip(gaps, backoffs, strict=True)), gaps
    assert 5 <= len(times) <= 13, "growing backoff: tried again, ever more rarely"
    before = dict(plague.read)
    plague.run(1_000)
    deaths = len(plague.times("3")) - len(times)
    assert deaths <= 2
    outage = EXPIRATION + 2 * INTERVAL + restart_after
    for partition, count in plague.read.items():
        if partition != "3":
            assert count - before[partition] >= (1_000 - deaths * outage) / STEP, "the others go on"
    assert plague.read["3"] == 0
    assert plague.scene.progress()["3"].sequence_number == -1


def test_the_suspicion_is_told_with_what_is_known_of_the_end() -> None:
    plague = Plague(2, 1, {"1"}, "planned", restart_after=1.0)
    plague.run(300)
    counts = [notice.failures for notice in plague.suspicions if notice.partition == "1"]
    assert counts[0] == SUSPECT_AFTER
    assert counts == sorted(counts)
    assert {notice.last_error for notice in plague.suspicions} == {"i0 was killed"}
    assert counts[-1] - plague.scene.records()["1"].failures in (0, 1), "told before it is tried again"


@pytest.mark.more
def test_two_poison_partitions_are_tried_one_at_a_time() -> None:
    plague = Plague(8, 1, {"3", "5"}, "planned", restart_after=1.0)
    plague.run(1_000)
    plague.taken.clear()
    plague.run(3_000)
    assert {partition for _, partition, _ in plague.taken} == {"3", "5"}, "both are tried"
    assert {with_it.split()[1] for _, _, with_it in plague.taken} == {"0"}, "each alone"


def test_it_is_cleared_when_its_checkpoint_moves() -> None:
    plague = Plague(4, 2, {"3"}, "planned", restart_after=1.0)
    plague.run(400)
    assert plague.scene.records()["3"].failures >= 3
    plague.poisoned.clear()
    plague.run(LONGEST_BACKOFF * INTERVAL)
    assert plague.read["3"] > 100
    [holder] = [one for one in plague.alive if "3" in one.levels]
    assert holder.manager.held()["3"].proven
    plague.alive.remove(holder)
    plague.run(EXPIRATION + 2 * INTERVAL)
    assert plague.scene.records()["3"].failures == 0
    assert plague.scene.records()["3"].last_error == ""
    assert any("3" in one.levels for one in plague.alive), "at once, without a backoff"


def test_those_that_died_with_it_are_cleared_one_by_one() -> None:
    """All partitions of an owner are suspects when it dies of one; an hour later only the bad one is left."""
    plague = Plague(6, 1, {"3"}, "planned", restart_after=1.0)
    plague.run(2_000)
    records = plague.scene.records()
    assert {partition for partition, record in records.items() if record.failures} == {"3"}


# The count, step by step


def scene_with_events() -> Scene:
    scene = Scene(2)
    scene.hub.ends = dict.fromkeys(scene.hub.ends, 100)
    return scene


def counts(scene: Scene) -> dict[str, int]:
    return {partition: record.failures for partition, record in scene.records().items()}


def kill_and_restart(scene: Scene, times: int) -> Instance:
    one = scene.start("a", settings=SETTINGS)
    one.settle()
    for _ in range(times):
        scene.clock.advance(1)
        one = scene.start("a", settings=SETTINGS)
        one.settle()
    return one


def test_each_new_incarnation_counts_and_the_second_bad_end_makes_suspects() -> None:
    scene = scene_with_events()
    one = kill_and_restart(scene, 1)
    assert counts(scene) == {"0": 1, "1": 1}
    assert len(one.levels) == 2, "no suspects yet"
    two = kill_and_restart(scene, 1)
    assert two.levels == {}, "left alone for an interval"
    suspects = [notice for notice in two.take() if isinstance(notice, PartitionSuspected)]
    assert {(notice.partition, notice.failures) for notice in suspects} >= {("0", 2), ("1", 2)}
    scene.clock.advance(INTERVAL)
    two.settle()
    assert len(two.levels) == 1, "one at a time"
    assert not next(iter(two.manager.held().values())).proven
    scene.clock.advance(INTERVAL)
    two.settle()
    assert len(two.levels) == 1, "until it has proven itself"
    [(partition, level)] = two.levels.items()
    assert two.manager.update_checkpoint(partition, level, 0)
    two.settle()
    assert len(two.levels) == 2


def test_the_dead_count_when_they_expire() -> None:
    scene = scene_with_events()
    scene.running("a", settings=SETTINGS)
    scene.clock.advance(EXPIRATION + 1)
    b = scene.start("b", settings=SETTINGS)
    b.settle()
    b.settle()
    assert counts(scene) == {"0": 1, "1": 1}
    assert "a/" in scene.records()["0"].last_error


def test_a_partition_without_events_to_fail_at_is_no_suspect() -> None:
    scene = Scene(2)
    assert len(kill_and_restart(scene, 5).levels) == 2
    assert counts(scene) == {"0": 0, "1": 0}


def test_giving_up_with_an_error_counts_once() -> None:
    scene = scene_with_events()
    a = scene.running("a", settings=SETTINGS)
    a.manager.let_go("0", 1, "event 7 cannot be read")
    a.settle()
    assert counts(scene) == {"0": 1, "1": 0}
    assert scene.records()["0"].last_error == "event 7 cannot be read"
    a.manager.relinquish(dict.fromkeys("01", "the sink is broken"))
    b = scene.start("b", settings=SETTINGS)
    b.settle()
    assert counts(scene)["1"] == 1
    assert scene.records()["1"].last_error == "the sink is broken"
    [suspected] = [notice for notice in b.take() if isinstance(notice, PartitionSuspected)]
    assert suspected == PartitionSuspected("0", 2, "the sink is broken")
    assert set(b.levels) == {"1"}


def test_of_many_troubles_at_one_place_the_first_few_are_on_record() -> None:
    mending, record = Mending(), Ownership(GROUP, "0", "a/1", 1)
    place = Checkpoint(GROUP, "0", 4, 1)
    for letter in "abcdefgh":
        assert not mending.is_said(record, letter, place)
        mending.note("0", letter, place)
    assert mending.is_said(record, "i", place)
    mending.note("0", "i", place)
    assert not mending.is_said(record, "i", dataclasses.replace(place, sequence_number=5))


def test_what_a_person_has_to_mend_is_no_bad_end_where_there_is_no_checkpoint_yet() -> None:
    scene = scene_with_events()
    a = scene.running("a", settings=SETTINGS)
    a.manager.put_on_record("0", 1, "no INSERT")
    a.settle()
    record = scene.records()["0"]
    assert (record.owner_id, record.failures, record.last_error) == (a.id, 0, "no INSERT")


def test_one_that_is_to_hold_no_more_keeps_what_a_person_has_to_mend() -> None:
    """Its work hangs in another partition: what it gave up it could not claim again, mended or not."""
    scene = scene_with_events()
    a = scene.running("a", settings=SETTINGS)
    a.manager.hold_no_more(True)
    a.manager.put_on_record("0", 1, "no INSERT")
    a.settle()
    assert (a.levels["0"], scene.records()["0"].last_error) == (1, "")
    a.manager.hold_no_more(False)
    a.manager.put_on_record("0", 1, "no INSERT")
    a.settle()
    assert (a.levels["0"], scene.records()["0"].last_error) == (2, "no INSERT")


def test_what_a_person_has_to_mend_is_on_record_and_is_no_bad_end() -> None:
    """The instance keeps the partition, at a higher level, until its checkpoint moves."""
    scene = scene_with_events()
    a = scene.running("a", settings=SETTINGS)
    assert a.manager.update_checkpoint("0", 1, 4)

    def told(said: str, level: int) -> None:
        a.manager.put_on_record("0", level, said)
        a.settle()
        record = scene.records()["0"]
        assert (record.owner_id, record.failures, record.claimed_at) == (a.id, 0, 4)

    told("no INSERT, 20.5 MiB free", 1)
    assert (a.levels["0"], scene.records()["0"].last_error) == (2, "no INSERT, 20.5 MiB free")
    told("no INSERT, 19 MiB free", 2)
    assert a.levels["0"] == 2, "the record says it, but for a figure"
    told("disk full", 2)
    assert (a.levels["0"], scene.records()["0"].last_error) == (3, "disk full")
    told("no INSERT, 7 MiB free", 3)
    assert a.levels["0"] == 3, "troubles that take turns are said once each"
    a.manager.put_on_record("0", 2, "of a level that is not held any more")
    assert a.manager.update_checkpoint("0", 3, 5)
    a.manager.put_on_record("0", 3, "disk full")
    a.settle()
    assert (a.levels["0"], scene.records()["0"].claimed_at) == (4, 5), "again, at another place"
    assert a.manager.update_checkpoint("0", 4, 6)
    a.manager.relinquish()
    a.settle()
    assert scene.records()["0"].last_error == "", "whoever claims it next finds it mended"


def test_being_relieved_does_not_count_even_after_a_bad_end() -> None:
    """A clean stop, a hand-over and a steal leave the count, and the story of the last bad end, as they were."""
    scene = scene_with_events()
    a = kill_and_restart(scene, 1)
    told = scene.records()["0"].last_error
    assert told
    a.manager.relinquish()
    b = scene.start("b", settings=SETTINGS)
    b.settle()
    assert counts(scene) == {"0": 1, "1": 1}
    c = scene.start("c", settings=SETTINGS)
    scene.share(b, c)
    assert (len(b.levels), len(c.levels)) == (1, 1)
    assert counts(scene) == {"0": 1, "1": 1}
    c.manager.relinquish()
    b.settle()
    scene.unheard(b)
    d = scene.start("d", settings=SETTINGS)
    d.settle()
    assert len(d.levels) == 1
    assert counts(scene) == {"0": 1, "1": 1}
    assert {record.last_error for record in scene.records().values()} == {told}


def test_a_suspect_that_is_handed_over_or_stolen_does_not_wait() -> None:
    """Its owner has not come to an end: it is taken as soon as it is given, whatever the backoff is by now."""
    for heard in (True, False):
        scene = scene_with_events()
        a = kill_and_restart(scene, 2)
        scene.clock.advance(INTERVAL)
        a.settle()
        [suspect] = a.levels
        other = ({"0", "1"} - {suspect}).pop()
        assert a.manager.update_checkpoint(suspect, a.levels[suspect], 0)
        a.settle()
        assert set(a.levels) == {"0", "1"}
        assert not a.manager.held()[other].proven
        if not heard:
            scene.unheard(a)
        scene.ownership.claim_ownership(
            [dataclasses.replace(scene.records()[other], failures=40, nonce=scene.records()[other].nonce)]
        )
        b = scene.start("b", settings=SETTINGS)
        for _ in range(4):
            b.settle()
            a.settle()
            a.drain()
            scene.clock.advance(1)
        a.settle()
        b.settle()
        assert len(b.levels) == 1, heard


def test_a_lapse_of_trust_of_ones_own_does_not_count() -> None:
    scene = scene_with_events()
    a = scene.running("a", settings=SETTINGS)
    for _ in range(5):
        scene.clock.advance(25)
        a.settle()
        assert len(a.levels) == 2
    assert counts(scene) == {"0": 0, "1": 0}


def test_while_the_hub_is_away_counts_stay_as_they_are() -> None:
    """Who dies because the hub is away proves nothing about its partitions, and they are taken over all the same."""
    scene = scene_with_events()
    kill_and_restart(scene, 1)
    b = scene.start("a", settings=SETTINGS)
    b.ownership.after["list_ownership"] = lambda: setattr(scene.hub, "away", True)
    b.settle()
    assert not [notice for notice in b.take() if isinstance(notice, CycleFailed)]
    assert len(b.levels) == 2
    assert counts(scene) == {"0": 1, "1": 1}


def test_the_hub_is_asked_once_for_all_that_matter() -> None:
    scene = Scene(20)
    scene.running("a", settings=SETTINGS)
    asked: list[int] = []
    properties = scene.hub.partition_properties

    def count(partitions: list[str] | None = None) -> object:
        asked.append(len(partitions or ()))
        return properties(partitions)

    scene.hub.partition_properties = count  # type: ignore[method-assign, assignment]
    scene.running("a", settings=SETTINGS)
    assert asked == [20]
    assert len(scene.ownership.list_ownership(GROUP).records) == 20
