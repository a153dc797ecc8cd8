"""What clients of an event hub send, as streams of bytes, and the same changed at random."""

from __future__ import annotations

import random

from leasehold_testkit.emulators.amqp.performatives import Close, Detach, End, Flow, Transfer
from testkit.tests.event_hubs.hostile import Hostile
from testkit.tests.event_hubs.wire import RECORDED, begin, consumer, flow, frame, opening, producer


def in_pieces() -> bytes:
    """Two producers whose messages come in pieces, a consumer, and sessions that come and go."""
    piece = b"x" * 300
    more = [frame(Transfer(handle=handle, delivery_id=handle, more=True), payload=piece) for handle in (0, 1)]
    rest = [frame(Transfer(handle=handle, more=False), payload=piece) for handle in (1, 0)]
    return b"".join(
        (
            *(opening(frame_size=512), frame(producer(0), producer(1), consumer(2)), frame(flow(2, credit=5))),
            *(*more, *rest, frame(begin(), channel=1), frame(producer(), channel=1), frame(End(), channel=1)),
            *(frame(Flow(incoming_window=9, next_outgoing_id=4, outgoing_window=9, echo=True)),),
            *(frame(Detach(handle=0, closed=True)), frame(Close())),
        )
    )


HOSTILE = Hostile([*RECORDED.values(), in_pieces()])


def hostile(chance: random.Random) -> list[bytes]:
    """One of the streams, changed."""
    return HOSTILE.stream(chance)
