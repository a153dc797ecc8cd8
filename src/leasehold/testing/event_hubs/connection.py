"""One connection, as a state machine without I/O.

Owns every change of a connection, its sessions and its links. Bytes go in (`receive`) and come out (`output`);
in between it asks the server for what only the server knows: whether a link may be attached, and what became
of a message.

    START ──SASL header──▶ SASL ──init──▶ HEADER ──AMQP header──▶ OPENING ──Open──▶ OPEN ──▶ CLOSED
      └──────────────────────── AMQP header ────────────────────────▲

1. Nothing but `receive` takes in bytes; it never raises for what a peer sends. An error of the connection is
   answered with Close (before Open: with this side's Open first, during SASL: with a refused login, before
   that: with the header this side speaks) and the machine is CLOSED: it takes in nothing more.
2. An error of a session ends that session, an error of a link detaches that link; the others go on. What
   still arrives for them is ignored until the peer has answered.
3. What one peer can make it hold is bounded by `Limits`: frame size, sessions, links, credit, message size, the
   bytes of all messages that have begun to arrive, and of all that wait for the peer's windows. However often a peer
   says in one read what it takes on a link, it is looked at once.
4. Messages go out settled, within the link's credit and the session's window. A link has at most one message
   that waits for the window.
5. This side answers on the channels and handles that the peer chose.

Not safe for threads: one loop drives it.
"""

from __future__ import annotations

from enum import Enum

from leasehold.testing.event_hubs.conditions import (
    DECODE_ERROR,
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
from leasehold.testing.event_hubs.frames import (
    AMQP_FRAME,
    AMQP_HEADER,
    EMPTY_FRAME,
    FRAME_PREFIX,
    SASL_FRAME,
    SASL_HEADER,
    Frame,
    FrameReader,
    Header,
    encode_frame,
    frame_of,
)
from leasehold.testing.event_hubs.limits import SMALLEST_FRAME, Limits
from leasehold.testing.event_hubs.links import (
    AttachAsked,
    Delivered,
    Detached,
    Flowed,
    Link,
    LinkState,
    Partial,
    Request,
    Session,
    error_value,
)
from leasehold.testing.event_hubs.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Performative,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Transfer,
    decode_performative,
    encode_performative,
)
from leasehold.testing.event_hubs.types import Described, ULong

_WINDOW = 5_000
_WRAP = 0xFFFFFFFF
_MECHANISMS = ["MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"]
_EMPTY_TERMINUS = {True: Described(ULong(0x28), [None] * 11), False: Described(ULong(0x29), [None] * 7)}


class Stage(Enum):
    """How far a connection has come."""

    START = "start"
    SASL = "login"
    HEADER = "header"
    OPENING = "opening"
    OPEN = "open"
    CLOSED = "closed"


class Connection:
    """The server's side of one connection. `name` is how it calls itself."""

    def __init__(self, limits: Limits, name: str = "leasehold") -> None:
        self._limits = limits
        self._name = name
        self._reader = FrameReader(limits.frame_size)
        self._output = bytearray()
        self._requests: list[Request] = []
        self._flowed: set[Link] = set()
        self._sessions: dict[int, Session] = {}
        self._ended: set[int] = set()
        self._links = 0
        self._partial_bytes = 0
        self._peer_frame_size = SMALLEST_FRAME
        self.stage = Stage.START
        self.frames = 0
        """Complete frames and headers that have arrived: what counts as progress."""
        self.peer_idle_timeout: float | None = None
        """How long, in seconds, the peer waits for a frame before it gives up; `None` for ever."""

    @property
    def closed(self) -> bool:
        """Whether nothing more is taken in; what is left of the output is still to be written."""
        return self.stage is Stage.CLOSED

    @property
    def held_bytes(self) -> int:
        """The bytes of messages that have begun to arrive."""
        return self._partial_bytes

    @property
    def waiting_bytes(self) -> int:
        """The bytes of messages that wait for a session's window."""
        links = (link for session in self._sessions.values() for link in session.links.values())
        return sum(len(link.sending) - link.sent for link in links)

    def output(self) -> bytes:
        """What is to be written now; it is handed out once."""
        data = bytes(self._output)
        self._output.clear()
        return data

    def receive(self, data: bytes) -> list[Request]:
        """Take in bytes; return what is asked of the server, in order."""
        if self.closed:
            return []
        try:
            for unit in self._reader.feed(data):
                self.frames += 1
                self._header(unit) if isinstance(unit, Header) else self._frame(unit)
        except AmqpError as error:
            self.close(error)
        requests, self._requests = self._requests, []
        self._flowed.clear()
        return requests

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

    def close(self, error: AmqpError | None = None) -> None:
        """End the connection."""
        if self.closed:
            return
        match self.stage:
            case Stage.START | Stage.HEADER:
                self._output += AMQP_HEADER
            case Stage.SASL:
                self._output += encode_frame(0, SaslOutcome(code=2))
            case _:
                if self.stage is Stage.OPENING:
                    self._open()
                self._output += encode_frame(0, Close(error=None if error is None else error_value(error)))
        self.stage = Stage.CLOSED
        for session in list(self._sessions.values()):
            self._drop(session)

    def keep_alive(self) -> None:
        """Show an open peer that this side is alive."""
        if self.stage is Stage.OPEN:
            self._output += EMPTY_FRAME

    # what the peer says

    def _header(self, header: Header) -> None:
        if self.closed:
            return
        if header.data == SASL_HEADER and self.stage is Stage.START:
            self._output += SASL_HEADER + encode_frame(0, SaslMechanisms(mechanisms=list(_MECHANISMS)))
            self.stage = Stage.SASL
        elif header.data == AMQP_HEADER and self.stage in (Stage.START, Stage.HEADER):
            self._output += AMQP_HEADER
            self.stage = Stage.OPENING
        else:
            raise AmqpError(FRAMING_ERROR, f"the header {header.data!r} does not fit here")

    def _frame(self, frame: Frame) -> None:
        if self.closed:
            return
        if self.stage in (Stage.START, Stage.HEADER):
            raise AmqpError(FRAMING_ERROR, "a connection begins with a protocol header")
        if frame.kind != (SASL_FRAME if self.stage is Stage.SASL else AMQP_FRAME):
            raise AmqpError(FRAMING_ERROR, f"a frame of type {frame.kind} does not fit here")
        if not frame.body:
            return
        performative, end = decode_performative(frame.body)
        payload = frame.body[end:]
        if payload and not isinstance(performative, Transfer):
            raise AmqpError(DECODE_ERROR, f"{len(payload)} bytes follow {type(performative).__name__}")
        if self.stage is Stage.SASL:
            self._login(performative)
        elif self.stage is Stage.OPENING:
            self._opened(frame.channel, performative)
        elif isinstance(performative, Close):
            self.close()
        elif isinstance(performative, Begin):
            self._begin(frame.channel, performative)
        else:
            self._in_session(frame.channel, performative, payload)

    def _login(self, performative: Performative) -> None:
        if not isinstance(performative, SaslInit):
            raise AmqpError(NOT_ALLOWED, "a login begins with an init")
        self._output += encode_frame(0, SaslOutcome(code=0))
        self.stage = Stage.HEADER

    def _opened(self, channel: int, opened: Performative) -> None:
        if not isinstance(opened, Open) or channel != 0:
            raise AmqpError(ILLEGAL_STATE, "a connection begins with Open on channel 0")
        if opened.max_frame_size < SMALLEST_FRAME:
            raise AmqpError(INVALID_FIELD, f"frames may not be limited to less than {SMALLEST_FRAME} bytes")
        self._peer_frame_size = min(opened.max_frame_size, self._limits.frame_size)
        self.peer_idle_timeout = opened.idle_time_out / 1_000 if opened.idle_time_out else None
        self._open()
        self.stage = Stage.OPEN

    def _open(self) -> None:
        mine = Open(
            container_id=self._name,
            max_frame_size=self._limits.frame_size,
            channel_max=self._limits.sessions - 1,
            # Half of what is granted: AMQP asks the peer to send a frame within what it is told.
            idle_time_out=round(self._limits.idle_timeout * 500),
        )
        self._output += encode_frame(0, mine)

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
        session.remote_window = _difference(acknowledged + flow.incoming_window, session.next_outgoing_id)
        if flow.handle is not None:
            link = session.links.get(flow.handle)
            if link is None:
                self._end(session, AmqpError(UNATTACHED_HANDLE, f"a flow for handle {flow.handle}, which has no link"))
                return
            if link.sends and flow.link_credit is not None and link.state is not LinkState.DETACHING:
                known = link.delivery_count if flow.delivery_count is None else flow.delivery_count
                link.credit = max(0, _difference(known + flow.link_credit, link.delivery_count))
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
            transfer = encode_performative(_transfer(link, more=False))
            end = link.sent + self._peer_frame_size - FRAME_PREFIX - len(transfer)
            more = end < len(payload)
            if more:
                transfer = encode_performative(_transfer(link, more=True))  # of the same length
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


def _transfer(link: Link, more: bool) -> Transfer:
    """The next transfer of the message that a link is sending."""
    first = link.sent == 0
    return Transfer(
        handle=link.handle,
        delivery_id=link.session.next_delivery_id if first else None,
        delivery_tag=link.session.next_delivery_id.to_bytes(4, "big") if first else None,
        message_format=0 if first else None,
        settled=True,
        more=more,
    )


def _difference(a: int, b: int) -> int:
    """`a - b` for numbers of 32 bits that wrap, as a signed number."""
    difference = (a - b) & _WRAP
    return difference if difference < 1 << 31 else difference - (1 << 32)
