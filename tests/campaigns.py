"""How much of a campaign `make test` or `make more` runs: its first rounds. `make soak` runs the rest."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def first(count: int, rounds: Iterable[object]) -> list[object]:
    """The rounds as parameters of a test, all behind the first `count` of them for `make soak` alone."""
    return [one if place < count else pytest.param(one, marks=pytest.mark.soak) for place, one in enumerate(rounds)]
