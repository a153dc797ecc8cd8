"""Stories from seeds: whatever goes wrong, no rule is violated after any step.

A failing seed prints the shortest story that still fails, with its trace; `leasehold simulate --seed N` replays it.
The seeds are split over several tests, so that a failure does not hide the others and each is named by its range.
"""

from __future__ import annotations

import time

import pytest
from tests.campaigns import first

from leasehold_testkit.simulation import run, run_seed, story_of

SEEDS = 2_000
EACH = 100
SOAK_CYCLES = 1_000_000


@pytest.mark.more  # test_simulation.py beside it has shorter ones
@pytest.mark.parametrize("begin", first(6, range(0, SEEDS, EACH)))
def test_no_rule_is_violated(begin: int) -> None:
    for seed in range(begin, begin + EACH):
        if run(story_of(seed)).violation is not None:
            pytest.fail(run_seed(seed).describe(), pytrace=False)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3_600)
def test_soak(capsys: pytest.CaptureFixture[str]) -> None:
    cycles = steps = 0
    seed, began = SEEDS, time.perf_counter()
    while cycles < SOAK_CYCLES:
        report = run(story_of(seed))
        if report.violation is not None:
            pytest.fail(run_seed(seed).describe(), pytrace=False)
        cycles += report.world.cycles
        steps += report.world.scheduler.steps
        seed += 1
    seconds = time.perf_counter() - began
    with capsys.disabled():
        print(
            f"\nsoak: {seed - SEEDS:,} seeds, {cycles:,} dispatch cycles, {steps:,} steps, 0 violations "
            f"in {seconds:.0f} s ({cycles / seconds:,.0f} cycles/s)"
        )
