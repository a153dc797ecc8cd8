"""The part of the contract of `OwnershipStore` about what an owner does with a record: renew it, and give it up."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from leasehold.model import ConsumerGroup, Ownership
from leasehold.stores.base import OwnershipStore
from leasehold_testkit.contracts.stores.ownership_records import claim, history, records


class KeptOwnershipContract:
    """What renewing and relinquishing must do. The fixtures are those of `OwnershipStoreContract`."""

    # renew_ownership

    def test_a_renewal_refreshes_the_age_and_nothing_else(
        self,
        store: OwnershipStore,
        group: ConsumerGroup,
        wait: Callable[[float], None],
        resolution: float,
        pause: float,
    ) -> None:
        [claimed] = store.claim_ownership([history(group, level=3)])
        wait(pause)
        [renewed] = store.renew_ownership([claimed])
        assert renewed.last_modified - claimed.last_modified >= pause - resolution
        same = dataclasses.replace(renewed, etag=claimed.etag, last_modified=claimed.last_modified)
        assert same == claimed
        assert records(store, group) == {"0": renewed}

    def test_a_renewal_with_a_stale_etag_is_refused(self, store: OwnershipStore, group: ConsumerGroup) -> None:
        mine = claim(store, group, owner="a", level=1)
        [theirs] = store.claim_ownership([dataclasses.replace(mine, owner_id="b", owner_level=2)])
        assert store.renew_ownership([mine]) == []
        assert records(store, group) == {"0": theirs}

    def test_a_renewal_makes_a_claim_by_the_older_etag_fail(self, store: OwnershipStore, group: ConsumerGroup) -> None:
        mine = claim(store, group, owner="a", level=1)
        [renewed] = store.renew_ownership([mine])
        assert store.claim_ownership([dataclasses.replace(mine, owner_id="thief", owner_level=2)]) == []
        assert records(store, group) == {"0": renewed}

    def test_each_renewal_is_decided_alone(self, store: OwnershipStore, group: ConsumerGroup) -> None:
        mine = [claim(store, group, p, owner="a") for p in ("0", "1", "2")]
        store.claim_ownership([dataclasses.replace(mine[1], owner_id="b", owner_level=2)])
        assert [one.partition for one in store.renew_ownership(mine)] == ["0", "2"]

    @pytest.mark.parametrize("etag", ["4711", None])
    def test_a_record_that_does_not_exist_is_not_renewed(
        self, store: OwnershipStore, group: ConsumerGroup, etag: str | None
    ) -> None:
        gone = Ownership(group, "0", "a", 1, etag=etag)
        assert store.renew_ownership([gone]) == store.relinquish_ownership([gone]) == []
        assert records(store, group) == {}

    def test_only_the_owner_renews_and_at_its_level(
        self, store: OwnershipStore, reopen: Callable[[], OwnershipStore], group: ConsumerGroup
    ) -> None:
        mine = claim(store, group, owner="a", level=3)
        wrong = [dataclasses.replace(mine, owner_id="b"), *(dataclasses.replace(mine, owner_level=n) for n in (2, 4))]
        for one in wrong:
            assert store.renew_ownership([one]) == reopen().renew_ownership([one]) == []
        assert records(store, group) == {"0": mine}
        assert len(reopen().renew_ownership([mine])) == 1

    # relinquish_ownership

    def test_a_relinquished_record_keeps_its_level_and_has_no_owner(
        self, store: OwnershipStore, reopen: Callable[[], OwnershipStore], group: ConsumerGroup
    ) -> None:
        [given_up] = store.relinquish_ownership([claim(store, group, level=5)])
        assert (given_up.owner_id, given_up.owner_level) == ("", 5)
        assert records(reopen(), group) == {"0": given_up}

    def test_a_relinquished_partition_is_claimed_again(self, store: OwnershipStore, group: ConsumerGroup) -> None:
        [given_up] = store.relinquish_ownership([claim(store, group, owner="a", level=5)])
        [again] = store.claim_ownership([dataclasses.replace(given_up, owner_id="a", owner_level=6)])
        assert records(store, group) == {"0": again}
        assert (again.owner_id, again.owner_level) == ("a", 6)

    def test_a_relinquished_record_says_to_whom_and_how_it_ended(
        self, store: OwnershipStore, reopen: Callable[[], OwnershipStore], group: ConsumerGroup
    ) -> None:
        [held] = store.claim_ownership([history(group)])
        ended = dataclasses.replace(held, successor="heir/2", failures=4, last_error="it was 'é😀\nover")
        [given_up] = store.relinquish_ownership([ended])
        assert given_up == dataclasses.replace(
            ended, owner_id="", etag=given_up.etag, last_modified=given_up.last_modified
        )
        assert records(reopen(), group) == {"0": given_up}

    def test_what_was_given_up_and_claimed_by_another_is_the_others(
        self, store: OwnershipStore, reopen: Callable[[], OwnershipStore], group: ConsumerGroup
    ) -> None:
        mine = claim(store, group, owner="a", level=5)
        [given_up] = store.relinquish_ownership([mine])
        heir = dataclasses.replace(given_up, owner_id="b", owner_level=6)
        thief = dataclasses.replace(given_up, owner_id="c", owner_level=6)
        [theirs] = reopen().claim_ownership([heir])
        assert store.claim_ownership([thief]) == []
        assert store.renew_ownership([mine]) == store.relinquish_ownership([mine]) == []
        assert store.relinquish_ownership([given_up]) == []
        assert records(store, group) == {"0": theirs}

    def test_what_was_given_up_is_not_renewed(self, store: OwnershipStore, group: ConsumerGroup) -> None:
        claimed = claim(store, group)
        [given_up] = store.relinquish_ownership([claimed])
        assert store.renew_ownership([claimed]) == []
        assert records(store, group) == {"0": given_up}

    def test_relinquishing_with_a_stale_etag_is_refused(self, store: OwnershipStore, group: ConsumerGroup) -> None:
        mine = claim(store, group, owner="a", level=1)
        [theirs] = store.claim_ownership([dataclasses.replace(mine, owner_id="b", owner_level=2)])
        assert store.relinquish_ownership([mine]) == []
        assert records(store, group) == {"0": theirs}
