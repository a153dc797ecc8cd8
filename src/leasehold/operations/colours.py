"""Which instance is shown in which colour. PURE.

A colour is a number from 0 to 7. An instance keeps its colour as long as it is shown, and instances that are there at
once have different ones, as far as there are enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

COLOURS = 8


REMEMBERED = 200
"""Owners that are gone and keep their colour, for what is shown of the past."""


def colours(palette: Mapping[str, int], owners: Iterable[str]) -> dict[str, int]:
    """The colours of `owners`, those that are here now, and of the latest of the others in `palette`.

    A new one gets the colour that fewest of those who are here have, and of these the one that fewest had.
    """
    here = [owner for owner in dict.fromkeys(owners) if owner]
    found = {owner: colour for owner, colour in palette.items() if owner not in here}
    found = dict(list(found.items())[-REMEMBERED:]) | {owner: palette[owner] for owner in here if owner in palette}
    for owner in here:
        if owner not in found:
            shown, ever = [found[one] for one in here if one in found], list(found.values())
            found[owner] = min(range(COLOURS), key=lambda colour: (shown.count(colour), ever.count(colour), colour))
    return found
