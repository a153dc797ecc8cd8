"""Time, as an argument.

Owns the two clocks and keeps them apart: `wall()` is for people and for timestamps in events,
`monotonic()` for durations on this machine. They are never compared with each other, and neither is
compared with another machine's. `monotonic()` counts the time a machine was suspended where the system
can tell, so that a laptop that wakes up does not trust the partitions it held when it fell asleep.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

__all__ = [
    "Clock",
    "SystemClock",
]


class Clock(Protocol):
    """What every part that needs the time is given."""

    def wall(self) -> float:
        """Seconds since the Unix epoch. May jump in both directions."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start, the same for all processes of this boot. Never goes back."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)
"""Of systems that can tell."""


UNKNOWN_BOOT = "this-host"
"""What `boot_id` says where the system has no boot id."""


def boot_id() -> str:
    """A text that is the same for all processes of one boot of this machine, and new after a reboot.

    Together with `SystemClock.monotonic` it makes a clock that all processes of one host share. Where the
    system has no boot id, the text is constant and a reboot is noticed by the clock having gone back.
    """
    source = Path("/proc/sys/kernel/random/boot_id")
    return source.read_text().strip() if source.exists() else UNKNOWN_BOOT
