"""Log files as tests need them: one that an earlier release made, and what is to be read from it."""

from __future__ import annotations

import gzip
from pathlib import Path

from leasehold.model import Event

FORMAT_1 = Path(__file__).parent / "recorded" / "log-format-1.db.gz"
FORMAT_1_IDENTITY = "01a3185c-5000-7a84-ad7c-a5d98c0b41eb"


def write_format_1(path: Path) -> None:
    """The log that the last release of format 1 made of `sent`, ten events an append, by turns to two partitions.

    It was then told to retain what was younger than 95 s, which removed the first append of each.
    """
    path.write_bytes(gzip.decompress(FORMAT_1.read_bytes()))


def sent() -> dict[str, list[Event]]:
    """What `write_format_1` holds, by partition: events 10 to 59 of each, ten seconds between two appends."""
    appended: dict[str, list[Event]] = {"0": [], "1": []}
    for number in range(12):
        partition = str(number % 2)
        appended[partition] += [
            Event(
                b"%d" % (number * 10 + row) * (row % 3),
                partition_key=f"\u00e9{row}" if number % 2 else None,
                publisher="p" if number % 4 == 3 else None,
                properties={"n": str(row)} if number % 3 == 1 else {},
                partition=partition,
                sequence_number=len(appended[partition]) + row,
                offset=str(len(appended[partition]) + row),
                enqueued_time=1_800_000_010.0 + 10 * number,
            )
            for row in range(10)
        ]
    return {partition: events[10:] for partition, events in appended.items()}
