"""The main job with real processes that are killed, paused and cut off, on a log and in SQLite files.

Two runs with AvailableNow are in `make test` without processes: tests/spark/test_runs_of_files.py.
"""

from __future__ import annotations

import pytest

from tests.faults import main_job
from tests.faults.main_job import NewFleet, Scenario, played

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.more  # tests/spark/test_handlers_in_programs.py kills one of two
@played(
    (main_job.paused_for_longer_than_the_expiration, "upsert"),
    (main_job.hub_and_table_away, "append"),
    (main_job.a_join_reads_no_event_twice_and_a_signal_to_all_processes_ends_in_order, "append"),
)
def test_the_main_job(new_fleet: NewFleet, scenario: Scenario, mode: str) -> None:
    scenario(new_fleet, mode)
