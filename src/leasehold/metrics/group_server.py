"""The endpoint of `leasehold metrics`: a look at each request, shared by those that come together."""

from __future__ import annotations

import json

from leasehold.listening import Address
from leasehold.metrics.exposition import CONTENT_TYPE, text_of
from leasehold.metrics.group_families import families
from leasehold.metrics.group_looks import GroupLooks
from leasehold.metrics.group_page import document
from leasehold.metrics.server import JSON, HttpServer, MetricsResponse


def serve_groups(looks: GroupLooks, address: Address, *, field: str = "listen") -> HttpServer:
    """Serve `/metrics`, and `/status` as JSON, until the server is closed. Raises `ConfigError` that names `field`."""

    def metrics() -> MetricsResponse:
        return MetricsResponse(text_of(families(looks.look())), CONTENT_TYPE)

    def status() -> MetricsResponse:
        return MetricsResponse(json.dumps([document(look) for look in looks.look()]).encode(), JSON)

    return HttpServer(address, {"/metrics": metrics, "/status": status}, field=field)
