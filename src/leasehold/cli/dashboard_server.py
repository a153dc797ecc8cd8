"""The server of `leasehold dashboard`: it answers until a signal ends it.

Owns how uvicorn is set: it says nothing that anybody's request could cause, and reads requests of a bounded size.
"""

from __future__ import annotations

import socket

import uvicorn

from leasehold.dashboard.connections import BoundedHttp
from leasehold.dashboard.server import Dashboard


def serve(served: Dashboard, listening: socket.socket) -> None:
    """Answer at the socket until SIGINT or SIGTERM. Streams end first, since the server waits for them."""

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: object) -> None:
            served.end()
            super().handle_exit(sig, frame)  # type: ignore[arg-type]

    config = uvicorn.Config(
        served.app,
        log_config=None,
        log_level="error",  # below it are lines that anybody can cause, among them advice to install something
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
        http=BoundedHttp,
        ws="none",
    )
    Server(config).run(sockets=[listening])
