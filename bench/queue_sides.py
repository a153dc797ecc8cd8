"""The process that works on a queue, for `queues.py`: a policy's processor, or the classic pattern.

    python queue_sides.py NAME FOLDER NAMESPACE STATES

It takes the connection string of the service from `LEASEHOLD_SERVICE_BUS_CONNECTION_STRING`, and works on the queue
NAME until its input ends. Then it prints how many calls of the store of leases it has made.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient
from azure.storage.blob import ContainerClient

sys.path.append(str(Path(__file__).parent.parent))

from tests.queue_processor.counted import CountedLeases

from leasehold.handlers.contract import EntityEvent, entity
from leasehold.processors.queues import QueueDelivery, QueueProcessor

AT_ONCE, THREADS = 10, 8


def policy(name: str, folder: Path, namespace: str, table: str, calls: Counter[str]) -> None:
    """Leasehold's processor."""

    @entity(keys=["order_id"])
    def order(state: dict[str, Any] | None, event: EntityEvent) -> dict[str, Any]:
        return {"total": (state["total"] if state else 0) + event.row["amount"]}

    sessions = name == "sessions"
    leases: Any = None if sessions else CountedLeases(table, calls)
    processor = QueueProcessor(
        f"servicebus://{namespace}/{name}" + ("?sessions=true" if sessions else ""),
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
    sys.stdin.read()
    processor.stop()
    thread.join()


def classic(connection_string: str, calls: Counter[str]) -> None:
    """A lock per message."""
    container = ContainerClient.from_connection_string(connection_string, "states")
    service = os.environ["LEASEHOLD_SERVICE_BUS_CONNECTION_STRING"]
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
            ServiceBusClient.from_connection_string(service) as client,
            client.get_queue_receiver("classic") as receiver,
        ):
            while not ended.is_set():
                for message in receiver.receive_messages(AT_ONCE, max_wait_time=1):
                    handle(receiver, message)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    ended.set()
    for thread in threads:
        thread.join()
    container.close()


def main(name: str, folder: str, namespace: str, states: str) -> None:
    """Work, and tell the calls."""
    calls: Counter[str] = Counter()
    if name == "classic":
        classic(states, calls)
    else:
        policy(name, Path(folder), namespace, states, calls)
    print(calls["lease"])


if __name__ == "__main__":
    main(*sys.argv[1:])
