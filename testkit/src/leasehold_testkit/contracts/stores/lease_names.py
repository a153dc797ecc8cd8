"""The part of the contract of `LeaseStore` that is about names and how many of them, as tests."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from leasehold.errors import ConfigError
from leasehold.model import Lease, LeaseSession
from leasehold.stores.lease_base import LeaseStore
from leasehold.stores.lease_rules import LONGEST_KEY, LONGEST_OWNER, LONGEST_SCOPE, MOST_KEYS
from leasehold_testkit.contracts.stores.groups import HOSTILE_NAMES
from leasehold_testkit.contracts.stores.lease_fixtures import LeaseFixtures, Names


class LeaseNamesContract(LeaseFixtures):
    """What every `LeaseStore` must do about names."""

    def test_keys_that_differ_never_meet(self, store: LeaseStore, session: LeaseSession, scope: str) -> None:
        won = store.acquire(session, scope, HOSTILE_NAMES)
        assert [one.key for one in won] == list(HOSTILE_NAMES)
        store.release(won[::2])
        assert [one.key for one in store.holders(scope, HOSTILE_NAMES)] == list(HOSTILE_NAMES[1::2])

    def test_scopes_that_differ_never_meet(self, store: LeaseStore, session: LeaseSession, other: LeaseSession) -> None:
        mark = str(uuid.uuid4())[:8]
        scopes = [f"{name[:150]}{name[-1]}{mark}" for name in dict.fromkeys(HOSTILE_NAMES) if len(name) < 100]
        for number, scope in enumerate(scopes):
            assert len(store.acquire((session, other)[number % 2], scope, ["a"])) == 1
        for number, scope in enumerate(scopes):
            assert [one.session for one in store.holders(scope, ["a"])] == [(session, other)[number % 2]]

    def test_scope_and_key_do_not_run_into_one_another(
        self, store: LeaseStore, session: LeaseSession, scope: str
    ) -> None:
        pairs = [
            ("a", "b/c"),
            ("a/b", "c"),
            ("a", "b:c"),
            ("a:b", "c"),
            ("a", "b c"),
            ("a b", "c"),
            ("ab", "c"),
            ("a", "bc"),
        ]
        for one, key in pairs:
            assert len(store.acquire(session, f"{scope} {one}", [key])) == 1

    def test_names_of_the_stated_length_are_kept(self, store: LeaseStore, session: LeaseSession, scope: str) -> None:
        scopes = [f"{scope:x<{LONGEST_SCOPE}}", f"{scope}{'é' * ((LONGEST_SCOPE - len(scope)) // 2)}"]
        start = "k" * (LONGEST_KEY - 4)
        keys = [f"{start}aaaa", f"{start}aaab", "😀" * (LONGEST_KEY // 4), f"{'😀' * (LONGEST_KEY // 4 - 1)}éé", start]
        for one in scopes:
            won = store.acquire(session, one, keys)
            assert [lease.key for lease in won] == keys
            assert store.holders(one, keys) == won
            assert store.release(won) == won

    @pytest.mark.parametrize(
        ("scope", "key", "why"),
        [
            ("", "a", r"^scope .*1 to 200 bytes.* this is 0"),
            ("s" * (LONGEST_SCOPE + 1), "a", r"^scope .*1 to 200 bytes.* this is 201"),
            ("é" * (LONGEST_SCOPE // 2 + 1), "a", r"^scope .* this is 202"),
            ("a\0b", "a", "^scope .*NUL"),
            ("scope", "", r"^key .*1 to 1,000 bytes.* this is 0"),
            ("scope", "k" * (LONGEST_KEY + 1), r"^key .*1 to 1,000 bytes.* this is 1,001"),
            ("scope", "😀" * (LONGEST_KEY // 4) + "a", r"^key .* this is 1,001"),
            ("scope", "a\0b", "^key .*NUL"),
            ("scope", "\ud800", r"^key .*surrogate"),
        ],
    )
    def test_other_names_are_refused_with_nothing_done(
        self, store: LeaseStore, session: LeaseSession, scope: str, key: str, why: str
    ) -> None:
        for call in (store.holders, store.break_leases, lambda *what: store.acquire(session, *what)):
            with pytest.raises(ConfigError, match=why):
                call(scope, ["fine", key])
        if scope == "scope":
            assert [one for one in store.holders(scope, ["fine"]) if one.session == session] == []

    @pytest.mark.parametrize("owner", ["", "o" * LONGEST_OWNER, "😀" * (LONGEST_OWNER // 4), " é\t\n~%20'"])
    def test_an_owner_of_the_stated_length_is_kept(
        self, store: LeaseStore, session: LeaseSession, scope: str, owner: str
    ) -> None:
        mine = store.open_session(owner, session.duration)
        keys = ["a", "😀" * (LONGEST_KEY // 4)]
        won = store.acquire(mine, scope, keys)
        assert [(lease.key, lease.session.owner) for lease in won] == [(key, owner) for key in keys]
        assert store.holders(scope, keys) == store.renew(won) == won
        store.close_session(mine)

    @pytest.mark.parametrize(
        ("owner", "why"),
        [
            ("o" * (LONGEST_OWNER + 1), r"^owner .*0 to 1,000 bytes.* this is 1,001"),
            ("a\0b", "^owner .*NUL"),
            ("\ud800", "^owner .*surrogate"),
        ],
    )
    def test_other_owners_are_refused(self, store: LeaseStore, session: LeaseSession, owner: str, why: str) -> None:
        with pytest.raises(ConfigError, match=why):
            store.open_session(owner, session.duration)

    @pytest.mark.parametrize("key", ["O77", "", b"O77"])
    def test_one_key_in_place_of_a_list_is_refused(
        self, store: LeaseStore, session: LeaseSession, scope: str, key: Any
    ) -> None:
        for call in (store.holders, store.break_leases, lambda *what: store.acquire(session, *what)):
            with pytest.raises(ConfigError, match=r"^keys = .*this is one key\. Put it into a list"):
                call(scope, key)
        assert [one for one in store.holders(scope, ["O", "7"]) if one.session == session] == []

    def test_too_many_keys_in_one_call_are_refused(self, store: LeaseStore, session: LeaseSession, scope: str) -> None:
        lease = Lease(scope, "a", session, 1)
        many = [str(n) for n in range(MOST_KEYS + 1)]
        for call in (store.holders, store.break_leases, lambda *what: store.acquire(session, *what)):
            with pytest.raises(ConfigError, match="10,001 in one call; at most 10,000"):
                call(scope, many)
        for use in (store.renew, store.release, lambda leases: store.change(leases, session)):
            with pytest.raises(ConfigError, match="10,001 in one call; at most 10,000"):
                use([lease] * (MOST_KEYS + 1))
        assert store.holders(scope, many[:100]) == []

    def test_as_many_keys_as_one_call_may_name(
        self, store: LeaseStore, session: LeaseSession, other: LeaseSession, scope: str, names: Names
    ) -> None:
        keys = names(MOST_KEYS)
        won = store.acquire(session, scope, keys)
        assert [one.key for one in won] == keys
        assert store.renew(won) == store.holders(scope, keys) == won
        changed = store.change(won, other)
        assert store.break_leases(scope, keys[::2]) == changed[::2]
        assert store.release(changed) == changed[1::2]
