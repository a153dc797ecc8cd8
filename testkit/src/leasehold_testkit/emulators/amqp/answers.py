"""What the server says on the links of one connection, as part of the state machine without I/O.

Owns the answers to links that were asked for, the sending of messages within a link's credit and its session's window,
what becomes of deliveries, and the bytes that wait for any of it. `Sessions`, which takes in what the peer says, is the
subclass; its docstring has the rules of both.
"""

from __future__ import annotations

from typing import Any

from leasehold_testkit.emulators.amqp.conditions import RESOURCE_LIMIT_EXCEEDED, AmqpError
from leasehold_testkit.emulators.amqp.frames import AMQP_FRAME, FRAME_PREFIX, encode_frame, frame_of
from leasehold_testkit.emulators.amqp.limits import SMALLEST_FRAME, Limits
from leasehold_testkit.emulators.amqp.links import (
    Delivered,
    Disposed,
    Link,
    LinkState,
    Request,
    Session,
    error_value,
    transfer_of,
)
from leasehold_testkit.emulators.amqp.performatives import (
    Attach,
    Detach,
    Disposition,
    Flow,
    Performative,
    encode_performative,
)
from leasehold_testkit.emulators.amqp.types import Described, Symbol, ULong

WINDOW = 5_000
"""Transfers that a session of this side takes ahead."""
WRAP = 0xFFFFFFFF

Texts = dict[str, Any]
_EMPTY_TERMINUS = {True: Described(ULong(0x28), [None] * 11), False: Described(ULong(0x29), [None] * 7)}


class Answers:
    """The server's side of all links of one connection."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._output = bytearray()
        self._requests: list[Request] = []
        self._flowed: set[Link] = set()
        self._sessions: dict[int, Session] = {}
        self._ended: set[int] = set()
        self._links = 0
        self._partial_bytes = 0
        self._peer_frame_size = SMALLEST_FRAME

    @property
    def closed(self) -> bool:
        """Whether the connection takes in nothing more."""
        raise NotImplementedError

    def close(self, error: AmqpError | None = None) -> None:
        """End the connection."""
        raise NotImplementedError

    @property
    def held_bytes(self) -> int:
        """The bytes of messages that have begun to arrive."""
        return self._partial_bytes

    @property
    def waiting_bytes(self) -> int:
        """The bytes of messages that wait for a session's window."""
        links = (link for session in self._sessions.values() for link in session.links.values())
        return sum(len(link.sending) - link.sent for link in links)

    # what the server says

    def accept(
        self, link: Link, *, unsettled: bool = False, source: Described | None = None, properties: Texts | None = None
    ) -> None:
        """Attach a link that was asked for, and let a producer begin.

        `unsettled` says that the peer settles what is sent to it; `source` is another one than it asked for.
        """
        if link.state is not LinkState.ASKED or not self._alive(link):
            return
        self._answer_attach(link, unsettled=unsettled, source=source, properties=properties)
        link.state = LinkState.ATTACHED
        if not link.sends:
            link.credit = self._limits.credit
            self._grant(link)

    def refuse(self, link: Link, error: AmqpError, *, echo: bool = False) -> None:
        """Refuse a link that was asked for: it is attached, as AMQP wants it, and detached at once.

        `echo` has the attach say what was asked for: some clients look there before they look at the error.
        """
        if link.state is not LinkState.ASKED or not self._alive(link):
            return
        self._answer_attach(link, refused=not echo, properties={} if echo else None)
        link.state = LinkState.ATTACHED
        self.detach(link, error)

    def detach(self, link: Link, error: AmqpError) -> None:
        """Detach a link for good."""
        if link.state is not LinkState.ATTACHED or not self._alive(link):
            return
        link.state = LinkState.DETACHING
        self._forget(link)
        self._send(link.session, Detach(handle=link.handle, closed=True, error=error_value(error)))

    def settle(self, delivery: Delivered, outcome: Described) -> None:
        """Tell a producer what became of its message, and let it send more."""
        link = delivery.link
        if link.state is not LinkState.ATTACHED or not self._alive(link):
            return
        if not delivery.settled:
            number = delivery.delivery_id
            self._send(link.session, Disposition(role=True, first=number, last=number, settled=True, state=outcome))
        if link.credit < self._limits.credit // 2:
            link.credit = self._limits.credit
            self._grant(link)

    def send(self, link: Link, payload: bytes, tag: bytes | None = None) -> bool:
        """Send a message if the link is `ready`; return whether it was. With a `tag`, the peer is to settle it.

        What the session's window does not take of it follows later.
        """
        if not link.ready or not self._alive(link):
            return False
        link.sending, link.sent, link.tag = payload, 0, tag
        self._continue(link)
        if link.sending and self.waiting_bytes > self._limits.waiting_bytes:
            what = f"messages that wait for your windows have at most {self._limits.waiting_bytes:,} bytes"
            self.close(AmqpError(RESOURCE_LIMIT_EXCEEDED, what))
        return True

    def settled(self, disposed: Disposed, number: int, outcome: Any) -> None:
        """Tell a receiver what became of a delivery that it asked to be settled."""
        session = disposed.session
        if session.unsettled.pop(number, None) is None or self.closed or session.ending or disposed.settled:
            return
        self._send(session, Disposition(role=False, first=number, last=number, settled=True, state=outcome))

    def drained(self, link: Link) -> None:
        """There is no more message for a link now: a peer that asked for a drain is told so."""
        if link.drain and link.ready and self._alive(link):
            link.delivery_count = (link.delivery_count + link.credit) & WRAP
            link.credit = 0
            self._grant(link)

    # bookkeeping

    def _alive(self, link: Link) -> bool:
        return not self.closed and not link.session.ending

    def _forget(self, link: Link) -> None:
        """Let go of what a link holds of messages."""
        if link.partial is not None:
            self._partial_bytes -= len(link.partial.payload)
            link.partial = None
        link.sending, link.sent = b"", 0

    def _answer_attach(
        self,
        link: Link,
        *,
        refused: bool = False,
        unsettled: bool = False,
        source: Described | None = None,
        properties: Texts | None = None,
    ) -> None:
        """Attach from this side. A refused link has no terminus here, so that no client takes it for one."""
        asked = link.asked
        mine = Attach(
            name=asked.name,
            handle=link.handle,
            role=not asked.role,
            snd_settle_mode=(0 if unsettled else 1) if link.sends else asked.snd_settle_mode,
            rcv_settle_mode=asked.rcv_settle_mode if unsettled else 0,
            source=None if refused and link.sends else source or asked.source or _EMPTY_TERMINUS[True],
            target=None if refused and not link.sends else asked.target or _EMPTY_TERMINUS[False],
            initial_delivery_count=0 if link.sends else None,
            max_message_size=self._limits.message_size,
            properties=None if properties is None else {Symbol(name): value for name, value in properties.items()},
        )
        self._send(link.session, mine)

    def _grant(self, link: Link) -> None:
        self._send(link.session, self._flow_of(link.session, link))

    def _flow_of(self, session: Session, link: Link | None = None) -> Flow:
        return Flow(
            next_incoming_id=session.next_incoming_id,
            incoming_window=session.incoming_window,
            next_outgoing_id=session.next_outgoing_id,
            outgoing_window=WINDOW,
            handle=None if link is None else link.handle,
            delivery_count=None if link is None else link.delivery_count,
            link_credit=None if link is None else link.credit,
            available=None if link is None else 0,
        )

    def _continue(self, link: Link) -> None:
        """Send as much of a link's message as the session's window takes."""
        session, payload = link.session, link.sending
        while link.sending and session.remote_window > 0:
            transfer = encode_performative(transfer_of(link, more=False))
            end = link.sent + self._peer_frame_size - FRAME_PREFIX - len(transfer)
            more = end < len(payload)
            if more:
                transfer = encode_performative(transfer_of(link, more=True))  # of the same length
            self._output += frame_of(AMQP_FRAME, session.channel, transfer + payload[link.sent : end])
            session.next_outgoing_id = (session.next_outgoing_id + 1) & WRAP
            session.remote_window -= 1
            if link.sent == 0:
                if link.tag is not None:
                    session.unsettled[session.next_delivery_id] = (link, link.tag)
                session.next_delivery_id = (session.next_delivery_id + 1) & WRAP
            link.sent = end
            if not more:
                link.sending, link.sent = b"", 0
                link.credit -= 1
                link.delivery_count = (link.delivery_count + 1) & WRAP

    def _send(self, session: Session, performative: Performative) -> None:
        self._output += encode_frame(session.channel, performative)
