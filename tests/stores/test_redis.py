"""The Redis store: the contracts, and what is special to it: its keys, its versions, its URL, its durability."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
import redis

from leasehold.balancing.unreadable import sort_out
from leasehold.errors import ConfigError, StoreError, StoreUnavailable
from leasehold.leases import EntityLeases
from leasehold.model import Ask, Checkpoint, ConsumerGroup, Ownership, Presence
from leasehold.stores import open_lease_store, open_store
from leasehold.stores.base import PipelineBinding, SchemaChange
from leasehold.stores.redis.leases import RedisLeaseStore
from leasehold.stores.redis.store import RedisStore
from leasehold_testkit.contracts.stores.groups import at_once, groups_alike, new_group
from leasehold_testkit.contracts.stores.ownership_records import claim, records
from tests.stores.proxy import Proxy
from tests.stores.redis_cluster import cluster_of_one
from tests.stores.server_contracts import (
    ServerCheckpoints,
    ServerLeaseHistories,
    ServerLeases,
    ServerLeaseTimes,
    ServerOwnership,
    ServerOwnershipHistories,
    Stuck,
)
from tests.stores.servers import RedisServer
from tests.waiting import NEVER, take


@contextmanager
def out_of_reach(server: RedisServer) -> Iterator[str]:
    """A network takes all requests to the server, and passes none on; gives the URL of the server from there."""
    proxy = Proxy(server.port)
    proxy.hangs = True
    yield server.url.replace(str(server.port), str(proxy.port))
    proxy.close()


def move_sessions(server: RedisServer, prefix: str, earlier: float) -> None:
    """Let all sessions end this many seconds earlier."""
    sessions = f"{prefix}:{{leases}}:sessions"
    with redis.Redis(port=server.port) as other:
        for session, value in other.hgetall(sessions).items():
            till, _, rest = value.partition(b"\n")
            if till:  # else it has no end
                other.hset(sessions, session, b"%d\n%s" % (int(till) - round(earlier * 1e6), rest))


@pytest.fixture
def prefix() -> str:
    """Of the keys of a test that nobody else may touch."""
    return f"tests{secrets.token_hex(8)}"


@pytest.fixture
def server(redis_server: RedisServer) -> RedisServer:
    return redis_server


@pytest.fixture
def stuck(redis_server: RedisServer) -> Stuck:
    return partial(out_of_reach, redis_server)


class TestOwnership(ServerOwnership):
    pass


class TestCheckpoints(ServerCheckpoints):
    pass


class TestLeases(ServerLeases):
    pass


class TestLeaseTimes(ServerLeaseTimes):
    @pytest.fixture
    def url(self, server: RedisServer, prefix: str) -> str:
        return f"{server.url}?prefix={prefix}"

    @pytest.fixture
    def wait(self, server: RedisServer, prefix: str) -> Callable[[float], None]:
        return partial(move_sessions, server, prefix)


@pytest.mark.more_of("test_what_processes_do_at_once_looks_like_one_after_another")
class TestOwnershipAtOnce(ServerOwnershipHistories):
    pass


@pytest.mark.more_of("test_what_processes_do_at_once_looks_like_one_after_another")
class TestLeasesAtOnce(ServerLeaseHistories):
    pass


@pytest.mark.soak
class TestOwnershipForLong(TestOwnershipAtOnce):
    steps, rounds = 300, 30


@pytest.mark.soak
class TestLeasesForLong(TestLeasesAtOnce):
    steps, rounds = 300, 30


# Its keys


def test_one_url_serves_both_and_a_prefix_keeps_fleets_apart(redis_server: RedisServer, prefix: str) -> None:
    group, url, scope = new_group(), f"{redis_server.url}?prefix={prefix}", f"scope of {prefix}"
    claimed = claim(open_store(url, timeout=NEVER), group)
    leases = open_lease_store(url, timeout=NEVER)
    held = leases.acquire(leases.open_session("me", NEVER), scope, ["a"])
    assert records(RedisStore(url, timeout=NEVER), group) == {"0": claimed}
    assert RedisLeaseStore(url, timeout=NEVER).holders(scope, ["a"]) == held
    assert records(RedisStore(redis_server.url, timeout=NEVER), group) == {}
    assert RedisLeaseStore(redis_server.url, timeout=NEVER).holders(scope, ["a"]) == []


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisServer]:
    with cluster_of_one(tmp_path) as server:
        yield server


@pytest.mark.parametrize("option", ["", "?cluster=true"])
def test_in_a_cluster_all_keys_of_a_script_are_on_one_node(cluster: RedisServer, option: str) -> None:
    """The server refuses a script whose keys are in several hash slots."""
    store, groups = RedisStore(cluster.url + option, timeout=NEVER), groups_alike()[::40]
    won = store.claim_ownership([Ownership(one, "0", "me", 1) for one in groups])
    assert len(won) == len(groups)
    assert len(store.renew_ownership(won[:1], Presence(groups[0], "me"))) == 1
    store.raise_owner_level([Checkpoint(one, "0", 5, 1) for one in groups])
    for number, one in enumerate(groups):
        listing = store.list_ownership(one)
        assert (len(listing.records), len(listing.presences)) == (1, number == 0)
        assert store.list_checkpoints(one) == [Checkpoint(one, "0", 5, 1)]
    leases = RedisLeaseStore(cluster.url + option, timeout=NEVER)
    session = leases.open_session("me", 60.0)
    held = leases.acquire(session, "one", ["a", "b"]) + leases.acquire(session, "another", ["a"])
    assert leases.renew(held) == leases.release(held) == held
    store.close()
    leases.close()


def test_a_script_that_the_server_has_forgotten_is_sent_again(own_redis: RedisServer) -> None:
    store, group = RedisStore(own_redis.url, timeout=NEVER), new_group()
    claimed = claim(store, group)
    with redis.Redis(port=own_redis.port) as other:
        other.script_flush()
        assert records(store, group) == {"0": claimed}
        other.script_flush()
        groups = [new_group() for _ in range(3)]
        assert len(store.claim_ownership([Ownership(one, "0", "me", 1) for one in groups])) == 3


# Its versions


def test_data_of_a_newer_version_is_refused(redis_server: RedisServer, prefix: str) -> None:
    url = f"{redis_server.url}?prefix={prefix}"
    assert RedisStore(url, timeout=NEVER).create_schema() == SchemaChange("stores", 0, 2)
    assert RedisStore(url, timeout=NEVER).create_schema() == SchemaChange("stores", 2, 2)
    RedisStore(url, timeout=NEVER).list_ownership(new_group())
    with redis.Redis(port=redis_server.port) as other:
        assert other.get(f"{prefix}:version:stores") == b"2"
        other.set(f"{prefix}:version:stores", 99)
    with pytest.raises(StoreError, match=r"has format 99, and this release .* up to 2: pip install --upgrade"):
        RedisStore(url, timeout=NEVER).list_ownership(new_group())
    RedisLeaseStore(url, timeout=NEVER).open_session("me", NEVER)


def test_data_of_an_older_version_is_refused_by_name_and_left_alone(redis_server: RedisServer, prefix: str) -> None:
    url, group = f"{redis_server.url}?prefix={prefix}", new_group()
    RedisStore(url, timeout=NEVER).update_checkpoints([Checkpoint(group, "0", 17, 3, "seventeen")])
    with redis.Redis(port=redis_server.port) as other:
        other.set(f"{prefix}:version:stores", 1)
        with pytest.raises(StoreError, match=rf"has format 1, .* format 2 alone.* keys that begin with {prefix}:"):
            RedisStore(url, timeout=NEVER).list_checkpoints(group)
        assert other.get(f"{prefix}:version:stores") == b"1"


def test_a_version_that_is_none_is_refused_by_name(redis_server: RedisServer, prefix: str) -> None:
    with redis.Redis(port=redis_server.port) as other:
        other.set(f"{prefix}:version:stores", "junk")
    with pytest.raises(StoreError, match=f"{prefix}:version:stores .* holds 'junk', which is no number: set it to 2"):
        RedisStore(f"{redis_server.url}?prefix={prefix}", timeout=NEVER).list_ownership(new_group())


def test_a_process_looks_at_the_version_again(
    redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As somebody may remove all keys under it, or another one may write what it cannot read."""
    monkeypatch.setattr("leasehold.stores.redis.server.LOOK_AGAIN", 0.0)
    url, group = f"{redis_server.url}?prefix={prefix}", new_group()
    store = RedisStore(url, timeout=NEVER)
    store.update_checkpoints([Checkpoint(group, "0", 17, 3, None, {"a": "b"})])
    with redis.Redis(port=redis_server.port) as other:
        other.delete(*other.keys(f"{prefix}:*"))
        assert not RedisStore(url, timeout=NEVER).is_made()
        assert store.list_checkpoints(group) == []
        assert other.get(f"{prefix}:version:stores") == b"2", "what it has written before, it may write again"
        other.set(f"{prefix}:version:stores", 99)
        with pytest.raises(StoreError, match="has format 99"):
            store.list_checkpoints(group)


# What others have written under its keys


def test_a_key_that_holds_a_value_of_the_wrong_kind_is_named_with_the_remedy(
    redis_server: RedisServer, prefix: str
) -> None:
    url, group = f"{redis_server.url}?prefix={prefix}", ConsumerGroup("n", "h", "g")
    other_group = ConsumerGroup("n", "h", "another")
    store, leases = RedisStore(url, timeout=NEVER), RedisLeaseStore(url, timeout=NEVER)
    claims = [Ownership(one, "0", "me", 1) for one in (other_group, group)]
    session = leases.open_session("me", NEVER)
    binding = PipelineBinding("p", "s")
    calls: list[tuple[str, str, Callable[[], object]]] = [
        ("{n/h/g}:ownership", "hash", lambda: store.list_ownership(group)),
        ("{n/h/g}:ownership", "hash", lambda: store.claim_ownership(claims)),
        ("{n/h/g}:presence", "hash", lambda: store.list_ownership(group)),
        ("{n/h/g}:ask", "hash", lambda: store.ask([Ask(group, "0", 1, "me")])),
        ("{n/h/g}:checkpoint", "hash", lambda: store.list_checkpoints(group)),
        ("{n/h/g}:binding", "string", lambda: store.bind_pipeline(group, binding)),
        ("{leases}:scope:fence", "hash", lambda: leases.acquire(session, "fence", ["a"])),
        ("{leases}:scope:fence", "hash", lambda: leases.list_leases("fence")),
        ("{leases}:scope:fence", "hash", lambda: leases.list_leases("fence", ["a"])),
        ("{leases}:scopes", "hash", leases.list_leases),
        ("{leases}:sessions", "hash", lambda: leases.open_session("me", NEVER)),
        ("{leases}:fence", "string", lambda: leases.acquire(leases.open_session("me", NEVER), "fence", ["a"])),
        ("version:stores", "string", lambda: RedisStore(url, timeout=NEVER).list_ownership(group)),
    ]
    with redis.Redis(port=redis_server.port) as other:
        for name, kept, call in calls:
            key = f"{prefix}:{name}"
            other.delete(key)
            if kept == "hash":
                other.set(key, "a string")
            else:
                other.sadd(key, "a member")
            said = f"the key {key} is not Leasehold's: what it holds is no {kept}. Delete it, or take another prefix"
            with pytest.raises(StoreError, match=re.escape(said)):
                call()
            other.delete(key)
            call()


# Its connections


def test_many_threads_of_one_store(redis_server: RedisServer) -> None:
    store, group = RedisStore(redis_server.url, timeout=NEVER), new_group()

    def claimer(number: int) -> Callable[[], list[Ownership]]:
        partitions = [str((number + p) % 50) for p in range(50)]
        return lambda: store.claim_ownership([Ownership(group, p, str(number), 1) for p in partitions])

    won = [one for some in at_once([claimer(n) for n in range(32)]) for one in some]
    assert sorted(one.partition for one in won) == sorted(map(str, range(50)))


def test_connections_that_the_server_has_closed_are_not_used(own_redis: RedisServer) -> None:
    store, group = RedisStore(own_redis.url, timeout=NEVER), new_group()
    claimed = claim(store, group)
    with redis.Redis(port=own_redis.port) as other:
        other.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert records(store, group) == {"0": claimed}


# Its URL and its names


@pytest.mark.parametrize(
    "url",
    [
        *("redis://me:s3/cret@host/0", "redis://me:s3@cret@host/0", "redis://me:s3?cret@host/0"),
        *("redis://me:s3cret@host:port/0", "redis://:s3#cret@host/0", "redis://:s3cret@host/0?prefix=a%7Bb"),
        *("redis://:s3cret@host/0?cluster=perhaps", "redis://:s3cret@host/0?db=first"),
        *("redis://:3#s3cret@host/0", "redis://host/0?password=x&s3=cret", "redis://host/0?password=x&s3cret"),
        "redis://host/0#s3cret",
    ],
)
def test_a_bad_url_is_refused_without_its_secrets(url: str) -> None:
    for opener in (open_store, open_lease_store):
        with pytest.raises(ConfigError, match=r"redis://USER:PASSWORD@HOST") as refused:
            opener(url)
        assert "s3" not in str(refused.value)
        assert "cret" not in str(refused.value)


def test_a_password_comes_from_the_url_or_the_environment_and_is_in_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = RedisServer(tmp_path, "--requirepass", "s3 cr/et")
    try:
        for url in (server.url, server.url.replace("redis://", "redis://:wr0ng@")):
            with pytest.raises(StoreUnavailable, match=r"LEASEHOLD_REDIS_PASSWORD|uthentication") as refused:
                RedisStore(url, timeout=NEVER).list_ownership(new_group())
            assert "wr0ng" not in str(refused.value)
            assert "wr0ng" not in repr(RedisStore(url, timeout=NEVER)) + repr(RedisLeaseStore(url, timeout=NEVER))
        RedisStore(server.url.replace("redis://", "redis://:s3%20cr%2Fet@")).list_ownership(new_group())
        monkeypatch.setenv("LEASEHOLD_REDIS_PASSWORD", "s3 cr/et")
        RedisStore(server.url, timeout=NEVER).list_ownership(new_group())
        (tmp_path / "word").write_text("s3 cr/et\n")
        monkeypatch.delenv("LEASEHOLD_REDIS_PASSWORD")
        monkeypatch.setenv("LEASEHOLD_REDIS_PASSWORD_FILE", str(tmp_path / "word"))
        RedisStore(server.url, timeout=NEVER).list_ownership(new_group())
    finally:
        server.end()


def test_names_that_do_not_fit_are_refused(redis_server: RedisServer) -> None:
    store, group = RedisStore(redis_server.url, timeout=NEVER), new_group()
    for name in ("a\0b", "x" * 513, "é" * 257, "\ud800"):
        with pytest.raises(ConfigError, match=r"partition .*(NUL|512 bytes|UTF-8)"):
            store.claim_ownership([Ownership(group, "0", "me", 1), Ownership(group, name, "me", 1)])
        with pytest.raises(ConfigError):
            store.update_checkpoints([Checkpoint(ConsumerGroup("n", name), "0", 1, 1)])
    assert records(store, group) == {}, "nothing is done if something is refused"
    longest = ConsumerGroup("n" * 512, "é" * 256, "g" * 512)
    claimed = claim(store, longest, "😀" * 128, owner="o" * 512)
    assert records(store, longest) == {claimed.partition: claimed}


# Its clock and its disk


def test_after_the_clock_stepped_back_a_record_ages_from_its_next_listing(redis_server: RedisServer) -> None:
    store, group = RedisStore(redis_server.url, timeout=NEVER), new_group()
    claimed = claim(store, group)
    store.renew_ownership([], Presence(group, "me/1"))
    with redis.Redis(port=redis_server.port) as other:
        for kind in ("ownership", "presence"):
            [key] = other.keys(f"*{group.hub}*:{kind}")
            for name, value in other.hgetall(key).items():
                parts = value.split(b"\n")
                written = 1 if kind == "ownership" else 2
                parts[written] = b"%d" % (int(parts[written]) + 3_600_000_000)
                other.hset(key, name, b"\n".join(parts))
    first = store.list_ownership(group)
    assert first.records[0].last_modified == first.presences[0].last_modified == first.as_of
    take(0.05)
    second = store.list_ownership(group)
    for written_at in (second.records[0].last_modified, second.presences[0].last_modified):
        assert 0.05 <= second.as_of - written_at < 60
    assert store.renew_ownership([claimed]), "its ETag is still the same"


@pytest.mark.parametrize("digits", [b"%d" % (4_102_444_800 * 10**6), b"9" * 30, b"9" * 5_000])
@pytest.mark.parametrize("identity", [b'["other/1", -7]', b'["other/1", 7]'], ids=["unreadable", "readable"])
def test_a_record_from_the_future_is_free_one_expiration_after_somebody_has_seen_it(
    redis_server: RedisServer, digits: bytes, identity: bytes
) -> None:
    store, group, expiration = RedisStore(redis_server.url, timeout=NEVER), new_group(), 30.0
    claim(store, group)
    with redis.Redis(port=redis_server.port) as other:
        [key] = other.keys(f"*{group.hub}*:ownership")
        etag, _, _, rest = other.hget(key, "0").split(b"\n")
        other.hset(key, "0", b"\n".join((etag, digits, identity, rest)))

        def age() -> float:
            listing = store.list_ownership(group)
            [modified] = [
                *(record.last_modified for record in listing.records),
                *(unreadable.last_modified for unreadable in listing.unreadable),
            ]
            return listing.as_of - modified

        assert age() == 0.0, "it begins to age"
        parts = other.hget(key, "0").split(b"\n")
        parts[1] = b"%d" % (int(parts[1]) - round(expiration * 1e6))
        other.hset(key, "0", b"\n".join(parts))
        assert expiration <= age() < 2 * expiration
    seen = store.list_ownership(group)
    assert sort_out(seen, expiration, store_suspected=False).aside == frozenset()


def test_after_the_clock_stepped_back_a_session_lives_for_its_duration(redis_server: RedisServer, prefix: str) -> None:
    leases = RedisLeaseStore(f"{redis_server.url}?prefix={prefix}", timeout=NEVER)
    session = leases.open_session("me", 60.0)
    move_sessions(redis_server, prefix, earlier=-3600.0)
    [held] = leases.acquire(session, "scope", ["a"])
    [status] = leases.list_leases("scope")
    assert status.lease == held
    assert status.remaining is not None
    assert status.remaining <= 60.0
    move_sessions(redis_server, prefix, earlier=60.0)
    assert not leases.heartbeat(session)


def test_fences_rise_although_the_server_lost_everything(redis_server: RedisServer, prefix: str) -> None:
    leases = RedisLeaseStore(f"{redis_server.url}?prefix={prefix}", timeout=NEVER)
    [before] = leases.acquire(leases.open_session("me", 60.0), "scope", ["a"])
    with redis.Redis(port=redis_server.port) as other:
        other.delete(*other.keys(f"{prefix}:*"))
    [after] = leases.acquire(leases.open_session("me", 60.0), "scope", ["a"])
    assert after.fence > before.fence


def test_after_flushall_leases_are_taken_by_a_new_session(own_redis: RedisServer) -> None:
    with closing(EntityLeases(own_redis.url, scope="scope", holder="me", duration=NEVER, timeout=NEVER)) as leases:
        first = leases.acquire("a")
        with redis.Redis(port=own_redis.port) as other:
            other.flushall()
        second = leases.acquire("b", wait=NEVER)
        assert first.lost.is_set()
        assert second.fence > first.fence
        third = leases.acquire("a", wait=0)
        assert third.fence > second.fence


def test_a_server_that_keeps_nothing_is_warned_of(
    redis_server: RedisServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    RedisStore(redis_server.url, timeout=NEVER).list_ownership(new_group())
    assert caplog.messages == []
    forgetful = ("--appendonly", "no", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    server = RedisServer(tmp_path, *forgetful)
    try:
        store = RedisStore(server.url, timeout=NEVER)
        for _ in range(2):
            store.list_ownership(new_group())
    finally:
        server.end()
    lost, evicted = caplog.messages
    assert "Set appendonly yes and appendfsync" in lost
    assert "Set maxmemory-policy noeviction" in evicted
