"""Azure's official clients, as tests use them: all that they do, but closed at once.

A client's thread that keeps its connection alive looks each second whether it is closed, and closing waits for it: a
second for each link, in which nothing happens. Here it looks more often.
"""

from __future__ import annotations

import importlib
import time
from typing import Any

import pytest

from tests.waiting import take

_WARNING = "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"
LEAVES_SOCKETS = pytest.mark.filterwarnings(_WARNING)
"""The official clients leave their socket to the garbage collector when they reconnect. Behind each of these tests it
is called, so that no other test meets the warning."""


def leaves_sockets(test: pytest.Item) -> bool:
    """Whether a test is marked so."""
    return any(_WARNING in mark.args for mark in test.iter_markers("filterwarnings"))


def close_at_once(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Have the clients of a package, `azure.eventhub` or `azure.servicebus`, see at once that they are closed."""
    client: Any = importlib.import_module(f"{package}._pyamqp.client").AMQPClient

    def keep_alive(self: Any) -> None:
        """As the client's own, which sleeps for a second at a time, and ends as quietly."""
        began = time.monotonic()
        try:
            while self._connection and not self._shutdown:
                if time.monotonic() - began >= self._keep_alive_interval:
                    self._connection.listen(wait=self._socket_timeout, batch=self._link.current_link_credit)
                    began = time.monotonic()
                take(0.02)
        except Exception:  # noqa: BLE001, S110  whatever it is, the thread that uses the connection meets it too
            pass

    monkeypatch.setattr(client, "_keep_alive", keep_alive)
