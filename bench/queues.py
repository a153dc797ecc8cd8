"""Queues: messages a second and calls a message, under each policy and by the classic lock per message.

The local Service Bus server, in this process, and Azurite, whose table has the leases of the policies and whose blobs
are locks and states of the classic pattern: eight threads, each with a receiver, a blob lease around each message, as
docs/queues-from-locks.md has it. States of the policies are in SQLite. Messages of an entity come in runs of ten. What
is received ten at a time by one thread is not contended for, which favours the classic pattern: nothing is abandoned.
A call of the service is a message that is handed out, an outcome, a renewal, or a session taken or given up.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient
from azure.storage.blob import ContainerClient

sys.path.append(str(Path(__file__).parent.parent))

from tests.queue_processor.counted import CountedLeases, count_service
from tests.stores.azurite import Azurite

from leasehold.emulators.service_bus import QueueSettings, ServiceBusServer
from leasehold.entities.handlers import EntityEvent, entity
from leasehold.queue_processor import QueueDelivery, QueueProcessor

Row = tuple[str, float, str, float | None, str]
"""What was measured, the figure, its unit, its ratio to the classic pattern, and the goal."""

RUN, EACH, THREADS = 10, 40, 8
POLICIES = ("abandon", "wait", "park", "defer", "sessions")


def run(quick: bool) -> list[Row]:
    """Measure; `quick` takes about half a minute."""
    messages = 400 if quick else 4_000
    settings = {"lock_duration": 60.0, "max_delivery_count": 1_000}
    queues = {name: QueueSettings(**settings) for name in ("classic", *POLICIES[:-1])}  # type: ignore[arg-type]
    queues["sessions"] = QueueSettings(requires_session=True, lock_duration=60.0)
    results: list[Row] = []
    with (
        tempfile.TemporaryDirectory(prefix="leasehold-bench-") as folder,
        pytest.MonkeyPatch.context() as patch,
        _azurite() as azurite,
        ServiceBusServer(queues) as server,
    ):
        patch.setenv("LEASEHOLD_SERVICE_BUS_CONNECTION_STRING", server.connection_string())
        azurite.make_container("states")
        azurite.make_table("leases")
        calls = count_service(patch)
        classic = 0.0
        for name in ("classic", *POLICIES):
            _send(server, name, messages // 4 if name == "classic" else messages, messages // EACH)
            count = server.count(name)
            calls.clear()
            began = time.monotonic()
            if name == "classic":
                _classic(server, azurite, calls)
            else:
                _policy(server, azurite, name, Path(folder) / name, calls)
            speed = count / (time.monotonic() - began)
            classic = classic or speed
            what = "queues, a lock per message" if name == "classic" else f"queues, {name}"
            results += [
                (what, speed, "messages/s", speed / classic, "" if name == "classic" else "ratio >= 10"),
                (f"{what}: of the service", calls["service"] / count, "calls a message", None, "<= 2.1"),
                (f"{what}: of leases", calls["lease"] / count, "calls a message", None, "<= 0.05"),
            ]
    return results


def _send(server: ServiceBusServer, queue: str, messages: int, entities: int) -> None:
    """So many in runs: of all entities one run, then of all the next."""
    for start in range(0, messages, RUN):
        key = f"e{start // RUN % entities}"
        bodies = (json.dumps({"order_id": key, "amount": n}) for n in range(start, start + RUN))
        server.send(queue, *bodies, session_id=key if queue == "sessions" else None)


def _policy(server: ServiceBusServer, azurite: Azurite, name: str, folder: Path, calls: Counter[str]) -> None:
    @entity(keys=["order_id"])
    def order(state: dict[str, Any] | None, event: EntityEvent) -> dict[str, Any]:
        return {"total": (state["total"] if state else 0) + event.row["amount"]}

    folder.mkdir()
    sessions = name == "sessions"
    leases: Any = None if sessions else CountedLeases(azurite.url("aztable", "leases"), calls)
    processor = QueueProcessor(
        f"servicebus://{server.namespace}/{name}" + ("?sessions=true" if sessions else ""),
        leases,
        order,
        sink=f"sqlite:////{folder}/table.db",
        table="orders",
        pipeline=name,
        schema="order_id STRING, amount BIGINT",
        state="order_id STRING, total BIGINT",
        delivery=QueueDelivery(busy="wait" if sessions else name, workers=THREADS, most=400),
    )
    thread = threading.Thread(target=processor.run)
    thread.start()
    _until(lambda: server.count(name) == 0)
    processor.stop()
    thread.join()


def _classic(server: ServiceBusServer, azurite: Azurite, calls: Counter[str]) -> None:
    container = ContainerClient.from_connection_string(azurite.connection_string, "states")
    ended, lock = threading.Event(), threading.Lock()

    def called() -> None:
        with lock:
            calls["lease"] += 1

    def handle(receiver: Any, message: Any) -> None:
        order = json.loads(str(message))
        blob = container.get_blob_client(order["order_id"])
        try:
            called()
            try:
                lease = blob.acquire_lease(15)
            except ResourceNotFoundError:
                blob.upload_blob(json.dumps({"total": 0}), overwrite=True)
                lease = blob.acquire_lease(15)
        except HttpResponseError:
            receiver.abandon_message(message)
            return
        try:
            state = json.loads(blob.download_blob().readall())
            state["total"] += order["amount"]
            blob.upload_blob(json.dumps(state), overwrite=True, lease=lease)
        finally:
            called()
            lease.release()
        receiver.complete_message(message)

    def work() -> None:
        with (
            ServiceBusClient.from_connection_string(server.connection_string()) as client,
            client.get_queue_receiver("classic") as receiver,
        ):
            while not ended.is_set():
                for message in receiver.receive_messages(RUN, max_wait_time=1):
                    handle(receiver, message)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    _until(lambda: server.count("classic") == 0)
    ended.set()
    for thread in threads:
        thread.join()
    container.close()


def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.02)


@contextmanager
def _azurite() -> Iterator[Azurite]:
    server = Azurite()
    try:
        server.start()
        yield server
    finally:
        server.stop()
