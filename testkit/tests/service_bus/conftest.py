"""The official client closes at once, and the sockets that it leaves are let go where a warning of them is expected."""

from __future__ import annotations

import pytest
from tests.azure_clients import close_at_once


@pytest.fixture(autouse=True)
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a second's wait for each link that is closed."""
    close_at_once(monkeypatch, "azure.servicebus")
