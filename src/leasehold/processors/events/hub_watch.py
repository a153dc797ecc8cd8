"""One look at the hub for all who wait for events.

Owns the polling: while anybody waits, the ends of the partitions waited for are asked for in one request per poll
interval, however many they are; while nobody does, none. Nothing is lost by a look that fails: it is made again,
after a pause that grows.

Concurrency: one thread of its own asks the hub, under no lock. If the hub hangs there, those who wait go on waiting
and can be closed. If the process stops for a minute, it looks again a minute later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from leasehold.hubs.base import Hub
from leasehold.model import PartitionProperties
from leasehold.processors.events.delivery import DeliverySettings

Report = Callable[[BaseException, str | None], None]
"""Takes an error, and the partition that it is about, if it is about one. Never waits."""


class HubWatch:
    """Knows how far the partitions reach that somebody waits for."""

    def __init__(self, hub: Hub, settings: DeliverySettings, report: Report) -> None:
        self._hub = hub
        self._settings = settings
        self._report = report
        self._changed = threading.Condition()
        self._known: dict[str, PartitionProperties] = {}
        self._waiting: list[str] = []
        self._closed = threading.Event()
        # A daemon, since the hub may hang in it: it only looks, and has nothing to bring to an end.
        self._thread = threading.Thread(target=self._run, name="leasehold-hub-watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self, timeout: float) -> None:
        """Let all who wait go, and wait for at most `timeout` seconds for a look that is under way."""
        self._closed.set()
        self.wake()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def wake(self) -> None:
        """Let all who wait look again whether they still want to."""
        with self._changed:
            self._changed.notify_all()

    def wait_beyond(self, partition: str, position: int, given_up: Callable[[], bool]) -> PartitionProperties | None:
        """Wait until the partition has an event at or after `position`; None once `given_up`, or closed.

        Returns at once, with what it is told, where the partition ends before `position`.
        """

        def arrived() -> bool:
            known = self._known.get(partition)
            return known is not None and known.end != position

        with self._changed:
            known = self._known.get(partition)
            if known is not None and known.end < position:  # another instance may have read on since that look
                del self._known[partition]
            if not arrived():
                self._waiting.append(partition)
                self._changed.notify_all()
                try:
                    self._changed.wait_for(lambda: given_up() or self._closed.is_set() or arrived())
                finally:
                    self._waiting.remove(partition)
            return None if given_up() or self._closed.is_set() else self._known[partition]

    def _run(self) -> None:
        failures = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed.is_set())
                wanted = sorted(set(self._waiting))
            if self._closed.is_set():
                return
            try:
                known = self._hub.partition_properties(wanted)
            except Exception as error:  # noqa: BLE001 - it is reported, and those who wait depend on this thread
                failures += 1
                self._report(error, None)
                self._closed.wait(self._settings.pauses.pause(failures))
                continue
            failures = 0
            with self._changed:
                if any(self._known.get(partition) != place for partition, place in known.items()):
                    self._known |= known
                    self._changed.notify_all()
            self._closed.wait(self._settings.poll_interval)
