"""Two queue processors share a queue of orders and keep one table, each message once in effect.

    leasehold serve servicebus:///bus.db --queue orders --port 5672 &
    export LEASEHOLD_SERVICE_BUS_CONNECTION_STRING='…'   # as the first command prints it
    python examples/queue_processor.py servicebus://127.0.0.1:5672/orders FOLDER

`leasehold serve` is in the test kit: `pip install . ./testkit`. FOLDER gets the table and the leases. The program
sends a hundred messages, some of them twice, works until all are done, and prints the totals. Each processor would
usually be a process of its own, with `processor.run()`; the code is the same.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from leasehold.handlers import EntityEvent, Reject, entity
from leasehold.processors.queues import QueueDelivery, QueueProcessor

MESSAGES, TWICE, ORDERS = 100, 10, 5


@entity(keys=["order_id"])
def order(state: dict[str, Any] | None, event: EntityEvent) -> dict[str, Any]:
    """Add a message's amount to its order."""
    if event.row["amount"] is None:
        raise Reject("no amount")
    return {"total": (state["total"] if state else 0) + event.row["amount"]}


def main(url: str, folder: Path) -> None:
    """Send, work, and show what has become of it."""
    send(url.rpartition("/")[2])
    processors = [processor(url, folder, name) for name in ("left", "right")]
    threads = [threading.Thread(target=each.run) for each in processors]
    for thread in threads:
        thread.start()
    while sum(each.counts["applied"] + each.counts["duplicates"] for each in processors) < MESSAGES + TWICE:
        if not all(thread.is_alive() for thread in threads):
            break  # its error has been shown
        time.sleep(0.1)
    for each in processors:
        each.stop()
    for thread in threads:
        thread.join()
    with closing(sqlite3.connect(folder / "entities.db")) as table:
        for order_id, total in table.execute("SELECT order_id, total FROM orders ORDER BY order_id"):
            print(order_id, total)
    print("sent twice, and dropped:", sum(each.counts["duplicates"] for each in processors))


def send(queue: str) -> None:
    """Send a hundred amounts of five orders, and the first ten once more, as a sender does that got no answer."""
    string = os.environ["LEASEHOLD_SERVICE_BUS_CONNECTION_STRING"]
    messages = [
        ServiceBusMessage(json.dumps({"order_id": f"o{n % ORDERS}", "amount": n}), message_id=f"m{n}")
        for n in [*range(MESSAGES), *range(TWICE)]
    ]
    with ServiceBusClient.from_connection_string(string) as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(messages)


def processor(url: str, folder: Path, name: str) -> QueueProcessor:
    """One process's share of the queue."""
    return QueueProcessor(
        url,
        f"sqlite:///{folder.resolve()}/leases.db",
        order,
        sink=f"sqlite:///{folder.resolve()}/entities.db",
        table="orders",
        pipeline="orders",
        schema="order_id STRING, amount BIGINT",
        state="order_id STRING, total BIGINT",
        delivery=QueueDelivery(deduplicate_by="message_id", holder=name),
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
