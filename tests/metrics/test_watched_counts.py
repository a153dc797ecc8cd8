"""How often a table is counted while somebody watches."""

from __future__ import annotations

from leasehold.operations.group_watch import WatchedCount
from leasehold_testkit.clock import ManualClock


def test_one_count_that_waited_for_a_database_does_not_put_the_next_one_off_for_long() -> None:
    """A count takes a second, and once a minute more, while the database hangs."""
    clock, takes = ManualClock(), iter([1.0, 61.0, 1.0, 3.0, 3.0])
    counted: list[float] = []

    def count() -> int:
        counted.append(clock.monotonic())
        clock.advance(next(takes))
        return len(counted)

    watched = WatchedCount("p", "what it holds", count, clock)
    began = clock.monotonic()
    while len(counted) < 5:
        assert watched.latest() == len(counted)
        clock.advance(1.0)
    ended = [at + took for at, took in zip(counted, (1.0, 61.0, 1.0, 3.0), strict=False)]
    pauses = [round(after - before) for before, after in zip(ended, counted[1:], strict=False)]
    assert (counted[0], pauses) == (began, [20, 20, 20, 20])
