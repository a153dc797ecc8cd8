"""The part of the contract of `OwnershipStore` that is about presence and asks, as tests.

Its tests are skipped where the store's features have no `presence`, but for those that say what holds then.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable

import pytest

from leasehold.model import Ask, ConsumerGroup, Ownership, Presence
from leasehold.stores.base import OwnershipStore
from leasehold_testkit.contracts.stores.groups import HOSTILE_NAMES, LARGEST, at_once, same


class PresenceContract:
    """What an `OwnershipStore` must do about presence records and asks. Inherited by its contract."""

    @pytest.fixture
    def keeping(self, store: OwnershipStore) -> OwnershipStore:
        """The store, if it keeps presence records and asks."""
        if not store.features.presence:
            pytest.skip("the store's features have no presence")
        return store

    def test_a_store_without_presence_does_nothing_and_lists_none(
        self, store: OwnershipStore, group: ConsumerGroup
    ) -> None:
        if store.features.presence:
            pytest.skip("the store's features have presence")
        [claimed] = store.claim_ownership([Ownership(group, "0", "me", 1)])
        [renewed] = store.renew_ownership([claimed], Presence(group, "me"))
        store.ask([Ask(group, "0", 1, "me")])
        store.withdraw_asks([Ask(group, "0", 1, "me")])
        store.withdraw_presence(group, ["me"])
        listing = store.list_ownership(group)
        assert (listing.records, listing.presences, listing.asks) == ((renewed,), (), ())

    # Presence records

    def test_a_new_group_has_no_presences_and_no_asks(self, store: OwnershipStore, group: ConsumerGroup) -> None:
        listing = store.list_ownership(group)
        assert (listing.presences, listing.asks) == ((), ())

    def test_a_presence_is_made_with_a_renewal(
        self, keeping: OwnershipStore, reopen: Callable[[], OwnershipStore], group: ConsumerGroup
    ) -> None:
        [claimed] = keeping.claim_ownership([Ownership(group, "0", "me/1", 1)])
        [renewed] = keeping.renew_ownership([claimed], Presence(group, "me/1", "flights", "planned", 2.5, 7))
        listing = reopen().list_ownership(group)
        [there] = listing.presences
        assert stated(there) == ("me/1", "flights", "planned", 2.5, 7)
        assert there.etag
        assert there.created == there.last_modified <= listing.as_of
        assert listing.records == (renewed,)

    def test_an_instance_that_owns_nothing_is_there_too(self, keeping: OwnershipStore, group: ConsumerGroup) -> None:
        assert keeping.renew_ownership([], Presence(group, "me/1")) == []
        [there] = keeping.list_ownership(group).presences
        assert stated(there) == ("me/1", "", "", 1.0, None)

    def test_a_presence_is_written_also_when_no_renewal_is_won(
        self, keeping: OwnershipStore, group: ConsumerGroup
    ) -> None:
        [mine] = keeping.claim_ownership([Ownership(group, "0", "me/1", 1)])
        keeping.claim_ownership([dataclasses.replace(mine, owner_id="thief/1", owner_level=2)])
        assert keeping.renew_ownership([mine], Presence(group, "me/1")) == []
        assert [one.owner_id for one in keeping.list_ownership(group).presences] == ["me/1"]

    def test_a_presence_is_made_once_and_then_refreshed(
        self, keeping: OwnershipStore, group: ConsumerGroup, wait: Callable[[float], None], resolution: float
    ) -> None:
        keeping.renew_ownership([], Presence(group, "me/1", "flights", "planned", 1.0, None))
        [first] = keeping.list_ownership(group).presences
        wait(2 * resolution)
        keeping.renew_ownership([], Presence(group, "me/1", "trains", "greedy", 3.0, 5))
        [second] = keeping.list_ownership(group).presences
        assert stated(second) == ("me/1", "trains", "greedy", 3.0, 5)
        assert second.created == first.created
        assert second.etag != first.etag
        if keeping.features.own_clock:
            assert second.last_modified > first.last_modified
        keeping.renew_ownership([], Presence(group, "me/1"))
        assert stated(keeping.list_ownership(group).presences[0]) == ("me/1", "", "", 1.0, None)

    def test_the_store_sets_times_and_etag(self, keeping: OwnershipStore, group: ConsumerGroup) -> None:
        keeping.renew_ownership([], Presence(group, "me/1", created=-5.0, last_modified=-6.0, etag="mine"))
        listing = keeping.list_ownership(group)
        [there] = listing.presences
        assert (there.created, there.last_modified, there.etag) != (-5.0, -6.0, "mine")
        assert 0 <= listing.as_of - there.last_modified < 60

    def test_presences_are_listed_for_their_group_only(
        self, keeping: OwnershipStore, alike: list[ConsumerGroup]
    ) -> None:
        groups = alike[::7]
        for number, one in enumerate(groups):
            keeping.renew_ownership([], Presence(one, f"owner/{number}"))
        for number, one in enumerate(groups):
            assert [p.owner_id for p in keeping.list_ownership(one).presences] == [f"owner/{number}"]
            assert keeping.list_ownership(one).records == ()
        keeping.withdraw_presence(groups[0], [f"owner/{n}" for n in range(len(groups))])
        assert [len(keeping.list_ownership(one).presences) for one in groups] == [0] + [1] * (len(groups) - 1)

    def test_presences_are_withdrawn_as_far_as_they_are_there(
        self, keeping: OwnershipStore, reopen: Callable[[], OwnershipStore], group: ConsumerGroup
    ) -> None:
        for name in "abc":
            keeping.renew_ownership([], Presence(group, name))
        keeping.withdraw_presence(group, [])
        keeping.withdraw_presence(group, ["a", "x", "c"])
        keeping.withdraw_presence(group, ["a"])
        assert [one.owner_id for one in reopen().list_ownership(group).presences] == ["b"]
        keeping.renew_ownership([], Presence(group, "a"))
        assert {one.owner_id for one in reopen().list_ownership(group).presences} == {"a", "b"}

    def test_withdrawing_a_presence_leaves_ownership_alone(self, keeping: OwnershipStore, group: ConsumerGroup) -> None:
        [claimed] = keeping.claim_ownership([Ownership(group, "0", "me/1", 1)])
        [renewed] = keeping.renew_ownership([claimed], Presence(group, "me/1"))
        keeping.withdraw_presence(group, ["me/1"])
        assert keeping.list_ownership(group).records == (renewed,)

    def test_presences_of_names_that_differ_never_meet(self, keeping: OwnershipStore, group: ConsumerGroup) -> None:
        for number, name in enumerate(HOSTILE_NAMES):
            keeping.renew_ownership([], Presence(group, name, name, maximum=number))
        listed = keeping.list_ownership(group).presences
        assert {p.owner_id: (p.pipeline, p.maximum) for p in listed} == {
            name: (name, number) for number, name in enumerate(HOSTILE_NAMES)
        }
        keeping.withdraw_presence(group, HOSTILE_NAMES[::2])
        assert {p.owner_id for p in keeping.list_ownership(group).presences} == set(HOSTILE_NAMES[1::2])

    def test_many_who_announce_themselves_at_once_are_all_there(
        self, reopen: Callable[[], OwnershipStore], keeping: OwnershipStore, group: ConsumerGroup
    ) -> None:
        def announcer(number: int) -> Callable[[], object]:
            mine = reopen()
            return lambda: mine.renew_ownership([], Presence(group, f"owner/{number % 8}"))

        at_once([announcer(n) for n in range(16)])
        listed = keeping.list_ownership(group).presences
        assert sorted(one.owner_id for one in listed) == [f"owner/{n}" for n in range(8)]

    # Asks

    def test_asks_are_listed(
        self, keeping: OwnershipStore, reopen: Callable[[], OwnershipStore], group: ConsumerGroup
    ) -> None:
        asks = [Ask(group, "0", 1, "me/1"), Ask(group, "1", LARGEST, "me/1"), Ask(group, "2", 3, "you/1")]
        keeping.ask(asks)
        assert same(reopen().list_ownership(group).asks, asks)

    def test_a_later_ask_takes_the_place_of_an_earlier_one(self, keeping: OwnershipStore, group: ConsumerGroup) -> None:
        keeping.ask([Ask(group, "0", 1, "a"), Ask(group, "1", 1, "a")])
        keeping.ask([Ask(group, "0", 1, "b")])
        assert same(keeping.list_ownership(group).asks, [Ask(group, "0", 1, "b"), Ask(group, "1", 1, "a")])
        keeping.ask([Ask(group, "0", 1, "c"), Ask(group, "0", 1, "d")])
        assert same(keeping.list_ownership(group).asks, [Ask(group, "0", 1, "d"), Ask(group, "1", 1, "a")])

    def test_an_ask_is_withdrawn_unless_another_has_taken_its_place(
        self, keeping: OwnershipStore, reopen: Callable[[], OwnershipStore], group: ConsumerGroup
    ) -> None:
        stands = [Ask(group, "0", 2, "a"), Ask(group, "1", 2, "a")]
        keeping.ask(stands)
        keeping.withdraw_asks([Ask(group, "0", 1, "a"), Ask(group, "0", 2, "b"), Ask(group, "2", 2, "a")])
        assert same(reopen().list_ownership(group).asks, stands)
        keeping.withdraw_asks(stands[:1])
        assert reopen().list_ownership(group).asks == (stands[1],)
        keeping.withdraw_asks(stands)
        keeping.withdraw_asks([])
        assert reopen().list_ownership(group).asks == ()

    def test_asks_are_listed_and_withdrawn_for_their_group_only(
        self, keeping: OwnershipStore, alike: list[ConsumerGroup]
    ) -> None:
        groups = alike[::7]
        keeping.ask([Ask(one, "0", n, "me") for n, one in enumerate(groups)])
        for number, one in enumerate(groups):
            assert keeping.list_ownership(one).asks == (Ask(one, "0", number, "me"),)
        keeping.withdraw_asks([Ask(groups[0], "0", 0, "me")])
        assert [len(keeping.list_ownership(one).asks) for one in groups] == [0] + [1] * (len(groups) - 1)

    def test_an_ask_never_touches_the_ownership_record(
        self, keeping: OwnershipStore, group: ConsumerGroup, wait: Callable[[float], None], resolution: float
    ) -> None:
        [claimed] = keeping.claim_ownership([Ownership(group, "0", "me/1", 1)])
        wait(2 * resolution)
        ask = Ask(group, "0", 1, "you/1")
        keeping.ask([ask])
        assert keeping.list_ownership(group).records == (claimed,)
        keeping.withdraw_asks([ask])
        assert keeping.list_ownership(group).records == (claimed,)
        assert len(keeping.renew_ownership([claimed])) == 1

    def test_asks_for_names_that_differ_never_meet(self, keeping: OwnershipStore, group: ConsumerGroup) -> None:
        asks = [Ask(group, name, n, name) for n, name in enumerate(HOSTILE_NAMES)]
        keeping.ask(asks)
        assert same(keeping.list_ownership(group).asks, asks)
        keeping.withdraw_asks(asks[::2])
        assert same(keeping.list_ownership(group).asks, asks[1::2])

    def test_of_many_who_ask_at_once_one_stands(
        self, reopen: Callable[[], OwnershipStore], keeping: OwnershipStore, group: ConsumerGroup
    ) -> None:
        def asker(number: int) -> Callable[[], None]:
            mine = reopen()
            return lambda: mine.ask([Ask(group, p, 1, f"owner-{number}") for p in ("0", "1", "2")])

        at_once([asker(n) for n in range(16)])
        assert sorted(one.partition for one in keeping.list_ownership(group).asks) == ["0", "1", "2"]

    def test_names_of_presences_and_asks_do_not_meet_those_of_records(
        self, keeping: OwnershipStore, group: ConsumerGroup
    ) -> None:
        name = secrets.token_hex(4)
        keeping.renew_ownership([], Presence(group, name))
        keeping.ask([Ask(group, name, 0, name)])
        assert keeping.list_ownership(group).records == ()
        assert len(keeping.claim_ownership([Ownership(group, name, name, 1)])) == 1
        listing = keeping.list_ownership(group)
        assert (len(listing.records), len(listing.presences), len(listing.asks)) == (1, 1, 1)


def stated(presence: Presence) -> tuple[str, str, str, float, int | None]:
    """What an instance says of itself in a presence."""
    return presence.owner_id, presence.pipeline, presence.strategy, presence.capacity, presence.maximum
