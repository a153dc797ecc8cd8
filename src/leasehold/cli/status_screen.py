"""`leasehold status --watch` on a terminal: the table again and again, with lags over time and moves below it.

Owns the screen. What has moved and who has which colour is found out by `leasehold.dashboard`, as for the page. Colours
are the terminal's own sixteen, and the name stands beside each.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table as RichTable
from rich.text import Text

from leasehold.cli.output import Column, Result
from leasehold.errors import LeaseholdError
from leasehold.model import owner_name
from leasehold.operations.colours import colours
from leasehold.operations.moves import Move, MoveKind, moves
from leasehold.operations.progress import GroupProgress
from leasehold.printable import printable, printable_lines

KEPT = 30
SHOWN_MOVES = 10
_STYLES = ("blue", "green", "yellow", "magenta", "cyan", "bright_blue", "bright_green", "bright_magenta")
_LOUD = (MoveKind.TAKEN_OVER, MoveKind.STOLEN, MoveKind.EXPIRED, MoveKind.SUSPECTED, MoveKind.LEFT)
_BARS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Looked:
    """One look: `result` is what `leasehold status` says of it.

    `at` in seconds since the epoch, `moment` the same by the clock for durations, which nobody sets.
    """

    at: float
    moment: float
    progress: GroupProgress
    result: Result
    expiration: float


@dataclass
class Screen:
    """What is on the screen, look after look."""

    last: Looked | None = None
    error: str = ""
    happened: deque[Move] = field(default_factory=lambda: deque(maxlen=SHOWN_MOVES))
    lags: dict[str, deque[int]] = field(default_factory=dict)
    known: Mapping[str, int] = field(default_factory=dict)

    def add(self, looked: Looked) -> None:
        """Take in a look. Names and errors of others are cut, as moves are told of them."""
        looked = replace(looked, progress=looked.progress.bounded())
        before, now = self.last, looked.progress
        if before is not None:
            elapsed = looked.moment - before.moment
            found = moves(before.progress, now, looked.at, elapsed=elapsed, expiration=looked.expiration)
            self.happened.extendleft(reversed(found))
        self.known = colours(self.known, [one.owner_id for one in now.instances] + [r.owner for r in now.partitions])
        for row in now.partitions:
            self.lags.setdefault(row.partition, deque(maxlen=KEPT)).append(row.lag)
        self.last, self.error = looked, ""

    def drawn(self) -> RenderableType:
        """What there is to be seen."""
        if self.last is None:
            return Text(printable(self.error) or "looking …")
        summary = printable_lines(self.last.result.summary).split("\n")
        parts: list[RenderableType] = [self._table(self.last), Text(), *map(Text, summary)]
        if self.error:
            when = time.strftime("%H:%M:%S", time.localtime(self.last.at))
            parts.append(Text(f"nothing newer than {when} is known: {printable(self.error)}", style="bold red"))
        parts.append(Text())
        parts += [_sentence(one) for one in self.happened] or [Text("no moves yet", style="dim")]
        return Group(*parts)

    def _table(self, looked: Looked) -> RichTable:
        of = looked.result.table
        assert of is not None
        drawn = RichTable(box=None, pad_edge=False, header_style="bold", show_edge=False)
        for column in of.columns:
            drawn.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
            if column.key == "lag":
                drawn.add_column("Lag over time", no_wrap=True)
        highest = max((lag for lags in self.lags.values() for lag in lags), default=0)
        for row, values in zip(looked.progress.partitions, of.rows, strict=True):
            drawn.add_row(*self._cells(row.partition, row.owner, zip(of.columns, values, strict=True), highest))
        return drawn

    def _cells(
        self, partition: str, owner: str, values: Iterator[tuple[Column, object]], highest: int
    ) -> Iterator[Text]:
        style = _STYLES[self.known[owner]] if owner in self.known else ""
        for column, value in values:
            yield Text(column.cell(value), style=style if column.key == "owner" else "")
            if column.key == "lag":
                yield Text(bars(self.lags[partition], highest), style=style)


def bars(lags: deque[int], highest: int) -> str:
    """These lags as blocks of eight heights; what is not 0 is seen."""
    return "".join(_BARS[0 if not lag else max(1, round(8 * lag / highest))] for lag in lags)


def _sentence(move: Move) -> Text:
    said = Text(time.strftime("%H:%M:%S  ", time.localtime(move.at)), style="dim")
    what = f"partition {move.partition} {move.kind}" if move.partition else f"{owner_name(move.owner)} {move.kind}"
    said.append(printable(what), style="bold red" if move.kind in _LOUD else "bold")
    by = owner_name(move.owner or move.before)
    if move.partition and by:
        said.append(printable(f" by {by}"), style="not dim")
    if move.owner and move.before and move.before != move.owner:
        said.append(printable(f" from {owner_name(move.before)}"), style="not dim")
    if move.reason:
        said.append(printable(f": {move.reason}"))
    return said


def watch(console: Console, look: Callable[[], Looked], every: float, *, sleep: Callable[[float], object]) -> None:
    """Look every this many seconds and show it, until Ctrl-C. What is away is told, and looked for again."""
    screen = Screen()
    with Live(console=console, auto_refresh=False, screen=True, vertical_overflow="crop") as live:
        while True:
            try:
                screen.add(look())
            except LeaseholdError as error:
                screen.error = str(error)
            live.update(screen.drawn(), refresh=True)
            sleep(every)
