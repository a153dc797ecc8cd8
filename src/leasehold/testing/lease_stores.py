"""The contract of `LeaseStore`, as tests. See `leasehold.testing.stores` for how to use it."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

import pytest

from leasehold.errors import ConfigError, StoreUnavailable
from leasehold.model import Lease, LeaseSession
from leasehold.stores.lease_base import LeaseStore
from leasehold.testing.groups import at_once, same
from leasehold.testing.lease_names import LeaseNamesContract, Names

ACQUIRERS = 100
"""How many threads acquire the same keys at once."""

LONG = 60.0
"""A duration that no test outlives, and that every backend can give."""


class LeaseStoreContract(LeaseNamesContract):
    """What every `LeaseStore` must do. Keys are few where leases are native, since each is a request there."""

    @pytest.fixture
    def store(self) -> LeaseStore:
        """The store under test. It need not be empty."""
        raise NotImplementedError("the subclass gives the store")

    @pytest.fixture
    def reopen(self, store: LeaseStore) -> Callable[[], LeaseStore]:
        """Opens the same store as another process would."""
        return lambda: store

    @pytest.fixture
    def wait(self) -> Callable[[float], None]:
        """Lets that many seconds pass on the store's clock."""
        return time.sleep

    @pytest.fixture
    def hung(self) -> AbstractContextManager[LeaseStore] | None:
        """A store whose backend does not answer while it is entered, with a time-out of at most a second.

        None where no call ever waits.
        """
        return None

    @pytest.fixture
    def short(self, store: LeaseStore) -> float:
        """A duration that is waited for."""
        return max(1.0, store.features.shortest_lease)

    @pytest.fixture
    def scope(self) -> str:
        """A scope that nobody else uses."""
        return f"tests {uuid.uuid4()}"

    @pytest.fixture
    def session(self, store: LeaseStore) -> LeaseSession:
        return store.open_session("me", LONG)

    @pytest.fixture
    def other(self, store: LeaseStore) -> LeaseSession:
        return store.open_session("other", LONG)

    @pytest.fixture
    def names(self, store: LeaseStore) -> Names:
        """That many keys; a fiftieth of them where each is a request."""

        def some(many: int) -> list[str]:
            return [f"key {n}" for n in range(max(2, many // 50) if store.features.native_leases else many)]

        return some

    def test_is_a_lease_store(self, store: LeaseStore) -> None:
        assert isinstance(store, LeaseStore)

    # Sessions

    def test_every_session_is_another(self, store: LeaseStore) -> None:
        sessions = [store.open_session("me", LONG) for _ in range(3)]
        assert len({uuid.UUID(one.id) for one in sessions}) == 3
        assert {(one.owner, one.duration) for one in sessions} == {("me", LONG)}

    def test_durations_that_a_store_cannot_give_are_refused(self, store: LeaseStore) -> None:
        features = store.features
        beyond = [features.longest_lease + 1, features.shortest_lease - 1]
        for duration in (0.0, -1.0, float("inf"), float("nan"), *beyond):
            with pytest.raises(ConfigError, match=r"duration.* last .* or have no end"):
                store.open_session("me", duration)

    def test_a_session_lives_as_long_as_it_has_a_heartbeat(
        self, store: LeaseStore, wait: Callable[[float], None], short: float
    ) -> None:
        session = store.open_session("me", short)
        for _ in range(3):
            wait(0.6 * short)
            assert store.heartbeat(session)

    def test_a_session_without_a_heartbeat_is_dead_for_good(
        self, store: LeaseStore, wait: Callable[[float], None], short: float, scope: str
    ) -> None:
        session = store.open_session("me", short)
        [lease] = store.acquire(session, scope, ["a"])
        wait(1.2 * short)
        assert not store.heartbeat(session)
        assert not store.heartbeat(session)
        assert store.acquire(session, scope, ["a", "b"]) == []
        assert store.renew([lease]) == store.release([lease]) == store.holders(scope, ["a"]) == []
        store.close_session(session)

    def test_a_session_without_an_end_needs_no_heartbeat(
        self,
        store: LeaseStore,
        reopen: Callable[[], LeaseStore],
        wait: Callable[[float], None],
        short: float,
        scope: str,
        other: LeaseSession,
    ) -> None:
        session = store.open_session("me", None)
        leases = store.acquire(session, scope, ["a"])
        wait(1.2 * short)
        assert reopen().holders(scope, ["a"]) == leases
        assert store.acquire(other, scope, ["a"]) == []
        assert store.heartbeat(session)
        store.close_session(session)
        assert len(store.acquire(other, scope, ["a"])) == 1

    def test_closing_a_session_frees_all_its_leases(
        self, store: LeaseStore, reopen: Callable[[], LeaseStore], scope: str, names: Names
    ) -> None:
        session, other = store.open_session("me", LONG), store.open_session("other", LONG)
        keys = names(1000)
        mine = store.acquire(session, scope, keys)
        assert len(mine) == len(keys)
        store.close_session(session)
        assert not store.heartbeat(session)
        assert reopen().holders(scope, keys) == []
        assert [one.key for one in reopen().acquire(other, scope, keys)] == keys
        assert store.renew(mine) == store.release(mine) == []
        store.close_session(session)
        assert len(store.holders(scope, keys)) == len(keys)

    def test_one_heartbeat_renews_all_leases_of_a_session(
        self,
        store: LeaseStore,
        reopen: Callable[[], LeaseStore],
        wait: Callable[[float], None],
        short: float,
        scope: str,
        names: Names,
    ) -> None:
        session = store.open_session("me", short)
        keys = names(3000)
        leases = [one for half in (keys[::2], keys[1::2]) for one in store.acquire(session, scope, half)]
        leases += store.acquire(session, f"{scope}, another", keys[:2])
        for _ in range(2):
            wait(0.6 * short)
            assert store.heartbeat(session)
        assert same(reopen().holders(scope, keys) + reopen().holders(f"{scope}, another", keys), leases)

    def test_leases_of_a_dead_session_are_free_without_a_sweep(
        self,
        store: LeaseStore,
        reopen: Callable[[], LeaseStore],
        wait: Callable[[float], None],
        short: float,
        scope: str,
        names: Names,
        other: LeaseSession,
    ) -> None:
        keys = names(1000)
        session = store.open_session("me", short)
        dead = store.acquire(session, scope, keys)
        alive = store.acquire(other, scope, ["alive"])
        wait(1.2 * short)
        if not store.heartbeat(other):
            pytest.fail("the duration waited for is to be less than the long one")
        assert reopen().holders(scope, [*keys, "alive"]) == alive
        again = reopen().acquire(other, scope, [*keys, "alive"])
        assert [one.key for one in again] == keys
        assert all(new.fence > old.fence for new, old in zip(again, dead, strict=True))

    # acquire

    def test_what_is_free_is_won_in_the_order_asked_for(
        self, store: LeaseStore, reopen: Callable[[], LeaseStore], session: LeaseSession, scope: str
    ) -> None:
        won = store.acquire(session, scope, ["b", "a", "c"])
        assert [(one.scope, one.key, one.session) for one in won] == [(scope, key, session) for key in "bac"]
        assert reopen().holders(scope, ["c", "x", "b", "a"]) == [won[2], won[0], won[1]]

    def test_what_is_held_is_not_won(
        self, store: LeaseStore, session: LeaseSession, other: LeaseSession, scope: str
    ) -> None:
        theirs = store.acquire(other, scope, ["b"])
        assert [one.key for one in store.acquire(session, scope, ["a", "b", "c"])] == ["a", "c"]
        assert store.holders(scope, ["b"]) == theirs

    def test_the_holder_itself_does_not_win_again(self, store: LeaseStore, session: LeaseSession, scope: str) -> None:
        first = store.acquire(session, scope, ["a"])
        assert store.acquire(session, scope, ["a"]) == []
        assert store.holders(scope, ["a"]) == first

    def test_a_key_named_twice_is_won_once(self, store: LeaseStore, session: LeaseSession, scope: str) -> None:
        won = store.acquire(session, scope, ["a", "b", "a"])
        assert [one.key for one in won] == ["a", "b"]
        assert store.holders(scope, ["b", "b", "a"]) == [won[1], won[0]]

    def test_nothing_asked_is_nothing_won(self, store: LeaseStore, session: LeaseSession, scope: str) -> None:
        assert store.acquire(session, scope, []) == store.holders(scope, []) == store.break_leases(scope, []) == []
        assert store.renew([]) == store.release([]) == store.change([], session) == []

    def test_a_session_that_was_never_opened_wins_nothing(self, store: LeaseStore, scope: str) -> None:
        if store.features.native_leases:
            pytest.skip("a native lease needs no session to have been opened")
        assert store.acquire(LeaseSession(str(uuid.uuid4()), "nobody", LONG), scope, ["a"]) == []

    def test_of_many_who_acquire_at_once_exactly_one_wins_each_key(
        self, store: LeaseStore, reopen: Callable[[], LeaseStore], scope: str, names: Names
    ) -> None:
        keys = names(100)

        def acquirer(number: int) -> Callable[[], list[Lease]]:
            mine = reopen()
            session = mine.open_session(f"owner-{number}", LONG)
            first = number % len(keys)
            return lambda: mine.acquire(session, scope, keys[first:] + keys[:first])

        won = [one for some in at_once([acquirer(n) for n in range(ACQUIRERS)]) for one in some]
        assert sorted(one.key for one in won) == sorted(keys)
        assert same(store.holders(scope, keys), won)

    def test_of_many_threads_of_one_session_exactly_one_wins_each_key(
        self, reopen: Callable[[], LeaseStore], scope: str, session: LeaseSession, names: Names
    ) -> None:
        keys = names(100)

        def acquirer() -> Callable[[], list[Lease]]:
            mine = reopen()
            return lambda: mine.acquire(session, scope, keys)

        won = [one for some in at_once([acquirer() for _ in range(16)]) for one in some]
        assert sorted(one.key for one in won) == sorted(keys)

    def test_after_a_lost_reply_the_holders_tell(
        self, store: LeaseStore, reopen: Callable[[], LeaseStore], session: LeaseSession, scope: str
    ) -> None:
        store.acquire(session, scope, ["a"])  # … and the answer never came
        assert store.acquire(session, scope, ["a"]) == []
        [mine] = reopen().holders(scope, ["a"])
        assert mine.session == session
        assert store.release([mine]) == [mine]

    # Fences

    def test_a_fence_only_rises(
        self,
        store: LeaseStore,
        reopen: Callable[[], LeaseStore],
        wait: Callable[[float], None],
        short: float,
        scope: str,
        session: LeaseSession,
        other: LeaseSession,
    ) -> None:
        def acquire(by: LeaseSession) -> Lease:
            [lease] = reopen().acquire(by, scope, ["a"])
            fences.append(lease.fence)
            return lease

        fences: list[int] = []
        store.release([acquire(session)])
        [changed] = reopen().change([acquire(session)], other)
        fences.append(changed.fence)
        store.break_leases(scope, ["a"])
        closing = store.open_session("me", LONG)
        acquire(closing)
        store.close_session(closing)
        acquire(store.open_session("me", short))
        wait(1.2 * short)
        store.release([acquire(store.open_session("me", LONG))])
        acquire(store.open_session("me", None))
        assert fences == sorted(set(fences)), "lower, or given twice"

    def test_fences_of_many_who_take_turns_only_rise(
        self, reopen: Callable[[], LeaseStore], scope: str, names: Names
    ) -> None:
        turns = len(names(1000)) // 8

        def taker(number: int) -> Callable[[], list[int]]:
            mine = reopen()
            session, fences = mine.open_session(f"owner-{number}", LONG), []

            def take_turns() -> list[int]:
                for _ in range(max(2, turns)):
                    for lease in mine.acquire(session, scope, ["a"]):
                        fences.append(lease.fence)
                        assert mine.release([lease]) == [lease]
                return fences

            return take_turns

        takers = at_once([taker(n) for n in range(8)])
        given = [fence for fences in takers for fence in fences]
        assert given, "in each round somebody must win"
        assert len(set(given)) == len(given)
        assert all(fences == sorted(fences) for fences in takers)

    # renew

    def test_renewing_keeps_what_is_held_alive(
        self, store: LeaseStore, wait: Callable[[float], None], short: float, scope: str, names: Names
    ) -> None:
        leases = store.acquire(store.open_session("me", short), scope, names(200))
        for _ in range(2):
            wait(0.6 * short)
            assert store.renew(leases) == leases

    def test_renewing_tells_what_was_lost(
        self, store: LeaseStore, session: LeaseSession, other: LeaseSession, scope: str
    ) -> None:
        leases = store.acquire(session, scope, list("abcde"))
        store.release(leases[:1])
        store.change(leases[1:2], other)
        store.break_leases(scope, ["c"])
        assert store.renew(leases) == leases[3:]

    def test_a_lease_that_was_lost_and_won_again_is_another(
        self, store: LeaseStore, session: LeaseSession, scope: str
    ) -> None:
        [first] = store.acquire(session, scope, ["a"])
        store.release([first])
        [second] = store.acquire(session, scope, ["a"])
        assert store.renew([first]) == store.release([first]) == store.change([first], session) == []
        assert store.renew([second]) == store.holders(scope, ["a"]) == [second]

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

    def test_a_dead_session_is_handed_nothing(self, store: LeaseStore, session: LeaseSession, scope: str) -> None:
        if store.features.native_leases:
            pytest.skip("a native lease needs no session that is alive")
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

    # Time-outs

    def test_no_method_waits_longer_than_the_time_out(
        self, hung: AbstractContextManager[LeaseStore] | None, session: LeaseSession, scope: str
    ) -> None:
        if hung is None:
            pytest.skip("no call of this store ever waits")
        lease = Lease(scope, "a", session, 1)
        uses: list[Callable[[LeaseStore], object]] = [
            lambda store: store.open_session("me", LONG),
            lambda store: store.heartbeat(session),
            lambda store: store.close_session(session),
            lambda store: store.acquire(session, scope, ["a"]),
            lambda store: store.renew([lease]),
            lambda store: store.release([lease]),
            lambda store: store.change([lease], session),
            lambda store: store.break_leases(scope, ["a"]),
        ]
        with hung as store:
            for use in uses:
                started = time.monotonic()
                with pytest.raises(StoreUnavailable):
                    use(store)
                assert time.monotonic() - started < 3.0
            started = time.monotonic()
            with suppress(StoreUnavailable):  # some can still be read
                store.holders(scope, ["a"])
            assert time.monotonic() - started < 3.0
