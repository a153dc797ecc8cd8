"""What the last events that were looked at are called: offsets by sequence number, kept for those who ask next.

Any thread may note and ask. A forked process takes a copy: another thread of its parent may hold the lock for ever.
"""

from __future__ import annotations

import threading

MOST = 256
"""How many are kept of a partition; the oldest are forgotten."""


class KnownOffsets:
    """The offsets that one hub knows."""

    def __init__(self, offsets: dict[str, dict[int, str]] | None = None) -> None:
        self._lock = threading.Lock()
        self._known = offsets or {}

    def copy(self) -> KnownOffsets:
        """For a forked process."""
        return KnownOffsets(self._known)

    def of(self, partition: str, sequence_number: int) -> str | None:
        """The offset of an event, if it is known."""
        with self._lock:
            return self._known.get(partition, {}).get(sequence_number)

    def note(self, partition: str, sequence_number: int, offset: object) -> None:
        """Remember what an event is called, unless there is none or its offset is not told."""
        if sequence_number < 0 or offset is None:
            return
        with self._lock:
            known = self._known.setdefault(partition, {})
            known[sequence_number] = str(offset)
            if len(known) > MOST:
                del known[next(iter(known))]
