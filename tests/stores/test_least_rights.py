"""The contracts, as a user of the server with no more rights than docs/stores.md says that an instance needs."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
import pytest
import redis

from leasehold.errors import StoreError
from leasehold.stores import open_lease_store, open_store
from leasehold_testkit.contracts.stores import CheckpointStoreContract, LeaseHoldsContract, OwnershipStoreContract
from leasehold_testkit.contracts.stores.groups import new_group
from leasehold_testkit.contracts.stores.ownership_records import claim
from tests.stores.servers import PostgresServer, RedisServer
from tests.waiting import NEVER

POSTGRES_RIGHTS = (
    "GRANT USAGE ON SCHEMA {0} TO {0}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {0} TO {0}",
    "REVOKE INSERT, UPDATE, DELETE ON {0}.leasehold_schema FROM {0}",
    "GRANT USAGE ON SEQUENCE {0}.leasehold_fence TO {0}",
)
REDIS_RIGHTS = "resetchannels ~leasehold:* +evalsha +eval +time +get +set +hget +hgetall +hkeys +hmget +hset +hdel"


@pytest.fixture(scope="module")
def postgres_url(postgres_server: PostgresServer) -> str:
    """The URL of a user who has made nothing; somebody else has, by `leasehold init`."""
    name = f"least_{secrets.token_hex(4)}"
    own_schema = f"options={quote(f'-csearch_path={name}')}"
    with psycopg.connect(postgres_server.url, autocommit=True) as admin:
        admin.execute(f"CREATE SCHEMA {name}")
        admin.execute(f"CREATE ROLE {name} LOGIN")
        for opened in (open_store, open_lease_store):
            made: Any = opened(f"{postgres_server.url}&{own_schema}")
            made.create_schema()
        for right in POSTGRES_RIGHTS:
            admin.execute(right.format(name))
    parts = urlsplit(postgres_server.url)
    return f"postgresql://{name}@/{parts.path.strip('/')}?{parts.query}&{own_schema}"


@pytest.fixture(scope="module")
def redis_url(redis_server: RedisServer) -> Iterator[str]:
    name = f"least{secrets.token_hex(4)}"
    with redis.Redis(port=redis_server.port) as admin:
        admin.execute_command("ACL", "SETUSER", name, "on", ">pass", *REDIS_RIGHTS.split())
        yield f"redis://{name}:pass@127.0.0.1:{redis_server.port}"
        admin.execute_command("ACL", "DELUSER", name)


class _OnPostgres:
    @pytest.fixture
    def store(self, postgres_url: str) -> Any:
        return open_store(postgres_url, timeout=NEVER)


class _OnRedis:
    @pytest.fixture
    def store(self, redis_url: str) -> Any:
        return open_store(redis_url, timeout=NEVER)


@pytest.mark.more
class TestPostgresOwnership(_OnPostgres, OwnershipStoreContract):
    pass


class TestPostgresCheckpoints(_OnPostgres, CheckpointStoreContract):
    pass


@pytest.mark.more
class TestPostgresLeases(LeaseHoldsContract):
    @pytest.fixture
    def store(self, postgres_url: str) -> Any:
        return open_lease_store(postgres_url, timeout=NEVER)


class TestRedisOwnership(_OnRedis, OwnershipStoreContract):
    pass


@pytest.mark.more
class TestRedisCheckpoints(_OnRedis, CheckpointStoreContract):
    pass


@pytest.mark.more
class TestRedisLeases(LeaseHoldsContract):
    @pytest.fixture
    def store(self, redis_url: str) -> Any:
        return open_lease_store(redis_url, timeout=NEVER)


def test_what_is_not_granted_is_not_had(postgres_url: str, redis_url: str) -> None:
    """Else these tests prove nothing."""
    with psycopg.connect(postgres_url) as limited, pytest.raises(psycopg.errors.InsufficientPrivilege):
        limited.execute("CREATE TABLE leasehold_other (a int)")
    with pytest.raises(StoreError, match="perm"):
        claim(open_store(f"{redis_url}?prefix=other", timeout=NEVER), new_group())


def test_a_key_of_the_wrong_kind_is_named_with_these_rights(redis_server: RedisServer, redis_url: str) -> None:
    group = new_group()
    store = open_store(redis_url, timeout=NEVER)
    claim(store, group)
    with redis.Redis(port=redis_server.port) as other:
        [key] = other.keys(f"*{group.hub}*:ownership")
        other.delete(key)
        other.set(key, "a string")
    with pytest.raises(StoreError, match=f"{group.hub}.*:ownership is not Leasehold's: what it holds is no hash"):
        store.list_ownership(group)
