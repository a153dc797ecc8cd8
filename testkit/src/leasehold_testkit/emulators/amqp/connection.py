"""One connection, as a state machine without I/O.

Owns how far a connection has come, and its frames; `Sessions` owns what they say of sessions and links. Bytes go in
(`receive`) and come out (`output`); in between it asks the server for what only the server knows: whether a link may be
attached, and what became of a message.

    START ──SASL header──▶ SASL ──init──▶ HEADER ──AMQP header──▶ OPENING ──Open──▶ OPEN ──▶ CLOSED
      └──────────────────────── AMQP header ────────────────────────▲

1. Nothing but `receive` takes in bytes; it never raises for what a peer sends. An error of the connection is
   answered with Close (before Open: with this side's Open first, during SASL: with a refused login, before
   that: with the header this side speaks) and the machine is CLOSED: it takes in nothing more.
2. What the parts of one connection may do is in `sessions.py`; frames are no larger than `Limits` says.

Not safe for threads: one loop drives it.
"""

from __future__ import annotations

from enum import Enum

from leasehold_testkit.emulators.amqp.conditions import (
    DECODE_ERROR,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    NOT_ALLOWED,
    AmqpError,
)
from leasehold_testkit.emulators.amqp.frames import (
    AMQP_FRAME,
    AMQP_HEADER,
    EMPTY_FRAME,
    SASL_FRAME,
    SASL_HEADER,
    Frame,
    FrameReader,
    Header,
    encode_frame,
)
from leasehold_testkit.emulators.amqp.limits import SHORTEST_IDLE, SMALLEST_FRAME, Limits
from leasehold_testkit.emulators.amqp.links import (
    Request,
    error_value,
)
from leasehold_testkit.emulators.amqp.performatives import (
    Begin,
    Close,
    Open,
    Performative,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Transfer,
    decode_performative,
)
from leasehold_testkit.emulators.amqp.sessions import Sessions

_MECHANISMS = ["MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"]


class Stage(Enum):
    """How far a connection has come."""

    START = "start"
    SASL = "login"
    HEADER = "header"
    OPENING = "opening"
    OPEN = "open"
    CLOSED = "closed"


class Connection(Sessions):
    """The server's side of one connection. `name` is how it calls itself."""

    def __init__(self, limits: Limits, name: str = "leasehold") -> None:
        super().__init__(limits)
        self._name = name
        self._reader = FrameReader(limits.frame_size)
        self.stage = Stage.START
        self.frames = 0
        """Complete frames and headers that have arrived: what counts as progress."""
        self.peer_idle_timeout: float | None = None
        """How long, in seconds, the peer waits for a frame before it gives up; `None` for ever."""

    @property
    def closed(self) -> bool:
        """Whether nothing more is taken in; what is left of the output is still to be written."""
        return self.stage is Stage.CLOSED

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
        if opened.idle_time_out and opened.idle_time_out < SHORTEST_IDLE:
            said = f"an idle time-out of {opened.idle_time_out} ms is not supported"
            raise AmqpError(NOT_ALLOWED, f"{said}: say {SHORTEST_IDLE:,} or more, or none")
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
