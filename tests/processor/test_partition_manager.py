"""The partition manager, one transition at a time. `test_campaign.py` lets it all happen at once."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from leasehold.errors import ConfigError, StoreUnavailable
from leasehold.model import BEFORE_FIRST, LATEST, Checkpoint, Ownership, Positions
from leasehold.notices import (
    CheckpointUpdated,
    CycleFailed,
    LossReason,
    OwnershipClaimed,
    OwnershipLost,
    OwnershipRelinquished,
)
from leasehold.ownership import Hold
from leasehold.stores.memory.store import MemoryStore
from tests.processor.fleet import GROUP, SETTINGS, TRUST, Scene, unavailable


@pytest.fixture
def scene() -> Scene:
    return Scene()


ALL = {"0": 1, "1": 1, "2": 1, "3": 1}
SECOND = {"0": 2, "1": 2, "2": 2, "3": 2}


# free → claimed → held


def test_claims_what_is_free(scene: Scene) -> None:
    a = scene.start()
    assert a.manager.held() == {}
    assert a.manager.tick()
    assert a.levels == ALL
    assert {record.owner_id for record in scene.records().values()} == {a.id}
    assert sorted(map(str, a.take())) == sorted(str(OwnershipClaimed(p, 1, "")) for p in "0123")


def test_the_level_is_in_the_checkpoint_before_the_partition_is_held(scene: Scene) -> None:
    a = scene.start()
    seen: list[dict[str, Hold]] = []
    a.checkpoints.after["list_checkpoints"] = lambda: seen.append(a.manager.held())
    a.ownership.after["claim_ownership"] = lambda: seen.append(a.manager.held())
    a.manager.tick()
    assert seen == [{}, {}]
    assert {p: c.owner_level for p, c in scene.progress().items()} == a.levels == ALL


def test_a_hold_starts_after_the_checkpoint(scene: Scene) -> None:
    scene.checkpoints.update_checkpoints([Checkpoint(GROUP, "0", 41, 0)])
    a = scene.running()
    assert {p: hold.start for p, hold in a.manager.held().items()} == {"0": 42, "1": 0, "2": 0, "3": 0}


def test_a_thief_goes_on_after_what_its_victim_recorded_until_the_last_moment(scene: Scene) -> None:
    a, b = scene.running("a"), scene.start("b")

    def meanwhile() -> None:
        assert all(a.manager.update_checkpoint(p, 1, 41) for p in ALL)

    b.ownership.after["claim_ownership"] = meanwhile
    scene.unheard(a)
    b.manager.tick()
    assert {hold.start for hold in b.manager.held().values()} == {42}


def test_two_share(scene: Scene) -> None:
    a, b = scene.running("a"), scene.start("b")
    b.settle()
    assert (len(a.levels), len(b.levels)) == (4, 0), "asked for, and not handed over yet"
    a.settle()
    assert len(a.drain()) == len(a.levels) == 2
    a.settle()
    b.settle()
    assert len(b.levels) == 2
    assert {notice.previous_owner for notice in b.take() if isinstance(notice, OwnershipClaimed)} == {""}
    a.settle()
    assert len(a.levels) == 2
    assert {*a.levels, *b.levels} == {"0", "1", "2", "3"}
    assert set(b.levels.values()) == {2}


def test_what_is_stolen_has_a_previous_owner(scene: Scene) -> None:
    a, b = scene.running("a"), scene.start("b")
    scene.unheard(a)
    b.settle()
    assert len(b.levels) == 2
    assert {notice.previous_owner for notice in b.take() if isinstance(notice, OwnershipClaimed)} == {a.id}


def test_a_lost_race_is_no_error(scene: Scene) -> None:
    a, b = scene.start("a"), scene.start("b")

    def meanwhile() -> None:
        scene.unheard(a)
        b.settle()

    a.ownership.before["claim_ownership"] = meanwhile
    assert not a.manager.tick()
    assert (a.levels, b.levels) == ({}, ALL)
    assert a.take() == []


def test_claimed_further_before_the_level_was_raised_is_not_held(scene: Scene) -> None:
    """Between a claim and raising its level, another claims and raises: the record's level is beyond ours."""
    a, b = scene.start("a"), scene.start("b")

    def pause() -> None:
        scene.clock.advance(SETTINGS.partition_expiration + 1)
        b.settle()
        b.settle()  # a second look, since everybody looked expired

    a.ownership.after["claim_ownership"] = pause
    a.manager.tick()
    assert (a.levels, b.levels) == ({}, SECOND)
    assert not [notice for notice in a.take() if isinstance(notice, OwnershipClaimed)]


@pytest.mark.parametrize(("seconds", "levels"), [(0.0, ALL), (TRUST - 0.001, ALL), (TRUST, SECOND)])
def test_the_store_goes_away_before_the_level_was_raised(scene: Scene, seconds: float, levels: dict[str, int]) -> None:
    """The claim is known by its nonce, and trusted for as long as from the start of its request."""
    a = scene.start()

    def cut() -> None:
        a.checkpoints.away = True

    a.ownership.after["claim_ownership"] = cut
    assert not a.manager.tick()
    assert a.levels == {}
    a.checkpoints.away = False
    scene.clock.advance(seconds)
    a.settle()
    assert a.levels == levels


# held → renew → held


def test_renewals_keep_the_hold_and_its_level(scene: Scene) -> None:
    a, b = scene.running("a"), scene.start("b", settings=dataclasses.replace(SETTINGS, strategy="balanced"))
    scene.share(a, b)
    b.take(), a.take()
    assert (len(a.levels), len(b.levels)) == (2, 2)
    before = a.levels, b.levels
    for _ in range(20):
        scene.clock.advance(10)
        assert not a.manager.tick()
        assert not b.manager.tick()
        assert (a.levels, b.levels) == before
    assert a.take() == b.take() == []


def test_trust_ends_before_the_store_lets_others_claim(scene: Scene) -> None:
    a = scene.running()
    scene.clock.advance(TRUST - 0.001)
    assert a.levels == ALL
    scene.clock.advance(0.001)
    assert a.levels == {}


@pytest.mark.parametrize("method", ["claim_ownership", "renew_ownership"])
def test_trust_counts_from_the_start_of_the_request(scene: Scene, method: str) -> None:
    a = scene.start()
    if method == "renew_ownership":
        a.settle()
        scene.clock.advance(5)
    a.ownership.before[method] = lambda: scene.clock.advance(2)
    a.ownership.after[method] = lambda: scene.clock.advance(1)
    a.manager.tick()
    scene.clock.advance(TRUST - 3 - 0.001)
    assert a.levels == ALL
    scene.clock.advance(0.001)
    assert a.levels == {}


# held → taken, lapsed, stalled, relinquished, superseded → not held


def test_taken(scene: Scene) -> None:
    a, b = scene.running("a"), scene.start("b")
    scene.unheard(a)
    b.settle()
    assert len(b.levels) == 2
    assert a.levels == ALL, "until its next renewal the victim does not know"
    a.manager.tick()
    assert sorted(map(str, a.take())) == sorted(str(OwnershipLost(p, 1, LossReason.TAKEN)) for p in b.levels)


def test_lapsed_and_reclaimed_at_a_higher_level(scene: Scene) -> None:
    a = scene.running()
    scene.clock.advance(TRUST)
    a.settle()
    assert a.levels == SECOND
    lost, won = a.notices[:4], a.notices[4:]
    assert sorted(map(str, lost)) == sorted(str(OwnershipLost(p, 1, LossReason.LAPSED)) for p in "0123")
    assert sorted(map(str, won)) == sorted(str(OwnershipClaimed(p, 2, "")) for p in "0123")


def test_a_renewal_that_comes_back_after_trust_ran_out_counts_for_nothing(scene: Scene) -> None:
    a = scene.running()
    scene.clock.advance(10)
    a.ownership.after["renew_ownership"] = lambda: scene.clock.advance(TRUST - 10)
    held_meanwhile: list[dict[str, int]] = []
    a.ownership.before["list_ownership"] = lambda: held_meanwhile.append(a.levels)
    a.settle()
    assert held_meanwhile == [{}]
    assert a.levels == SECOND
    assert OwnershipLost("0", 1, LossReason.LAPSED) in a.take()


def test_stalled_is_dropped_and_reclaimed_after_progress(scene: Scene) -> None:
    a = scene.running()
    for _ in range(60):
        scene.clock.advance(10)
        a.manager.tick()
    assert a.levels == ALL
    scene.clock.advance(1)
    a.manager.tick()
    assert a.levels == {}
    assert sorted(map(str, a.take())) == sorted(str(OwnershipLost(p, 1, LossReason.STALLED)) for p in "0123")
    scene.clock.advance(10)
    assert not a.manager.tick()
    assert a.levels == {}
    assert a.manager.note_progress()
    assert not a.manager.note_progress()
    a.settle()
    assert a.levels == SECOND


def test_stalled_partitions_go_to_others(scene: Scene) -> None:
    a, b = scene.running("a"), scene.start("b")
    for _ in range(70):
        scene.clock.advance(10)
        a.manager.tick()
        b.manager.note_progress()
        b.settle()
    assert (a.levels, len(b.levels)) == ({}, 4)


def test_what_hangs_is_free_at_once_with_its_reason_also_when_trust_had_run_out(scene: Scene) -> None:
    a = scene.running()
    a.manager.hold_no_more(True)
    scene.clock.advance(TRUST)
    a.manager.tick()
    assert (a.levels, scene.records()["0"].owner_id) == ({}, a.id)
    assert a.manager.give_up("0", 1, "it hung")
    assert a.manager.attention.is_set()
    a.manager.tick()
    given_up, kept = scene.records()["0"], scene.records()["1"]
    assert (given_up.owner_id, given_up.failures, given_up.last_error) == ("", 1, "it hung")
    assert (kept.owner_id, kept.failures) == (a.id, 0)


def test_what_hangs_is_free_at_once_also_when_all_of_the_work_has_stalled(scene: Scene) -> None:
    a = scene.running()
    a.manager.hold_no_more(True)
    scene.clock.advance(SETTINGS.stall_timeout + 1)
    a.manager.tick()
    assert a.manager.give_up("0", 1, "it hung")
    a.manager.tick()
    assert (scene.records()["0"].owner_id, scene.records()["0"].last_error) == ("", "it hung")


def test_what_hangs_and_was_taken_meanwhile_stays_the_others(scene: Scene) -> None:
    a, b = scene.running("a"), scene.start("b")
    a.manager.hold_no_more(True)
    scene.unheard(a)
    b.settle()
    assert all(a.manager.give_up(partition, 1, "it hung") for partition in b.levels)
    a.settle()
    assert {p: scene.records()[p].owner_id for p in b.levels} == dict.fromkeys(b.levels, b.id)
    assert not any(scene.records()[p].last_error for p in b.levels)


def test_progress_keeps_it_from_stalling(scene: Scene) -> None:
    a = scene.running()
    for _ in range(100):
        scene.clock.advance(10)
        a.manager.note_progress()
        a.manager.tick()
    assert a.levels == ALL


def test_relinquished_is_free_at_once(scene: Scene) -> None:
    a, b = scene.running("a"), scene.start("b")
    a.manager.relinquish()
    assert a.levels == {}
    assert sorted(map(str, a.take())) == sorted(str(OwnershipRelinquished(p, 1)) for p in "0123")
    b.settle()
    assert b.levels == SECOND


def test_relinquishing_holds_nothing_from_the_start_of_the_request(scene: Scene) -> None:
    a = scene.running()
    seen: list[dict[str, int]] = []
    a.ownership.before["relinquish_ownership"] = lambda: seen.append(a.levels)
    a.manager.relinquish()
    assert seen == [{}]


def test_relinquishing_with_the_store_away(scene: Scene) -> None:
    a, b = scene.running("a"), scene.start("b")
    a.ownership.away = True
    with pytest.raises(StoreUnavailable):
        a.manager.relinquish()
    assert a.levels == {}
    b.settle()
    scene.live(40, b)
    assert len(b.levels) == 4


def test_relinquishing_nothing_only_takes_back_the_presence(scene: Scene) -> None:
    a, b = scene.running("a"), scene.running("b")
    assert scene.present() == {a.id, b.id}
    b.ownership.calls.clear()
    b.manager.relinquish()
    assert b.ownership.calls == ["withdraw_presence"]
    assert scene.present() == {a.id}
    assert b.take() == []


def test_what_was_taken_is_not_relinquished(scene: Scene) -> None:
    a, b = scene.running("a"), scene.start("b")
    scene.unheard(a)
    b.settle()
    assert len(b.levels) == 2
    a.manager.relinquish()
    assert {p: scene.records()[p].owner_id for p in b.levels} == dict.fromkeys(b.levels, b.id)


def test_superseded(scene: Scene) -> None:
    """Somebody has stolen and raised; the victim learns it from its checkpoint before its next renewal."""
    a, b = scene.running("a"), scene.start("b")
    scene.unheard(a)
    b.settle()
    stolen = sorted(b.levels)[0]
    assert not a.manager.update_checkpoint(stolen, 1, 7)
    assert stolen not in a.levels
    assert a.take() == [OwnershipLost(stolen, 1, LossReason.SUPERSEDED)]
    assert scene.progress()[stolen] == Checkpoint(GROUP, stolen, BEFORE_FIRST, 2)


# Owner levels rise at every acquisition


def test_the_level_rises_after_relinquishing(scene: Scene) -> None:
    a = scene.running()
    for level in range(2, 5):
        a.manager.relinquish()
        a.settle()
        assert set(a.levels.values()) == {level}


def test_the_level_rises_after_expiry(scene: Scene) -> None:
    scene.running("a")
    b = scene.start("b")
    scene.clock.advance(SETTINGS.partition_expiration + 0.001)
    b.settle()
    assert b.levels == {}, "everybody looks expired, so it looks again"
    assert scene.clock.monotonic() < b.manager.due <= scene.clock.monotonic() + SETTINGS.load_balancing_interval / 2
    b.settle()
    assert b.levels == SECOND


def test_nothing_is_claimed_a_moment_before_expiry(scene: Scene) -> None:
    a, b = scene.running("a"), scene.start("b")
    scene.clock.advance(SETTINGS.partition_expiration)
    for _ in range(3):
        b.settle()
    assert (b.levels, len(scene.asks())) == ({}, 2), "asked for, as of any live owner"
    scene.unheard(a)
    b.settle()
    assert len(b.levels) == 2, "stolen, as from any live owner that cannot be asked"


def test_the_level_of_the_checkpoint_counts_where_the_ownership_was_wiped(scene: Scene) -> None:
    for _ in range(3):
        scene.running("a").manager.relinquish()
    scene.ownership = MemoryStore(scene.clock)
    b = scene.running("b")
    assert set(b.levels.values()) == {4}


def test_the_ownership_is_wiped_under_a_holder(scene: Scene) -> None:
    a = scene.running()
    scene.ownership._ownership.clear()
    a.settle()
    assert a.levels == SECOND
    assert OwnershipLost("0", 1, LossReason.TAKEN) in a.take()


def test_the_ownership_is_restored_from_an_older_copy(scene: Scene) -> None:
    a = scene.running()
    older = scene.records()
    for _ in range(3):
        a.manager.relinquish()
        a.settle()
    assert set(a.levels.values()) == {4}
    scene.ownership._ownership = {(GROUP, p): record for p, record in older.items()}
    a.settle()
    assert set(a.levels.values()) == {5}


def test_the_level_of_the_ownership_counts_where_the_checkpoints_were_wiped(scene: Scene) -> None:
    a = scene.running()
    a.manager.relinquish()
    scene.checkpoints._checkpoints.clear()
    a.settle()
    assert a.levels == SECOND


# Where to start


def test_latest_means_the_same_to_every_later_owner(scene: Scene) -> None:
    scene.hub.ends = {"0": 100, "1": 200}
    a = scene.start("a", positions=Positions(LATEST))
    a.settle()
    scene.hub.ends = {"0": 150, "1": 250}
    a.manager.relinquish()
    b = scene.start("b", positions=Positions(LATEST))
    b.settle()
    assert {p: hold.start for p, hold in b.manager.held().items()} == {"0": 100, "1": 200}


def test_the_start_is_recorded_for_all_partitions_also_for_those_not_claimed(scene: Scene) -> None:
    scene.hub.ends = {str(p): 100 + p for p in range(4)}
    a = scene.start("a", positions=Positions(LATEST), settings=dataclasses.replace(SETTINGS, strategy="balanced"))
    a.manager.tick()
    assert len(a.levels) == 1
    assert {p: c.next_sequence_number for p, c in scene.progress().items()} == scene.hub.ends
    scene.hub.ends = {str(p): 500 for p in range(4)}
    b = scene.start("b", positions=Positions(LATEST))
    b.settle()
    a.settle()
    starts = {p: hold.start for one in (a, b) for p, hold in one.manager.held().items()}
    assert starts == {str(p): 100 + p for p in range(4)}


def test_two_that_start_a_group_at_once_agree(scene: Scene) -> None:
    scene.hub.ends = {str(p): 100 for p in range(4)}
    a, b = (scene.start(name, positions=Positions(LATEST)) for name in "ab")

    def meanwhile() -> None:
        b.manager.tick()
        scene.hub.ends = {str(p): 200 for p in range(4)}

    a.checkpoints.after["list_checkpoints"] = meanwhile
    a.settle()
    a.settle()
    b.settle()
    assert len(a.levels) == len(b.levels) == 2
    assert {hold.start for one in (a, b) for hold in one.manager.held().values()} == {100}


def test_a_crash_right_after_recording_the_start(scene: Scene) -> None:
    scene.hub.ends = {str(p): 100 for p in range(4)}
    a = scene.start("a", positions=Positions(LATEST))
    a.ownership.before["claim_ownership"] = unavailable
    a.manager.tick()
    scene.hub.ends = {str(p): 200 for p in range(4)}
    b = scene.start("b", positions=Positions(LATEST))
    b.settle()
    assert {hold.start for hold in b.manager.held().values()} == {100}


def test_a_partition_that_appears_later_starts_at_earliest(scene: Scene) -> None:
    scene.hub.ends = {"0": 100}
    a = scene.start("a", positions=Positions(LATEST))
    a.settle()
    scene.hub.ends["1"] = 50
    a.settle()
    assert {p: hold.start for p, hold in a.manager.held().items()} == {"0": 100, "1": 0}


def test_committed_is_earliest_in_a_new_group(scene: Scene) -> None:
    scene.hub.ends = {"0": 100}
    a = scene.start("a", positions=Positions.parse("committed"))
    a.settle()
    assert a.manager.held()["0"].start == 0


def test_a_position_that_cannot_be_resolved_stops_the_instance(scene: Scene) -> None:
    a = scene.start("a", positions=Positions.parse('{"2": 999}'))
    assert not a.manager.tick()
    for ask in (a.manager.held, lambda: a.manager.update_checkpoint("0", 1, 1)):
        with pytest.raises(ConfigError, match="beyond the end"):
            ask()
    assert [type(notice) for notice in a.take()] == [CycleFailed]
    assert scene.records() == {}


# Replies that are lost


def test_a_lost_reply_to_a_renewal_is_recognised_as_still_mine(scene: Scene) -> None:
    a = scene.running()
    scene.clock.advance(10)
    a.ownership.lose_reply("renew_ownership")
    a.manager.tick()
    assert a.levels == ALL
    scene.clock.advance(10)
    a.manager.tick()
    assert a.levels == ALL, "the same level: nobody else has had it meanwhile"
    scene.clock.advance(TRUST - 0.001)
    assert a.levels == ALL, "and renewed as from this cycle"
    assert [type(notice) for notice in a.take()] == [CycleFailed]


def test_a_lost_reply_to_the_second_renewal_of_a_cycle(scene: Scene) -> None:
    a = scene.running()
    a.ownership.lose_reply("renew_ownership")
    a.manager.tick()

    def lose_the_next() -> None:
        a.ownership.lose_reply("renew_ownership")

    a.ownership.before["list_ownership"] = lose_the_next
    scene.clock.advance(10)
    a.manager.tick()
    scene.clock.advance(10)
    a.manager.tick()
    assert a.levels == ALL


def test_a_lost_reply_to_a_renewal_and_then_a_steal(scene: Scene) -> None:
    a, b = scene.running("a"), scene.start("b")
    a.ownership.lose_reply("renew_ownership")
    a.manager.tick()
    scene.unheard(a)
    b.settle()
    assert len(b.levels) == 2
    a.manager.tick()
    assert set(a.levels) == set(ALL) - set(b.levels)
    assert set(a.levels.values()) == {1}


def test_stolen_while_a_renewal_with_a_lost_reply_is_being_settled(scene: Scene) -> None:
    a, b = scene.running("a"), scene.start("b")
    a.ownership.lose_reply("renew_ownership")
    a.manager.tick()

    def steal() -> None:
        scene.unheard(a)
        b.settle()

    a.ownership.after["list_ownership"] = steal
    a.take()
    a.manager.tick()
    assert len(b.levels) == 2
    assert set(a.levels) == set(ALL) - set(b.levels)
    lost = {notice.partition for notice in a.take() if isinstance(notice, OwnershipLost)}
    assert lost == set(b.levels)


def test_a_lost_reply_to_a_claim_is_known_by_its_nonce_and_held_at_the_same_level(scene: Scene) -> None:
    a = scene.start()
    a.ownership.lose_reply("claim_ownership")
    assert not a.manager.tick()
    assert a.levels == {}
    a.settle()
    assert a.levels == ALL
    assert sorted(map(str, a.take()[1:])) == sorted(str(OwnershipClaimed(p, 1, "")) for p in "0123")


def test_a_lost_reply_to_a_steal_is_known_by_its_nonce(scene: Scene) -> None:
    a, b = scene.running("a"), scene.start("b")
    scene.unheard(a)
    b.ownership.lose_reply("claim_ownership")
    assert not b.manager.tick()
    b.manager.tick()
    assert sorted(b.levels.values()) == [2, 2]
    assert {notice.previous_owner for notice in b.take() if isinstance(notice, OwnershipClaimed)} == {a.id}


def test_a_claim_whose_reply_was_lost_is_trusted_from_the_start_of_its_request(scene: Scene) -> None:
    a = scene.start()
    a.ownership.before["claim_ownership"] = lambda: scene.clock.advance(2)
    a.ownership.after["claim_ownership"] = unavailable
    a.manager.tick()
    scene.clock.advance(10)
    a.ownership.before["list_ownership"] = lambda: scene.clock.advance(1)
    a.manager.tick()
    scene.clock.advance(TRUST - 13 - 0.001)
    assert a.levels == ALL
    scene.clock.advance(0.001)
    assert a.levels == {}


def test_a_claim_whose_reply_was_lost_and_found_too_late_is_made_again(scene: Scene) -> None:
    a = scene.start()
    a.ownership.lose_reply("claim_ownership")
    a.manager.tick()
    scene.clock.advance(TRUST)
    a.settle()
    assert a.levels == SECOND
    assert {str(notice) for notice in a.take()[1:]} == {str(OwnershipClaimed(p, 2, "")) for p in "0123"}


def test_a_claim_whose_reply_was_lost_and_that_was_taken_since_is_not_held(scene: Scene) -> None:
    a, b = scene.start("a"), scene.start("b")
    a.ownership.lose_reply("claim_ownership")
    a.manager.tick()
    scene.unheard(a)
    b.settle()
    a.settle()
    assert sorted(b.levels.values()) == [2, 2]
    assert set(a.levels) == set(ALL) - set(b.levels)
    assert set(a.levels.values()) == {1}


def test_a_lost_reply_to_raising_the_level_is_held_at_the_same_level(scene: Scene) -> None:
    scene.running("b").manager.relinquish()
    a = scene.start()
    a.ownership.after["claim_ownership"] = lambda: a.checkpoints.lose_reply("raise_owner_level")
    assert not a.manager.tick()
    assert a.levels == {}
    a.settle()
    assert a.levels == SECOND


def test_a_lost_reply_to_relinquishing(scene: Scene) -> None:
    a = scene.running()
    a.ownership.lose_reply("relinquish_ownership")
    with pytest.raises(StoreUnavailable):
        a.manager.relinquish()
    assert a.levels == {}
    a.settle()
    assert a.levels == SECOND


# A predecessor


def test_a_predecessor_of_the_same_name_is_taken_over_at_once(scene: Scene) -> None:
    scene.running("a")
    again = scene.start("a")
    again.manager.tick()
    assert again.levels == SECOND


def test_only_at_the_start(scene: Scene) -> None:
    first, other = scene.running("a"), scene.start("b")
    scene.share(first, other)
    second = scene.start("a")
    second.manager.tick()
    assert set(second.levels) == set(ALL) - set(other.levels)
    mine = first.levels
    first.take()
    first.manager.tick()
    assert first.take()[: len(mine)] == [OwnershipLost(p, level, LossReason.TAKEN) for p, level in mine.items()]
    scene.live(50, first, second, other)
    owners = {record.owner_id for record in scene.records().values()}
    assert owners == {first.id, second.id, other.id}, "and from now on they share as strangers"


@pytest.mark.parametrize(
    ("store", "method"),
    [("checkpoints", "list_checkpoints"), ("checkpoints", "raise_owner_level"), ("ownership", "claim_ownership")],
)
def test_a_start_lasts_until_a_whole_cycle_has_succeeded(scene: Scene, store: str, method: str) -> None:
    """The listing came through and what followed did not: the predecessor is taken over in the next cycle."""
    scene.running("a")
    again = scene.start("a")
    for _ in range(2):
        getattr(again, store).before[method] = unavailable
        again.checkpoints.away = method == "list_checkpoints"  # it is tried again before anything is claimed
        assert not again.manager.tick()
        assert again.levels == {}
        assert "list_ownership" in again.ownership.calls
    again.checkpoints.away = False
    assert again.manager.tick()
    assert again.levels == SECOND, "at once, though nothing has expired"
    assert [type(notice) for notice in again.take()[:2]] == [CycleFailed] * 2


def test_a_start_ends_with_a_cycle_that_wins_nothing(scene: Scene) -> None:
    first = scene.running("a")
    scene.hub.ends = {}
    second = scene.start("a")
    assert not second.manager.tick()
    scene.hub.ends = {str(p): 0 for p in range(4)}
    second.manager.tick()
    assert (len(first.levels), second.levels, len(scene.asks())) == (4, {}, 2)
    scene.share(first, second)
    owners = [record.owner_id for record in scene.records().values()]
    assert sorted(owners) == sorted([first.id] * 2 + [second.id] * 2), "shared, as with a stranger"


def test_another_of_a_similar_name_is_left_alone(scene: Scene) -> None:
    a, aa = scene.running("a"), scene.start("aa")
    aa.manager.tick()
    assert (len(a.levels), aa.levels) == (4, {})
    scene.share(a, aa)
    assert len([record for record in scene.records().values() if record.owner_id == a.id]) == 2


# A store that is away


def test_a_store_that_is_away_does_not_end_a_hold_before_its_time(scene: Scene) -> None:
    a = scene.running()
    a.ownership.away = a.checkpoints.away = True
    for _ in range(2):
        scene.clock.advance(11)
        a.manager.tick()
        assert a.levels == ALL
    scene.clock.advance(1)
    assert a.levels == {}
    assert all(isinstance(notice, CycleFailed) for notice in a.take())


@pytest.mark.parametrize(("method", "left"), [("renew_ownership", 13), ("list_ownership", 23)])
def test_a_store_that_hangs_does_not_stretch_trust(scene: Scene, method: str, left: float) -> None:
    a = scene.running()
    scene.clock.advance(10)
    seen: list[dict[str, int]] = []

    def hang() -> None:
        scene.clock.advance(left - 0.001)
        seen.append(a.levels)
        scene.clock.advance(0.001)
        seen.append(a.levels)
        unavailable()

    a.ownership.before[method] = hang
    a.manager.tick()
    assert seen == [ALL, {}]


def outage(scene: Scene, names: str, seconds: float) -> None:
    """All instances of a fleet lose the store for so long; then it comes back."""
    fleet = {name: scene.running(name) for name in names}
    scene.share(*fleet.values())
    before = {record.partition: record.owner_id for record in scene.records().values()}
    levels = {name: one.levels for name, one in fleet.items()}
    assert sorted(map(len, levels.values())) == [4, 4, 4]
    for one in fleet.values():
        one.ownership.away = one.checkpoints.away = True
    last_renewal, gone = scene.clock.monotonic(), 0.0
    while gone < seconds:
        for one in fleet.values():
            one.manager.note_progress()
            one.manager.tick()
            scene.clock.advance(10 / len(fleet))
            gone += 10 / len(fleet)
            if scene.clock.monotonic() - last_renewal >= TRUST:
                assert all(other.levels == {} for other in fleet.values()), "a hold past its trust"
    for one in fleet.values():
        one.ownership.away = one.checkpoints.away = False
    for _ in range(3):
        for one in reversed(fleet.values()):
            one.settle()
            scene.clock.advance(10 / len(fleet))
    after = {record.partition: record.owner_id for record in scene.records().values()}
    assert after == before, "the outage shuffled a healthy fleet"
    for name, one in fleet.items():
        assert set(one.levels) == set(levels[name])


@pytest.mark.parametrize("seconds", [5, 20, 29, 31, 60, 1200])
def test_an_outage_does_not_shuffle_a_healthy_fleet(seconds: float) -> None:
    outage(Scene(12), "abc", seconds)


def test_a_pause_of_all_does_not_shuffle_a_healthy_fleet() -> None:
    """The whole host slept, or the store hung and then answered: nobody could renew."""
    scene = Scene(12)
    fleet = [scene.running(name) for name in "abc"]
    scene.share(*fleet)
    before = {record.partition: record.owner_id for record in scene.records().values()}
    assert len(set(before.values())) == 3
    scene.clock.advance(300)
    for one in fleet * 2:
        one.settle()
    assert {record.partition: record.owner_id for record in scene.records().values()} == before


def test_who_holds_nothing_waits_for_the_others_after_an_outage_of_writes_only() -> None:
    """Listings come through, so it has never lost sight of the store; but the owners could not renew."""
    scene = Scene(2)
    a, b = scene.running("a"), scene.running("b")
    scene.share(a, b)
    assert len(a.levels) == len(b.levels) == 1
    c = scene.running("c")
    assert c.levels == {}
    before = {record.partition: record.owner_id for record in scene.records().values()}
    for _ in range(4):
        scene.clock.advance(10)
        for one in (a, b):
            one.ownership.before["renew_ownership"] = one.ownership.before["claim_ownership"] = unavailable
            one.manager.tick()
        c.ownership.before["claim_ownership"] = unavailable
        c.manager.tick()
    for one in (a, b):
        one.ownership.before.clear()
    scene.clock.advance(5)
    for one in (c, a, b, c):
        one.settle()
    assert {record.partition: record.owner_id for record in scene.records().values()} == before


def test_the_dead_are_not_spared_by_an_outage(scene: Scene) -> None:
    a, b = scene.running("a"), scene.running("b")
    scene.share(a, b)
    assert len(a.levels) == len(b.levels) == 2
    a.ownership.away = True
    scene.live(40, a)
    a.ownership.away = False
    scene.live(10, a)
    assert len(a.levels) == 2
    scene.live(20, a)
    assert len(a.levels) == 4


def test_a_listing_that_took_too_long_is_not_acted_upon(scene: Scene) -> None:
    """It shows others as expired that may have been unable to renew for as long."""
    a, b = scene.running("a"), scene.running("b")
    scene.share(a, b)
    assert len(a.levels) == len(b.levels) == 2
    a.manager.tick()
    scene.clock.advance(10)
    a.ownership.before["list_ownership"] = lambda: scene.clock.advance(25)
    a.manager.tick()
    assert {record.owner_id for record in scene.records().values()} == {a.id, b.id}


# A hub that is away


def test_a_hub_that_is_away_known_partitions_are_used(scene: Scene) -> None:
    a, b = scene.running("a"), scene.running("b")
    scene.share(a, b)
    scene.hub.away = True
    scene.live(20, a, b)
    assert (len(a.levels), len(b.levels)) == (2, 2)
    scene.live(40, a)
    assert len(a.levels) == 4, "also for taking over from the dead"


def test_a_hub_that_is_away_at_the_start(scene: Scene) -> None:
    scene.hub.away = True
    a = scene.start()
    assert not a.manager.tick()
    assert [type(notice) for notice in a.take()] == [CycleFailed]
    scene.hub.away = False
    a.settle()
    assert a.levels == ALL


def test_new_partitions_are_noticed_while_running(scene: Scene) -> None:
    a = scene.running()
    scene.hub.ends["4"] = 0
    a.settle()
    assert a.levels == {**ALL, "4": 1}


# Checkpoints


def test_a_checkpoint_is_recorded(scene: Scene) -> None:
    a = scene.running()
    assert a.manager.update_checkpoint("0", 1, 7, "offset")
    assert scene.progress()["0"] == Checkpoint(GROUP, "0", 7, 1, "offset")
    assert a.take() == [CheckpointUpdated("0", 1, 7)]


@pytest.mark.parametrize(("partition", "level"), [("0", 0), ("0", 2), ("9", 1)])
def test_a_checkpoint_of_what_is_not_held_does_nothing(scene: Scene, partition: str, level: int) -> None:
    a = scene.running()
    a.checkpoints.calls.clear()
    assert not a.manager.update_checkpoint(partition, level, 7)
    assert a.checkpoints.calls == []


def test_a_checkpoint_after_trust_ran_out_does_nothing(scene: Scene) -> None:
    a = scene.running()
    scene.clock.advance(TRUST)
    assert not a.manager.update_checkpoint("0", 1, 7)
    assert scene.progress()["0"].sequence_number == BEFORE_FIRST


def test_a_checkpoint_of_an_earlier_level_does_nothing(scene: Scene) -> None:
    a = scene.running()
    a.manager.relinquish()
    a.settle()
    assert not a.manager.update_checkpoint("0", 1, 7)
    assert a.manager.update_checkpoint("0", 2, 7)


def test_a_store_that_is_away_is_the_callers_to_retry(scene: Scene) -> None:
    a = scene.running()
    a.checkpoints.lose_reply("update_checkpoints")
    with pytest.raises(StoreUnavailable):
        a.manager.update_checkpoint("0", 1, 7)
    assert a.manager.update_checkpoint("0", 1, 7)
    assert a.levels == ALL


def test_a_step_back_is_refused_and_the_partition_is_acquired_anew(scene: Scene) -> None:
    """It means that this level was not ours alone: a store was restored. A higher level is a clean start."""
    a = scene.running()
    assert a.manager.update_checkpoint("0", 1, 7)
    assert not a.manager.update_checkpoint("0", 1, 6)
    assert "0" not in a.levels
    a.settle()
    assert a.levels == {**ALL, "0": 2}
    assert a.manager.held()["0"].start == 8


def test_a_loss_that_comes_late_does_not_end_a_newer_hold(scene: Scene) -> None:
    """While a checkpoint is on its way, the partition is lost and acquired anew."""
    a = scene.running()

    def meanwhile() -> None:
        a.manager.relinquish()
        a.settle()

    a.checkpoints.before["update_checkpoints"] = meanwhile
    assert not a.manager.update_checkpoint("0", 1, 7)
    assert a.levels == SECOND


# Cycles


def test_every_cycle_counts_well_or_not(scene: Scene) -> None:
    a = scene.start()
    assert a.manager.cycles == 0
    assert not a.manager.wait_for_cycle(1, timeout=0)
    a.manager.tick()
    a.ownership.away = True
    a.manager.tick()
    assert a.manager.cycles == 2
    assert a.manager.wait_for_cycle(2, timeout=0)


def test_who_waits_for_a_cycle_is_woken(scene: Scene) -> None:
    a = scene.start()
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(a.manager.wait_for_cycle(1, timeout=60)))
    thread.start()
    a.manager.tick()
    thread.join()
    assert woken == [True]


def test_an_unexpected_error_counts_as_a_cycle_and_comes_out(scene: Scene) -> None:
    a = scene.start()

    def bug() -> None:
        raise ZeroDivisionError

    a.ownership.before["list_ownership"] = bug
    with pytest.raises(ZeroDivisionError):
        a.manager.tick()
    assert a.manager.cycles == 1
    a.settle()
    assert a.levels == ALL


def test_a_group_whose_checkpoints_were_lost_starts_at_earliest(scene: Scene) -> None:
    scene.hub.ends["0"] = 100
    scene.ownership.claim_ownership([Ownership(GROUP, "1", "", 4)])
    a = scene.start(positions=Positions(LATEST))
    a.settle()
    assert {p: hold.start for p, hold in a.manager.held().items()} == {"0": 0, "1": 0, "2": 0, "3": 0}
