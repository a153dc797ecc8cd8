"""A picture of a run as SVG: who owned what and when, how fast, and what happened: PURE.

Owns the drawing. One file without script, without anything from elsewhere, light or dark as its reader is; all text of
others is escaped. Made of samples, so it is as exact as these are apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from leasehold.operations.colours import colours
from leasehold.printable import printable

WIDTH, LEFT, RIGHT = 900, 86, 20
LANE, GAP, RATE, TOP = 18, 4, 90, 62
_LIGHT = ("#8db8ee", "#8fd0a5", "#f2c078", "#c9a6e8", "#f0a3a3", "#86d0d2", "#d8cf7c", "#c6b1a1")
_DARK = ("#2f629f", "#2f7a4b", "#93601a", "#714b98", "#984646", "#24777a", "#756c1d", "#6f5a4b")
POINTS = 120
"""Points of the rate's line, at most."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A look at a run, `at` seconds after its start. `owners` by partition, `""` for nobody; `done` events in all.

    `dead` are owners on record that work no more.
    """

    at: float
    owners: Mapping[str, str]
    done: int
    dead: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened `at` seconds after the start."""

    at: float
    text: str


def draw(title: str, moments: Sequence[Moment], marks: Sequence[Mark] = ()) -> str:
    """The picture. `moments` in order, at least two."""
    span = max(moments[-1].at, 0.001)
    partitions = list(dict.fromkeys(partition for moment in moments for partition in moment.owners))
    names = sorted({owner for moment in moments for owner in moment.owners.values() if owner})
    known = colours({}, names)
    lanes_end = TOP + len(partitions) * (LANE + GAP)
    height = lanes_end + 24 + RATE + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{_text(title)}">',
        f"<style>{_style()}</style>",
        f'<rect width="{WIDTH}" height="{height}" class="ground"/>',
        f'<text x="{LEFT}" y="20" class="title">{_text(title)}</text>',
        *_legend(names, known),
        *_lanes(partitions, moments, known, span),
        *_rate(moments, span, lanes_end + 24),
        *_axis(span, lanes_end + 24 + RATE),
        *_marks(marks, span, lanes_end + 24 + RATE),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _style() -> str:
    light = "".join(f".o{number}{{fill:{colour}}}" for number, colour in enumerate(_LIGHT))
    dark = "".join(f".o{number}{{fill:{colour}}}" for number, colour in enumerate(_DARK))
    return (
        "text{font:12px system-ui,sans-serif;fill:#1b222c}.title{font-size:14px;font-weight:600}.soft{fill:#566172}"
        ".ground{fill:#fff}.free{fill:#e4e7ec}.dead{opacity:.35}.rate{fill:#0b57a4;opacity:.25}"
        f".line{{stroke:#566172;stroke-width:1}}.mark{{stroke:#b3261e;stroke-dasharray:4 3}}"
        f".loud{{fill:#b3261e}}{light}"
        "@media(prefers-color-scheme:dark){text{fill:#e8ecf1}.soft{fill:#a3afbf}.ground{fill:#12161c}.free{fill:#2a323d}"
        f".rate{{fill:#8cc2ff}}.line{{stroke:#a3afbf}}.mark{{stroke:#ffb4ab}}.loud{{fill:#ffb4ab}}{dark}}}"
    )


def _x(at: float, span: float) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * at / span, 1)


def _legend(names: Sequence[str], palette: Mapping[str, int]) -> Iterator[str]:
    x = LEFT
    for name in names:
        shown = printable(name)[:40]
        yield f'<rect x="{x}" y="29" width="11" height="11" rx="2" class="o{palette[name]}"/>'
        yield f'<text x="{x + 16}" y="39">{_text(shown)}</text>'
        x += 34 + 7 * len(shown)


def _lanes(
    partitions: Sequence[str], moments: Sequence[Moment], palette: Mapping[str, int], span: float
) -> Iterator[str]:
    for number, partition in enumerate(partitions):
        y = TOP + number * (LANE + GAP)
        shown = printable(partition)[:8]
        yield f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end" class="soft">partition {_text(shown)}</text>'
        yield f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - RIGHT}" height="{LANE}" class="free"/>'
        for owner, dead, since, until in _stretches(partition, moments):
            x, end = _x(since, span), _x(until, span)
            kind = f"o{palette[owner]}{' dead' if dead else ''}"
            yield f'<rect x="{x}" y="{y}" width="{round(end - x, 1)}" height="{LANE}" class="{kind}"/>'


def _stretches(partition: str, moments: Sequence[Moment]) -> Iterator[tuple[str, bool, float, float]]:
    """Owner, whether it was dead, from and to: while that stays so."""
    owner, dead, since = "", False, 0.0
    for moment in moments:
        now = moment.owners.get(partition, "")
        gone = now in moment.dead
        if (now, gone) != (owner, dead):
            if owner:
                yield owner, dead, since, moment.at
            owner, dead, since = now, gone, moment.at
    if owner:
        yield owner, dead, since, moments[-1].at


def _rate(moments: Sequence[Moment], span: float, top: int) -> Iterator[str]:
    """The rate, a mean over each of the stretches that the run is cut into."""
    step = span / min(POINTS, max(1, len(moments) // 4))
    points: list[tuple[float, float]] = [(0.0, 0.0)]
    last = moments[0]
    for moment in moments[1:]:
        if moment.at - last.at >= step or (moment is moments[-1] and moment.at > last.at):
            points.append((moment.at, (moment.done - last.done) / (moment.at - last.at)))
            last = moment
    highest = max(rate for _, rate in points) or 1.0
    line = " ".join(f"{_x(at, span)},{round(top + RATE - (RATE - 8) * rate / highest, 1)}" for at, rate in points)
    yield f'<text x="{LEFT - 8}" y="{top + 14}" text-anchor="end" class="soft">events/s</text>'
    yield f'<text x="{LEFT - 8}" y="{top + 30}" text-anchor="end">{highest:,.0f}</text>'
    bottom = top + RATE
    yield f'<polygon class="rate" points="{LEFT},{bottom} {line} {_x(points[-1][0], span)},{bottom}"/>'


def _axis(span: float, y: int) -> Iterator[str]:
    yield f'<path class="line" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>'
    step = next(each for each in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 3_600, 36_000, 360_000) if span / each <= 12)
    for number in range(int(span / step) + 1):
        x = _x(number * step, span)
        yield f'<text x="{x}" y="{y + 18}" text-anchor="middle" class="soft">{number * step} s</text>'


def _marks(marks: Sequence[Mark], span: float, bottom: int) -> Iterator[str]:
    for number, mark in enumerate(marks):
        x = _x(mark.at, span)
        anchor = "end" if x > WIDTH / 2 else "start"
        y = TOP - 8 - 13 * ((len(marks) - 1 - number) % 2)
        yield f'<path class="mark" d="M{x} {y + 3}V{bottom}"/>'
        side = -4 if anchor == "end" else 4
        yield f'<text x="{x + side}" y="{y}" text-anchor="{anchor}" class="loud">{_text(mark.text)}</text>'


def _text(text: str) -> str:
    return escape(printable(text))
