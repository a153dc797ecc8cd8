"""The steps of a client's handshake follow each other, and the client is told in time that one does not come."""

from __future__ import annotations

import pytest

from leasehold.azure.handshakes import prompt


class Handler:
    """Is ready after this many steps, each of which takes this many seconds of a clock of its own."""

    def __init__(self, steps: int, seconds: float = 0.0) -> None:
        self.left, self.now, self._seconds = steps, 0.0, seconds

    def client_ready(self) -> bool:
        self.now += self._seconds
        self.left -= 1
        return self.left < 0


def test_all_steps_that_come_at_once_are_taken_in_one_question() -> None:
    handler = Handler(12)
    assert prompt(handler, lambda: 0.0).client_ready()
    assert handler.left == -1


def test_a_handler_that_is_ready_is_asked_once() -> None:
    handler = prompt(Handler(0))
    assert handler.client_ready()
    assert handler.left == -1


def test_a_step_for_which_the_service_is_waited_for_is_told_to_the_client() -> None:
    handler = Handler(1_000, seconds=0.06)
    assert not prompt(handler, lambda: handler.now).client_ready()
    assert handler.left == 999


def test_what_a_step_raises_is_the_clients() -> None:
    class Broken:
        def client_ready(self) -> bool:
            raise ConnectionError("refused")

    with pytest.raises(ConnectionError, match="refused"):
        prompt(Broken()).client_ready()
