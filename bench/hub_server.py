"""The local Event Hubs server of `hubs.py`, in a process of its own: `python hub_server.py PARTITIONS EVENTS`.

The hub `read` holds this many events, dealt evenly: the flights of the demo, with their keys. What is sent to the hub
`written` is acknowledged and forgotten after a while, so that turns are alike. It says the connection string without
the hub's name, and ends when its input does.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

from leasehold.cli.demo.data import FlightEvents
from leasehold_testkit.emulators.amqp.messages import Message, data_message
from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub


def main(partitions: int, events: int) -> None:
    read, written = MemoryHub(partitions), MemoryHub(partitions)
    dealt = itertools.cycle(range(partitions))
    for body, key in itertools.islice(_flights(events), events):
        read.append(str(next(dealt)), [Message(data_message(body, {}), key)])
    with EventHubsServer({"read": read, "written": written}) as server:
        print(server.connection_string(), flush=True)
        for _ in sys.stdin:  # between turns
            for number in range(partitions):
                written.remove_before(str(number), written.state(str(number)).end)
            print("done", flush=True)


def _flights(events: int) -> Iterator[tuple[bytes, str]]:
    while True:
        for table in FlightEvents(events).tables(10_000):
            yield from zip(table.column("body").to_pylist(), table.column("partitionKey").to_pylist(), strict=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
