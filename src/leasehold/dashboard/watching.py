"""Looks at pipelines again and again, and tells whoever shows them.

Owns one thread for each pipeline, what it saw last, and the version of that. Promises that a look which fails is told
beside what was known before, and that a look begins `every` seconds after the last one, but rests as long as that took,
10 seconds at most: a slow store is not asked without a pause; and that no name or error that others write makes what is
kept grow.

The time of day says when something was seen, and nothing else: how long ago that was comes from the clock that is never
set. Where the time of day is set back, the history drops what it has of later times (`ring`).

Concurrency: the thread of a pipeline alone writes its state, in one assignment; `latest` may be read by any thread. A
thread that hangs in a store leaves its pipeline as it was, with its time, which the page shows; the others go on.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from leasehold.clock import Clock
from leasehold.dashboard.ring import DAY, Ring, sample
from leasehold.dashboard.view import PipelineLook, view
from leasehold.errors import LeaseholdError
from leasehold.operations.colours import colours
from leasehold.operations.moves import moves
from leasehold.printable import excerpt

logger = logging.getLogger(__name__)

SHOWN_MOVES = 60
_LONGEST_REST = 10.0
"""Seconds between two looks at most, however long one has waited for an answer."""
RATE_OVER = 10.0
"""Seconds over which a rate is a mean."""


class PipelineWatch:
    """What is shown of one pipeline. `look` looks once; it raises a `LeaseholdError` for what is away or refused."""

    def __init__(
        self,
        name: str,
        look: Callable[[], PipelineLook],
        ring: Ring,
        *,
        every: float,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self.name = name
        self.latest: tuple[int, dict[str, Any]] = (
            0,
            {"name": name, "at": 0, "every": every, "partitions": [], "moves": []},
        )
        """What the page shows, and its number, which rises."""
        self._look, self._ring, self._clock = look, ring, clock
        self._every, self._changed = every, changed
        self._seen = PipelineLook(0.0)
        self._before: deque[tuple[float, PipelineLook]] = deque()
        """The looks of the last seconds, each with its time by the clock for durations."""
        self._known: dict[str, int] = {}
        self._not_kept = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"leasehold-watch-{name}", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()

    def join(self, timeout: float) -> None:
        """Wait for the look at hand, at most `timeout` seconds."""
        self._thread.join(timeout)

    def history(self, seconds: int) -> dict[str, Any]:
        """The last this many seconds of it, for the page. Raises `StoreUnavailable` where the file is away."""
        samples = self._ring.samples(self.name, seconds, now=self._clock.wall())
        owners = sorted({owner for one in samples for owner, _ in one.partitions.values()})
        self._ring.close()
        index = {owner: number for number, owner in enumerate(owners)}
        return {
            "now": self._clock.wall(),
            "owners": [excerpt(owner) for owner in owners],
            "at": [one.at for one in samples],
            "partitions": [{p: [index[o], lag] for p, (o, lag) in one.partitions.items()} for one in samples],
        }

    def _run(self) -> None:
        try:
            self._remember()
            while not self._stop.is_set():
                began = self._clock.monotonic()
                try:
                    self.look_once()
                except Exception:
                    logger.exception("a look at %s failed in an unexpected way", self.name)
                took = self._clock.monotonic() - began
                self._stop.wait(max(self._every - took, min(took, _LONGEST_REST)))
        finally:
            self._ring.close()

    def _remember(self) -> None:
        """Give those who were there before this start their colours first, so that the past has some."""
        with suppress(LeaseholdError):
            past = self._ring.samples(self.name, DAY, now=self._clock.wall())
            for one in past:
                self._known = colours(self._known, sorted({owner for owner, _ in one.partitions.values()}))

    def look_once(self) -> None:
        """Look now, keep it, and tell those who show it."""
        began = self._clock.monotonic()
        try:
            seen = self._look()
        except LeaseholdError as error:
            self._show(replace(self._seen, error=str(error)))
            return
        assert seen.progress is not None
        progress = seen.progress.bounded()
        seen = replace(seen, progress=progress)
        happened = moves(
            self._seen.progress,
            progress,
            seen.at,
            elapsed=began - self._before[-1][0] if self._before else 0.0,
            expiration=seen.expiration,
        )
        self._known = colours(self._known, _owners(seen, self._seen))
        self._before.append((began, seen))
        while self._before[0][0] < began - RATE_OVER and len(self._before) > 2:
            self._before.popleft()
        self._seen = seen
        try:
            self._ring.add(self.name, sample(seen.at, progress), happened)
            self._not_kept = ""
        except LeaseholdError as error:  # the picture of the past, and not of the present
            if str(error) != self._not_kept:  # once while it stays so
                logger.warning("the history of %s is not kept: %s", self.name, error)
            self._not_kept = str(error)
        self._show(seen)

    def _show(self, seen: PipelineLook) -> None:
        earlier, seconds = None, 0.0
        if self._before:
            (first, earlier), (last, _) = self._before[0], self._before[-1]
            seconds = last - first
        try:
            past = self._ring.moves(self.name, SHOWN_MOVES)
        except LeaseholdError:
            past = []
        shown = view(self.name, seen, palette=self._known, before=earlier, seconds=seconds, history=past)
        shown["every"] = self._every
        number, former = self.latest
        if {**former, "at": 0} != {**shown, "at": 0} or abs(shown["at"] - former["at"]) > 10 * self._every:
            self.latest = number + 1, shown
            self._changed()


def _owners(*seen: PipelineLook) -> Sequence[str]:
    """All that are shown, those of the first look first: an owner that has just gone keeps its colour for a look."""
    found: list[str] = []
    for one in reversed(seen):
        if one.progress is not None:
            found += [each.owner_id for each in one.progress.instances]
            found += [row.owner for row in one.progress.partitions]
    return found
