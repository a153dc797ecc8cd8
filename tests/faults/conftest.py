"""The fleet of a test. A module overrides `hub_kind` to run with another hub than the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.fleet import Fleet
from tests.faults.hub_kinds import HubKind, Log


@pytest.fixture
def hub_kind() -> Callable[[Path], HubKind]:
    return Log


@pytest.fixture
def new_fleet(hub_kind: Callable[[Path], HubKind], tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    """Makes the test's fleet; the settings are those of `Fleet`."""
    made: list[Fleet] = []

    def make(**settings: Any) -> Fleet:
        made.append(Fleet(tmp_path, kind=hub_kind(tmp_path), **settings))
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()


@pytest.fixture
def fleet(request: pytest.FixtureRequest, new_fleet: Callable[..., Fleet]) -> Fleet:
    return new_fleet(mode=request.param)
