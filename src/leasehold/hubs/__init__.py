"""Hubs, found by URL.

`open_hub(url)` maps the URL's scheme to a backend and imports it only then. Packages of others add
schemes through the entry point group `leasehold.hubs`: a callable `(url, base) -> hub`.
"""

from __future__ import annotations

from pathlib import Path

from leasehold.backends import file_of, load_backend, names_file
from leasehold.errors import HubUnavailable, Verdict
from leasehold.hubs.base import EVENT_COLUMNS, FirstEvent, HeldBack, Hub
from leasehold.hubs.chunks import EventChunk

__all__ = ["EVENT_COLUMNS", "EventChunk", "FirstEvent", "HeldBack", "Hub", "open_hub"]

BACKENDS = {
    "log": "leasehold.hubs.log.hub:open_log_hub",
    "eventhubs": "leasehold.hubs.event_hubs.hub:open_event_hub",
    "kafka": "leasehold.hubs.kafka.hub:open_kafka_hub",
}


def open_hub(url: str, *, base: Path | None = None) -> Hub:
    """Open the hub at `url`, which must exist: a log file, an event hub, or a topic of a Kafka cluster.

    `log:///PATH` is a file that `leasehold send` or `LogHub.create` makes. Three slashes: PATH is relative to
    `base` (default: the working directory); four: it is absolute. For `eventhubs://NAMESPACE/HUB` see
    `leasehold.hubs.event_hubs.hub`, for `kafka://HOST:PORT,HOST:PORT/TOPIC` `leasehold.hubs.kafka.options`.

    Raises `ConfigError` for a URL that cannot be read, `MissingDependency` for a driver that is not
    installed and `HubUnavailable` when there is no hub at the URL.
    """
    opener = load_backend(url, "hub", BACKENDS, "leasehold.hubs")
    folder = base or Path.cwd()
    try:
        hub: Hub = opener(url, folder)
    except HubUnavailable as error:
        if names_file(url) and not file_of(url, folder, "hub").exists():
            error.verdict = Verdict.MEND
        raise
    return hub
