"""A Redis without persistence is started again, empty, under two processes: with latest, no event may be skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from leasehold.config import OwnershipSettings
from leasehold.hubs.log.hub import LogHub
from leasehold.model import LATEST, Event
from leasehold.notices import CycleEnded
from leasehold.processors.events import DeliverySettings, EventBatch, EventProcessor, PartitionContext, every
from leasehold.sinks import TableSpec
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.sqlite.sink import SqliteSink
from leasehold.stores import open_store
from tests.repository import ROOT
from tests.sinks.events import look
from tests.stores.servers import RedisServer, missing
from tests.waiting import NEVER, PATIENCE, until

SPEC = TableSpec(name="seen", pipeline="p", mode="append", keep=("partition",))
PARTITIONS = 4
WORKER = """
import sys
from pathlib import Path
from tests.processor.test_wiped_redis import work
work(Path(sys.argv[1]), sys.argv[2])
"""


def work(folder: Path, url: str) -> None:
    """What each process does, until its input is closed."""
    table = SqliteSink(folder / "table.db", SPEC, timeout=60.0)

    def on_events(batch: EventBatch, context: PartitionContext) -> None:
        rows = [{"n": event.sequence_number, **context.fence_columns(event)} for event in batch]
        table.apply(Batch(pa.Table.from_pylist(rows)), processor.recorded_owner_level)

    processor = EventProcessor(
        LogHub(folder / "hub.db"),
        open_store(url, timeout=PATIENCE),
        on_events,
        delivery=DeliverySettings(start=LATEST, checkpoint=every(seconds=0.2)),
        table=table,
        ownership=OwnershipSettings(
            load_balancing_interval=0.3,
            partition_expiration=NEVER,
            request_timeout=1.0,  # impatient: for so long, an instance doubts a store that was away
            margin=0.2,
            settle_delay=0.3,
        ),
    )

    def note(cycle: CycleEnded) -> None:
        if not cycle.failed:
            with (folder / f"cycles-{os.getpid()}").open("a") as noted:
                noted.write(".")

    processor.notices.subscribe(note, CycleEnded)
    with processor:
        print("started", flush=True)
        sys.stdin.read()


@contextmanager
def two_processes(folder: Path, url: str) -> Iterator[None]:
    both = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(folder), url], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    try:
        for process in both:  # a start that finds the store wiped is refused, rightly
            assert process.stdout is not None
            assert process.stdout.readline() == b"started\n"
        yield
        for process in both:
            assert process.stdin is not None
            process.stdin.close()
        for process in both:
            assert process.wait(timeout=PATIENCE) == 0
    finally:
        for process in both:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


def await_cycles(folder: Path) -> None:
    """Wait until each process has seen the store as it is: of two cycles that end, the second has begun after the call.

    One whose partition another has taken in a store that was wiped learns of it there. Were the store wiped once more
    before that, nobody could tell its late batch from an owner's, and the partition would be in dispute, for a person.
    """
    before = {path: path.stat().st_size for path in folder.glob("cycles-*")}
    until(lambda: len(before) == 2 and all(path.stat().st_size >= at + 2 for path, at in before.items()), "two cycles")


def applied(folder: Path) -> list[tuple[str, int]]:
    if not (folder / "table.db").exists():
        return []
    return look(folder / "table.db", "SELECT partition, n FROM seen ORDER BY 1, 2")


def await_all(folder: Path, expected: list[tuple[str, int]]) -> None:
    until(lambda: len(applied(folder)) >= len(expected), "all rows", pause=0.1)
    assert applied(folder) == expected


@pytest.mark.more  # tests/processor/test_doubt.py has stores that were away
def test_no_event_is_skipped_or_applied_twice(tmp_path: Path) -> None:
    hub = LogHub.create(tmp_path / "hub.db", partitions=PARTITIONS)
    table = SqliteSink(tmp_path / "table.db", SPEC)
    table.check(
        pa.schema(
            [
                ("n", pa.int64()),
                ("hub", pa.string()),
                ("partition", pa.string()),
                ("sequenceNumber", pa.int64()),
                ("ownerLevel", pa.int64()),
            ]
        )
    )
    folder = tmp_path / "redis"
    folder.mkdir()
    try:
        server = RedisServer(folder, "--appendonly", "no")
    except (ImportError, OSError) as error:
        missing("Redis", error)
    sent = 0

    def send() -> list[tuple[str, int]]:
        nonlocal sent
        for partition in range(PARTITIONS):
            hub.send([Event(b"x")] * 50, partition=str(partition))
        sent += 50
        return [(str(partition), number) for partition in range(PARTITIONS) for number in range(sent)]

    store = open_store(server.url, timeout=PATIENCE)
    group = hub.consumer_group("$Default")

    def held() -> bool:
        return sum(bool(one.owner_id) for one in store.list_ownership(group).records) == PARTITIONS

    try:
        with two_processes(tmp_path, server.url):
            until(held, "all partitions to be held")
            await_all(tmp_path, send())
            for _ in range(2):
                await_cycles(tmp_path)
                send()
                server.kill()
                send()
                server.start()
                send()
                await_all(tmp_path, send())
    finally:
        server.end()
        hub.close()
