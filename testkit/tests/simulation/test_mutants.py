"""The protocol with one guard less: the simulation catches every one of them, and finds nothing with all in place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leasehold_testkit.simulation import Story, run, story_of
from testkit.tests.simulation.mutants import MUTANTS, Mutant

FURTHER_SEEDS = range(1_000)
"""Tried where the seeds of a mutant catch it no more, because the protocol has changed; `pytest -s` names others."""


def stories(mutant: Mutant) -> Iterator[Story]:
    yield from map(story_of, mutant.seeds)
    if mutant.story:
        yield mutant.story
    else:
        yield from map(story_of, FURTHER_SEEDS)


@pytest.mark.more(but=15)
@pytest.mark.parametrize("guard", MUTANTS)
def test_a_missing_guard_is_caught(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[guard]
    make = mutant.apply(monkeypatch)
    for story in stories(mutant):
        if run(story, make).rule in mutant.rules:
            if story.seed not in mutant.seeds and mutant.story is None:
                print(f"{guard!r} is caught by seed {story.seed}")
            return
    pytest.fail(f"not caught without: {guard}")


@pytest.mark.parametrize("guard", [guard for guard, mutant in MUTANTS.items() if mutant.story])
def test_with_the_guard_nothing_is_violated(guard: str) -> None:
    story = MUTANTS[guard].story
    assert story is not None
    report = run(story)
    assert report.violation is None, report.describe()
