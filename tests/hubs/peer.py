"""What a process of its own does to a log: `python peer.py produce|follow PATH …`. Run by the tests.

It says `ready`, and begins when it is given a line.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa

from leasehold.hubs.log.hub import LogHub


def produce(path: Path, name: str, batches: int, rows: int) -> None:
    """Append batches to all partitions in turn; say each that is done. With 0 batches: for ever."""
    hub = LogHub(path, timeout=30)
    partitions = hub.partition_ids()
    for batch in itertools.count() if batches == 0 else range(batches):
        bodies = [f"{name} {batch} {row}".encode() for row in range(rows)]
        hub.append(pa.table({"body": pa.array(bodies, pa.binary())}), partition=partitions[batch % len(partitions)])
        print(batch, flush=True)


def follow(path: Path, expected: int) -> None:
    """Read what arrives, until it is so much; say how often each producer was seen, if all was in order."""
    hub = LogHub(path, timeout=30)
    at = dict.fromkeys(hub.partition_ids(), 0)
    latest: dict[tuple[str, str], tuple[int, int]] = {}
    seen: Counter[str] = Counter()
    while seen.total() < expected:
        for partition, place in hub.partition_properties().items():
            for batch in hub.read(partition, at[partition], place.end, columns=["sequenceNumber", "body"]):
                for number, body in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    assert number == at[partition], (partition, number, at)
                    at[partition] += 1
                    name, *order = body.decode().split()
                    this = (int(order[0]), int(order[1]))
                    assert latest.get((name, partition), (-1, -1)) < this
                    latest[name, partition] = this
                    seen[name] += 1
            assert at[partition] == place.end
    print(sorted(seen.items()), flush=True)


if __name__ == "__main__":
    role, path, *rest = sys.argv[1:]
    print("ready", flush=True)
    sys.stdin.readline()  # so that all begin at once
    if role == "produce":
        produce(Path(path), rest[0], int(rest[1]), int(rest[2]))
    else:
        follow(Path(path), int(rest[0]))
