"""A process that flips bytes of a log file, one at a time, and asks a log of each copy. Run as a script by its test.

Prints how many flips were told of, and how many were harmless; ends badly if one was neither.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from leasehold.errors import HubError
from leasehold.hubs.arrow_events import events_of
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event, EventPosition, PositionKind


def table(name: str, rows: int) -> pa.Table:
    texts = [f"{name}/{row}" for row in range(rows)]
    return pa.table({"body": [text.encode() for text in texts], "partitionKey": texts})


def events(hub: LogHub, partition: str) -> list[Event]:
    place = hub.partition_properties([partition])[partition]
    return [event for batch in hub.read(partition, place.begin, place.end) for event in events_of(batch)]


def flip_each(source: Path, copy: Path, places: list[int]) -> None:
    """What the processes of the test above do."""
    content = source.read_bytes()
    whole = LogHub(source)
    expected = {partition: events(whole, partition) for partition in whole.partition_ids()}
    times = [expected["0"][-1].enqueued_time, expected["0"][0].enqueued_time]
    resolved = [whole.resolve("0", EventPosition(PositionKind.ENQUEUED_TIME, enqueued_time=at)) for at in times]
    told = 0
    for place in places:
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8 if place % 3 else 0xFF
        for suffix in ("-wal", "-shm"):
            Path(f"{copy}{suffix}").unlink(missing_ok=True)
        copy.write_bytes(flipped)
        errors = 0
        for ask in asks(expected, times, resolved):
            said = ""
            try:
                ask(copy)
            except HubError as error:
                said = str(error)
                errors += 1
            except Exception as error:
                raise AssertionError(f"byte {place}, {flipped[place]:#x}: {error!r}") from error
            assert not said or str(copy) in said, f"byte {place}, {flipped[place]:#x}: {said}"
        told += errors > 0
    print(told, len(places) - told)


def asks(expected: dict[str, list[Event]], times: list[float], resolved: list[int]) -> list[Callable[[Path], None]]:
    def read(path: Path, partition: str, more: list[bytes]) -> None:
        hub = LogHub(path, timeout=0.05)  # impatient: nobody else has the file open
        try:
            if tuple(hub.partition_ids()) != ("0", "1"):
                raise AssertionError(f"partitions {hub.partition_ids()}")
            found = events(hub, partition)
            assert found[: len(expected[partition])] == expected[partition], found
            assert [event.body for event in found[len(expected[partition]) :]] == more, found
        finally:
            hub.close()

    def by_time(path: Path) -> None:
        hub = LogHub(path, timeout=0.05)  # impatient: nobody else has the file open
        try:
            for time, place in zip(times, resolved, strict=True):
                found = hub.resolve("0", EventPosition(PositionKind.ENQUEUED_TIME, enqueued_time=time))
                assert found == place, (time, found, place)
        finally:
            hub.close()

    def append(path: Path) -> None:
        hub = LogHub(path, timeout=0.05)  # impatient: nobody else has the file open
        try:
            hub.append(table("more", 2), partition="0")
        finally:
            hub.close()
        read(path, "0", [b"more/0", b"more/1"])
        read(path, "1", [])

    return [lambda path: read(path, "0", []), lambda path: read(path, "1", []), by_time, append]


if __name__ == "__main__":
    flip_each(Path(sys.argv[1]), Path(sys.argv[2]), [int(at) for at in Path(sys.argv[3]).read_text().split()])
