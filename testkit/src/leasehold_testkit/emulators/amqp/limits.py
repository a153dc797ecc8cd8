"""How much one peer may cost the server.

Owns the numbers that bound memory and patience. They are generous for the official clients and small for a
peer that means harm: what a connection holds is at most about `frame_size + partial_bytes + 2 * waiting_bytes` and
what its links and sessions need, whatever it sends.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from leasehold.config import check_number
from leasehold.errors import ConfigError

SMALLEST_FRAME = 512
"""AMQP lets no peer ask for smaller frames."""
SHORTEST_IDLE = 1_000
"""Milliseconds that a peer may wait for a frame before it gives up: in less, the server would do little but send them.

AMQP (part 2, 2.4.5) asks nobody to support any time, and wants one that is not supported refused with a reason.
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds. Whoever goes beyond one of them is told so and disconnected."""

    frame_size: int = 64 << 10
    message_size: int = 1 << 20
    partial_bytes: int = 8 << 20
    """All messages of a connection that have begun to arrive and are not complete."""
    waiting_bytes: int = 8 << 20
    """All messages and answers of a connection that its credit or its windows do not let out."""
    connections: int = 1_000
    sessions: int = 64
    """Of one connection."""
    links: int = 256
    """Of one connection, over all its sessions."""
    credit: int = 1_000
    """Messages that a producer may send ahead."""
    unsettled: int = 5_000
    """Deliveries of a session that a receiver has not settled; it gets no more until it settles some."""
    receivers: int = 5
    """Without an owner level, of one partition and consumer group."""
    handshake_timeout: float = 10.0
    """From the connection to its Open frame."""
    idle_timeout: float = 240.0
    """Without one complete frame, or with a peer that does not read what is written to it."""

    def __post_init__(self) -> None:
        for field in fields(self):
            check_number(field.name, getattr(self, field.name), above=0)
        if self.frame_size < SMALLEST_FRAME:
            raise ConfigError("frame_size", self.frame_size, f"AMQP knows no frames below {SMALLEST_FRAME} bytes")
        if self.sessions > 1 << 16:
            raise ConfigError("sessions", self.sessions, "a connection has at most 65,536 channels")
