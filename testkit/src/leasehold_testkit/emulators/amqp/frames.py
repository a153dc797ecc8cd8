"""Frames: how bytes of a connection fall into protocol headers and frames.

Owns the outermost layer of AMQP: an 8-byte protocol header, or a frame of `size, data offset, type, channel`
and a body. Raises `AmqpError` (`amqp:connection:framing-error`) as soon as the first eight bytes show that
no valid frame follows, so that it never holds more than one frame of the size that was agreed, and one chunk.
Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from leasehold_testkit.emulators.amqp.conditions import FRAMING_ERROR, AmqpError
from leasehold_testkit.emulators.amqp.performatives import Performative, SaslMechanisms, encode_performative

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"
AMQP_FRAME, SASL_FRAME = 0, 1

FRAME_PREFIX = 8

_PREFIX = struct.Struct(">IBBH")


@dataclass(frozen=True, slots=True)
class Header:
    """A protocol header: eight bytes that begin with `AMQP`."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame without its prefix; a body of no bytes only shows that the peer is alive."""

    kind: int
    channel: int
    body: bytes


class FrameReader:
    """Cuts a stream of bytes into headers and frames, however it arrives."""

    def __init__(self, frame_size: int) -> None:
        self._frame_size = frame_size
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[Header | Frame]:
        """What is complete with these bytes. Take all of it before the next call."""
        pending = self._pending
        pending += data
        at = 0
        try:
            while len(pending) - at >= FRAME_PREFIX:
                if pending.startswith(b"AMQP", at):
                    at += 8
                    yield Header(bytes(pending[at - 8 : at]))
                    continue
                size, offset, kind, channel = _PREFIX.unpack_from(pending, at)
                self._check(size, offset, kind)
                if len(pending) - at < size:
                    break
                body = bytes(pending[at + offset * 4 : at + size])
                at += size
                yield Frame(kind, channel, body)
        finally:
            del pending[:at]

    def _check(self, size: int, offset: int, kind: int) -> None:
        if size > self._frame_size:
            raise AmqpError(FRAMING_ERROR, f"a frame of {size:,} bytes; at most {self._frame_size:,} are agreed")
        if offset < 2 or offset * 4 > size:
            raise AmqpError(FRAMING_ERROR, f"a frame of {size} bytes whose data begin at {offset * 4}")
        if kind not in (AMQP_FRAME, SASL_FRAME):
            raise AmqpError(FRAMING_ERROR, f"a frame of type {kind}")


def encode_frame(channel: int, performative: Performative, payload: bytes = b"") -> bytes:
    """The bytes of a frame."""
    kind = SASL_FRAME if performative.CODE >= SaslMechanisms.CODE else AMQP_FRAME
    return frame_of(kind, channel, encode_performative(performative) + payload)


def frame_of(kind: int, channel: int, body: bytes) -> bytes:
    """The bytes of a frame with a body that is encoded already."""
    return _PREFIX.pack(FRAME_PREFIX + len(body), 2, kind, channel) + body
