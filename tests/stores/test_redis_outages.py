"""Redis servers that take no writes for a while, and clusters that are away: an outage, not an error of the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import redis

from leasehold.errors import StoreError, StoreUnavailable
from leasehold.model import Ask, Checkpoint, Presence
from leasehold.stores.redis.leases import RedisLeaseStore
from leasehold.stores.redis.store import RedisStore
from leasehold_testkit.contracts.stores.groups import ending_by_itself, new_group
from leasehold_testkit.contracts.stores.ownership_records import claim, records
from tests.stores.opened import answers
from tests.stores.redis_cluster import cluster_of_one, serves
from tests.stores.servers import RedisServer
from tests.waiting import NEVER, until

Outage = Callable[[RedisServer], AbstractContextManager[None]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    yield server
    server.end()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisServer]:
    with cluster_of_one(tmp_path) as server:
        yield server


@contextmanager
def a_replica(server: RedisServer) -> Iterator[None]:
    """As after a failover that the client has not heard of."""
    with redis.Redis(port=server.port) as other:
        other.execute_command("REPLICAOF", "127.0.0.1", "1")
        yield
        other.execute_command("REPLICAOF", "NO", "ONE")


@contextmanager
def set_to(server: RedisServer, option: str, value: object, back: object) -> Iterator[None]:
    with redis.Redis(port=server.port) as other:
        other.config_set(option, str(value))
        yield
        other.config_set(option, str(back))


@contextmanager
def without_replicas(server: RedisServer) -> Iterator[None]:
    with set_to(server, "min-replicas-to-write", 2, 0):
        yield


@contextmanager
def out_of_memory(server: RedisServer) -> Iterator[None]:
    with set_to(server, "maxmemory", 1, 0):
        yield


@contextmanager
def unable_to_save(server: RedisServer) -> Iterator[None]:
    with redis.Redis(port=server.port) as other:
        (Path(other.config_get("dir")["dir"]) / "taken").mkdir()
        with set_to(server, "dbfilename", "taken", "dump.rdb"), set_to(server, "save", "3600 1", ""):
            other.bgsave()
            until(lambda: other.info("persistence")["rdb_last_bgsave_status"] == "err", "the save to fail")
            yield


@pytest.mark.parametrize(
    ("outage", "code"),
    [
        (a_replica, "READONLY"),
        (without_replicas, "NOREPLICAS"),
        (out_of_memory, "OOM"),
        (unable_to_save, "MISCONF"),
    ],
)
def test_a_server_that_takes_no_writes_is_away(server: RedisServer, outage: Outage, code: str) -> None:
    store, leases, group = (
        RedisStore(server.url, timeout=NEVER),
        RedisLeaseStore(server.url, timeout=NEVER),
        new_group(),
    )
    claimed = claim(store, group)
    session = leases.open_session("me", 60.0)
    writes: list[Callable[[], object]] = [
        lambda: store.update_checkpoints([Checkpoint(group, "0", 1, 1)]),
        lambda: store.raise_owner_level([Checkpoint(group, "0", 1, 1)]),
        lambda: store.renew_ownership([claimed], Presence(group, "me")),
        lambda: store.ask([Ask(group, "0", 1, "me")]),
        lambda: leases.heartbeat(session),
        lambda: leases.acquire(session, "scope", ["a"]),
    ]
    with outage(server):
        for write in writes:
            with pytest.raises(StoreUnavailable) as away:
                write()
            assert "user_script" not in str(away.value)
        assert code in str(away.value)
    for write in writes:
        write()


@pytest.mark.parametrize("connected", [True, False], ids=["connected", "not yet connected"])
def test_a_cluster_that_hangs_ends_calls_at_the_time_out(cluster: RedisServer, connected: bool) -> None:
    """Each attempt has the time-out of the call and no more; else the cluster's client would make many of them."""
    url, group = f"{cluster.url}?cluster=true", new_group()
    claimed = claim(RedisStore(url, timeout=NEVER), group)
    store = RedisStore(url, timeout=1.0)  # impatient: what it has to do while the node answers, it tries until it can
    if connected:
        until(lambda: answers(lambda: store.list_ownership(group)), "a connection to the cluster")
    with cluster.frozen(), ending_by_itself(), pytest.raises(StoreUnavailable):
        store.list_ownership(group)
    until(lambda: answers(lambda: store.list_ownership(group)), "the cluster to be used again")
    assert records(RedisStore(url, timeout=NEVER), group) == {"0": claimed}


def test_a_cluster_that_is_away_comes_back(cluster: RedisServer) -> None:
    store, group = RedisStore(f"{cluster.url}?cluster=true"), new_group()
    claimed = claim(RedisStore(f"{cluster.url}?cluster=true", timeout=NEVER), group)
    until(lambda: answers(lambda: store.list_ownership(group)), "a connection to the cluster")
    cluster.kill()
    for one in (store, RedisStore(f"{cluster.url}?cluster=true")):
        with pytest.raises(StoreUnavailable):
            one.list_ownership(group)
    cluster.start()
    until(lambda: serves(cluster), "the cluster to serve")
    until(lambda: answers(lambda: store.list_ownership(group)), "the store to find the cluster again")
    assert records(RedisStore(f"{cluster.url}?cluster=true", timeout=NEVER), group) == {"0": claimed}


@pytest.mark.more
def test_a_cluster_without_all_of_its_slots_is_away(cluster: RedisServer) -> None:
    store, group = RedisStore(f"{cluster.url}?cluster=true"), new_group()
    claimed = claim(RedisStore(f"{cluster.url}?cluster=true", timeout=NEVER), group)
    with redis.Redis(port=cluster.port) as other:
        other.execute_command("CLUSTER", "DELSLOTS", *range(16384))
        with pytest.raises(StoreUnavailable):
            store.list_ownership(group)
        other.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
    until(lambda: serves(cluster), "the cluster to serve")
    until(lambda: answers(lambda: store.list_ownership(group)), "the store to find the cluster again")
    assert records(RedisStore(f"{cluster.url}?cluster=true", timeout=NEVER), group) == {"0": claimed}


def test_a_server_that_is_no_cluster_is_told_as_that(redis_server: RedisServer) -> None:
    with pytest.raises(StoreError, match="cluster=true") as refused:
        RedisStore(f"{redis_server.url}?cluster=true").list_ownership(new_group())
    assert not isinstance(refused.value, StoreUnavailable)
