"""The contract of `OwnershipStore`, as tests. See `leasehold_testkit.contracts.stores` for how to use it."""

from __future__ import annotations

import dataclasses
import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

import pytest

from leasehold.errors import StoreUnavailable
from leasehold.model import Ask, ConsumerGroup, Ownership, Presence
from leasehold.stores.base import OwnershipStore
from leasehold_testkit.contracts.stores.groups import (
    FEWER_WORDS,
    HOSTILE_NAMES,
    LARGEST,
    WORDS,
    at_once,
    ending_by_itself,
    groups_alike,
    new_group,
)
from leasehold_testkit.contracts.stores.kept_ownership import KeptOwnershipContract
from leasehold_testkit.contracts.stores.ownership_records import claim, history, records
from leasehold_testkit.contracts.stores.presence import PresenceContract
from leasehold_testkit.contracts.stores.schema_keepers import assert_made_once

CLAIMERS = 100
"""How many threads claim the same record at once."""

MANY = 5_000
"""How many partitions one listing must be able to hold."""


class OwnershipStoreContract(KeptOwnershipContract, PresenceContract):
    """What every `OwnershipStore` must do."""

    @pytest.fixture
    def store(self) -> OwnershipStore:
        """The store under test. It need not be empty."""
        raise NotImplementedError("the subclass gives the store")

    @pytest.fixture
    def reopen(self, store: OwnershipStore) -> Callable[[], OwnershipStore]:
        """Opens the same store as another process would."""
        return lambda: store

    @pytest.fixture
    def wait(self) -> Callable[[float], None]:
        """Lets that many seconds pass on the store's clock."""
        return time.sleep

    @pytest.fixture
    def resolution(self) -> float:
        """How finely the store's clock tells times apart, in seconds."""
        return 0.001

    @pytest.fixture
    def pause(self, store: OwnershipStore, resolution: float) -> float:
        """How long to wait for an age to show."""
        if not store.features.own_clock:
            pytest.skip("the store has no clock of its own")
        return max(0.05, 2 * resolution)

    @pytest.fixture
    def hung(self) -> AbstractContextManager[OwnershipStore] | None:
        """A store whose backend does not answer while it is entered, with a time-out of at most a second.

        None where no call ever waits.
        """
        return None

    @pytest.fixture
    def group(self) -> ConsumerGroup:
        return new_group()

    @pytest.fixture
    def many(self) -> int:
        """How many partitions are many. Where fewer are given, let them be more than a page of a listing."""
        return MANY

    @pytest.fixture
    def alike(self, store: OwnershipStore) -> list[ConsumerGroup]:
        """Groups that differ little: fewer where each record is a request of its own."""
        return groups_alike(WORDS if store.features.batches else FEWER_WORDS)

    def test_is_an_ownership_store(self, store: OwnershipStore) -> None:
        assert isinstance(store, OwnershipStore)

    # list_ownership

    def test_a_new_group_has_no_records(self, store: OwnershipStore, group: ConsumerGroup) -> None:
        assert store.list_ownership(group).records == ()

    def test_lists_all_records_also_relinquished_ones(self, store: OwnershipStore, group: ConsumerGroup) -> None:
        claimed = store.claim_ownership([Ownership(group, str(p), f"owner-{p}", p + 1) for p in range(20)])
        given_up = store.relinquish_ownership(claimed[:5])
        assert len(given_up) == 5
        assert records(store, group) == {one.partition: one for one in (*given_up, *claimed[5:])}

    def test_lists_expired_records(
        self,
        store: OwnershipStore,
        group: ConsumerGroup,
        wait: Callable[[float], None],
        resolution: float,
        pause: float,
    ) -> None:
        claim(store, group)
        wait(2 * pause)
        listing = store.list_ownership(group)
        assert listing.as_of - listing.records[0].last_modified >= 2 * pause - resolution

    def test_lists_thousands_of_partitions(self, store: OwnershipStore, group: ConsumerGroup, many: int) -> None:
        claims = [Ownership(group, str(p), f"owner-{p % 7}", p + 1) for p in range(many)]
        won = store.claim_ownership(claims)
        assert len(won) == many
        assert records(store, group) == {one.partition: one for one in won}

    def test_lists_no_records_of_another_group(self, store: OwnershipStore, alike: list[ConsumerGroup]) -> None:
        won = store.claim_ownership([Ownership(one, "0", f"owner-{n}", n + 1) for n, one in enumerate(alike)])
        assert len(won) == len(alike)
        for number, one in enumerate(alike[::7]):
            listed = store.list_ownership(one).records
            assert [(r.group, r.owner_id) for r in listed] == [(one, f"owner-{7 * number}")]

    def test_groups_are_claimed_renewed_and_relinquished_apart(self, store: OwnershipStore) -> None:
        first, second = new_group(), new_group()
        mine, theirs = claim(store, first, owner="a"), claim(store, second, owner="b")
        assert store.renew_ownership([dataclasses.replace(mine, group=second)]) == []
        assert store.relinquish_ownership([dataclasses.replace(mine, group=second)]) == []
        assert store.claim_ownership([dataclasses.replace(mine, group=second, owner_id="c")]) == []
        store.relinquish_ownership([mine])
        assert records(store, second) == {"0": theirs}

    def test_age_is_as_of_less_last_modified(
        self,
        store: OwnershipStore,
        group: ConsumerGroup,
        wait: Callable[[float], None],
        resolution: float,
        pause: float,
    ) -> None:
        claimed = claim(store, group)
        wait(pause)
        first = store.list_ownership(group)
        wait(pause)
        second = store.list_ownership(group)
        assert first.records[0].last_modified == second.records[0].last_modified == claimed.last_modified
        assert first.as_of - claimed.last_modified >= pause - resolution
        assert second.as_of - first.as_of >= pause - resolution

    def test_a_store_without_a_clock_gives_0_for_all_times(
        self, store: OwnershipStore, group: ConsumerGroup, wait: Callable[[float], None]
    ) -> None:
        if store.features.own_clock:
            pytest.skip("the store has a clock of its own")
        wait(0.05)
        [renewed] = store.renew_ownership([claim(store, group)], Presence(group, "me"))
        listing = store.list_ownership(group)
        times = {one.last_modified for one in (renewed, *listing.records)}
        times |= {time for one in listing.presences for time in (one.created, one.last_modified)}
        assert times | {listing.as_of} == {0.0}

    def test_age_is_never_negative(
        self, store: OwnershipStore, reopen: Callable[[], OwnershipStore], group: ConsumerGroup
    ) -> None:
        claimed = claim(store, group)
        other = reopen()
        for _ in range(10):
            [claimed] = store.renew_ownership([claimed])
            listing = other.list_ownership(group)
            assert listing.records[0].last_modified <= listing.as_of

    def test_one_clock_for_all_who_use_the_store(
        self,
        store: OwnershipStore,
        reopen: Callable[[], OwnershipStore],
        group: ConsumerGroup,
        wait: Callable[[float], None],
        pause: float,
    ) -> None:
        before = store.list_ownership(group).as_of
        wait(pause)
        between = reopen().list_ownership(group).as_of
        wait(pause)
        assert before < between < store.list_ownership(group).as_of

    # claim_ownership

    def test_a_claim_is_returned_as_it_now_stands(self, store: OwnershipStore, group: ConsumerGroup) -> None:
        claimed = claim(store, group, owner="name/incarnation", level=7)
        assert (claimed.group, claimed.partition, claimed.owner_id, claimed.owner_level) == (
            group,
            "0",
            "name/incarnation",
            7,
        )
        assert claimed.etag
        assert records(store, group) == {"0": claimed}

    def test_a_claim_is_there_for_another_process(
        self, store: OwnershipStore, reopen: Callable[[], OwnershipStore], group: ConsumerGroup
    ) -> None:
        claimed = claim(store, group)
        assert records(reopen(), group) == {"0": claimed}

    def test_a_claim_carries_how_the_partition_came_to_its_owner(
        self, store: OwnershipStore, reopen: Callable[[], OwnershipStore], group: ConsumerGroup
    ) -> None:
        made = history(group)
        [claimed] = store.claim_ownership([made])
        assert claimed == dataclasses.replace(made, etag=claimed.etag, last_modified=claimed.last_modified)
        assert records(reopen(), group) == {"0": claimed}
        later = dataclasses.replace(
            claimed,
            owner_id="b/2",
            owner_level=8,
            nonce="another",
            successor="",
            claimed_at=LARGEST,
            failures=0,
            last_error="",
        )
        [again] = store.claim_ownership([later])
        assert again == dataclasses.replace(later, etag=again.etag, last_modified=again.last_modified)
        assert records(reopen(), group) == {"0": again}

    def test_after_a_lost_reply_the_nonce_tells_whose_claim_it_was(
        self, store: OwnershipStore, reopen: Callable[[], OwnershipStore], group: ConsumerGroup
    ) -> None:
        before = claim(store, group, owner="a", level=1)
        mine = dataclasses.replace(before, owner_id="b", owner_level=2, nonce=secrets.token_hex(8))
        store.claim_ownership([mine])  # … and the answer never came
        assert store.claim_ownership([mine]) == [], "asked again, it has been taken: by whom?"
        found = records(reopen(), group)["0"]
        assert (found.owner_id, found.owner_level, found.nonce) == ("b", 2, mine.nonce)
        assert len(store.renew_ownership([found])) == 1

    def test_every_write_changes_the_etag(self, store: OwnershipStore, group: ConsumerGroup) -> None:
        seen = [claim(store, group)]
        for write in (store.renew_ownership, store.claim_ownership, store.relinquish_ownership, store.claim_ownership):
            seen += write([dataclasses.replace(seen[-1], owner_id="me")])
        assert len({one.etag for one in seen}) == 5

    def test_the_current_etag_claims_a_live_record(self, store: OwnershipStore, group: ConsumerGroup) -> None:
        theirs = claim(store, group, owner="a", level=1)
        [mine] = store.claim_ownership([dataclasses.replace(theirs, owner_id="b", owner_level=2)])
        assert records(store, group) == {"0": mine}
        assert (mine.owner_id, mine.owner_level) == ("b", 2)

    def test_a_stale_etag_claims_nothing(self, store: OwnershipStore, group: ConsumerGroup) -> None:
        first = claim(store, group, owner="a", level=1)
        [second] = store.claim_ownership([dataclasses.replace(first, owner_id="b", owner_level=2)])
        assert store.claim_ownership([dataclasses.replace(first, owner_id="c", owner_level=3)]) == []
        assert records(store, group) == {"0": second}

    def test_an_unknown_etag_claims_nothing(self, store: OwnershipStore, group: ConsumerGroup) -> None:
        assert store.claim_ownership([Ownership(group, "0", "a", 1, etag="4711")]) == []
        assert records(store, group) == {}

    def test_no_etag_does_not_claim_a_record_that_exists(self, store: OwnershipStore, group: ConsumerGroup) -> None:
        first = claim(store, group, owner="a")
        assert store.claim_ownership([Ownership(group, "0", "b", 2)]) == []
        [given_up] = store.relinquish_ownership([first])
        assert store.claim_ownership([Ownership(group, "0", "b", 2)]) == []
        assert records(store, group) == {"0": given_up}

    def test_each_claim_is_decided_alone(self, store: OwnershipStore, group: ConsumerGroup) -> None:
        taken = claim(store, group, "1", owner="a")
        won = store.claim_ownership([Ownership(group, p, "b", 1) for p in ("0", "1", "2")])
        assert {one.partition for one in won} == {"0", "2"}
        assert records(store, group) == {"1": taken} | {one.partition: one for one in won}

    def test_two_claims_of_one_record_in_one_call(self, store: OwnershipStore, group: ConsumerGroup) -> None:
        won = store.claim_ownership([Ownership(group, "0", "a", 1), Ownership(group, "0", "b", 2)])
        assert len(won) == 1
        assert records(store, group) == {"0": won[0]}

    def test_nothing_claimed_is_nothing_won(self, store: OwnershipStore) -> None:
        assert store.claim_ownership([]) == store.renew_ownership([]) == store.relinquish_ownership([]) == []

    def test_of_many_claims_of_a_free_partition_exactly_one_wins(
        self, reopen: Callable[[], OwnershipStore], group: ConsumerGroup
    ) -> None:
        won = self.claimed_at_once(reopen, Ownership(group, "0", "", 1))
        assert len(won) == 1
        assert records(reopen(), group) == {"0": won[0]}

    def test_of_many_claims_with_the_same_etag_exactly_one_wins(
        self, store: OwnershipStore, reopen: Callable[[], OwnershipStore], group: ConsumerGroup
    ) -> None:
        won = self.claimed_at_once(reopen, claim(store, group, owner="before"))
        assert len(won) == 1
        assert records(store, group) == {"0": won[0]}

    def test_many_claims_of_many_partitions_have_one_winner_each(
        self, store: OwnershipStore, reopen: Callable[[], OwnershipStore], group: ConsumerGroup
    ) -> None:
        def claimer(number: int) -> Callable[[], list[Ownership]]:
            mine = reopen()
            partitions = [str((number + p) % 8) for p in range(8)]
            return lambda: mine.claim_ownership([Ownership(group, p, str(number), 1) for p in partitions])

        won = [one for some in at_once([claimer(n) for n in range(8)]) for one in some]
        assert sorted(one.partition for one in won) == [str(p) for p in range(8)]
        assert records(store, group) == {one.partition: one for one in won}

    def claimed_at_once(self, reopen: Callable[[], OwnershipStore], record: Ownership) -> list[Ownership]:
        """What `CLAIMERS` owners win that claim the record as it stands, at the same moment."""

        def claimer(number: int) -> Callable[[], list[Ownership]]:
            mine, theirs = reopen(), dataclasses.replace(record, owner_id=f"owner-{number}", owner_level=2)
            return lambda: mine.claim_ownership([theirs])

        return [one for some in at_once([claimer(n) for n in range(CLAIMERS)]) for one in some]

    # Names

    def test_names_that_differ_never_meet(self, store: OwnershipStore, group: ConsumerGroup) -> None:
        won = store.claim_ownership([Ownership(group, name, name, 1) for name in HOSTILE_NAMES])
        assert [one.partition for one in won] == list(HOSTILE_NAMES)
        assert {r.partition: r.owner_id for r in store.list_ownership(group).records} == {n: n for n in HOSTILE_NAMES}
        store.relinquish_ownership(won[::2])
        for position, name in enumerate(HOSTILE_NAMES):
            assert records(store, group)[name].owner_id == (name if position % 2 else "")

    def test_hubs_and_groups_that_differ_never_meet(self, store: OwnershipStore) -> None:
        mark = secrets.token_hex(8)
        groups = [ConsumerGroup(f"tests{mark}", name, "g") for name in HOSTILE_NAMES]
        groups += [ConsumerGroup(f"tests{mark}", "h", name) for name in HOSTILE_NAMES]
        groups += [ConsumerGroup(f"{mark}{name}", "h", "g") for name in HOSTILE_NAMES]
        assert len(store.claim_ownership([Ownership(one, "0", str(n), 1) for n, one in enumerate(groups)])) == len(
            groups
        )
        for number, one in enumerate(groups):
            assert records(store, one)["0"].owner_id == str(number)

    def test_the_highest_level(self, store: OwnershipStore, group: ConsumerGroup) -> None:
        claim(store, group, level=LARGEST)
        assert records(store, group)["0"].owner_level == LARGEST

    # Time-outs

    def test_no_write_waits_longer_than_the_time_out(
        self, hung: AbstractContextManager[OwnershipStore] | None, store: OwnershipStore, group: ConsumerGroup
    ) -> None:
        if hung is None:
            pytest.skip("no call of this store ever waits")
        held, ask = claim(store, group), Ask(group, "0", 1, "me")
        uses: list[Callable[[OwnershipStore], object]] = [
            lambda store: store.claim_ownership([held]),
            lambda store: store.renew_ownership([held]),
            lambda store: store.relinquish_ownership([held]),
        ]
        if store.features.presence:
            uses += [
                lambda store: store.renew_ownership([], Presence(group, "me")),
                lambda store: store.withdraw_presence(group, ["me"]),
                lambda store: store.ask([ask]),
                lambda store: store.withdraw_asks([ask]),
            ]
        with hung as stuck:
            for use in uses:
                with ending_by_itself(), pytest.raises(StoreUnavailable):
                    use(stuck)
            with ending_by_itself(), suppress(StoreUnavailable):  # some can still be read
                stuck.list_ownership(group)
        assert records(store, group) == {"0": held}

    # Tables, and what else must be made

    def test_what_must_be_made_is_made_once_also_by_several_at_once(
        self, store: OwnershipStore, reopen: Callable[[], OwnershipStore], group: ConsumerGroup
    ) -> None:
        held = claim(store, group)
        assert_made_once(reopen)
        assert records(store, group) == {"0": held}
