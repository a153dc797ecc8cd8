"""Which combinations are refused: each promise against every pair of stores, and every way in."""

from __future__ import annotations

import importlib
import itertools
import re
from pathlib import Path

import pytest

from leasehold import EventProcessor
from leasehold.combinations import BUILT_IN, PROMISES, Combination, StorePlace, check, is_mixed, place_at, place_of
from leasehold.config import STRATEGY_NAMES, OwnershipSettings
from leasehold.errors import ConfigError
from leasehold.hubs.log.hub import LogHub
from leasehold.stores import BACKENDS, open_store
from leasehold.stores.base import StoreFeatures
from leasehold.stores.memory.store import MemoryStore
from tests.repository import ROOT

DOCS = ROOT / "docs" / "stores.md"
URLS = {
    "memory": "memory://name",
    "sqlite": "sqlite:///store.db",
    "postgresql": "postgresql://db.example/leasehold",
    "redis": "redis://redis.example/0",
    "rediss": "rediss://redis.example/0",
    "azblob": "azblob://account/container",
    "aztable": "aztable://account/table",
}
NEAR = {"memory": 0, "sqlite": 1}
"""How far apart those who share a store may be: one process, one host; all others any host."""
PAIRS = list(itertools.product(BUILT_IN, BUILT_IN))


def refused(**parts: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        check(Combination(**parts))  # type: ignore[arg-type]
    return caught.value


def keeps(combination: Combination) -> bool:
    return all(promise.broken(combination) is None for promise in PROMISES)


def at(scheme: str) -> StorePlace:
    return place_at(URLS[scheme])


def test_what_is_known_of_a_url_is_what_the_store_says_of_itself() -> None:
    homes = {
        "memory": ("memory", "MemoryStore"),
        "sqlite": ("sqlite", "SqliteStore"),
        "postgresql": ("postgres.store", "PostgresStore"),
        "redis": ("redis.store", "RedisStore"),
        "rediss": ("redis.store", "RedisStore"),
        "azblob": ("azure.blob", "BlobStore"),
        "aztable": ("azure.table", "TableStore"),
    }
    assert BUILT_IN.keys() == BACKENDS.keys() == homes.keys() == URLS.keys()
    for scheme, (module, name) in homes.items():
        store = getattr(importlib.import_module(f"leasehold.stores.{module}"), name)
        features = store().features if scheme == "memory" else store.features
        assert BUILT_IN[scheme] == features, scheme


@pytest.mark.more(but=49)
@pytest.mark.parametrize("several", [False, True], ids=["one process", "several"])
@pytest.mark.parametrize(("ownership", "checkpoints"), PAIRS)
def test_every_pair_of_stores(ownership: str, checkpoints: str, several: bool) -> None:
    parts = {"ownership": at(ownership), "checkpoints": at(checkpoints), "several_processes": several}
    if several and "memory" in (ownership, checkpoints):
        error = refused(**parts)
        assert error.field == ("ownership_store" if ownership == "memory" else "checkpoint_store")
        assert "one process" in str(error)
    elif NEAR.get(checkpoints, 2) < NEAR.get(ownership, 2):
        error = refused(**parts)
        assert (error.field, error.value) == ("checkpoint_store", URLS[checkpoints])
        assert "keep ownership in the same store" in str(error)
    else:
        check(Combination(**parts))  # type: ignore[arg-type]
        return
    part = "ownership" if error.field == "ownership_store" else "checkpoints"
    named = re.findall(r"(\w+)://", str(error).partition("Name one of ")[2])
    assert named
    assert not (several and "memory" in named)
    for scheme in BUILT_IN:  # those that are named help, and no others would
        mended = Combination(**{**parts, part: at(scheme)})  # type: ignore[arg-type]
        both = Combination(**{**parts, "ownership": at(scheme), "checkpoints": at(scheme)})  # type: ignore[arg-type]
        helped = [one for one in (mended, both) if keeps(one)]
        assert (scheme in named) <= bool(helped), scheme
        assert keeps(mended) <= (scheme in named), scheme


@pytest.mark.parametrize(
    "url",
    [
        *("redis://127.0.0.1/1", "redis://:secret@localhost:6379/0", "redis://localhost", "redis://:it's)@LOCALHOST"),
        *("postgresql://me:pass@[::1]:5432/x", "postgresql://localhost", "postgresql:///x", "postgresql://me@/x"),
        *(
            "postgresql:///x?host=/run/postgresql",
            "postgresql://%2Frun%2Fpostgresql/x",
            "postgresql:///x?host=localhost",
        ),
        "postgresql://db.example/x?user=me&hostaddr=127.0.0.1",
    ],
)
def test_a_server_of_this_host_goes_with_a_file_of_this_host(url: str) -> None:
    check(Combination(ownership=place_at(url), checkpoints=at("sqlite")))
    assert refused(ownership=place_at(url), checkpoints=at("memory")).field == "checkpoint_store"
    check(Combination(ownership=at("azblob"), checkpoints=place_at(url)))  # it may be a proxy of one that is elsewhere
    check(Combination(ownership=place_of(open_store(url)), checkpoints=at("sqlite")))


@pytest.mark.parametrize(
    "url",
    [
        *("redis://localhost.example/1", "redis://redis/127.0.0.1", "redis://10.127.0.1/0"),
        *(
            "postgresql://localhost,db.example/x",
            "postgresql:///x?host=db.example",
            "postgresql://db.example/localhost",
        ),
    ],
)
def test_other_servers_are_no_servers_of_this_host(url: str) -> None:
    assert refused(ownership=place_at(url), checkpoints=at("sqlite")).field == "checkpoint_store"


@pytest.mark.parametrize(("ownership", "checkpoints"), PAIRS)
def test_a_mixed_fleet_is_in_one_place_of_the_official_layout(ownership: str, checkpoints: str) -> None:
    parts = {"ownership": at(ownership), "checkpoints": at(checkpoints), "mixed": True}
    if ownership == checkpoints and ownership.startswith("az"):
        check(Combination(**parts))  # type: ignore[arg-type]
        return
    error = refused(**parts)
    official = ownership.startswith("az") and checkpoints.startswith("az")
    if official:
        assert (error.field, error.value) == ("checkpoint_store", URLS[checkpoints])
        assert "Name the ownership store here too" in str(error)
    elif not NEAR.get(checkpoints, 2) < NEAR.get(ownership, 2):
        assert "Name one of azblob://, aztable://, or take fleet=mixed out" in str(error)


def test_two_containers_are_two_places_and_two_credentials_are_not() -> None:
    one = place_at("azblob://account/container?sv=1&sig=a")
    check(Combination(ownership=one, checkpoints=place_at("azblob://account/container?sv=1&sig=b"), mixed=True))
    plain = place_at("azblob://account/container")  # with a credential from the environment
    check(Combination(ownership=one, checkpoints=plain, mixed=True))
    check(
        Combination(ownership=plain, checkpoints=place_at("azblob://account/container?credential=default"), mixed=True)
    )
    other = place_at("azblob://account/other?sv=1&sig=a")
    assert refused(ownership=one, checkpoints=other, mixed=True).field == "checkpoint_store"
    check(Combination(ownership=one, checkpoints=other))


def test_a_larger_share_is_refused_in_a_mixed_fleet() -> None:
    store, settings = at("azblob"), OwnershipSettings(capacity=2.0)
    error = refused(ownership=store, checkpoints=store, mixed=True, settings=settings)
    assert (error.field, error.value) == ("capacity", 2.0)
    check(Combination(ownership=store, checkpoints=store, settings=settings))
    check(Combination(ownership=store, checkpoints=store, mixed=True, settings=OwnershipSettings(maximum_partitions=3)))


@pytest.mark.parametrize(("changes", "field"), [({"capacity": 2.0}, "capacity"), ({"maximum_partitions": 3}, None)])
def test_what_nobody_would_hear_of_is_refused(changes: dict[str, float], field: str | None) -> None:
    deaf = StorePlace("theirs", StoreFeatures(shared=True, presence=False))
    settings = OwnershipSettings(**changes)  # type: ignore[arg-type]
    error = refused(ownership=deaf, checkpoints=deaf, settings=settings)
    assert error.field == (field or "maximum_partitions")
    assert "keeps no presence" in str(error)
    assert "Name one of memory://, sqlite://, postgresql://" in str(error)
    check(Combination(ownership=at("redis"), checkpoints=deaf, settings=settings))


def test_a_store_that_cannot_fence_keeps_no_checkpoints() -> None:
    open_to_all = StorePlace("theirs", StoreFeatures(shared=True, fenced_checkpoints=False))
    error = refused(ownership=open_to_all, checkpoints=open_to_all)
    assert (error.field, error.value) == ("checkpoint_store", "theirs")
    check(Combination(ownership=open_to_all, checkpoints=at("redis")))


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
@pytest.mark.parametrize("lacking", ["presence", "own_clock", "batches"])
def test_every_strategy_works_without_a_clock_presence_or_batches(strategy: str, lacking: str) -> None:
    """That they come to rest is shown in `test_mixed` and by the simulation."""
    less = StorePlace("theirs", StoreFeatures(shared=True, **{lacking: False}))
    check(Combination(ownership=less, checkpoints=less, settings=OwnershipSettings(strategy=strategy)))


def test_more_tasks_than_partitions_where_each_has_one_receiver() -> None:
    store = at("sqlite")
    check(Combination(ownership=store, checkpoints=store, least_tasks=4, most_tasks=4))
    check(Combination(ownership=store, checkpoints=store, least_tasks=400))
    error = refused(ownership=store, checkpoints=store, least_tasks=5, most_tasks=4)
    assert (error.field, error.value) == ("min_partitions", 5)


def test_the_table_is_in_the_docs() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert [promise.sentence for promise in PROMISES if f"| {promise.sentence} |" not in text] == []


def test_a_url_says_whether_the_fleet_is_mixed() -> None:
    assert is_mixed("eventhubs://ns/hub?consumer_group=g&fleet=mixed")
    assert not is_mixed("eventhubs://ns/hub?consumer_group=fleet=mixed")
    assert not is_mixed("log:///fleet=mixed")


def test_a_store_of_somebody_elses_is_judged_by_what_it_says() -> None:
    assert place_at("theirs://x").features.shared
    assert place_of(object()).features.shared  # type: ignore[arg-type]
    assert place_of(MemoryStore(features=StoreFeatures(shared=True, presence=False))).features.presence is False


def test_a_processor_refuses_before_it_claims(tmp_path: Path) -> None:
    hub = LogHub.create(tmp_path / "hub.db")
    ownership = MemoryStore(features=StoreFeatures(shared=True))
    with pytest.raises(ConfigError, match="do not share these checkpoints"):
        EventProcessor(hub, (ownership, MemoryStore()))
    assert ownership.list_ownership(hub.consumer_group("$Default")).presences == ()
    EventProcessor(hub, "memory://one-program")
