"""Queues, found by URL.

`open_queue(url)` maps the URL's scheme to a backend and imports it only then. Packages of others add schemes through
the entry point group `leasehold.queues`: a callable `(url, base) -> queue`.
"""

from __future__ import annotations

from pathlib import Path

from leasehold.backends import load_backend
from leasehold.queues.base import NewMessage, Queue, QueueMessage

__all__ = ["NewMessage", "Queue", "QueueMessage", "open_queue"]

BACKENDS = {"servicebus": "leasehold.queues.service_bus.queue:open_service_bus_queue"}


def open_queue(url: str, *, base: Path | None = None) -> Queue:
    """Open the queue at `url`, which must exist: `servicebus://NAMESPACE/QUEUE`, or a subscription as
    `servicebus://NAMESPACE/TOPIC/subscriptions/NAME`.

    `base` is the folder that a backend of others may need for its files (default: the working directory). Raises
    `ConfigError` for a URL that cannot be read and `MissingDependency` for a driver that is not installed. Whether
    there is such a queue shows when it is used: then `QueueUnavailable`.
    """
    opener = load_backend(url, "queue", BACKENDS, "leasehold.queues")
    queue: Queue = opener(url, base or Path.cwd())
    return queue
