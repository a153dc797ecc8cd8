"""The main job's fault tests with `eventhubs://`, on the local server and the official client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import test_faults as log
from tests.faults.hub_kinds import EventHubs, HubKind
from tests.faults.test_faults import SLOW_APPEND, SLOW_MERGE, SLOW_UPSERT, again

pytestmark = pytest.mark.timeout(480)


@pytest.fixture
def hub_kind() -> Callable[[Path], HubKind]:
    return EventHubs


# All of them are campaigns: a pipeline that is killed beside official processors is in `test_official_fleet`.
test_killed_in_batch_0_and_later_and_replayed_by_another = again(
    log.test_killed_in_batch_0_and_later_and_replayed_by_another, SLOW_APPEND, SLOW_UPSERT, SLOW_MERGE
)
test_paused_for_longer_than_the_expiration = again(
    log.test_paused_for_longer_than_the_expiration, SLOW_APPEND, SLOW_UPSERT
)
test_store_hub_and_database_away = again(log.test_store_hub_and_database_away, SLOW_APPEND, SLOW_UPSERT)
test_two_available_now_runs = again(log.test_two_available_now_runs, SLOW_APPEND, SLOW_UPSERT)
test_stopped_by_a_signal_to_all_of_its_processes = again(
    log.test_stopped_by_a_signal_to_all_of_its_processes, SLOW_APPEND
)
test_a_join_reads_no_event_twice = again(log.test_a_join_reads_no_event_twice, SLOW_APPEND)
test_a_poison_event_stops_nobody = again(log.test_a_poison_event_stops_nobody, SLOW_APPEND)
test_latest_loses_nothing_when_batch_0_is_killed = pytest.mark.soak(
    again(log.test_latest_loses_nothing_when_batch_0_is_killed)
)
