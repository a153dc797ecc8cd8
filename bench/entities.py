"""Handlers of entities: events a second into SQLite and Postgres, under leases and without, beside a lease an event.

Events are of 100,000 entities by Zipf's law with exponent 1.1: every seventh is of the same one. The plain processor
reads four partitions in one process, as events come with their key, and without one, into a table that is spread, with
`exclusive` and without; on Spark by `leasehold run`, and as a user of Spark would write it, by `applyInPandasWithState`
and an upsert. An event counts once its effect is committed and nothing is parked any more.

The control is the pattern that handlers take the place of: for each event acquire the entity's lease, read its state,
write it, release the lease, on the same server, by a thread for each partition; what is busy is tried again. Once more
with a blob lease around each event, as it is commonly done on Azure.

The last rows have the waiting time, from append to commit, of other entities while the handler of one sleeps.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pyarrow as pa

from entity_handlers import SLEEPER, order, sleeping
from leasehold.config import OwnershipSettings
from leasehold.handlers import Failures, Spread
from leasehold.handlers.table import HandledTable
from leasehold.hubs.arrow_events import events_of
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold.processors.events import DeliverySettings, EventBatch, EventProcessor, Handlers, PartitionContext, every
from leasehold.stores import open_lease_store
from on_azurite import running_azurite
from pipeline import first_checkpoint

sys.path.append(str(Path(__file__).parent.parent))

from tests.queue_processor.counted import CountedLeases
from tests.stores.servers import PostgresServer

Row = tuple[str, float, str, float | None, str]
"""What was measured, the figure, its unit, its ratio, and the goal."""

PARTITIONS, KEYS, EXPONENT = 4, 100_000, 1.1
LARGE = DeliverySettings(max_batch=1_000, prefetch=3_000)
SCHEMA, STATE = "order_id STRING, amount BIGINT, version BIGINT", "order_id STRING, total BIGINT, events BIGINT"
LEASED, BATCHES = "leased", 8
TIMEOUT = 0.1
RATE, OTHERS = 200, 100
PIPELINE = f"""\
name = "orders"
[source]
hub = "HUB"
max_events_per_trigger = EACH
[ownership]
store = "sqlite:///leasehold.db"
[transform]
schema = "{SCHEMA}"
[sink]
url = "URL"
table = "spark_orders"
keys = ["order_id"]
handler = "entity_handlers:order"
state = "{STATE}"
"""


def run(quick: bool) -> list[Row]:
    """Measure; `quick` has a tenth of the events."""
    count = 40_000 if quick else 400_000
    results: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="leasehold-bench-") as folder:
        path = Path(folder)
        path.chmod(0o755)  # Postgres' own user must get in, where this one is root
        keyed, scattered = _filled(path, count)
        server = PostgresServer(path)
        try:
            for name, url, store in (
                ("sqlite", f"sqlite:////{path}/table.db", f"sqlite:////{path}/leases.db"),
                ("postgresql", server.url, server.url),
            ):
                results += _of_a_server(path, name, url, store, keyed, scattered)
        finally:
            server.end()
        results += _beside_blobs(path, scattered)
        results += _waiting_times(path, 8.0 if quick else 60.0)
    return results


def _of_a_server(path: Path, name: str, url: str, store: str, keyed: LogHub, scattered: LogHub) -> list[Row]:
    bench = _Bench(path, url)
    plain = bench.handled(keyed, "orders")
    spread = bench.handled(scattered, "scattered", Spread("version"))
    calls: Counter[str] = Counter()
    leases: Any = CountedLeases(store, calls)
    exclusive = bench.handled(scattered, "exclusive", Spread("version", exclusive=leases))
    asked = calls["lease"] / _count(scattered)
    control = _control(url, store, scattered, max(400, _count(scattered) // 100))
    spark = _on_spark(path / name, url, keyed)
    by_hand = _by_hand(path / f"{name}-by-hand", url, keyed)
    return [
        (f"handler, {name}: plain processor", plain, "events/s", None, ""),
        (f"handler, {name}: on Spark", spark, "events/s", spark / plain, ">= 40,000"),
        (f"applyInPandasWithState and an upsert, {name}", by_hand, "events/s", None, ""),
        (f"handler, {name}: on Spark, to that", spark, "events/s", spark / by_hand, ""),
        (f"handler, {name}: spread", spread, "events/s", spread / plain, ""),
        (f"handler, {name}: spread, exclusive, to spread", exclusive, "events/s", exclusive / spread, "ratio >= 0.8"),
        (f"handler, {name}: exclusive: of the lease store", asked, "calls an event", None, "<= 0.05"),
        (f"a lease an event, {name} (the control)", control, "events/s", None, ""),
        (f"handler, {name}: exclusive, to the control", exclusive, "events/s", exclusive / control, "ratio >= 50"),
    ]


def _beside_blobs(path: Path, scattered: LogHub) -> list[Row]:
    """With a blob lease around each event, on Azurite, and with none, or with leases in a table of the same account."""
    url = f"sqlite:////{path}/beside-blobs.db"
    with running_azurite() as server:
        server.make_container("leases")
        server.make_table("leases")
        control = _control(url, server.url("azblob", "leases"), scattered, 400)
        spread = _Bench(path, url).handled(scattered, "scattered", Spread("version"))
        leased = Spread("version", exclusive=server.url("aztable", "leases"))
        exclusive = _Bench(path, url).handled(scattered, "exclusive", leased)
    return [
        ("a blob lease an event, azblob, sqlite (the control)", control, "events/s", None, ""),
        ("handler, sqlite: spread, to a blob lease an event", spread, "events/s", spread / control, "ratio >= 50"),
        ("handler, sqlite, aztable: exclusive, to the same", exclusive, "events/s", exclusive / control, "ratio >= 50"),
    ]


def _filled(path: Path, count: int) -> tuple[LogHub, LogHub]:
    """The same events in two logs: each entity in a partition of its own, and in all partitions by turns."""
    rng = Random(11)
    weights = list(itertools.accumulate(rank**-EXPONENT for rank in range(1, KEYS + 1)))
    keys = rng.choices(range(KEYS), cum_weights=weights, k=count)
    hubs = []
    for name, place in (("keyed", lambda n: keys[n] % PARTITIONS), ("scattered", lambda n: n % PARTITIONS)):
        hub = LogHub.create(path / f"{name}.db", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            bodies = [
                json.dumps({"order_id": f"order-{keys[n]}", "amount": n % 100, "version": n}).encode()
                for n in range(count)
                if place(n) == partition
            ]
            for begin in range(0, len(bodies), 1_000):
                some = pa.array(bodies[begin : begin + 1_000], pa.binary())
                hub.append(pa.table({"body": some}), partition=str(partition))
        hubs.append(hub)
    return hubs[0], hubs[1]


def _count(hub: LogHub) -> int:
    return sum(place.end - place.begin for place in hub.partition_properties().values())


class _Bench:
    """Tables in one database, each filled by a processor of its own."""

    def __init__(self, path: Path, url: str) -> None:
        self._path, self._url = path, url

    def handled(self, hub: LogHub, name: str, spread: Spread | None = None) -> float:
        """Events a second from the first batch until all are applied."""
        table = HandledTable(order, self._url, table=name, pipeline=name, schema=SCHEMA, state=STATE, spread=spread)
        began: list[float] = []

        def on_events(batch: EventBatch, context: PartitionContext) -> None:
            began.append(time.perf_counter())
            table.on_events(batch, context)

        with _processing(self._path, hub, table, on_events, LARGE):
            _until(lambda: _is_applied(hub, table))
            ended = time.perf_counter()
        table.close()
        with closing(_connected(self._url)) as connection:
            count = int(connection.execute(f'SELECT sum(events) FROM "{name}"').fetchone()[0])
        if count != _count(hub):
            raise RuntimeError(f"{count} of {_count(hub)} events have taken effect in {name}")
        return count / (ended - began[0])


@contextmanager
def _processing(
    path: Path, hub: LogHub, table: HandledTable, on_events: Callable[..., None], delivery: DeliverySettings
) -> Iterator[None]:
    processor = EventProcessor(
        hub,
        f"sqlite:////{path}/store-{time.monotonic_ns()}.db",
        Handlers(on_events, on_partition_start=table.on_partition_start),
        table=table.sink,
        delivery=replace(delivery, checkpoint=every(seconds=1.0)),
        ownership=OwnershipSettings(settle_delay=0),
    )
    table.level_of = processor.recorded_owner_level
    with processor:
        yield


def _is_applied(hub: LogHub, table: HandledTable) -> bool:
    marks = table.sink.watermarks(hub.identity)
    ends = {partition: place.end for partition, place in hub.partition_properties().items()}
    if any(partition not in marks or marks[partition].sequence_number < end - 1 for partition, end in ends.items()):
        return False
    return not any(table._states.parked_entities(hub.identity, partition) for partition in ends)


def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.05)


# The control


def _control(url: str, store: str, hub: LogHub, count: int) -> float:
    """Events a second with a lease around each."""
    leases = open_lease_store(store)
    with closing(_States(url)) as states:
        states.make()
    begun, ended = threading.Barrier(PARTITIONS + 1), threading.Barrier(PARTITIONS + 1)

    def work(partition: str) -> None:
        session = leases.open_session(f"worker-{partition}", 60.0)
        events = [event for batch in hub.read(partition, 0, count // PARTITIONS) for event in events_of(batch)]
        with closing(_States(url)) as states:
            begun.wait()
            for event in events:
                body = json.loads(event.body)
                while not (held := leases.acquire(session, LEASED, [body["order_id"]])):
                    time.sleep(0.001)
                total, events_before = states.read(body["order_id"])
                states.write(body["order_id"], total + body["amount"], events_before + 1)
                leases.release(held)
            ended.wait()
        leases.close_session(session)

    threads = [threading.Thread(target=work, args=(partition,)) for partition in hub.partition_ids()]
    for thread in threads:
        thread.start()
    begun.wait()
    start = time.perf_counter()
    ended.wait()
    taken = time.perf_counter() - start
    for thread in threads:
        thread.join()
    return count / taken


class _States:
    """States of the control, one statement and one transaction a call. For one thread."""

    def __init__(self, url: str) -> None:
        self._sqlite, self._connection = url.startswith("sqlite:"), _connected(url)

    def make(self) -> None:
        self._connection.execute("CREATE TABLE control (order_id TEXT PRIMARY KEY, total BIGINT, events BIGINT)")

    def read(self, key: str) -> tuple[int, int]:
        found = self._connection.execute(self._sql("SELECT total, events FROM control WHERE order_id = ?"), (key,))
        return found.fetchone() or (0, 0)

    def write(self, key: str, total: int, events: int) -> None:
        self._connection.execute(
            self._sql(
                "INSERT INTO control VALUES (?, ?, ?) "
                "ON CONFLICT (order_id) DO UPDATE SET total = excluded.total, events = excluded.events"
            ),
            (key, total, events),
        )

    def close(self) -> None:
        self._connection.close()

    def _sql(self, text: str) -> str:
        return text if self._sqlite else text.replace("?", "%s")


def _connected(url: str) -> Any:
    """To the database of a table, each statement a transaction."""
    if not url.startswith("sqlite:"):
        return psycopg.connect(url, autocommit=True)
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=60)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


# Spark


def _on_spark(path: Path, url: str, hub: LogHub) -> float:
    """Events a second by one `leasehold run`, from its first checkpoint on."""
    path.mkdir()
    (path / "orders.toml").write_text(
        PIPELINE.replace("URL", url).replace("HUB", hub.url).replace("EACH", str(_count(hub) // BATCHES))
    )
    shutil.copy(Path(__file__).parent / "entity_handlers.py", path)
    command = [sys.executable, "-m", "leasehold.cli.app", "run", "orders.toml", "--available-now"]
    with subprocess.Popen(command, cwd=path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        began, before = first_checkpoint(path, hub, process)
        process.wait(timeout=1_200)
        ended = time.perf_counter()
    if process.returncode:
        raise RuntimeError(f"leasehold run ended with code {process.returncode}")
    return (_count(hub) - before) / (ended - began)


def _by_hand(path: Path, url: str, hub: LogHub) -> float:
    """Events a second of the same in plain Spark, from its first batch on. Its source has files of as many events."""
    (path / "events").mkdir(parents=True)
    count = _count(hub)
    parts = [hub.read(str(partition), 0, count, columns=["body"]) for partition in range(PARTITIONS)]
    bodies = sorted((body for part in parts for some in part for body in some[0].to_pylist()), key=_version)
    for number, begin in enumerate(range(0, count, count // BATCHES)):
        lines = b"\n".join(bodies[begin : begin + count // BATCHES])
        (path / "events" / f"{number:03}.json").write_bytes(lines)
    program = Path(__file__).parent / "entity_states.py"
    command = [sys.executable, str(program), str(path), url]
    said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    return count * (BATCHES - 1) / BATCHES / float(said.split()[-1])


def _version(body: bytes) -> int:
    return int(json.loads(body)["version"])


# Waiting times


def _waiting_times(path: Path, seconds: float) -> list[Row]:
    rows: list[Row] = []
    for name, timeout in (("no time-out", None), ("handler_timeout", TIMEOUT)):
        awake = _waiting(path, f"awake_{timeout is None}", seconds, timeout, sleeps=False)
        asleep = _waiting(path, f"asleep_{timeout is None}", seconds, timeout, sleeps=True)
        rows += [
            (f"waiting of others, {name}: p99, none sleeps", awake, "ms", None, ""),
            (f"waiting of others, {name}: p99, one sleeps", asleep, "ms", asleep / awake, "ratio <= 1.10"),
        ]
    return rows


def _waiting(path: Path, name: str, seconds: float, timeout: float | None, *, sleeps: bool) -> float:
    """The 99th percentile, in ms, of the time from append to commit, of all entities but the one that may sleep."""
    hub = LogHub.create(path / f"{name}.db", partitions=PARTITIONS)
    url = f"sqlite:////{path}/waiting.db"
    table = HandledTable(
        sleeping, url, table=name, pipeline=name, schema=SCHEMA, state=STATE, failures=Failures(handler_timeout=timeout)
    )
    waited: list[float] = []

    def on_events(batch: EventBatch, context: PartitionContext) -> None:
        table.on_events(batch, context)
        now = time.time()
        waited.extend(now - event.enqueued_time for event in batch if SLEEPER.encode() not in event.body)

    with _processing(path, hub, table, on_events, DeliverySettings(poll_interval=0.02)):
        for partition in hub.partition_ids():  # what is made on first use is no part of what is measured
            hub.send([_event(f"order-{partition}", 0)], partition=partition)
        _until(lambda: len(waited) == PARTITIONS)
        began, sent = time.monotonic(), 0
        while (now := time.monotonic() - began) < seconds:
            for number in range(sent, int(now * RATE)):
                hub.send([_event(f"order-{number % OTHERS}", number)], partition=str(number % PARTITIONS))
                if sleeps and number % (5 * RATE) == RATE:
                    hub.send([_event(SLEEPER, number)], partition="0")
                sent = number + 1
            time.sleep(0.002)
        _until(lambda: len(waited) == PARTITIONS + sent)
    table.close()
    return 1_000 * statistics.quantiles(waited[PARTITIONS:], n=100)[-1]


def _event(key: str, number: int) -> Event:
    return Event(json.dumps({"order_id": key, "amount": 1, "version": number}).encode())
