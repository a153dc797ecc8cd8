"""An instance that is killed at a step of a batch, and another one that goes on, in SQLite files."""

from __future__ import annotations

import pytest

from tests.faults.dying_instance import STEPS
from tests.faults.kills import killed_once, killed_twenty_times
from tests.faults.main_job import NewFleet

pytestmark = pytest.mark.timeout(1200)


# In `make test` test_faults_postgres has a kill before the commit, and one behind it, where a batch comes again.
@pytest.mark.soak
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_each_step(new_fleet: NewFleet, step: str) -> None:
    killed_once(new_fleet, step)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("step", STEPS)
def test_killed_twenty_times_in_a_row(new_fleet: NewFleet, step: str) -> None:
    killed_twenty_times(new_fleet, step)
