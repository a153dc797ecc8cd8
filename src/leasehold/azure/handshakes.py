"""Handshakes of Azure's clients without the pause of 50 ms that they make after each step.

To open a connection, show its token and attach a link, azure-eventhub (5.15) and azure-servicebus (7.15) ask a handler
whether it is ready, and sleep for 50 ms whenever it is not. Each answer takes one step, and there are a dozen of them.
So a question for a partition's end, for which the client opens a connection of its own, takes 0.6 s beside a service
that answers in a millisecond; so do a receiver that follows another, and the next session of a queue.

Owns how many steps a handler takes before it says that it is not ready. Promises the client's own steps in their order,
each of which waits for the service as before (up to 0.2 s), and as many of them as come within the 50 ms for which the
client would have slept. Refuses nothing: what a step raises is the client's to treat.

Concurrency: that of the client. One thread at a time works on a handler.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

_ITS_PAUSE = 0.05
"""Seconds that a client sleeps when a handler is not ready."""


def prompt(handler: Any, monotonic: Callable[[], float] = time.monotonic) -> Any:
    """The handler (an `AMQPClient` of the client's), which from now on takes its steps without a pause between them."""
    takes_a_step = handler.client_ready

    def client_ready() -> bool:
        until = monotonic() + _ITS_PAUSE
        while not takes_a_step():
            if monotonic() >= until:
                return False
        return True

    handler.client_ready = client_ready
    return handler
