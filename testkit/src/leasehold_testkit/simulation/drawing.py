"""Who held which partition when, as an SVG: a lane for each partition, time to the right, a colour for each owner.

Text is text, so that it can be read out and searched; every bar says on hovering what it is. No owner, no colour.
"""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from html import escape

from leasehold_testkit.simulation.world import Span

WIDTH, LEFT, RIGHT, TOP = 1_100, 90, 20, 64
LEGEND_COLUMN = 170
AXIS = 44


def draw(history: Sequence[Span], title: str, description: str, ended: float) -> str:
    """The picture as text. `ended` is when the last of it ends, in seconds."""
    partitions = sorted({span.partition for span in history}, key=lambda name: (len(name), name))
    owners = sorted({span.owner for span in history})
    colours = {owner: _colour(number, len(owners)) for number, owner in enumerate(owners)}
    lane = 18 if len(partitions) <= 40 else max(1.5, 720 / len(partitions))
    bottom = TOP + lane * len(partitions)
    columns = max(1, (WIDTH - LEFT - RIGHT) // LEGEND_COLUMN)
    height = bottom + AXIS + 20 * -(-len(owners) // columns) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
        f'height="{height:.0f}" role="img" aria-labelledby="title description" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#222">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="description">{escape(description)}</desc>',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{LEFT}" y="26" font-size="17" font-weight="600">{escape(title)}</text>',
        f'<text x="{LEFT}" y="46" fill="#555">{escape(description)}</text>',
    ]
    step = (WIDTH - LEFT - RIGHT) / max(ended, 1e-9)
    parts += _axis(ended, step, bottom)
    parts += _lanes(partitions, lane)
    place = {partition: TOP + number * lane for number, partition in enumerate(partitions)}
    for span in history:
        x, width = LEFT + span.start * step, max(0.4, (span.end - span.start) * step)
        words = f"partition {span.partition}: {span.owner}, {span.start:.1f} s to {span.end:.1f} s"
        parts.append(
            f'<rect x="{x:.1f}" y="{place[span.partition] + lane * 0.06:.1f}" width="{width:.1f}" '
            f'height="{lane * 0.88:.1f}" fill="{colours[span.owner]}"><title>{escape(words)}</title></rect>'
        )
    for number, owner in enumerate(owners):
        x, y = LEFT + LEGEND_COLUMN * (number % columns), bottom + AXIS + 20 * (number // columns)
        parts.append(f'<rect x="{x}" y="{y:.0f}" width="12" height="12" fill="{colours[owner]}"/>')
        parts.append(f'<text x="{x + 18}" y="{y + 10.5:.1f}">{escape(owner)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _axis(ended: float, step: float, bottom: float) -> list[str]:
    """A line and a number for every this many seconds."""
    apart = next((gap for gap in (5, 10, 20, 30, 60, 120, 300, 600) if ended / gap <= 14), 1_200)
    parts = []
    for seconds in range(0, int(ended) + 1, apart):
        x = LEFT + seconds * step
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom + 5:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 20:.1f}" text-anchor="middle" fill="#555">{seconds} s</text>')
    return parts


def _lanes(partitions: Sequence[str], lane: float) -> list[str]:
    """The names at the left, as many as can be read."""
    every = max(1, -(-13 // int(max(lane, 1))))
    return [
        f'<text x="{LEFT - 8}" y="{TOP + number * lane + min(lane, 13) * 0.8 + max(0, lane - 13) / 2:.1f}" '
        f'text-anchor="end" fill="#555">{escape(partition)}</text>'
        for number, partition in enumerate(partitions)
        if number % every == 0
    ]


def _colour(number: int, count: int) -> str:
    """Hues around the circle, every other one darker, so that neighbours differ also in grey."""
    hue = number / max(1, count)
    red, green, blue = colorsys.hls_to_rgb(hue, 0.42 if number % 2 else 0.62, 0.62)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"
