"""Servers for the tests of stores."""

from __future__ import annotations

from tests.stores.azurite import azurite
from tests.stores.servers import postgres_server, redis_server

__all__ = ["azurite", "postgres_server", "redis_server"]
