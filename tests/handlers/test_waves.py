"""Waves: many producers send about the same new entities at once, without a key, while processes die and stop.

Those processes are plain, or two of three are on Spark; without leases, and with leases in each store. A journal, which
handlers write with the state, has each place of an order and each event once: nothing is computed by two in effect.
With leases nothing is called by two in time either. The control, with neither versions nor leases, has conflicts.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from leasehold import Event
from leasehold.hubs.log import LogHub
from leasehold.hubs.log.partitioning import Keyless
from tests.handlers.batches import rows
from tests.handlers.processes import Processes, expire_leases, started
from tests.handlers.related_bench import Bench
from tests.sinks.postgres import Place
from tests.waiting import NEVER, PATIENCE, take, until

JOURNAL = (
    "CREATE TABLE journal (part VARCHAR(9) NOT NULL, number BIGINT NOT NULL, order_id VARCHAR(50) NOT NULL, "
    "place BIGINT NOT NULL, PRIMARY KEY (part, number), UNIQUE (order_id, place))"
)
PARTITIONS, PRODUCERS, ORDERS, EACH = 8, 8, 30, 10
EVERY = [f"o{number}" for number in range(ORDERS)]
FILE = """
name = "orders"
[source]
hub = "log:///log.db"
max_events_per_trigger = 200
[ownership]
store = "sqlite:///store.db"
load_balancing_interval = "300ms"
partition_expiration = "12s"
settle_delay = "100ms"
[transform]
schema = "order_id STRING, amount BIGINT, version BIGINT"
[sink]
url = "{url}"
table = "orders"
keys = ["order_id"]
handler = "waves_orders:journaling"
state = "order_id STRING, events BIGINT, total BIGINT"
spread = true
sequence_by = "version"
related = ["journal"]
"""
MODULE = "from tests.handlers.waves_program import journaling as journaling"


def sqlite_bench(folder: Path) -> Bench:
    def run(*statements: str) -> None:
        with closing(sqlite3.connect(folder / "table.db")) as connection:
            for statement in statements:
                connection.execute(statement)

    run(JOURNAL)
    return Bench(f"sqlite:////{folder}/table.db", lambda query: rows(folder, query), run)


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    if request.param == "sqlite":
        return sqlite_bench(tmp_path)
    there: Place = request.getfixturevalue("place")
    there.run(JOURNAL)
    return Bench(there.url, there.look, there.run)


def produce(folder: Path, bursts: int, orders: Sequence[str] = EVERY) -> None:
    """Send bursts about the same orders, an event of each, into all partitions in turn."""
    with closing(LogHub(folder / "log.db")) as hub:
        for burst in range(bursts):
            bodies: list[dict[str, Any]] = [
                {"order_id": order, "amount": number + burst, "version": burst} for number, order in enumerate(orders)
            ]
            hub.send([Event(json.dumps(one).encode()) for one in bodies], keyless=Keyless.IN_TURN)


class Waves:
    """Processes that keep the orders, those of `on_spark` on Spark; with `leases`: a store, and for how long."""

    def __init__(self, stack: ExitStack, bench: Bench, folder: Path, on_spark: tuple[str, ...], *leases: str) -> None:
        self._stack, self._bench, self._folder, self._on_spark, self._leases = stack, bench, folder, on_spark, leases
        LogHub.create(folder / "log.db", partitions=PARTITIONS).close()
        file = FILE.format(url=bench.url) + ("exclusive = true\n" if leases else "")
        (folder / "orders.toml").write_text(file)
        (folder / "waves_orders.py").write_text(MODULE)

    def start(self, name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.handlers.waves_program", str(self._folder), name, self._bench.url]
        command += self._leases
        if name in self._on_spark:
            file = str(self._folder / "orders.toml")
            command = [sys.executable, "-m", "leasehold", "run", file, "--owner-id", name]
        said = self._stack.enter_context((self._folder / f"{name}.txt").open("ab"))
        environment = {**os.environ, "WAVES_CALLS": str(self._folder / "calls")}
        return started(self._stack, command, env=environment, stderr=said)

    def applied(self) -> int:
        return int(self._bench.look("SELECT count(*) FROM journal")[0][0])

    def owners(self) -> list[str]:
        with closing(sqlite3.connect(self._folder / "store.db")) as connection:
            try:
                return [owner for (owner,) in connection.execute("SELECT owner_id FROM leasehold_ownership")]
            except sqlite3.OperationalError:
                return []  # nothing has been made yet

    def started(self) -> list[subprocess.Popen[bytes]]:
        """Three processes, each of which has partitions."""
        running = [self.start(f"p{number}") for number in range(3)]
        until(
            lambda: len(self.owners()) == PARTITIONS and {one[:2] for one in self.owners()} == {"p0", "p1", "p2"},
            "instances that own partitions",
        )
        return running

    def judge(self, producers: int, bursts: int) -> None:
        """Each event once, in the order of its partition, and nothing that the database has refused."""
        every, total = producers * bursts, producers * sum(range(bursts))
        expected = sorted((f"o{number}", every, every * number + total) for number in range(ORDERS))
        assert self._bench.look("SELECT order_id, events, total FROM orders ORDER BY 1") == expected
        journal = self._bench.look("SELECT order_id, part, number FROM journal ORDER BY order_id, place")
        assert len({(part, number) for _, part, number in journal}) == len(journal) == every * ORDERS
        for order in range(ORDERS):
            for part in range(PARTITIONS):
                its = [number for name, where, number in journal if (name, where) == (f"o{order}", str(part))]
                assert its == sorted(its), "in the order of its partition"
        assert self._bench.look("SELECT reason FROM orders_rejected") == []
        said = "".join(file.read_text() for file in self._folder.glob("p*.txt"))
        assert "RowsRefused" not in said, "no two computed one place of an order, and both took effect"

    def judge_times(self, paused: tuple[float, float] = (0.0, 0.0)) -> None:
        """No two calls for an order at once, unless one of them was under way while its process was `paused`."""
        calls = defaultdict(list)
        for line in (self._folder / "calls").read_text().splitlines():
            order, began, ended = line.split()
            if not (float(began) <= paused[0] and paused[1] <= float(ended)):
                calls[order].append((float(began), float(ended)))
        for its in calls.values():
            its.sort()
            assert all(one[1] <= other[0] for one, other in pairwise(its))
        assert sum(map(len, calls.values())) >= self.applied()


@pytest.mark.soak  # the partitions of a process that is paused expire first
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("on_spark", "leases"),
    [
        *(((), store) for store in ("", "sqlite", "postgres", "redis", "aztable", "azblob")),
        *((("p1", "p2"), store) for store in ("", "sqlite")),
    ],
    ids=lambda value: value if isinstance(value, str) else "spark" if value else "plain",
)
def test_waves(
    request: pytest.FixtureRequest,
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    on_spark: tuple[str, ...],
    leases: str,
) -> None:
    monkeypatch.setenv("PARTITION_EXPIRATION", "12")
    store = ""
    if leases.startswith("az"):
        server, place = request.getfixturevalue("azurite"), f"waves{uuid.uuid4().hex[:12]}"
        (server.make_container if leases == "azblob" else server.make_table)(place)
        store = server.url(leases, place)
    elif leases in ("postgres", "redis"):
        store = request.getfixturevalue(f"{leases}_server").url
    elif leases:
        store = f"sqlite:////{tmp_path}/store.db"
    with ExitStack() as stack:
        waves = Waves(stack, bench, tmp_path, on_spark, *((store, "30") if store else ()))
        running = waves.started()
        producers = [threading.Thread(target=produce, args=(tmp_path, EACH)) for _ in range(PRODUCERS)]
        for one in producers:
            one.start()
        until(lambda: waves.applied() > 100, "events that are applied")
        for one in producers:
            one.join()
        running[0].kill()
        Processes(stack, tmp_path).pause(running[1])
        paused = time.monotonic()
        assert waves.applied() < PRODUCERS * ORDERS * EACH, "there is something left to be taken over"
        waves.start("p0")
        until(lambda: waves.applied() == PRODUCERS * ORDERS * EACH, "events that are applied", 3 * PATIENCE)
        resumed = time.monotonic()
        os.kill(running[1].pid, signal.SIGCONT)
        until(lambda: not bench.look("SELECT 1 FROM leasehold_parked"), "an end of all waiting", 3 * PATIENCE)
    waves.judge(PRODUCERS, EACH)
    if leases:
        waves.judge_times((paused, resumed))


@pytest.mark.more
def test_a_wave_with_leases_in_sqlite_of_which_one_process_is_killed(tmp_path: Path) -> None:
    bench = sqlite_bench(tmp_path)
    with ExitStack() as stack:
        waves = Waves(stack, bench, tmp_path, (), f"sqlite:////{tmp_path}/store.db", str(NEVER))
        running = waves.started()
        producers = [threading.Thread(target=produce, args=(tmp_path, 2)) for _ in range(PRODUCERS)]
        for one in producers:
            one.start()
        until(lambda: waves.applied() > 20, "events that are applied")
        running[0].kill()
        running[0].wait()
        expire_leases(tmp_path / "store.db", "p0")
        waves.start("p0")  # takes the partitions of its predecessor at once
        for one in producers:
            one.join()
        until(lambda: waves.applied() == PRODUCERS * ORDERS * 2, "events that are applied")
        until(lambda: not bench.look("SELECT 1 FROM leasehold_parked"), "parked events as expected")
    waves.judge(PRODUCERS, 2)
    waves.judge_times()


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("on_spark", [(), ("p0", "p1", "p2")], ids=["plain", "spark"])
@pytest.mark.parametrize("bench", ["sqlite"], indirect=True)
def test_one_entity_in_every_batch_of_three_instances(bench: Bench, tmp_path: Path, on_spark: tuple[str, ...]) -> None:
    """Five minutes long. How far its events were behind at most is said and asserts nothing: it is a time."""
    seconds, sent, behind = 300.0, 0, list[int]()
    with ExitStack() as stack:
        waves = Waves(stack, bench, tmp_path, on_spark, f"sqlite:////{tmp_path}/store.db", str(NEVER))
        waves.started()
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            produce(tmp_path, 1, ["hot"] * PARTITIONS + [f"o{sent % ORDERS}"])
            sent += PARTITIONS + 1
            take(0.1)
            behind.append(sent - waves.applied())
        until(lambda: waves.applied() == sent, "events that are applied")
        until(lambda: not bench.look("SELECT 1 FROM leasehold_parked"), "an end of all waiting")
    behind.sort()
    print(f"{sent} events; behind in the median {behind[len(behind) // 2]}, at most {behind[-1]}")
    hot = sent // (PARTITIONS + 1) * PARTITIONS
    assert bench.look("SELECT events FROM orders WHERE order_id = 'hot'") == [(hot,)]
    assert bench.look("SELECT count(*), count(DISTINCT place) FROM journal WHERE order_id = 'hot'") == [(hot, hot)]
    waves.judge_times()


def test_the_control_without_versions_and_leases_has_conflicts(tmp_path: Path) -> None:
    """A state is read and written by whoever has an event, as programs do: two find the same place of an order."""
    bench, conflicts = sqlite_bench(tmp_path), list[str]()
    bench.run("CREATE TABLE orders (order_id TEXT PRIMARY KEY, events INTEGER NOT NULL)")
    LogHub.create(tmp_path / "log.db", partitions=PARTITIONS).close()

    def work(partition: int, begin: int) -> None:
        with (
            closing(LogHub(tmp_path / "log.db")) as hub,
            closing(sqlite3.connect(tmp_path / "table.db", timeout=PATIENCE, isolation_level=None)) as connection,
        ):
            end = hub.partition_properties()[str(partition)].end
            for part in hub.read(str(partition), begin, end, columns=["sequenceNumber", "body"]):
                for number, body in zip(*(column.to_pylist() for column in part.columns), strict=True):
                    order = json.loads(body)["order_id"]
                    [(place,)] = connection.execute(
                        "SELECT coalesce(max(events), 0) FROM orders WHERE order_id = ?", (order,)
                    )
                    connection.execute("BEGIN IMMEDIATE")
                    try:
                        connection.execute("REPLACE INTO orders VALUES (?, ?)", (order, place + 1))
                        connection.execute("INSERT INTO journal VALUES (?, ?, ?, ?)", (partition, number, order, place))
                        connection.execute("COMMIT")
                    except sqlite3.IntegrityError as error:
                        connection.execute("ROLLBACK")
                        conflicts.append(str(error))

    def conflicts_of_a_wave() -> list[str]:
        with closing(LogHub(tmp_path / "log.db")) as hub:
            begins = [hub.partition_properties()[str(number)].end for number in range(PARTITIONS)]
        produce(tmp_path, PARTITIONS)
        workers = [threading.Thread(target=work, args=one) for one in enumerate(begins)]
        for one in workers:
            one.start()
        for one in workers:
            one.join()
        return conflicts

    until(lambda: bool(conflicts_of_a_wave()), "a conflict")
    assert set(conflicts) == {"UNIQUE constraint failed: journal.order_id, journal.place"}
