"""The fleet of a test. A module overrides `hub_kind` to run with another hub than the log, and `databases`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.databases import Database
from tests.faults.fleet import Fleet
from tests.faults.hub_kinds import HubKind, Log

pytest.register_assert_rewrite("tests.faults.main_job", "tests.faults.kills")


@pytest.fixture
def hub_kind() -> Callable[[Path], HubKind]:
    return Log


@pytest.fixture
def databases() -> tuple[Database, Database] | None:
    """Those of the stores and of the table, where they are no files."""
    return None


@pytest.fixture
def new_fleet(
    hub_kind: Callable[[Path], HubKind], databases: tuple[Database, Database] | None, tmp_path: Path
) -> Iterator[Callable[..., Fleet]]:
    """Makes the test's fleet; the settings are those of `Fleet`."""
    made: list[Fleet] = []

    def make(**settings: Any) -> Fleet:
        made.append(Fleet(tmp_path, kind=hub_kind(tmp_path), databases=databases, **settings))
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()
