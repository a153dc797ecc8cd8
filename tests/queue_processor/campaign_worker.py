"""A processor of the campaign: python -m tests.queue_processor.campaign_worker URL FOLDER SINK NAME POLICY.

What a message's number `n` says of it: every hundredth from 7 on fails each time, every hundredth from 11 on the first
time. It goes on until it is told to stop, whatever is away.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from pathlib import Path

from leasehold.handlers.contract import EntityEvent
from leasehold.processors.queues import QueueDelivery
from tests.queue_processor.accounts import processor

FAILS, FAILS_ONCE, EVERY = 7, 11, 100
DELIVERIES = 6


def before(event: EntityEvent) -> None:
    """What the handler does first."""
    n = event.row["n"]
    if n is not None and (n % EVERY == FAILS or (n % EVERY == FAILS_ONCE and event.delivery == 1)):
        raise ValueError(f"{n} fails")


if __name__ == "__main__":
    url, folder, sink, name, policy = sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where whoever started the tests ignores it
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # says where it is, if it does not end
    delivery = QueueDelivery(
        busy=policy,
        max_deliveries=DELIVERIES,
        deduplicate_by="message_id",
        longest_pause=2.0,
    )
    processor(url, folder, name, before, sink=sink, delivery=delivery).run()
