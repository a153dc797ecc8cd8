"""The clock of one machine of the simulation."""

from __future__ import annotations

from leasehold_testkit.simulation.scheduler import Scheduler


class MachineClock:
    """The clock of one machine: another start and another rate than true time has."""

    def __init__(self, scheduler: Scheduler, rate: float = 1.0, start: float = 0.0) -> None:
        self._scheduler = scheduler
        self.rate = rate
        self.start = start

    def wall(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        return self.start + self.rate * self._scheduler.now

    def true_time(self, monotonic: float) -> float:
        """When this clock shows that."""
        return (monotonic - self.start) / self.rate
