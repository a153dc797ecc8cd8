"""What a link is attached to, and where a receiver starts, read from text.

Owns the addresses of Event Hubs (`HUB`, `HUB/Partitions/N`, `HUB/ConsumerGroups/G/Partitions/N`, `$cbs`,
`$management`, each also as a URL) and the selector that states a position. Refuses all others with
`AmqpError`. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from leasehold_testkit.emulators.amqp.conditions import INVALID_FIELD, NOT_FOUND, AmqpError

CBS, MANAGEMENT = "$cbs", "$management"

_PRODUCER = re.compile(r"(?P<hub>[^/]+)(?:/Partitions/(?P<partition>[^/]+))?", re.IGNORECASE)
_CONSUMER = re.compile(r"(?P<hub>[^/]+)/ConsumerGroups/(?P<group>[^/]+)/Partitions/(?P<partition>[^/]+)", re.IGNORECASE)
_SELECTOR = re.compile(
    r"\s*amqp\.annotation\.x-opt-(?P<what>offset|sequence-number|enqueued-time)\s*(?P<sign>>=?)\s*'?(?P<value>[^']*)'?\s*"
)


@dataclass(frozen=True, slots=True)
class ProducerAddress:
    """A hub, or one partition of it."""

    hub: str
    partition: str | None


@dataclass(frozen=True, slots=True)
class ConsumerAddress:
    """A partition as a consumer group reads it."""

    hub: str
    group: str
    partition: str


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """`$cbs` or `$management`."""

    name: str


@dataclass(frozen=True, slots=True)
class Start:
    """Where a receiver starts: `what` is offset, sequence-number or enqueued-time."""

    what: str
    value: str
    inclusive: bool


FROM_BEGIN = Start("offset", "-1", inclusive=False)


def producer_address(address: str | None) -> ProducerAddress | NodeAddress:
    """What a producer's link is attached to."""
    path = _path(address)
    if path.lower() in (CBS, MANAGEMENT):
        return NodeAddress(path.lower())
    if found := _PRODUCER.fullmatch(path):
        return ProducerAddress(found["hub"], found["partition"])
    raise AmqpError(NOT_FOUND, f"{path!r:.200} is no address to send to: HUB or HUB/Partitions/N")


def consumer_address(address: str | None) -> ConsumerAddress | NodeAddress:
    """What a consumer's link is attached to."""
    path = _path(address)
    if path.lower() in (CBS, MANAGEMENT):
        return NodeAddress(path.lower())
    if found := _CONSUMER.fullmatch(path):
        return ConsumerAddress(found["hub"], found["group"], found["partition"])
    raise AmqpError(NOT_FOUND, f"{path!r:.200} is no address to receive from: HUB/ConsumerGroups/G/Partitions/N")


def start(selector: object) -> Start:
    """The position that a selector states; without one, the begin of the partition."""
    if selector is None:
        return FROM_BEGIN
    found = _SELECTOR.fullmatch(selector) if isinstance(selector, str) else None
    if found is None:
        what = "amqp.annotation.x-opt-{offset|sequence-number|enqueued-time} {>|>=} 'VALUE'"
        raise AmqpError(INVALID_FIELD, f"{selector!r:.200} is no position: {what}")
    stated = Start(found["what"], found["value"], found["sign"] == ">=")
    if stated.what != "offset" and not re.fullmatch(r"-?\d{1,18}", stated.value):
        raise AmqpError(INVALID_FIELD, f"{stated.what} {stated.value!r:.60} is no whole number")
    return stated


def _path(address: str | None) -> str:
    if not address:
        raise AmqpError(INVALID_FIELD, "a link without an address")
    return re.sub(r"^[a-z]+://[^/]*/", "", address).strip("/")
