"""The main job under faults with a table in Postgres: the stores in the same database, or in one of their own.

`away` takes the server away, so it is one of the module's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.faults import main_job
from tests.faults.databases import Database, postgres_database
from tests.faults.dying_instance import STEPS
from tests.faults.kills import killed_once, killed_twenty_times
from tests.faults.main_job import NewFleet, Scenario, played
from tests.stores.servers import PostgresServer

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(params=["in the same database", pytest.param("in another database", marks=pytest.mark.soak)])
def databases(request: pytest.FixtureRequest, own_postgres: PostgresServer) -> Iterator[tuple[Database, Database]]:
    with ExitStack() as stack:
        table = stack.enter_context(postgres_database(own_postgres))
        same = request.param == "in the same database"
        yield (table if same else stack.enter_context(postgres_database(own_postgres)), table)


@pytest.mark.more  # tests/sinks/test_postgres_writers.py kills writers
@played((main_job.killed_in_batch_0_and_later_and_replayed_by_another, "append"))
def test_the_main_job(new_fleet: NewFleet, scenario: Scenario, mode: str) -> None:
    scenario(new_fleet, mode)


@pytest.mark.soak
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_each_step(new_fleet: NewFleet, step: str) -> None:
    killed_once(new_fleet, step)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("step", STEPS)
def test_killed_twenty_times_in_a_row(new_fleet: NewFleet, step: str) -> None:
    killed_twenty_times(new_fleet, step)
