"""Sessions and links: what a connection remembers of them, and what it asks of the server.

Owns the values that pass between the connection's state machine and whoever serves it. Only `sessions.py`
changes a `Session` or a `Link`; all others read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from leasehold_testkit.emulators.amqp.conditions import AmqpError
from leasehold_testkit.emulators.amqp.performatives import Attach, Transfer
from leasehold_testkit.emulators.amqp.types import Described, Symbol, ULong

WRAP = 0xFFFFFFFF
"""Numbers of transfers and deliveries have 32 bits."""


class LinkState(Enum):
    """A link is asked for, then attached or refused; it is gone once both sides have detached."""

    ASKED = "asked"
    ATTACHED = "attached"
    DETACHING = "detaching"
    GONE = "gone"


@dataclass(slots=True, eq=False)
class Session:
    """One channel of a connection. Transfer ids and windows are numbers of 32 bits that wrap."""

    channel: int
    remote_window: int
    next_incoming_id: int
    incoming_window: int
    next_outgoing_id: int = 0
    next_delivery_id: int = 0
    links: dict[int, Link] = field(default_factory=dict)
    unsettled: dict[int, tuple[Link, bytes]] = field(default_factory=dict)
    """What has been sent and waits for the peer's word, by delivery id: link and delivery tag."""
    most_unsettled: int = 0
    ending: bool = False
    """This side has ended it, and waits for the peer's End."""


@dataclass(slots=True, eq=False)
class Partial:
    """A message that has begun to arrive."""

    delivery_id: int
    message_format: int
    settled: bool
    payload: bytearray


@dataclass(slots=True, eq=False)
class Link:
    """One direction between a client and an address. `sends`: whether this server is the sending side."""

    session: Session
    handle: int
    asked: Attach
    state: LinkState = LinkState.ASKED
    credit: int = 0
    delivery_count: int = 0
    drain: bool = False
    partial: Partial | None = None
    sending: bytes = b""
    sent: int = 0
    tag: bytes | None = None
    """Of the delivery that is being sent, where the peer is to settle it."""

    @property
    def sends(self) -> bool:
        return self.asked.role

    @property
    def address(self) -> str | None:
        """The address that the peer wants to read from or write to."""
        return _address(self.asked.source if self.sends else self.asked.target)

    @property
    def ready(self) -> bool:
        """Whether a message may be sent on it now."""
        attached = self.state is LinkState.ATTACHED and not self.session.ending
        open_ended = len(self.session.unsettled) < self.session.most_unsettled
        return attached and self.credit > 0 and self.session.remote_window > 0 and not self.sending and open_ended


def _address(terminus: object) -> str | None:
    if isinstance(terminus, Described) and isinstance(terminus.value, list) and terminus.value:
        address = terminus.value[0]
        return address if type(address) is str else None
    return None


def filters_of(link: Link) -> dict[str, Any]:
    """The filters on the source of a link, by name, without their descriptors."""
    source = link.asked.source
    values = source.value if isinstance(source, Described) and isinstance(source.value, list) else []
    stated = values[7] if len(values) > 7 and isinstance(values[7], dict) else {}
    return {
        name: value.value if isinstance(value, Described) else value
        for name, value in stated.items()
        if isinstance(name, Symbol)
    }


def transfer_of(link: Link, more: bool) -> Transfer:
    """The next transfer of the message that a link is sending."""
    first = link.sent == 0
    return Transfer(
        handle=link.handle,
        delivery_id=link.session.next_delivery_id if first else None,
        delivery_tag=(link.tag or link.session.next_delivery_id.to_bytes(4, "big")) if first else None,
        message_format=0 if first else None,
        settled=link.tag is None,
        more=more,
    )


def difference(a: int, b: int) -> int:
    """`a - b` for numbers of 32 bits that wrap, as a signed number."""
    difference = (a - b) & WRAP
    return difference if difference < 1 << 31 else difference - (1 << 32)


@dataclass(frozen=True, slots=True)
class AttachAsked:
    """The peer wants a link: answer with `accept` or `refuse`."""

    link: Link


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message has arrived: answer with `settle`."""

    link: Link
    delivery_id: int
    message_format: int
    settled: bool
    payload: bytes


@dataclass(frozen=True, slots=True)
class Flowed:
    """The peer has said how much it takes on a link."""

    link: Link


@dataclass(frozen=True, slots=True)
class Detached:
    """A link is gone."""

    link: Link


@dataclass(frozen=True, slots=True)
class Disposed:
    """The peer says what became of deliveries, each with its link and tag: answer with `settled`, unless it has
    settled them itself."""

    session: Session
    deliveries: tuple[tuple[int, Link, bytes], ...]
    settled: bool
    state: Any


Request = AttachAsked | Delivered | Flowed | Detached | Disposed

ACCEPTED = Described(ULong(0x24), [])
"""The outcome of a message that is stored."""


def rejected(error: AmqpError) -> Described:
    """The outcome of a message that is not."""
    return Described(ULong(0x25), [error_value(error)])


def error_value(error: AmqpError) -> Described:
    """An error as a frame carries it: all three fields, since the official clients look at each."""
    return Described(ULong(0x1D), [Symbol(error.condition), error.description, None])
