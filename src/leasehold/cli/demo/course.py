"""How the two instances of the demo come along: when to kill one, when it is taken over, and the picture of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from leasehold.operations.picture import Mark, Moment, draw
from leasehold.operations.progress import PartitionProgress

BEFORE = 2.0
"""Seconds that a picture shows of what came before the first event."""


@dataclass
class Course:
    """How the two instances have come along. Times are of the monotonic clock, in seconds."""

    events: int
    done: int = 0
    began: float = 0.0
    killed: float | None = None
    takeover: float | None = None
    _owners: dict[str, str] = field(default_factory=dict)
    _victims: frozenset[str] = frozenset()
    _seen: list[tuple[float, dict[str, str], int]] = field(default_factory=list)

    def note(self, rows: Sequence[PartitionProgress], now: float) -> None:
        """Take in what the stores say now."""
        self.done = sum((row.checkpoint or row.begin) - row.begin for row in rows)
        self._owners = {row.partition: row.owner.partition("/")[0] for row in rows if row.owner}
        if not self.done:
            self.began = now
        if self._owners or self._seen:
            self._seen.append((now, {row.partition: self._owners.get(row.partition, "") for row in rows}, self.done))
        if self.killed is None:
            self._victims = frozenset(p for p, owner in self._owners.items() if owner == "blue")
        elif self.takeover is None and all(self._owners.get(partition) == "green" for partition in self._victims):
            self.takeover = now - self.killed

    @property
    def may_kill(self) -> bool:
        """Whether blue has something to lose and half the work is done."""
        both = {"blue", "green"} <= set(self._owners.values())
        return self.killed is None and both and 2 * self.done >= self.events

    def describe(self) -> str:
        """The kill and the takeover, for people."""
        if self.killed is None:
            return ""
        count = len(self._victims)
        if self.takeover is None:
            return f"blue was killed with SIGKILL; its {count} partitions wait to be taken over"
        return f"blue was killed with SIGKILL; green took its {count} partitions over after {self.takeover:.1f} s"

    def picture(self) -> str:
        """What was seen, from a moment before the first event on, as SVG."""
        start = max(self._seen[0][0], self.began - BEFORE)
        killed = self.killed
        moments = [
            Moment(at - start, owners, done, frozenset({"blue"} if killed is not None and at > killed else ()))
            for at, owners, done in self._seen
            if at >= start
        ]
        marks = []
        if killed is not None:
            marks.append(Mark(killed - start, "blue is killed"))
            if self.takeover is not None:
                marks.append(Mark(killed + self.takeover - start, f"green took over, {self.takeover:.1f} s later"))
        return draw(f"{self.events:,} events, two Spark applications, one is killed", moments, marks)
