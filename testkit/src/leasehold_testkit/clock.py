"""A clock that is moved by hand.

Owns a time that stands still until it is told otherwise, so that a test says how much time passes and none
depends on how fast it runs. Its wall time has nothing to do with its monotonic time, as in production.
"""

from __future__ import annotations

__all__ = ["ManualClock"]


class ManualClock:
    """A `Clock` that shows `monotonic` and `wall`, and goes only when `advance` is called. Safe for one thread."""

    def __init__(self, monotonic: float = 1_000.0, wall: float = 1_800_000_000.0) -> None:
        self._monotonic = monotonic
        self._wall = wall

    def wall(self) -> float:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass on both clocks."""
        if seconds < 0:
            raise ValueError(f"a monotonic clock does not go back ({seconds:g} s)")
        self._monotonic += seconds
        self._wall += seconds

    def set_wall(self, wall: float) -> None:
        """Let the wall clock jump, as a person or a time server may make it."""
        self._wall = wall
