"""Ownership in one store and checkpoints in another: what fences a former owner is the checkpoint record alone."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from leasehold.stores import Store, open_store
from leasehold_testkit.contracts.stores.groups import new_group
from tests.stores.azurite import Azurite
from tests.stores.instances import hold_all, manager
from tests.stores.servers import PostgresServer, RedisServer
from tests.waiting import NEVER

Open = Callable[[str], Store]


@pytest.fixture
def opened(tmp_path: Path, redis_server: RedisServer, postgres_server: PostgresServer, azurite: Azurite) -> Open:
    """Opens a store by the scheme of its URL, on its server."""
    container = f"mixed-{secrets.token_hex(4)}"
    azurite.make_container(container)
    urls = {
        "sqlite": f"sqlite:///{tmp_path / 'store.db'}",
        "redis": redis_server.url,
        "postgresql": postgres_server.url,
        "azblob": azurite.url("azblob", container),
    }
    return lambda scheme: open_store(urls[scheme], timeout=NEVER)


@pytest.mark.more(but=3)
@pytest.mark.parametrize(
    ("ownership", "checkpoints"),
    [
        ("redis", "postgresql"),
        ("redis", "azblob"),
        ("azblob", "redis"),
        ("postgresql", "azblob"),
        ("sqlite", "redis"),
    ],
)
def test_a_former_owner_is_fenced_off_by_another_store(opened: Open, ownership: str, checkpoints: str) -> None:
    owners, places, group = opened(ownership), opened(checkpoints), new_group()
    first, again = (manager(owners, places, group, "name") for _ in range(2))
    assert hold_all(first) == 1
    assert first.update_checkpoint("0", 1, 41, "41")
    assert hold_all(again) == 2, "a new incarnation of the name takes over at once"
    assert again.held()["0"].start == 42
    assert not first.update_checkpoint("0", 1, 42), "its level is behind that of the checkpoint"
    assert {c.partition: c.owner_level for c in places.list_checkpoints(group)} == {str(p): 2 for p in range(8)}
    assert places.list_ownership(group).records == ()
    assert owners.list_checkpoints(group) == []
