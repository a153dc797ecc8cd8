"""Numbers as options have them."""

from __future__ import annotations

import math
from typing import Any

import click

from leasehold.config import is_number


class FiniteRange(click.FloatRange):
    """A `click.FloatRange` that takes neither `nan`, which to click is within any range, nor `inf`.

    With `for_ever` it takes `inf`: for as long as it takes.
    """

    def __init__(self, min: float, *, min_open: bool = False, for_ever: bool = False) -> None:
        super().__init__(min, min_open=min_open)
        self._for_ever = for_ever

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, or a usage error."""
        number: float = super().convert(value, param, ctx)
        if not is_number(number) and not (self._for_ever and number == math.inf):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number
