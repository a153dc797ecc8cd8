"""Skipping an event that its partition cannot get past, for an operator: the event is read, and noted beside the table.

Owns what is checked of the event, and what of it is kept. What becomes of the note is the sink's
(`sinks.beside.skipping`): the owner of the partition leaves the event out when it comes to it.

Concurrency: beside running instances, and beside others who do the same. Killed, or stopped for a minute, at any line
before the note is committed: nothing is changed, and the event may be applied meanwhile, of which the sink tells under
the lock of the watermark. Run it again.
"""

from __future__ import annotations

import getpass
import socket
from typing import Any

from leasehold.errors import ConfigError, HubError, UsageError
from leasehold.hubs.base import EVENT_COLUMNS, Hub
from leasehold.printable import excerpt
from leasehold.sinks.base import Sink
from leasehold.sinks.beside.skipping.contract import Noted
from leasehold.sinks.features import BOOKKEEPING, KeepsNotes, require
from leasehold.sinks.rules.content import sources_of
from leasehold.sinks.rules.skipping import SkipNote


def skips_of(sink: Sink) -> KeepsNotes:
    """What the sink offers for skipping events. Raises `ConfigError` where it is nothing."""
    return require(sink, BOOKKEEPING, "leasehold skip")


def who() -> str:
    """The user of this process, at the name of this machine."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user without a name
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


def skip(hub: Hub, group: str, sink: Sink, partition: str, number: int, *, because: str, noted_by: str) -> Noted:
    """Note that an event is to be skipped in the consumer group `group`, or learn that it was passed or noted before.

    Raises `UsageError` for an event that the hub does not have, and `ConfigError` without a reason; with nothing
    changed. What reading a hub raises, says what to do on a hub where owners keep other readers out.
    """
    if not because.strip():
        raise ConfigError("--because", because, "a text that is not empty", "Say why the event is not wanted")
    skips = skips_of(sink)
    if partition not in hub.partition_ids():
        raise UsageError(
            f"the hub has no partition {excerpt(partition)}; its partitions are {', '.join(hub.partition_ids())}. "
            "Nothing was changed: correct --event"
        )
    mark = sink.watermarks(hub.identity).get(partition)
    if mark is not None and mark.sequence_number >= number:  # the hub need not have it any more
        return Noted(passed=mark.sequence_number)
    event = _read(hub, group, partition, number)
    (body,) = event["body"].to_pylist()
    (source,) = sources_of(event)
    return skips.note_skip(SkipNote(hub.identity, partition, number, body, source, because, noted_by))


def _read(hub: Hub, group: str, partition: str, number: int) -> Any:
    """The event, as an Arrow batch of one row. Raises `UsageError` where there is none."""
    known = hub.partition_properties([partition])[partition]
    missing = f"partition {excerpt(partition)} has no event {number}"
    if number >= known.end:
        raise UsageError(f"{missing} yet: it ends at {known.end}. Nothing was changed: correct --event")
    if number < known.begin:
        raise UsageError(
            f"{missing} any more: the hub has removed all that is below {known.begin}, and it holds nobody up. Where "
            "its loss does, set fail_on_data_loss = false in [source]. Nothing was changed"
        )
    try:
        read = hub.read(partition, number, number + 1, columns=EVENT_COLUMNS, batch_rows=1)
        events = [batch for batch in read if batch.num_rows]
    except HubError as error:
        if hub.one_reader_per_partition(group):
            error.add_note(
                "While an instance reads this partition, the hub may let nobody else read it in the same consumer "
                "group. Name another one for this command alone: --set source.hub=URL, with consumer_group=… in its "
                "query."
            )
        raise
    if len(events) != 1 or events[0].num_rows != 1:
        raise UsageError(
            f"{missing}: the hub has given this number to no event that can be read (a compacted topic, a marker of a "
            "transaction). Nothing was changed: correct --event"
        )
    return events[0]
