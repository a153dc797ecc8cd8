"""The main job under faults on other hubs: `eventhubs://` on the local server, `kafka://` on librdkafka's mock cluster.

All of it is for `make soak`. In `make test` a pipeline that is killed beside official processors is in
`test_official_fleet`; in `make peers` a real cluster is in `tests/peers`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.hub_kinds import EventHubs, HubKind, Kafka
from tests.faults.main_job import NewFleet, Scenario, played

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(params=[EventHubs, Kafka])
def hub_kind(request: pytest.FixtureRequest) -> Callable[[Path], HubKind]:
    kind: Callable[[Path], HubKind] = request.param
    return kind


@played()
def test_the_main_job(new_fleet: NewFleet, scenario: Scenario, mode: str) -> None:
    scenario(new_fleet, mode)
