"""The sessions of one connection and their links, as a state machine without I/O.

Owns, with `Answers`, every change of a `Session` and of a `Link`: what comes in frames of a session changes them and
leaves requests, and what the server says to one (there) is written as frames. `Connection` has the frames, and what is
said before and after.

1. An error of a session ends that session, an error of a link detaches that link; the others go on. What still
   arrives for them is ignored until the peer has answered.
2. What one peer can make it hold is bounded by `Limits`: sessions, links, credit, message size, the bytes of all
   messages that have begun to arrive, and of all that wait for the peer's windows. However often a peer says in one
   read what it takes on a link, it is looked at once.
3. Messages go out within the link's credit and the session's window, settled, or with a tag and then until the peer
   settles them; of those a session has at most `Limits.unsettled`. A link has at most one message that waits for the
   window. A disposition is looked up among them: the range that a peer names costs nothing.
4. This side answers on the channels and handles that the peer chose.
"""

from __future__ import annotations

from leasehold_testkit.emulators.amqp.answers import WINDOW, WRAP, Answers
from leasehold_testkit.emulators.amqp.conditions import (
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
from leasehold_testkit.emulators.amqp.links import (
    AttachAsked,
    Delivered,
    Detached,
    Disposed,
    Flowed,
    Link,
    LinkState,
    Partial,
    Session,
    difference,
    error_value,
)
from leasehold_testkit.emulators.amqp.performatives import (
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Performative,
    Transfer,
)


class Sessions(Answers):
    """The server's side of all sessions of one connection. Whoever owns the connection's frames is a subclass."""

    # what the peer says

    def _begin(self, channel: int, begin: Begin) -> None:
        if channel >= self._limits.sessions:
            raise AmqpError(FRAMING_ERROR, f"channel {channel}; the highest is {self._limits.sessions - 1}")
        if channel in self._sessions:
            raise AmqpError(ILLEGAL_STATE, f"channel {channel} has a session already")
        self._ended.discard(channel)
        session = Session(
            channel, begin.incoming_window, begin.next_outgoing_id, WINDOW, most_unsettled=self._limits.unsettled
        )
        self._sessions[channel] = session
        mine = Begin(
            remote_channel=channel,
            next_outgoing_id=session.next_outgoing_id,
            incoming_window=session.incoming_window,
            outgoing_window=WINDOW,
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
        elif isinstance(performative, Disposition):
            self._disposed(session, performative)
        else:
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
        # A window may be as large as the numbers go: only what is on its way is a difference of two of them.
        session.remote_window = flow.incoming_window - difference(session.next_outgoing_id, acknowledged)
        if flow.handle is not None:
            link = session.links.get(flow.handle)
            if link is None:
                self._end(session, AmqpError(UNATTACHED_HANDLE, f"a flow for handle {flow.handle}, which has no link"))
                return
            if link.sends and flow.link_credit is not None and link.state is not LinkState.DETACHING:
                known = link.delivery_count if flow.delivery_count is None else flow.delivery_count
                link.credit = max(0, flow.link_credit - difference(link.delivery_count, known))
                link.drain = flow.drain
        for link in session.links.values():
            if link.sending:
                self._continue(link)
            if link.ready and (was_shut or link.handle == flow.handle) and link not in self._flowed:
                self._flowed.add(link)
                self._requests.append(Flowed(link))
        if flow.echo:
            self._send(session, self._flow_of(session))

    def _disposed(self, session: Session, disposition: Disposition) -> None:
        """What a receiver says of deliveries. Those that it never had, or has settled, are passed over."""
        if not disposition.role or (disposition.state is None and not disposition.settled):
            return
        last = disposition.first if disposition.last is None else disposition.last
        span = (last - disposition.first) & WRAP
        if span < len(session.unsettled):
            numbers = [(disposition.first + step) & WRAP for step in range(span + 1)]
        else:
            numbers = [number for number in session.unsettled if (number - disposition.first) & WRAP <= span]
        found = tuple((number, *session.unsettled[number]) for number in numbers if number in session.unsettled)
        if found:
            self._requests.append(Disposed(session, found, disposition.settled, disposition.state))

    def _transfer(self, session: Session, transfer: Transfer, payload: bytes) -> None:
        session.next_incoming_id = (session.next_incoming_id + 1) & WRAP
        session.incoming_window -= 1
        if session.incoming_window < WINDOW // 2:
            session.incoming_window = WINDOW
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
            link.delivery_count = (link.delivery_count + 1) & WRAP
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

    def _end(self, session: Session, error: AmqpError) -> None:
        """End a session for an error; its channel is free once the peer has ended it too."""
        session.ending = True
        self._send(session, End(error=error_value(error)))
        for link in session.links.values():
            self._lose(link)
        session.links.clear()
        session.unsettled.clear()

    def _drop(self, session: Session) -> None:
        for link in session.links.values():
            self._lose(link)
        session.links.clear()
        session.unsettled.clear()
        session.ending = True
        del self._sessions[session.channel]
        self._ended.add(session.channel)

    def _lose(self, link: Link) -> None:
        link.state = LinkState.GONE
        self._links -= 1
        self._forget(link)
        unsettled = link.session.unsettled
        for number in [number for number, (other, _) in unsettled.items() if other is link]:
            del unsettled[number]
        self._requests.append(Detached(link))
