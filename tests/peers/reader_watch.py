"""For how long the partitions of a served hub have nobody who receives them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from leasehold_testkit.emulators.event_hubs import EventHubsServer

_EVERY = 0.02


class ReaderWatch:
    """Looks, every 20 ms, which partitions have a receiver. What counts begins with the first one of each."""

    def __init__(self, server: EventHubsServer, partitions: Iterable[str]) -> None:
        self._server = server
        self._seen: dict[str, float] = {}
        self._longest = dict.fromkeys(partitions, 0.0)
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Forget what was: what counts begins now."""
        with self._lock:
            self._seen = dict.fromkeys(self._longest, time.monotonic())
            self._longest = dict.fromkeys(self._longest, 0.0)

    @property
    def longest(self) -> float:
        """The longest time that a partition was without a receiver, in seconds, one that lasts included."""
        with self._lock:
            now = time.monotonic()
            return max(max(gap, now - self._seen.get(name, now)) for name, gap in self._longest.items())

    def levels(self) -> set[int | None]:
        """The owner levels of all receivers that there are now."""
        assert self._server._shared is not None
        return set().union(*self._server._shared.receivers.levels.values())

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_EVERY):
            assert self._server._shared is not None
            received = {place[2] for place in self._server._shared.receivers.places if isinstance(place, tuple)}
            with self._lock:
                now = time.monotonic()
                for name in received & self._longest.keys():
                    self._longest[name] = max(self._longest[name], now - self._seen.get(name, now))
                    self._seen[name] = now
