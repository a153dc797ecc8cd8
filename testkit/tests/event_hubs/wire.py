"""The client's side of the wire, by hand: frames to feed to the server, and what it answers, read back."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from leasehold_testkit.emulators.amqp.connection import Connection
from leasehold_testkit.emulators.amqp.frames import AMQP_HEADER, Frame, FrameReader, Header, encode_frame
from leasehold_testkit.emulators.amqp.limits import Limits
from leasehold_testkit.emulators.amqp.links import AttachAsked, Delivered, Link
from leasehold_testkit.emulators.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Flow,
    Open,
    Performative,
    Transfer,
    decode_performative,
)
from leasehold_testkit.emulators.amqp.types import Described, Symbol, ULong, encode

RECORDED = {path.stem: path.read_bytes() for path in sorted((Path(__file__).parent / "recorded").glob("*.bin"))}
"""What the official client sent on connections of several kinds."""


def frame(*performatives: Performative, channel: int = 0, payload: bytes = b"") -> bytes:
    return b"".join(encode_frame(channel, performative, payload) for performative in performatives)


def begin(window: int = 100) -> Begin:
    return Begin(next_outgoing_id=0, incoming_window=window, outgoing_window=100)


def opening(*, frame_size: int = 65_536, window: int = 100) -> bytes:
    """A connection without a login, with a session on channel 0."""
    return AMQP_HEADER + frame(Open(container_id="test", max_frame_size=frame_size), begin(window))


def producer(handle: int = 0, address: str | None = "orders") -> Attach:
    source, target = [address], [address]
    return _attach(handle, role=False, source=source, target=target)


def consumer(handle: int = 0, address: str = "orders/ConsumerGroups/$Default/Partitions/0") -> Attach:
    return _attach(handle, role=True, source=[address], target=["here"])


def _attach(handle: int, *, role: bool, source: list[str | None], target: list[str | None]) -> Attach:
    return Attach(
        name=f"link {handle} {role}",
        handle=handle,
        role=role,
        source=Described(ULong(0x28), source),
        target=Described(ULong(0x29), target),
        initial_delivery_count=None if role else 0,
    )


def flow(handle: int | None = 0, *, credit: int = 10, window: int = 100, received: int = 0, count: int = 0) -> Flow:
    return Flow(
        next_incoming_id=received,
        incoming_window=window,
        next_outgoing_id=0,
        outgoing_window=100,
        handle=handle,
        delivery_count=None if handle is None else count,
        link_credit=None if handle is None else credit,
    )


def message(body: bytes = b"body") -> bytes:
    return encode(Described(ULong(0x75), body))


def transfers(payload: bytes, *, handle: int = 0, delivery: int = 0, size: int = 1 << 20) -> bytes:
    """A message, in pieces of at most `size` bytes."""
    pieces = [payload[at : at + size] for at in range(0, len(payload), size)] or [b""]
    return b"".join(
        frame(
            Transfer(
                handle=handle,
                delivery_id=delivery if not number else None,
                delivery_tag=b"t" if not number else None,
                message_format=0 if not number else None,
                more=number < len(pieces) - 1,
            ),
            payload=piece,
        )
        for number, piece in enumerate(pieces)
    )


class Peer:
    """A client of one state machine; links are accepted as they are asked for."""

    def __init__(self, limits: Limits | None = None, *, accepts: bool = True) -> None:
        self.connection = Connection(limits or Limits())
        self.accepts = accepts
        self.links: list[Link] = []
        self.delivered: list[Delivered] = []
        self._reader = FrameReader(1 << 30)

    def say(self, *data: bytes | Performative, channel: int = 0) -> list[Performative]:
        """Send one after another, and return the answers."""
        for part in data:
            self._hand_in(part if isinstance(part, bytes) else frame(part, channel=channel))
        return self.answers()

    def _hand_in(self, data: bytes) -> None:
        for request in self.connection.receive(data):
            if isinstance(request, AttachAsked):
                self.links.append(request.link)
                if self.accepts:
                    self.connection.accept(request.link)
            elif isinstance(request, Delivered):
                self.delivered.append(request)

    def answers(self) -> list[Performative]:
        """What has been said since the last look."""
        return performatives(self._reader.feed(self.connection.output()))


def performatives(units: Iterable[Header | Frame]) -> list[Performative]:
    """The performatives in what was read."""
    return [decode_performative(unit.body)[0] for unit in units if isinstance(unit, Frame) and unit.body]


def condition(performative: Performative) -> str:
    """The error in a close, an end or a detach."""
    assert isinstance(performative, Close | End | Detach)
    error = performative.error
    assert isinstance(error, Described), f"{performative} without an error"
    name = error.value[0]
    assert isinstance(name, Symbol)
    return str(name)
