"""The sessions of one connection and their links, as a state machine without I/O.

Owns every change of a `Session` and of a `Link`: what comes in frames of a session changes them and leaves requests,
and what the server says to one is written as frames. `Connection` has the frames, and what is said before and after.

1. An error of a session ends that session, an error of a link detaches that link; the others go on. What still
   arrives for them is ignored until the peer has answered.
2. What one peer can make it hold is bounded by `Limits`: sessions, links, credit, message size, the bytes of all
   messages that have begun to arrive, and of all that wait for the peer's windows. However often a peer says in one
   read what it takes on a link, it is looked at once.
3. Messages go out settled, within the link's credit and the session's window. A link has at most one message that
   waits for the window.
4. This side answers on the channels and handles that the peer chose.
"""

from __future__ import annotations

from leasehold.emulators.amqp.conditions import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    ILLEGAL_STATE,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSFER_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    AmqpError,
)
from leasehold.emulators.amqp.frames import (
    AMQP_FRAME,
    FRAME_PREFIX,
    encode_frame,
    frame_of,
)
from leasehold.emulators.amqp.limits import SMALLEST_FRAME, Limits
from leasehold.emulators.amqp.links import (
    AttachAsked,
    Delivered,
    Detached,
    Flowed,
    Link,
    LinkState,
    Partial,
    Request,
    Session,
    difference,
    error_value,
    transfer_of,
)
from leasehold.emulators.amqp.performatives import (
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Performative,
    Transfer,
    encode_performative,
)
from leasehold.emulators.amqp.types import Described, ULong

_WINDOW = 5_000
_WRAP = 0xFFFFFFFF
_EMPTY_TERMINUS = {True: Described(ULong(0x28), [None] * 11), False: Described(ULong(0x29), [None] * 7)}


class Sessions:
    """The server's side of all sessions of one connection. Whoever owns the connection's frames is a subclass."""

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

    def accept(self, link: Link) -> None:
        """Attach a link that was asked for, and let a producer begin."""
        if link.state is not LinkState.ASKED or not self._alive(link):
            return
        self._answer_attach(link)
        link.state = LinkState.ATTACHED
        if not link.sends:
            link.credit = self._limits.credit
            self._grant(link)

    def refuse(self, link: Link, error: AmqpError) -> None:
        """Refuse a link that was asked for: it is attached, as AMQP wants it, and detached at once."""
        if link.state is not LinkState.ASKED or not self._alive(link):
            return
        self._answer_attach(link, refused=True)
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

    def send(self, link: Link, payload: bytes) -> bool:
        """Send a message if the link is `ready`; return whether it was.

        What the session's window does not take of it follows later.
        """
        if not link.ready or not self._alive(link):
            return False
        link.sending, link.sent = payload, 0
        self._continue(link)
        if link.sending and self.waiting_bytes > self._limits.waiting_bytes:
            what = f"messages that wait for your windows have at most {self._limits.waiting_bytes:,} bytes"
            self.close(AmqpError(RESOURCE_LIMIT_EXCEEDED, what))
        return True

    def drained(self, link: Link) -> None:
        """There is no more message for a link now: a peer that asked for a drain is told so."""
        if link.drain and link.ready and self._alive(link):
            link.delivery_count = (link.delivery_count + link.credit) & _WRAP
            link.credit = 0
            self._grant(link)

    # what the peer says

    def _begin(self, channel: int, begin: Begin) -> None:
        if channel >= self._limits.sessions:
            raise AmqpError(FRAMING_ERROR, f"channel {channel}; the highest is {self._limits.sessions - 1}")
        if channel in self._sessions:
            raise AmqpError(ILLEGAL_STATE, f"channel {channel} has a session already")
        self._ended.discard(channel)
        session = Session(channel, begin.incoming_window, begin.next_outgoing_id, _WINDOW)
        self._sessions[channel] = session
        mine = Begin(
            remote_channel=channel,
            next_outgoing_id=session.next_outgoing_id,
            incoming_window=session.incoming_window,
            outgoing_window=_WINDOW,
            handle_max=self._limits.links - 1,
        )
        self._send(session, mine)

    def _in_session(self, channel: int, performative: Performative, payload: bytes) -> None:
        session = self._sessions.get(channel)
        if session is None:
            if channel in self._ended:
                return  # the official clients detach the links of a session that they have ended
            raise AmqpError(NOT_ALLOWED, f"channel {channel} has no session")
        if isinstance(performative, End):
            if not session.ending:
                self._send(session, End())
            self._drop(session)
        elif session.ending:
            return
        elif isinstance(performative, Attach):
            self._attach(session, performative)
        elif isinstance(performative, Flow):
            self._flow(session, performative)
        elif isinstance(performative, Transfer):
            self._transfer(session, performative, payload)
        elif isinstance(performative, Detach):
            self._detached(session, performative)
        elif not isinstance(performative, Disposition):  # what went out was settled: nothing to learn
            raise AmqpError(ILLEGAL_STATE, f"{type(performative).__name__} does not fit here")

    def _attach(self, session: Session, attach: Attach) -> None:
        if attach.handle >= self._limits.links:
            raise AmqpError(FRAMING_ERROR, f"handle {attach.handle}; the highest is {self._limits.links - 1}")
        if attach.handle in session.links:
            self._end(session, AmqpError(HANDLE_IN_USE, f"handle {attach.handle} has a link already"))
            return
        if self._links >= self._limits.links:
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, f"a connection has at most {self._limits.links} links")
        link = Link(session, attach.handle, attach)
        if not link.sends:
            link.delivery_count = attach.initial_delivery_count or 0
        session.links[attach.handle] = link
        self._links += 1
        self._requests.append(AttachAsked(link))

    def _flow(self, session: Session, flow: Flow) -> None:
        was_shut = session.remote_window <= 0
        acknowledged = flow.next_incoming_id or 0
        session.remote_window = difference(acknowledged + flow.incoming_window, session.next_outgoing_id)
        if flow.handle is not None:
            link = session.links.get(flow.handle)
            if link is None:
                self._end(session, AmqpError(UNATTACHED_HANDLE, f"a flow for handle {flow.handle}, which has no link"))
                return
            if link.sends and flow.link_credit is not None and link.state is not LinkState.DETACHING:
                known = link.delivery_count if flow.delivery_count is None else flow.delivery_count
                link.credit = max(0, difference(known + flow.link_credit, link.delivery_count))
                link.drain = flow.drain
        for link in session.links.values():
            if link.sending:
                self._continue(link)
            if link.ready and (was_shut or link.handle == flow.handle) and link not in self._flowed:
                self._flowed.add(link)
                self._requests.append(Flowed(link))
        if flow.echo:
            self._send(session, self._flow_of(session))

    def _transfer(self, session: Session, transfer: Transfer, payload: bytes) -> None:
        session.next_incoming_id = (session.next_incoming_id + 1) & _WRAP
        session.incoming_window -= 1
        if session.incoming_window < _WINDOW // 2:
            session.incoming_window = _WINDOW
            self._send(session, self._flow_of(session))
        link = session.links.get(transfer.handle)
        if link is None or link.sends:
            self._end(session, AmqpError(UNATTACHED_HANDLE, f"no producer has handle {transfer.handle}"))
        elif link.state is LinkState.ASKED:
            self._end(session, AmqpError(ILLEGAL_STATE, "a transfer before the link was attached"))
        elif link.state is LinkState.ATTACHED:
            self._take(link, transfer, payload)

    def _take(self, link: Link, transfer: Transfer, payload: bytes) -> None:
        """Add the payload of a transfer to its message, and hand the message on if it is complete."""
        partial = link.partial
        if partial is None:
            if transfer.delivery_id is None:
                self.detach(link, AmqpError(INVALID_FIELD, "the first transfer of a message has its delivery id"))
                return
            if link.credit <= 0:
                self.detach(link, AmqpError(TRANSFER_LIMIT_EXCEEDED, "more messages than the link has credit for"))
                return
            partial = Partial(transfer.delivery_id, transfer.message_format or 0, False, bytearray())
            link.partial = partial
        elif transfer.delivery_id not in (None, partial.delivery_id):
            self.detach(link, AmqpError(INVALID_FIELD, "a message begins before the last one is complete"))
            return
        partial.settled |= bool(transfer.settled)
        if len(partial.payload) + len(payload) > self._limits.message_size:
            what = f"a message has at most {self._limits.message_size:,} bytes"
            self.detach(link, AmqpError(MESSAGE_SIZE_EXCEEDED, what))
            return
        partial.payload += payload
        self._partial_bytes += len(payload)
        if transfer.aborted:
            self._forget(link)
        elif not transfer.more:
            whole = bytes(partial.payload)
            self._forget(link)
            link.credit -= 1
            link.delivery_count = (link.delivery_count + 1) & _WRAP
            self._requests.append(Delivered(link, partial.delivery_id, partial.message_format, partial.settled, whole))
        elif self._partial_bytes > self._limits.partial_bytes:
            what = f"incomplete messages of a connection have at most {self._limits.partial_bytes:,} bytes"
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, what)

    def _detached(self, session: Session, detach: Detach) -> None:
        link = session.links.pop(detach.handle, None)
        if link is None:
            self._end(session, AmqpError(UNATTACHED_HANDLE, f"a detach of handle {detach.handle}, which has no link"))
            return
        if link.state is LinkState.ASKED:
            self._answer_attach(link)
        if link.state is not LinkState.DETACHING:
            self._send(session, Detach(handle=link.handle, closed=detach.closed))
        self._lose(link)

    # bookkeeping

    def _alive(self, link: Link) -> bool:
        return not self.closed and not link.session.ending

    def _end(self, session: Session, error: AmqpError) -> None:
        """End a session for an error; its channel is free once the peer has ended it too."""
        session.ending = True
        self._send(session, End(error=error_value(error)))
        for link in session.links.values():
            self._lose(link)
        session.links.clear()

    def _drop(self, session: Session) -> None:
        for link in session.links.values():
            self._lose(link)
        session.links.clear()
        session.ending = True
        del self._sessions[session.channel]
        self._ended.add(session.channel)

    def _lose(self, link: Link) -> None:
        link.state = LinkState.GONE
        self._links -= 1
        self._forget(link)
        self._requests.append(Detached(link))

    def _forget(self, link: Link) -> None:
        """Let go of what a link holds of messages."""
        if link.partial is not None:
            self._partial_bytes -= len(link.partial.payload)
            link.partial = None
        link.sending, link.sent = b"", 0

    def _answer_attach(self, link: Link, *, refused: bool = False) -> None:
        """Attach from this side. A refused link has no terminus here, so that no client takes it for one."""
        asked = link.asked
        mine = Attach(
            name=asked.name,
            handle=link.handle,
            role=not asked.role,
            snd_settle_mode=1 if link.sends else asked.snd_settle_mode,
            rcv_settle_mode=0,
            source=None if refused and link.sends else asked.source or _EMPTY_TERMINUS[True],
            target=None if refused and not link.sends else asked.target or _EMPTY_TERMINUS[False],
            initial_delivery_count=0 if link.sends else None,
            max_message_size=self._limits.message_size,
        )
        self._send(link.session, mine)

    def _grant(self, link: Link) -> None:
        self._send(link.session, self._flow_of(link.session, link))

    def _flow_of(self, session: Session, link: Link | None = None) -> Flow:
        return Flow(
            next_incoming_id=session.next_incoming_id,
            incoming_window=session.incoming_window,
            next_outgoing_id=session.next_outgoing_id,
            outgoing_window=_WINDOW,
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
            session.next_outgoing_id = (session.next_outgoing_id + 1) & _WRAP
            session.remote_window -= 1
            if link.sent == 0:
                session.next_delivery_id = (session.next_delivery_id + 1) & _WRAP
            link.sent = end
            if not more:
                link.sending, link.sent = b"", 0
                link.credit -= 1
                link.delivery_count = (link.delivery_count + 1) & _WRAP

    def _send(self, session: Session, performative: Performative) -> None:
        self._output += encode_frame(session.channel, performative)
