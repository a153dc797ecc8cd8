"""Servers for the tests of stores."""

from __future__ import annotations

from tests.stores.servers import postgres_server, redis_server

__all__ = ["postgres_server", "redis_server"]
