"""A mixed fleet: official event processors, ours, and our Spark pipelines, as processes in one consumer group.

Each process appends what it was given to a file of its own before it writes a checkpoint for it, and a pipeline has
its table: so they say what was delivered, and to whom. Gates stop an official processor between the two, and a
pipeline at the start of a batch, as long as the gate's file exists.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore

from leasehold.errors import StoreUnavailable
from leasehold.hubs import open_hub
from leasehold.model import Checkpoint, Event, Ownership
from leasehold.stores import open_store
from leasehold_testkit.emulators.event_hubs import EventHubsServer
from tests.faults.fleet import GATE, PIPELINE, SINKS
from tests.faults.instance import PATIENCE
from tests.faults.mixed_worker import EXPIRATION, HUB, INTERVAL, NAMESPACE
from tests.repository import ROOT
from tests.stores.azurite import Azurite
from tests.waiting import NEVER, until

CONNECTION = f"Endpoint=sb://{NAMESPACE};SharedAccessKeyName=k;SharedAccessKey=a2V5;UseDevelopmentEmulator=true"
OWNERSHIP = """\
load_balancing_interval = "{}s"
partition_expiration = "{}s"
foreign_expiration = "{}s"
request_timeout = "5s"
margin = "100ms"
hand_over_timeout = "{}s"
"""


class MixedFleet:
    """A hub, a container, and the processes that share them."""

    def __init__(
        self,
        folder: Path,
        server: EventHubsServer,
        azurite: Azurite,
        *,
        namespace: str = NAMESPACE,
        default_times: bool = False,
        expiration: float = EXPIRATION,
        store_options: str = "",
    ) -> None:
        self.folder = folder
        self.container = container = f"mixed-{secrets.token_hex(4)}"
        azurite.make_container(container)
        connection = CONNECTION.replace(NAMESPACE, namespace)
        options = f"fleet=mixed&endpoint=127.0.0.1:{server.port}&connection_string={quote(connection, safe='')}"
        told: dict[str, Any] = {
            "connection_string": connection,
            "endpoint": f"127.0.0.1:{server.port}",
            "hub": f"eventhubs://{namespace}/{HUB}?{options}",
            "default_times": default_times,
            "expiration": expiration,
            "storage": azurite.connection_string,
            "container": container,
            "store": azurite.url("azblob", container) + store_options,
        }
        (folder / "fleet.json").write_text(json.dumps(told))
        pipeline = PIPELINE.format(
            hub=told["hub"],
            start="earliest",
            limit=400,
            source="",
            stores=told["store"],
            ownership=OWNERSHIP.format(INTERVAL, expiration, expiration, NEVER),
            table="sqlite:///table.db",
            sink=SINKS["append"],
            master="local[1]",
            spark="",
        )
        (folder / "pipeline.toml").write_text(pipeline)
        (folder / "gate.py").write_text(GATE)
        self.hub = open_hub(told["hub"])
        self.group = self.hub.consumer_group("$Default")
        self.store = open_store(told["store"], timeout=PATIENCE)
        self.official_store = BlobCheckpointStore.from_connection_string(azurite.connection_string, container)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.commands: dict[str, list[str]] = {}
        """How members of further kinds are started: their name is the last argument."""
        self.sent = 0
        self.patience = PATIENCE

    def send(self, each: int) -> None:
        for partition in self.hub.partition_ids():
            numbers = range(self.sent, self.sent + each)
            bodies = [json.dumps({"id": f"{partition}-{number}", "n": number}) for number in numbers]
            self.hub.send([Event(body.encode()) for body in bodies], partition=partition)
        self.sent += each

    def launch(self, kind: str, name: str) -> None:
        """Start a process in a session of its own: an `official` processor, one of `ours`, or a pipeline on `spark`."""
        if kind in self.commands:
            run = [*self.commands[kind], name]
        elif kind == "spark":
            run = [sys.executable, "-m", "leasehold.cli.app", "run", "pipeline.toml", "--json", "--owner-id", name]
        else:
            run = [sys.executable, "-m", "tests.faults.mixed_worker", kind, str(self.folder), name]
        with (self.folder / f"log-{name}").open("ab") as said:
            self.processes[name] = subprocess.Popen(
                run,
                cwd=self.folder if kind == "spark" else ROOT,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
                env={**os.environ, "LEASEHOLD_OWNER": name},
            )

    def kill(self, name: str) -> None:
        """SIGKILL for it and all of its children."""
        victim = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(victim.pid, signal.SIGKILL)
        victim.wait()

    def stop(self, name: str) -> None:
        process = self.processes.pop(name)
        process.terminate()
        assert process.wait(self.patience) == 0, (self.folder / f"log-{name}").read_text()

    def close_gate(self, name: str) -> None:
        """Stop it at its next events: a pipeline before it reads them, an official processor after."""
        (self.folder / f"entered-{name}").unlink(missing_ok=True)
        (self.folder / f"gate-{name}").touch()

    def wait_entered(self, name: str) -> None:
        """Wait until it is stopped there."""
        self.until((self.folder / f"entered-{name}").exists, f"{name} to be at its gate")

    def open_gate(self, name: str) -> None:
        (self.folder / f"gate-{name}").unlink()

    def records(self) -> Sequence[Ownership]:
        """The ownership records that there are now. A busy Azurite breaks connections: then it is asked again."""
        while True:
            with contextlib.suppress(StoreUnavailable):
                return self.store.list_ownership(self.group).records

    def owned(self) -> dict[str, int]:
        """How many partitions each owner has on record: ours by name, official processors by their UUID."""
        return Counter(record.owner_id.partition("/")[0] for record in self.records() if record.owner_id)

    def owned_by(self, owner: str) -> set[str]:
        """The partitions that an owner has on record, by its name or UUID."""
        return {record.partition for record in self.records() if record.owner_id.partition("/")[0] == owner}

    def wait_shared(self, *counts: int, without: str = "") -> dict[str, int]:
        """Wait until the partitions are shared so, and nobody of the name `without` has any. Returns that state."""
        owned: dict[str, int] = {}

        def shared() -> bool:
            nonlocal owned
            owned = self.owned()
            return sorted(owned.values()) == sorted(counts) and without not in owned

        self.until(shared, f"shares of {counts} without {without!r}")
        return owned

    def wait_read(self) -> None:
        """Wait until every event was delivered to somebody."""
        self.until(lambda: set(self.read()) == self.all_events(), "every event to be delivered")

    def wait_recorded(self) -> None:
        """Wait until every partition's checkpoint is at its end."""
        self.until(
            lambda: (
                {p: c.next_sequence_number for p, c in self.checkpoints().items()}
                == dict.fromkeys(self.hub.partition_ids(), self.sent)
            ),
            "every checkpoint to be at the end",
        )

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait, and fail with what the members have and have logged."""
        try:
            until(condition, what, self.patience)
        except AssertionError as error:
            missing = len(self.all_events() - set(self.read()))
            raise AssertionError(f"{error}: {self.owned()}, {missing} not read\n{self.said()}") from None

    def said(self) -> str:
        """What its members have logged last."""
        logs = sorted(self.folder.glob("log-*"))
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-3_000:]}" for path in logs)

    def read(self, *names: str) -> Counter[tuple[str, int]]:
        """What was delivered, to these processors or to all members, and how often."""
        paths = [self.folder / f"read-{name}" for name in names] or list(self.folder.glob("read-*"))
        lines = [line.split() for path in paths if path.exists() for line in path.read_text().splitlines()]
        read = Counter((partition, int(number)) for partition, number in lines if number)
        return read if names else read + self.table()

    def table(self) -> Counter[tuple[str, int]]:
        """The events in the pipeline's table. Each is what was sent, and in the row of its place."""
        if not (self.folder / "table.db").exists():
            return Counter()
        with contextlib.closing(sqlite3.connect(self.folder / "table.db", timeout=PATIENCE)) as table:
            if not table.execute("SELECT 1 FROM sqlite_schema WHERE name = 'entities'").fetchone():
                return Counter()
            rows = table.execute("SELECT id, n, partition, sequenceNumber FROM entities").fetchall()
        assert all((key, n) == (f"{partition}-{number}", number) for key, n, partition, number in rows)
        return Counter((partition, number) for _, _, partition, number in rows)

    def all_events(self) -> set[tuple[str, int]]:
        return {(partition, number) for partition in self.hub.partition_ids() for number in range(self.sent)}

    def checkpoints(self) -> dict[str, Checkpoint]:
        return {checkpoint.partition: checkpoint for checkpoint in self.store.list_checkpoints(self.group)}

    def close(self) -> None:
        for name in list(self.processes):
            self.kill(name)
        self.hub.close()
        self.official_store.close()
