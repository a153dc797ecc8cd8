"""Servers that the tests of stores share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def azurite() -> Iterator[object]:
    """Azurite, for all tests of a process. Each of them makes a container or a table, or a group, of its own."""
    from tests.stores.azurite import started

    server = started()
    yield server
    server.stop()
