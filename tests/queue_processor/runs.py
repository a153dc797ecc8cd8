"""Runs of a processor in a thread of the test, and messages for it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from leasehold.processors.queues import QueueProcessor

QUICK: dict[str, Any] = {"first_pause": 0.01, "longest_pause": 0.05, "workers": 3}


@contextmanager
def running(made: QueueProcessor) -> Iterator[QueueProcessor]:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            made.run()
        except BaseException as error:  # noqa: BLE001  raised below
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield made
    finally:
        made.stop()
        thread.join()
    if raised:
        raise raised[0]


def bodies(*numbers: int, account: str = "a") -> list[str]:
    return [json.dumps({"account": account, "n": n}) for n in numbers]
