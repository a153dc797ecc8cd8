"""The place of a streaming query of Spark's, read from its checkpoint folder.

Owns what is known of such a folder. Spark writes `offsets/N` before it runs batch N, and `commits/N` when the
function of `foreachBatch`, or the sink, has returned. `offsets/N` has a line with the version, a line of metadata,
and a line for each source of the query: `-`, or where the batch ends. For Spark's Kafka source and for the Event Hubs
connector that is `{"TOPIC": {"PARTITION": NEXT}}`, where NEXT is the first number behind the batch. Only batches that
are committed count: one that had begun may be done in part, and its events come again.

Refuses a folder that is not a query's, one without a committed batch, a version that it does not know, and a query that
has not read the stream: each by name. Nothing is guessed, and nothing in the folder is changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from leasehold.errors import UsageError
from leasehold.model import HIGHEST
from leasehold.printable import excerpt

VERSION = "v1"
"""The version of the files that is read: what Spark 2.4 to 4.2 write unless they are told otherwise."""


def committed_places(folder: Path, stream: str) -> dict[str, int]:
    """The next event of each partition of `stream` (a topic, an event hub) behind the last committed batch.

    Raises `UsageError` where the folder does not say.
    """
    batches = _numbers(folder / "commits", folder) & _numbers(folder / "offsets", folder)
    if not batches:
        raise UsageError(f"{folder}: no batch of this query has been committed, so there is no place to take over")
    file = folder / "offsets" / str(max(batches))
    streams = [found for line in _sources(file) if (found := _places(line)) is not None]
    of_the_stream = [places[stream] for places in streams if stream in places]
    if len(of_the_stream) != 1:
        names = ", ".join(sorted({name for places in streams for name in places})) or "none that is known here"
        how_often = "has not read" if not of_the_stream else "has read by more than one source"
        raise UsageError(f"{file}: the query {how_often} {stream!r}; its streams: {excerpt(names)}")
    return of_the_stream[0]


def _numbers(part: Path, folder: Path) -> set[int]:
    """The batches that have a file in this part of the folder."""
    try:
        return {int(file.name) for file in part.iterdir() if file.name.isascii() and file.name.isdigit()}
    except OSError as error:
        raise UsageError(
            f"{folder}: not the checkpoint folder of a streaming query, which has {part.name!r} in it: "
            f"{error.strerror or error}. Name the folder of the option checkpointLocation"
        ) from error


def _sources(file: Path) -> Iterator[str]:
    """What a file of `offsets` has for each source. Raises `UsageError` for a file of another version."""
    try:
        version, *lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:  # nothing in it, or no UTF-8
        raise UsageError(f"{file}: cannot be read: {error}") from error
    if version.strip() != VERSION:
        raise UsageError(f"{file}: of version {version[:20]!r}, and only {VERSION} is known here")
    yield from (line for line in lines[1:] if line.strip() not in ("", "-"))


def _places(line: str) -> dict[str, dict[str, int]] | None:
    """The places of one source by stream and partition, `None` where they are of another form."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not found or not all(map(_is_places, found.values())):
        return None
    return found


def _is_places(value: object) -> bool:
    """Whether these are numbers by partition."""
    return (
        isinstance(value, dict)
        and bool(value)
        and all(name.isascii() and name.isdigit() for name in value)
        and all(type(number) is int and 0 <= number <= HIGHEST for number in value.values())
    )
