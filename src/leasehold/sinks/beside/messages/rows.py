"""What sinks that keep messages of queues have in common: times, and what is refused. Pure.

A process whose clock is wrong is believed no further than the time at which the service enqueued a message: nothing is
done before it was enqueued, and what was enqueued a while ago does not make other messages older than that.
"""

from __future__ import annotations

from leasehold.errors import ConfigError
from leasehold.sinks.beside.messages.parking import ParkedMessage
from leasehold.sinks.rules.messages import MessageName
from leasehold.sinks.rules.rejected import Rejected
from leasehold.sinks.rules.table_spec import TableSpec

FORGOTTEN_AT_ONCE = 10
"""Messages that are forgotten with each one that is applied."""


def done_at(message: MessageName, now: float) -> float:
    """When a message counts as done that takes effect at `now` by this process's clock."""
    return max(now, message.enqueued_time)


def by_queue(message: MessageName, now: float) -> float:
    """The time by which messages are old when this one comes. `now`, where it is not known when it was enqueued."""
    return min(now, message.enqueued_time) if message.enqueued_time > 0 else now


def check_spec(spec: TableSpec) -> None:
    """Refuse a table that keeps more of a hub's events than their columns."""
    if spec.keep:
        raise ConfigError("keep", spec.keep, "messages of a queue have no such columns", "Leave it out")


def filled_by_hub(spec: TableSpec, hub: str) -> ConfigError:
    """Neither the hub's events nor the queue's messages would see the other's changes."""
    rule = f"it is filled with events of the hub {hub}, and a table has one way to be filled"
    return ConfigError("table", str(spec.called), rule, "Give the queue's messages a table of their own")


def rejected_row(message: ParkedMessage, reason: str) -> Rejected:
    """A message that was given up, as a rejected row."""
    name = message.name
    partition = name.identity.partition("@")[2]
    return Rejected(name.queue, partition, name.sequence_number, 0, message.body, reason, None)
