"""The main job's fault tests with a table in Postgres: the stores in the same database, or in one of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.faults import test_faults as in_files
from tests.faults import test_killed_at_each_step as steps
from tests.faults.databases import Database, postgres_database
from tests.faults.dying_instance import STEPS
from tests.faults.test_faults import APPEND, SLOW_APPEND, SLOW_MERGE, SLOW_UPSERT, again
from tests.stores.servers import PostgresServer, postgres_server

__all__ = ["postgres_server"]

pytestmark = pytest.mark.timeout(480)


@pytest.fixture(params=["in the same database", pytest.param("in another database", marks=pytest.mark.soak)])
def databases(request: pytest.FixtureRequest, postgres_server: PostgresServer) -> Iterator[tuple[Database, Database]]:
    with ExitStack() as stack:
        table = stack.enter_context(postgres_database(postgres_server))
        same = request.param == "in the same database"
        yield (table if same else stack.enter_context(postgres_database(postgres_server)), table)


test_killed_in_batch_0_and_later_and_replayed_by_another = again(
    in_files.test_killed_in_batch_0_and_later_and_replayed_by_another, APPEND, SLOW_UPSERT, SLOW_MERGE
)
test_paused_for_longer_than_the_expiration = again(
    in_files.test_paused_for_longer_than_the_expiration, SLOW_APPEND, SLOW_UPSERT, SLOW_MERGE
)
test_store_hub_and_database_away = again(in_files.test_store_hub_and_database_away, SLOW_APPEND, SLOW_UPSERT)
test_two_available_now_runs = again(in_files.test_two_available_now_runs, SLOW_APPEND, SLOW_UPSERT)
test_stopped_by_a_signal_to_all_of_its_processes = again(
    in_files.test_stopped_by_a_signal_to_all_of_its_processes, SLOW_APPEND
)
test_a_join_reads_no_event_twice = again(in_files.test_a_join_reads_no_event_twice, SLOW_APPEND)
test_a_poison_event_stops_nobody = again(in_files.test_a_poison_event_stops_nobody, SLOW_APPEND)
test_latest_loses_nothing_when_batch_0_is_killed = pytest.mark.soak(
    again(in_files.test_latest_loses_nothing_when_batch_0_is_killed)
)
test_killed_at_each_step = pytest.mark.soak(
    pytest.mark.parametrize("step", STEPS)(again(steps.test_killed_at_each_step))
)
test_killed_twenty_times_in_a_row = pytest.mark.soak(
    pytest.mark.timeout(3600)(pytest.mark.parametrize("step", STEPS)(again(steps.test_killed_twenty_times_in_a_row)))
)
