"""What the tests of several hubs look through."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from azure.eventhub._pyamqp.receiver import ReceiverLink


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> list[ReceiverLink]:
    """The official client's links that receive, in the order in which they are attached."""
    attached: list[ReceiverLink] = []
    attach: Callable[[ReceiverLink], None] = ReceiverLink.attach

    def noted(link: ReceiverLink) -> None:
        attached.append(link)
        attach(link)

    monkeypatch.setattr(ReceiverLink, "attach", noted)
    return attached
