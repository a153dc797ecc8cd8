"""What a person has to mend, under the plain processor: it ends a start, and a run waits for it and goes on."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from leasehold import Event
from leasehold.cli.app import app
from leasehold.config import OwnershipSettings
from leasehold.errors import StoreError
from leasehold.hubs.log import LogHub
from leasehold.notices import CycleFailed
from leasehold.processors import handled_processor
from leasehold.processors.events import EventProcessor, Handlers
from leasehold.stores import open_store
from leasehold.stores.sqlite.store import SqliteStore
from tests.handlers.orders import FILE, place
from tests.mending import Server, Trouble, fill, live_through, make_room, says, small_disk
from tests.stores.servers import PostgresServer
from tests.waiting import NEVER, PATIENCE, until

__all__ = ["place"]

INSERT_REVOKED = ("permission denied for table orders", "has no INSERT", "GRANT INSERT ON public.orders TO few_")
LOCKED_OUT = ("password authentication failed", "ALTER ROLE … PASSWORD", "correct the URL or PGPASSWORD")
POSTGRES_FULL = ("No space left on device", "Make room on the server's disk")
SQLITE_FULL = ("database or disk is full", "make room")


@pytest.fixture
def server(own_postgres: PostgresServer) -> Iterator[Server]:
    made = Server(own_postgres)
    yield made
    made.close()


class Orders:
    """The pipeline file of orders, and what is sent to it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "orders.toml"
        self._hub = LogHub(folder / "hub.db")
        self.sent = 0

    def goes_to(self, sink: str) -> None:
        self.file.write_text(FILE.replace("sqlite:///entities.db", sink))

    def send(self, keys: int = 300) -> None:
        """To one partition, so that one handler meets the trouble."""
        numbers = range(self.sent, self.sent + keys)
        bodies = [json.dumps({"order_id": f"o{number}", "amount": 1}).encode() for number in numbers]
        self._hub.send([Event(body) for body in bodies], partition="0")
        self.sent += keys

    def refused(self, parts: tuple[str, ...]) -> None:
        """A start is refused: the last line of the command says why, and no partition is to blame."""
        ended = CliRunner().invoke(app, ["run", str(self.file), "--no-spark"])
        last = ended.stderr.splitlines()[-1]
        assert ended.exit_code == 1
        assert says(last, parts), ended.stderr
        store = SqliteStore(self.folder / "stores.db")
        records = store.list_ownership(self._hub.consumer_group("$Default")).records
        assert {record.failures for record in records} <= {0}

    def lives_through(self, troubles: list[Trouble], count: Callable[[], int]) -> None:
        """A run that has worked goes on after each of the troubles, by itself."""
        with handled_processor(self.file) as processor:
            self.send(1)
            until(lambda: count() == self.sent, "the first event to be applied")
            for trouble in troubles:
                live_through(trouble, self.file, self.send, lambda: count() == self.sent)
            assert processor.running


@pytest.mark.more
def test_in_postgres(place: Path, server: Server) -> None:
    orders = Orders(place)

    def count() -> int:
        return int(server.look("SELECT count(*) FROM orders")[0][0])

    orders.goes_to(server.admin_url)
    with handled_processor(orders.file):
        orders.send(1)
        until(lambda: bool(server.look("SELECT to_regclass('orders')")[0][0]) and count() == 1, "the tables to be made")
    server.run("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
    orders.goes_to(server.url)
    with small_disk(server.folder / f"{server.role}.disk") as disk:
        server.run(f"ALTER TABLE orders SET TABLESPACE {server.on_disk(disk)}")
        troubles = [
            Trouble(
                "a right is revoked",
                lambda: server.run("REVOKE INSERT ON orders FROM {role}"),
                lambda: server.run("GRANT INSERT ON orders TO {role}"),
                INSERT_REVOKED,
            ),
            Trouble("the disk is full", lambda: fill(disk), lambda: make_room(disk), POSTGRES_FULL),
            Trouble("the password is another", server.lock_out, server.let_in, LOCKED_OUT),
        ]
        for trouble in troubles:
            orders.send()
            trouble.begin()
            orders.refused(trouble.says)
            trouble.mend()
        orders.lives_through(troubles, count)
        server.run("DROP TABLE orders")


def test_in_sqlite(place: Path) -> None:
    orders = Orders(place)
    with small_disk(place / "disk") as disk:
        orders.goes_to(f"sqlite:///{disk}/entities.db")

        def count() -> int:
            with closing(sqlite3.connect(disk / "entities.db")) as table:
                return int(table.execute("SELECT count(*) FROM orders").fetchone()[0])

        full = Trouble("the disk is full", lambda: fill(disk), lambda: make_room(disk), SQLITE_FULL)
        full.begin()
        orders.send()
        orders.refused(SQLITE_FULL)
        full.mend()
        orders.lives_through([full], count)


def test_of_the_stores(place: Path, server: Server) -> None:
    """The first dispatch cycle says it, or, in a run, each one until it is mended."""
    open_store(server.admin_url).create_schema()  # type: ignore[attr-defined]
    server.run("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
    hub, handled, failed = LogHub(place / "hub.db"), list[int](), list[str]()

    def made() -> EventProcessor:
        settings = OwnershipSettings(load_balancing_interval=0.1, partition_expiration=NEVER)
        handlers = Handlers(lambda batch, context: handled.append(len(batch)))
        return EventProcessor(hub, server.url, handlers, ownership=settings)

    said = "permission denied for table leasehold_ownership.*GRANT {} ON public.leasehold_ownership TO few_"
    server.run("REVOKE SELECT ON leasehold_ownership FROM {role}")
    with pytest.raises(StoreError, match=said.format("SELECT")), made() as processor:
        processor.wait(PATIENCE)
    server.run("GRANT SELECT ON leasehold_ownership TO {role}", "REVOKE INSERT ON leasehold_ownership FROM {role}")
    with pytest.raises(StoreError, match=said.format("INSERT")), made() as processor:
        processor.wait(PATIENCE)
    server.run("GRANT INSERT ON leasehold_ownership TO {role}")
    with made() as processor:
        processor.notices.subscribe(lambda notice: failed.append(str(notice.error)), CycleFailed)
        until(lambda: len(processor.partitions) == 2, "the partitions")
        server.run("REVOKE UPDATE ON leasehold_ownership FROM {role}")
        until(lambda: len(failed) > 1, "dispatch cycles to fail")
        assert re.search(said.format("UPDATE"), failed[0])
        server.run("GRANT UPDATE ON leasehold_ownership TO {role}")
        hub.send([Event(b"x")], partition="0")
        until(lambda: handled == [1], "the run to go on")
        assert processor.running
    hub.close()
