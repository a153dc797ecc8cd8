"""Faults at random, on each hub, store and table, with a tenth of bad events: every event is counted to the last one.

`make soak` runs them. The faults and their times come from the seed, which a failure names.
"""

from __future__ import annotations

import contextlib
import secrets
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psutil
import pytest

from tests.faults.databases import Database, postgres_database
from tests.faults.fleet import SHORT, Fleet
from tests.faults.hub_kinds import EventHubs, HubKind, Kafka, Log, away
from tests.faults.instance import Instance, paused
from tests.stores.azurite import Azurite, started
from tests.stores.servers import PostgresServer
from tests.waiting import take

pytestmark = pytest.mark.timeout(1500)

NAMES = ("blue", "green")
FAULTS = 12
WITH_TABLE = SAME, _ = ("the table's database", "a database beside the table's")
"""Stores on the Postgres server that has the table as well."""
HUBS: dict[str, Callable[[Path], HubKind]] = {"log": Log, "event hubs": EventHubs, "kafka": Kafka}


@dataclass(frozen=True, slots=True)
class Stores:
    """Where the stores of a fleet are, and how their server stops for the length of a block.

    `databases` are those of the stores and of the table, where the table is on that server too.
    """

    url: str
    frozen: Callable[[], contextlib.AbstractContextManager[object]]
    databases: tuple[Database, Database] | None = None


@pytest.fixture(scope="module")
def azurite() -> Iterator[Azurite]:
    """One that nobody else uses, for it is frozen."""
    server = started()
    yield server
    server.stop()


@pytest.fixture
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    """The stores of a kind."""
    if request.param not in WITH_TABLE:
        yield _stores_beside(request, tmp_path)
        return
    server: PostgresServer = request.getfixturevalue("own_postgres")
    with contextlib.ExitStack() as stack:
        table = stack.enter_context(postgres_database(server))
        same = request.param == SAME
        place = table if same else stack.enter_context(postgres_database(server))
        yield Stores(place.url, server.frozen, (place, table))


def _stores_beside(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    kind = request.param
    if kind == "sqlite":
        return Stores("sqlite:///stores.db", lambda: away(tmp_path, "stores.db"))
    if kind in ("postgresql", "redis"):
        server = request.getfixturevalue("own_postgres" if kind == "postgresql" else "own_redis")
        return Stores(str(server.url), server.frozen)
    server, place = request.getfixturevalue("azurite"), f"campaign{secrets.token_hex(4)}"
    if kind == "azblob":
        server.make_container(place)
    else:
        server.make_table(place)
    return Stores(str(server.url(kind, place)), lambda: paused(psutil.Process(server.pid)))


@pytest.fixture
def fleet(request: pytest.FixtureRequest, stores: Stores, tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(
        tmp_path,
        mode="append",
        kind=HUBS[request.param](tmp_path),
        expiration=SHORT,
        stores=stores.url,
        databases=stores.databases,
    )
    yield made
    made.close()


class Campaign:
    """Two instances, and what is done to them."""

    def __init__(self, fleet: Fleet, stores: Stores, rng: Random) -> None:
        self.fleet, self.stores, self.rng = fleet, stores, rng
        self.running = {name: fleet.launch(name) for name in NAMES}
        self.done: list[str] = []

    def fault(self) -> None:
        """One of all, while events come."""
        kind = self.rng.choice(
            (
                self._killed,
                self._killed,
                self._java_killed,
                self._paused,
                self._stopped,
                self._hub_away,
                self._stores_frozen,
                *([self._table_away] if self.stores.databases else []),
            )
        )
        victim = self.rng.choice(NAMES)
        self.done.append(f"{kind.__name__} {victim}")
        self.fleet.send(self.rng.randint(20, 60))
        take(self.rng.uniform(0.0, 1.5))
        kind(victim)

    def finish(self) -> None:
        """Let them come to the end."""
        self.fleet.send(20)
        self.fleet.wait_consumed()
        for instance in self.running.values():
            instance.stop()
        self.fleet.check_table()

    def _launch(self, name: str) -> None:
        """Start it, and wait until it asks for partitions: before that it is no instance yet, but a command."""
        instance = self.running[name] = self.fleet.launch(name)
        self.fleet.until(lambda: "asking for partitions as" in instance.said(), f"{name} to start")

    def _killed(self, name: str) -> None:
        self.running[name].kill()
        self._launch(name)

    def _java_killed(self, name: str) -> None:
        instance = self.running[name]
        instance.expected_to_fail = True
        with contextlib.suppress(StopIteration):  # it may not have got that far
            instance.jvm.kill()
            self.fleet.until(lambda: instance.process.poll() is not None, f"{name} to end without its Java")
            self._launch(name)

    def _paused(self, name: str) -> None:
        instance: Instance = self.running[name]
        with paused(*instance.everything()):
            self.fleet.send(10)
            take(self.rng.uniform(0.5, 2.0) * SHORT)

    def _stopped(self, name: str) -> None:
        self.running[name].signal_all(signal.SIGTERM)
        self.running[name].account()
        self._launch(name)

    def _hub_away(self, name: str) -> None:
        with self.fleet.kind.away():
            take(self.rng.uniform(0.5, 2.0) * SHORT)

    def _stores_frozen(self, name: str) -> None:
        with self.stores.frozen():
            self.fleet.send(10)
            take(self.rng.uniform(0.5, 2.0) * SHORT)

    def _table_away(self, name: str) -> None:
        """The server is killed, and comes back."""
        with self.fleet.table.away():
            self.fleet.send(10)
            take(self.rng.uniform(0.5, 2.0) * SHORT)


def _run(fleet: Fleet, stores: Stores, seed: int, faults: int) -> None:
    campaign = Campaign(fleet, stores, Random(seed))
    try:
        fleet.wait_owned(blue=2, green=2)
        fleet.send(100)
        for _ in range(faults):
            campaign.fault()
        campaign.finish()
    except BaseException as error:
        error.add_note(f"seed {seed}, after {campaign.done}")
        raise


@pytest.mark.soak
@pytest.mark.parametrize("fleet", HUBS, indirect=True)
@pytest.mark.parametrize("stores", ["sqlite", "postgresql", "redis", "azblob", "aztable", *WITH_TABLE], indirect=True)
def test_faults_at_random(fleet: Fleet, stores: Stores) -> None:
    _run(fleet, stores, secrets.randbits(32), FAULTS)
