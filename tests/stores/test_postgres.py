"""The Postgres store: the contracts, and what is special to it: its tables, its locks, its URL."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from leasehold.database.postgres.connections import MOST_CONNECTIONS, Connections
from leasehold.errors import ConfigError, StoreError, StoreUnavailable, UsageError
from leasehold.model import Checkpoint, ConsumerGroup, Ownership
from leasehold.stores import open_lease_store, open_store
from leasehold.stores.base import SchemaChange
from leasehold.stores.postgres.leases import PostgresLeaseStore
from leasehold.stores.postgres.store import PostgresStore
from leasehold_testkit.contracts.stores.groups import at_once, new_group
from leasehold_testkit.contracts.stores.ownership_records import claim, records
from tests.stores.opened import answers
from tests.stores.server_contracts import (
    ServerCheckpoints,
    ServerLeaseHistories,
    ServerLeases,
    ServerLeaseTimes,
    ServerOwnership,
    ServerOwnershipHistories,
    Stuck,
)
from tests.stores.servers import PostgresServer
from tests.waiting import NEVER, take, until


@contextmanager
def locked(server: PostgresServer) -> Iterator[str]:
    """All tables that are there are locked by somebody else; gives the URL of a store that waits for them."""
    with psycopg.connect(server.url) as other:
        for table in ("ownership", "presence", "ask", "checkpoint", "binding", "session", "lease"):
            if other.execute(f"SELECT to_regclass('leasehold_{table}') IS NOT NULL").fetchall() == [(True,)]:
                other.execute(f"LOCK TABLE leasehold_{table} IN ACCESS EXCLUSIVE MODE")
        yield server.url
        other.rollback()


@pytest.fixture
def server(postgres_server: PostgresServer) -> PostgresServer:
    return postgres_server


@pytest.fixture
def stuck(postgres_server: PostgresServer) -> Stuck:
    return partial(locked, postgres_server)


@pytest.mark.more_of("test_of_many_claims_with_the_same_etag_exactly_one_wins")
class TestOwnership(ServerOwnership):
    pass


class TestCheckpoints(ServerCheckpoints):
    pass


@pytest.mark.more_of(
    "test_fences_of_many_who_take_turns_only_rise",
    "test_of_many_who_acquire_at_once_exactly_one_wins_each_key",
)
class TestLeases(ServerLeases):
    pass


class TestLeaseTimes(ServerLeaseTimes):
    @pytest.fixture
    def wait(self, server: PostgresServer) -> Callable[[float], None]:
        def set_back(seconds: float) -> None:
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute("UPDATE leasehold_session SET until = until - make_interval(secs => %s)", [seconds])

        return set_back


@pytest.mark.more
class TestOwnershipAtOnce(ServerOwnershipHistories):
    pass


@pytest.mark.more
class TestLeasesAtOnce(ServerLeaseHistories):
    pass


@pytest.mark.soak
class TestOwnershipForLong(TestOwnershipAtOnce):
    steps, rounds = 300, 30


@pytest.mark.soak
class TestLeasesForLong(TestLeasesAtOnce):
    steps, rounds = 300, 30


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    """A URL with a schema of its own, in which nothing has been made yet."""
    name = f"schema_{secrets.token_hex(8)}"
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{postgres_server.url}&options={quote(f'-csearch_path={name}')}"


# Its tables


def test_one_url_serves_both_and_the_options_of_the_url_count(url: str, postgres_server: PostgresServer) -> None:
    group = new_group()
    claimed = claim(open_store(url, timeout=NEVER), group)
    leases = open_lease_store(url, timeout=NEVER)
    assert leases.acquire(leases.open_session("me", 60.0), "scope", ["a"])
    assert records(PostgresStore(url, timeout=NEVER), group) == {"0": claimed}
    assert records(PostgresStore(postgres_server.url, timeout=NEVER), group) == {}, "another schema is another store"


def test_many_make_the_tables_at_once(url: str) -> None:
    group = new_group()
    stores = [PostgresStore(url, timeout=NEVER) for _ in range(8)]
    leases = [PostgresLeaseStore(url, timeout=NEVER) for _ in range(8)]
    jobs: list[Callable[[], object]] = [lambda s=s: s.list_ownership(group) for s in stores]  # type: ignore[misc]
    jobs += [lambda s=s: s.open_session("me", NEVER) for s in leases]  # type: ignore[misc]
    assert len(at_once(jobs)) == 16


def test_making_the_tables_again_changes_nothing(url: str) -> None:
    store, group = PostgresStore(url, timeout=NEVER), new_group()
    assert store.create_schema() == SchemaChange("stores", 0, 2)
    claimed = claim(store, group)
    assert store.create_schema() == PostgresStore(url, timeout=NEVER).create_schema() == SchemaChange("stores", 2, 2)
    assert PostgresLeaseStore(url, timeout=NEVER).create_schema() == SchemaChange("leases", 0, 1)
    assert records(store, group) == {"0": claimed}


def test_tables_of_a_newer_version_are_refused(url: str) -> None:
    PostgresStore(url, timeout=NEVER).create_schema()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE leasehold_schema SET version = 99 WHERE component = 'stores'")
    uses: list[Callable[[PostgresStore], object]] = [
        lambda store: store.list_ownership(new_group()),
        lambda store: store.create_schema(),
    ]
    for use in uses:
        with pytest.raises(StoreError, match=r"have format 99, and this release .* up to 2: pip install --upgrade"):
            use(PostgresStore(url, timeout=NEVER))
    PostgresLeaseStore(url, timeout=NEVER).open_session("me", NEVER)


def test_tables_of_an_older_version_are_refused_by_name_and_left_alone(url: str) -> None:
    PostgresStore(url, timeout=NEVER).create_schema()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE leasehold_schema SET version = 1 WHERE component = 'stores'")
        connection.execute("DROP TABLE leasehold_ask")
        connection.execute("ALTER TABLE leasehold_checkpoint DROP COLUMN data")
        uses: list[Callable[[PostgresStore], object]] = [
            lambda store: store.list_ownership(new_group()),
            lambda store: store.create_schema(),
            lambda store: store.is_made(),
        ]
        for use in uses:
            with pytest.raises(StoreError, match=r"for stores have format 1, .* format 2 alone") as raised:
                use(PostgresStore(url, timeout=NEVER))
            assert "drop leasehold_ownership, leasehold_presence, leasehold_ask, " in str(raised.value)
        assert connection.execute("SELECT to_regclass('leasehold_ask')").fetchall() == [(None,)]
        assert connection.execute("SELECT version FROM leasehold_schema").fetchall() == [(1,)]


def test_tables_that_are_gone_are_not_made_anew_behind_the_back_of_a_store(url: str) -> None:
    """Empty ones would forget owner levels and progress."""
    store, group = PostgresStore(url, timeout=NEVER), new_group()
    claim(store, group)
    with psycopg.connect(url, autocommit=True) as connection:
        for table in ("ownership", "presence", "ask", "checkpoint", "binding", "schema"):
            connection.execute(f"DROP TABLE leasehold_{table}")
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="gone"):
            store.list_ownership(group)
        store.close()
    assert records(PostgresStore(url, timeout=NEVER), group) == {}


def test_who_may_not_make_tables_is_told_what_to_do(postgres_server: PostgresServer, url: str) -> None:
    role = f"reader_{secrets.token_hex(8)}"
    schema = url.rpartition("%3D")[2]
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    theirs = PostgresStore(url.replace("postgres:@", f"{role}@"))
    with pytest.raises(UsageError, match=r"may not make them .* Run `leasehold init`"):
        theirs.list_ownership(new_group())
    PostgresStore(url, timeout=NEVER).create_schema()
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}")
    claim(theirs, new_group())


# Its locks and connections


def test_more_threads_than_connections(postgres_server: PostgresServer) -> None:
    store, group = PostgresStore(postgres_server.url, timeout=NEVER), new_group()

    def claimer(number: int) -> Callable[[], list[Ownership]]:
        partitions = [str((number + p) % 50) for p in range(50)]
        return lambda: store.claim_ownership([Ownership(group, p, str(number), 1) for p in partitions])

    won = [one for some in at_once([claimer(n) for n in range(8 * MOST_CONNECTIONS)]) for one in some]
    assert sorted(one.partition for one in won) == sorted(map(str, range(50)))


def test_waiting_for_a_connection_ends_in_time(postgres_server: PostgresServer) -> None:
    PostgresStore(postgres_server.url, timeout=NEVER).list_ownership(new_group())
    store = PostgresStore(postgres_server.url, timeout=0.5)  # impatient: until it answers again, all its calls wait
    outcomes: list[object] = []

    def use() -> None:
        try:
            outcomes.append(store.list_ownership(new_group()))
        except StoreUnavailable as error:
            outcomes.append(error)

    with locked(postgres_server):
        at_once([use for _ in range(2 * MOST_CONNECTIONS)])
    assert len(outcomes) == 2 * MOST_CONNECTIONS
    assert all(isinstance(one, StoreUnavailable) for one in outcomes)
    until(lambda: answers(lambda: store.list_ownership(new_group())), "the same store to answer")


def test_connections_that_the_server_has_closed_are_not_used(postgres_server: PostgresServer) -> None:
    store, group = PostgresStore(postgres_server.url, timeout=NEVER), new_group()
    claimed = claim(store, group)
    with psycopg.connect(postgres_server.url, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE application_name = 'leasehold' AND datname = current_database()"
        )
    assert records(store, group) == {"0": claimed}


def test_writes_are_on_disk_also_where_the_database_would_not_wait_for_it(url: str) -> None:
    store = PostgresStore(f"{url}%20-csynchronous_commit%3Doff", timeout=NEVER)
    assert store._connections.rows("SELECT current_setting('synchronous_commit')", {}) == [("on",)]


# Its URL and its names


@pytest.mark.parametrize(
    "url",
    [
        *("postgresql://me:s3/cret@host/db", "postgresql://me:s3@cret@host/db", "postgresql://me:s3?cret@host/db"),
        *("postgresql://me:s3cret@host:port/db", "postgresql://h/d?nonsense=s3cret", "postgresql://me:s3#cret@host/db"),
        *("postgresql://me:3#s3cret@host/db", "postgresql://h/d?password=s3&cret=x", "postgresql://h/d#s3cret"),
        "postgresql://h/d?password=x&s3cret",
    ],
)
def test_a_bad_url_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(ConfigError, match=r"postgresql://USER:PASSWORD@HOST") as refused:
        open_store(url, timeout=NEVER)
    assert "s3" not in str(refused.value)
    assert "cret" not in str(refused.value)


def test_secrets_are_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "from-the-environment")
    for url in ("postgresql://me:s3cret@127.0.0.1:1/db", "postgresql://127.0.0.1:1/db?user=me&password=s3cret"):
        for store in (PostgresStore(url, timeout=NEVER), PostgresLeaseStore(url, timeout=NEVER)):
            assert "s3cret" not in repr(store)
        with pytest.raises(StoreUnavailable) as away:
            PostgresStore(url, timeout=NEVER).list_ownership(new_group())
        assert "s3cret" not in str(away.value)
        assert "from-the-environment" not in str(away.value)


def test_a_password_may_be_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "word").write_text("s3#c ret\n")
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSWORD_FILE", str(tmp_path / "word"))
    for url, password in (("postgresql://me@h/d", "s3#c ret"), ("postgresql://me:own@h/d", "own")):
        assert Connections(url, 1.0, lambda _: None)._parameters["password"] == password
    monkeypatch.setenv("PGPASSWORD", "of libpq")
    with pytest.raises(ConfigError, match="PGPASSWORD is set as well"):
        PostgresStore("postgresql://me@h/d")


def test_a_partition_is_given_up_with_any_text_whatever_the_environment_says(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error that its owner ended with has characters that the encoding asked for has not."""
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    for number, option in enumerate(("", "&client_encoding=SQL_ASCII", "&options=-cclient_encoding%3DWIN1251")):
        store, group = PostgresStore(postgres_server.url + option, timeout=NEVER), new_group()
        said = f"no price in \N{EURO SIGN} {number} \N{SNOWMAN}"
        [held] = store.claim_ownership([Ownership(group, "0", "me", 1)])
        [given_up] = store.relinquish_ownership([replace(held, last_error=said)])
        assert given_up.last_error == store.list_ownership(group).records[0].last_error == said
        store.close()


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "EUC_JP"])
def test_a_database_in_another_encoding_is_refused(postgres_server: PostgresServer, encoding: str) -> None:
    """SQL_ASCII too: it takes any bytes for text, and cannot say which character one is."""
    name = f"other_{secrets.token_hex(4)}"
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' "
                           "TEMPLATE template0".encode())  # fmt: skip
        url = postgres_server.database(name)
        stores = PostgresStore(url, timeout=NEVER), PostgresLeaseStore(url, timeout=NEVER)
        for use in (lambda: stores[0].list_ownership(new_group()), lambda: stores[1].open_session("me", 10.0)):
            with pytest.raises(UsageError, match=f"encoded in {encoding}.*ENCODING 'UTF8'"):
                use()
        for store in stores:
            store.close()
        connection.execute(f"DROP DATABASE {name}".encode())


def test_names_that_do_not_fit_are_refused(postgres_server: PostgresServer) -> None:
    store, group = PostgresStore(postgres_server.url, timeout=NEVER), new_group()
    for name in ("a\0b", "x" * 513, "é" * 257, "\ud800"):
        with pytest.raises(ConfigError, match=r"partition .*(NUL|512 bytes|UTF-8)"):
            store.claim_ownership([Ownership(group, "0", "me", 1), Ownership(group, name, "me", 1)])
        with pytest.raises(ConfigError):
            store.update_checkpoints([Checkpoint(ConsumerGroup("n", name), "0", 1, 1)])
    assert records(store, group) == {}, "nothing is done if something is refused"
    longest = ConsumerGroup("n" * 512, "é" * 256, "g" * 512)
    claimed = claim(store, longest, "😀" * 128, owner="o" * 512)
    assert records(store, longest) == {claimed.partition: claimed}


def test_an_error_text_does_not_keep_a_partition_from_being_given_up(postgres_server: PostgresServer) -> None:
    store, group = PostgresStore(postgres_server.url, timeout=NEVER), new_group()
    failed = Ownership(group, "0", "me", 1, last_error="a NUL \0 and half a pair \ud800")
    assert store.claim_ownership([failed])[0].last_error == "a NUL ␀ and half a pair ?"


# Its clock


@pytest.mark.parametrize("level", [1, -7], ids=["readable", "unreadable"])
def test_after_the_clock_stepped_back_a_record_ages_from_its_next_listing(
    postgres_server: PostgresServer, level: int
) -> None:
    store, group = PostgresStore(postgres_server.url, timeout=NEVER), new_group()
    claimed = claim(store, group)
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(
            "UPDATE leasehold_ownership SET last_modified = clock_timestamp() + '1 hour', owner_level = %s "
            "WHERE hub = %s",
            [level, group.hub],
        )

    def age() -> float:
        listing = store.list_ownership(group)
        if level > 0:
            return listing.as_of - listing.records[0].last_modified
        return listing.as_of - listing.unreadable[0].last_modified

    assert age() == 0.0
    take(0.05)
    assert 0.05 <= age() < 60
    if level > 0:
        assert store.renew_ownership([claimed]), "its ETag is still the same"


def test_rows_of_keys_that_nobody_holds_are_cleared_and_fences_rise_for_who_acquires_at_once(url: str) -> None:
    stores = [PostgresLeaseStore(url, timeout=NEVER) for _ in range(5)]
    sessions = [store.open_session("me", 60.0) for store in stores]
    held = stores[0].acquire(sessions[0], "scope", ["held"])
    keys, fences = ["a", "b"], list[list[tuple[str, int]]]()

    def take(number: int) -> list[tuple[str, int]]:
        found = []
        for _ in range(50):
            won = stores[number].acquire(sessions[number], "scope", keys)
            found += [(lease.key, lease.fence) for lease in won]
            stores[number].release(won)
        return found

    def clear() -> list[tuple[str, int]]:
        for _ in range(50):
            stores[4].clear_leases(recent=0, worth=0)
        return []

    fences = at_once([*(partial(take, number) for number in range(4)), clear])
    for key in keys:
        given = [fence for found in fences for one, fence in found if one == key]
        assert len(set(given)) == len(given)
    stores[4].clear_leases(recent=0, worth=0)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT key FROM leasehold_lease").fetchall() == [("held",)]
    assert stores[0].renew(held) == held
    assert stores[0].clear_leases() == 0, "what was acquired lately stays"
