"""The part of the contract of `LeaseStore` in which a key goes from hand to hand: release, change and break."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable

from leasehold.model import Lease, LeaseSession
from leasehold.stores.lease_base import LeaseStore
from leasehold_testkit.contracts.stores.groups import at_once, same
from leasehold_testkit.contracts.stores.lease_fixtures import LONG, LeaseFixtures, Names


class LeaseTurnsContract(LeaseFixtures):
    """What every `LeaseStore` must do when a lease is given up, handed over or broken."""

    # release

    def test_what_was_released_is_free_at_once(
        self, store: LeaseStore, reopen: Callable[[], LeaseStore], session: LeaseSession, scope: str, names: Names
    ) -> None:
        keys = names(1000)
        leases = store.acquire(session, scope, keys)
        assert store.release(leases) == leases
        assert store.release(leases) == []
        other = reopen()
        assert [one.key for one in other.acquire(other.open_session("other", LONG), scope, keys)] == keys

    def test_only_what_is_held_as_it_says_is_released(
        self, store: LeaseStore, session: LeaseSession, other: LeaseSession, scope: str
    ) -> None:
        [mine] = store.acquire(session, scope, ["a"])
        [theirs] = store.acquire(other, scope, ["b"])
        wrong = [
            dataclasses.replace(theirs, session=session),
            dataclasses.replace(mine, session=other),
            dataclasses.replace(mine, fence=mine.fence + 1),
            dataclasses.replace(mine, fence=mine.fence - 1),
            dataclasses.replace(mine, scope=f"{scope}, another"),
            dataclasses.replace(mine, key="c"),
        ]
        assert store.release(wrong) == store.renew(wrong) == store.change(wrong, other) == []
        assert store.release([*wrong, mine]) == [mine]
        assert store.holders(scope, ["a", "b", "c"]) == [theirs]

    # change

    def test_a_lease_is_handed_over(
        self, store: LeaseStore, reopen: Callable[[], LeaseStore], session: LeaseSession, scope: str, names: Names
    ) -> None:
        keys = names(1000)
        leases = store.acquire(session, scope, keys)
        theirs = reopen()
        heir = theirs.open_session("heir", LONG)
        changed = store.change(leases, heir)
        assert [(one.key, one.session) for one in changed] == [(key, heir) for key in keys]
        assert all(new.fence > old.fence for new, old in zip(changed, leases, strict=True))
        assert theirs.holders(scope, keys) == theirs.renew(changed) == changed
        assert store.renew(leases) == store.release(leases) == store.acquire(session, scope, keys) == []
        store.close_session(session)
        assert theirs.renew(changed) == changed, "they hang on another session now"

    def test_a_lease_that_is_handed_over_was_free_at_no_time(
        self,
        store: LeaseStore,
        reopen: Callable[[], LeaseStore],
        session: LeaseSession,
        other: LeaseSession,
        scope: str,
    ) -> None:
        [lease] = store.acquire(session, scope, ["a"])
        thief = reopen()
        stranger, over = thief.open_session("thief", LONG), threading.Event()

        def hand_over() -> list[Lease]:
            given = lease
            try:
                for to in (other, session) * 5:
                    [given] = store.change([given], to)
            finally:
                over.set()
            return [given]

        def steal() -> list[Lease]:
            stolen: list[Lease] = []
            while not over.is_set():
                stolen += thief.acquire(stranger, scope, ["a"])
                stolen += [one for one in thief.holders(scope, ["a"]) if one.session == stranger]
            return stolen

        given, stolen = at_once([hand_over, steal])
        assert stolen == []
        assert store.holders(scope, ["a"]) == given

    def test_a_dead_session_is_handed_nothing(self, store: LeaseStore, session: LeaseSession, scope: str) -> None:
        dead = store.open_session("heir", LONG)
        store.close_session(dead)
        leases = store.acquire(session, scope, ["a", "b"])
        assert store.change(leases, dead) == []
        assert store.renew(leases) == leases

    def test_of_many_who_change_a_lease_at_once_exactly_one_does(
        self, store: LeaseStore, reopen: Callable[[], LeaseStore], session: LeaseSession, scope: str
    ) -> None:
        leases = store.acquire(session, scope, ["a"])

        def changer(number: int) -> Callable[[], list[Lease]]:
            mine = reopen()
            heir = mine.open_session(f"heir-{number}", LONG)
            return lambda: mine.change(leases, heir)

        changed = [one for some in at_once([changer(n) for n in range(16)]) for one in some]
        assert len(changed) == 1
        assert store.holders(scope, ["a"]) == changed

    # break_leases

    def test_what_is_broken_is_free_whoever_held_it(
        self,
        store: LeaseStore,
        reopen: Callable[[], LeaseStore],
        session: LeaseSession,
        other: LeaseSession,
        scope: str,
        names: Names,
    ) -> None:
        keys = names(200)
        half = len(keys) // 2
        mine, theirs = store.acquire(session, scope, keys[:half]), store.acquire(other, scope, keys[half:])
        assert same(reopen().break_leases(scope, [*keys, "free"]), mine + theirs)
        assert store.holders(scope, keys) == []
        assert store.renew(mine + theirs) == store.release(mine) == store.change(mine, other) == []
        assert store.heartbeat(session), "its other leases are not touched"
        assert [one.key for one in store.acquire(other, scope, keys)] == keys

    def test_breaking_leaves_other_keys_alone(self, store: LeaseStore, session: LeaseSession, scope: str) -> None:
        leases = store.acquire(session, scope, ["a", "b", "c"])
        elsewhere = store.acquire(session, f"{scope}, another", ["b"])
        assert store.break_leases(scope, ["b"]) == leases[1:2]
        assert store.renew([*leases, *elsewhere]) == [leases[0], leases[2], *elsewhere]

    def test_of_many_who_end_a_lease_at_once_exactly_one_does(
        self, store: LeaseStore, reopen: Callable[[], LeaseStore], session: LeaseSession, scope: str
    ) -> None:
        """Whoever breaks or releases it. Were two of them told so, the second might have ended a newer lease."""

        def ender(number: int) -> Callable[[], list[Lease]]:
            mine = reopen()
            return lambda: mine.release(leases) if number % 4 == 0 else mine.break_leases(scope, ["a"])

        for _ in range(3):
            leases = store.acquire(session, scope, ["a"])
            ended = [one for some in at_once([ender(n) for n in range(12)]) for one in some]
            assert ended == leases
            assert store.holders(scope, ["a"]) == []
