"""Hubs, found by URL.

`open_hub(url)` maps the URL's scheme to a backend and imports it only then. Packages of others add
schemes through the entry point group `leasehold.hubs`: a callable `(url, base) -> hub`.
"""

from __future__ import annotations

from pathlib import Path

from leasehold.backends import load_backend
from leasehold.hubs.base import EVENT_COLUMNS, Hub

__all__ = ["BACKENDS", "EVENT_COLUMNS", "Hub", "open_hub"]

BACKENDS = {
    "log": "leasehold.hubs.log:open_log_hub",
    "eventhubs": "leasehold.hubs.event_hubs:open_event_hub",
}


def open_hub(url: str, *, base: Path | None = None) -> Hub:
    """Open the hub at `url`: `log:///PATH` or `eventhubs://NAMESPACE/HUB`. It must exist.

    `log:///PATH` is a file that `leasehold send` or `LogHub.create` makes. Three slashes: PATH is relative to
    `base` (default: the working directory); four: it is absolute. For event hubs see `leasehold.hubs.event_hubs`.
    Raises `ConfigError` for a URL that cannot be read, `MissingDependency` for a driver that is not
    installed and `HubUnavailable` when there is no hub at the URL.
    """
    opener = load_backend(url, "hub", BACKENDS, "leasehold.hubs")
    hub: Hub = opener(url, base or Path.cwd())
    return hub
