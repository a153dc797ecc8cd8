"""The note that an event is to be skipped, as a value. The rules are in `sinks.beside.skipping.contract`."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.printable import printable
from leasehold.sinks.rules.fence import Lane
from leasehold.sinks.rules.rejected import Rejected


@dataclass(frozen=True, slots=True)
class SkipNote:
    """That an event is to be skipped.

    body      as the hub has it; None for an event without one, and where its entity was forgotten
    source    what else the event has, as a JSON object
    because   why it is skipped
    noted_by  who says so
    noted_at  when, in seconds since 1970; the sink sets it
    """

    hub: str
    partition: str
    sequence_number: int
    body: bytes | None
    source: str
    because: str
    noted_by: str
    noted_at: float = 0.0

    @property
    def lane(self) -> Lane:
        return self.hub, self.partition

    @property
    def event(self) -> tuple[str, str, int]:
        return self.hub, self.partition, self.sequence_number

    @property
    def reason(self) -> str:
        """Why the event is rejected, once it was skipped."""
        return f"skipped by {self.noted_by}: {self.because}"

    @property
    def said(self) -> str:
        """What is said once the event was skipped."""
        said = f"event {self.sequence_number} of partition {printable(self.partition)} was left out and set aside"
        return f"{said}: {printable(self.reason)}"

    @property
    def rejected(self) -> Rejected:
        """The event as it is set aside."""
        return Rejected(*self.event, 0, self.body, self.reason, self.source)
