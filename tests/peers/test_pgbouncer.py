"""Stores in Postgres behind a real PgBouncer, with its default settings."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from leasehold.database.postgres.connections import Connections
from leasehold.errors import UsageError
from leasehold.model import Checkpoint, Presence
from leasehold.sinks import TableSpec
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.stores import open_lease_store, open_store
from leasehold_testkit.contracts.stores.groups import at_once, new_group
from leasehold_testkit.contracts.stores.ownership_records import claim, records
from tests.peers.debian import environment, unpacked
from tests.ports import free_port
from tests.sinks.events import E, batch
from tests.sinks.postgres import place_on
from tests.stores.servers import PostgresServer
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.peers

SPEC = TableSpec(name="flights", pipeline="p", keys=("tail",))


@contextmanager
def pooler(postgres_server: PostgresServer, *settings: str) -> Iterator[str]:
    """The URL of the database behind a pooler with these settings."""
    folder = unpacked("pgbouncer", "pgbouncer", "libc-ares2")
    here = Path(tempfile.mkdtemp(prefix="leasehold-pgbouncer-"))
    parts = urlsplit(postgres_server.url)
    [socket], port = parse_qs(parts.query)["host"], free_port()
    (here / "users").write_text('"postgres" ""\n')
    (here / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={socket} user=postgres\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = trust\nauth_file = {here}/users\nlogfile = {here}/log\n" + "".join(f"{one}\n" for one in settings)
    )
    owner = Path(socket).stat().st_uid
    for path in (here, *here.iterdir()):
        os.chown(path, owner, -1)
    process = subprocess.Popen(
        [folder / "usr" / "sbin" / "pgbouncer", here / "pgbouncer.ini"],
        env=environment(folder),
        user=owner,  # it refuses to run as the superuser of the system
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: process.poll() is not None or _listens(here / "log"), "pgbouncer to listen")
        assert process.poll() is None, f"pgbouncer has ended with {process.returncode}"
        yield f"postgresql://postgres@127.0.0.1:{port}{parts.path}"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(here, ignore_errors=True)


def _listens(log: Path) -> bool:
    return log.exists() and "listening on" in log.read_text()


@pytest.fixture(scope="module")
def behind(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of the database behind the pooler, as it is configured by default: a session for each client."""
    with pooler(postgres_server) as url:
        yield url


def test_everything_works_behind_it(behind: str) -> None:
    store, group = open_store(behind, timeout=PATIENCE), new_group()
    claimed = claim(store, group)
    assert store.renew_ownership([claimed], Presence(group, "me"))
    assert store.raise_owner_level([Checkpoint(group, "0", 1, 1)])
    assert list(records(store, group)) == ["0"]
    leases = open_lease_store(behind, timeout=PATIENCE)
    assert leases.acquire(leases.open_session("me", 60.0), "behind", [group.hub])


def test_what_calls_stand_on_is_set_there_and_what_the_url_asks_for(behind: str) -> None:
    connections = Connections(f"{behind}?options=-cwork_mem%3D7MB", 5.0, lambda _: None)
    [seen] = connections.rows(
        "SELECT current_setting('statement_timeout'), current_setting('jit'), current_setting('work_mem'), "
        "current_setting('search_path')",
        {},
    )
    assert seen == ("5s", "off", "7MB", "pg_catalog, pg_temp")
    connections.close()


def test_who_comes_after_us_finds_nothing_of_ours(behind: str) -> None:
    """A session of the server is used by the next client: the pooler resets it in between."""
    claim(open_store(behind), new_group())
    for _ in range(5):
        with psycopg.connect(behind) as other:
            seen = other.execute("SHOW statement_timeout").fetchall() + other.execute("SHOW search_path").fetchall()
            assert seen == [("0",), ('"$user", public',)]


def test_many_threads_share_its_pool(behind: str) -> None:
    stores, group = [open_store(behind, timeout=PATIENCE) for _ in range(4)], new_group()
    won = at_once([lambda n=n: claim(stores[n % 4], group, str(n)) for n in range(16)])  # type: ignore[misc]
    assert len(won) == len(records(stores[0], group)) == 16
    for store in stores:
        store.close()  # type: ignore[attr-defined]


def test_an_entity_table_is_filled_behind_it(behind: str, postgres_server: PostgresServer) -> None:
    with place_on(postgres_server.url) as place:
        sink = PostgresSink(f"{behind}?options=-csearch_path%3D{place.schema}", SPEC, timeout=PATIENCE)
        assert sink.apply(batch([E("a"), E("b", number=1)])).applied == 2
        assert sink.apply(batch([E("a", "late", number=2)])).applied == 1
        assert place.look("SELECT tail, status FROM flights ORDER BY 1") == [("a", "late"), ("b", "ok")]
        sink.close()


def test_an_entity_table_refuses_sessions_that_change(postgres_server: PostgresServer) -> None:
    with place_on(postgres_server.url) as place, pooler(postgres_server, "pool_mode = transaction") as url:
        sink = PostgresSink(f"{url}?options=-csearch_path%3D{place.schema}", SPEC, timeout=PATIENCE)
        sink.apply(batch([E("a")]))
        with psycopg.connect(url) as other:
            other.execute("SELECT 1")  # has taken the session that the sink had
            with pytest.raises(UsageError, match="pool_mode = session"):
                sink.apply(batch([E("b", number=1)]))
        sink.close()
