"""Tables that somebody has removed: `init` and a start make them again, a running store and who only reads do not."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from click.testing import CliRunner

from leasehold.cli.app import app
from leasehold.errors import StoreError, StoreUnavailable, UsageError
from leasehold.model import Checkpoint, Presence
from leasehold.stores import PipelineBinding, open_existing, open_lease_store, open_store
from leasehold.stores.closing import close_store
from leasehold.stores.sqlite.schema import STORES
from leasehold_testkit.contracts.stores.groups import new_group
from leasehold_testkit.contracts.stores.ownership_records import claim, records
from tests.stores.servers import PostgresServer
from tests.waiting import NEVER

TABLES = STORES.tables
Run = Callable[[str], None]


class Place:
    """A store of its own. `run` runs a statement beside it."""

    def __init__(self, url: str, run: Run) -> None:
        self.url, self.run = url, run

    def init(self) -> dict[str, str]:
        done = CliRunner().invoke(app, ["init", self.url, "--json"])
        assert done.exit_code == 0, done.stderr
        return {one["component"]: one["outcome"] for one in json.loads(done.stdout)["components"]}


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        path = tmp_path / "store.db"

        def run_here(statement: str) -> None:
            with closing(sqlite3.connect(path)) as file, file:
                file.execute(statement)

        return Place(f"sqlite:///{path}", run_here)
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = f"removed_{secrets.token_hex(8)}"
    url = f"{server.url}&options={quote(f'-csearch_path={name}')}"

    def run_there(statement: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statement)

    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return Place(url, run_there)


def use(store: Any) -> None:
    """Everything that a store keeps."""
    group = new_group()
    claimed = claim(store, group)
    assert store.renew_ownership([claimed], Presence(group, "me"))
    store.ask([])
    store.withdraw_asks([])
    assert store.raise_owner_level([Checkpoint(group, "0", 1, 1)])
    assert store.bind_pipeline(group, PipelineBinding("p", "s"))


@pytest.mark.more(but=5)
@pytest.mark.parametrize("table", TABLES)
def test_init_makes_a_removed_table_again(place: Place, table: str) -> None:
    group = new_group()
    open_store(place.url, timeout=NEVER).raise_owner_level([Checkpoint(group, "0", 17, 3)])
    place.init()
    place.run(f"DROP TABLE {table}")
    outcome = place.init()["stores"]
    assert outcome == f"made again, empty: {table}"
    assert place.init()["stores"] == "was there"
    use(open_store(place.url, timeout=NEVER))
    kept = open_store(place.url, timeout=NEVER).list_checkpoints(group)
    assert kept == ([] if table == "leasehold_checkpoint" else [Checkpoint(group, "0", 17, 3)])


def test_tables_that_state_no_version_any_more_are_refused(place: Place) -> None:
    use(open_store(place.url, timeout=NEVER))
    place.run("DROP TABLE leasehold_schema")
    for open_it in (open_store, open_existing):
        with pytest.raises(StoreError, match=r"its tables for stores have no format.* drop leasehold_ownership, "):
            use(open_it(place.url, timeout=NEVER))


@pytest.mark.parametrize("table", TABLES)
def test_a_start_makes_a_removed_table_again(place: Place, table: str) -> None:
    use(open_store(place.url, timeout=NEVER))
    place.run(f"DROP TABLE {table}")
    use(open_store(place.url, timeout=NEVER))


def test_levels_go_on_above_what_the_other_table_knows(place: Place) -> None:
    """What a claim's level is computed from is in two tables, of which one is left."""
    group = new_group()
    store = open_store(place.url, timeout=NEVER)
    claim(store, group, level=5)
    store.raise_owner_level([Checkpoint(group, "0", 17, 5)])
    place.run("DROP TABLE leasehold_ownership")
    again = open_store(place.url, timeout=NEVER)
    assert records(again, group) == {}
    assert [one.owner_level for one in again.list_checkpoints(group)] == [5]


def test_a_running_store_says_what_is_wrong_and_goes_on_once_it_is_mended(place: Place) -> None:
    group = new_group()
    store = open_store(place.url, timeout=NEVER)
    claim(store, group)
    place.run("DROP TABLE leasehold_ownership")
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"gone|removed"):
            store.list_ownership(group)
        close_store(store)  # so that the next use opens another connection
    place.init()
    assert records(store, group) == {}
    claim(store, group)


def test_who_only_reads_is_told_what_to_do(place: Place) -> None:
    use(open_store(place.url, timeout=NEVER))
    place.run("DROP TABLE leasehold_ask")
    with pytest.raises(UsageError, match=r"leasehold_ask is gone.*leasehold init"):
        open_existing(place.url)


def test_fences_rise_although_their_count_was_removed(place: Place) -> None:
    leases = open_lease_store(place.url, timeout=NEVER)
    session = leases.open_session("me", 60.0)
    before = leases.acquire(session, "scope", ["a"])[0].fence
    place.run("DROP TABLE leasehold_fence" if place.url.startswith("sqlite") else "DROP SEQUENCE leasehold_fence")
    assert "made again, empty: leasehold_fence" in place.init()["leases"]
    again = open_lease_store(place.url, timeout=NEVER)
    [after] = again.acquire(again.open_session("me", 60.0), "scope", ["b"])
    assert after.fence > before + 1_000_000_000, "far above whatever may have been counted"
