"""The simulation itself: it is deterministic, its traces are the shortest, its scenarios are measured and drawn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from leasehold.cli.app import app
from leasehold_testkit.simulation import Fault, FaultKind, Make, Part, Story, run, run_seed, story_of
from leasehold_testkit.simulation.drawing import draw
from leasehold_testkit.simulation.scenarios import longest_gap, measure, scenario_story
from leasehold_testkit.simulation.scheduler import Ended, Party, Scheduler
from leasehold_testkit.simulation.world import Span
from testkit.tests.simulation.missing_guards import NoFence

TRACE = """
from leasehold_testkit.simulation import run, story_of
import hashlib
for seed in range(12):
    world = run(story_of(seed)).world
    lines = [f"{at!r} {who} {what} {detail}" for at, who, what, detail in world.trace]
    print(seed, world.scheduler.steps, hashlib.sha256("\\n".join(lines).encode()).hexdigest())
"""


@pytest.mark.more
def test_a_story_gives_the_same_run_in_every_process() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", TRACE], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(runs[0].splitlines()) == 12


def test_a_failing_seed_is_told_by_its_shortest_trace() -> None:
    make = Make(sink=NoFence)
    seed = next(seed for seed in range(50) if run(story_of(seed), make).violation)
    whole, report = run(story_of(seed), make), run_seed(seed, make)
    assert report.rule is whole.rule
    assert len(report.story.faults) <= len(whole.story.faults)
    assert all(
        run(shorter, make).rule is not report.rule
        for shorter in [
            Story(**{**{name: getattr(report.story, name) for name in Story.__slots__}, "faults": faults})
            for faults in (
                report.story.faults[:place] + report.story.faults[place + 1 :]
                for place in range(len(report.story.faults))
            )
        ]
    )
    text = report.describe()
    assert f"leasehold simulate --seed {seed}" in text
    assert "VIOLATION in step" in text


def test_a_step_is_not_interrupted_and_waits_interleave() -> None:
    scheduler, seen = Scheduler(), []

    def activity(name: str, pause: float) -> None:
        for number in range(3):
            seen.append((name, number))
            scheduler.wait_until(scheduler.now + pause)

    scheduler.start_at(0.0, Party("a"), lambda: activity("a", 2.0))
    scheduler.start_at(0.5, Party("b"), lambda: activity("b", 1.0))
    scheduler.run()
    assert seen == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("b", 2), ("a", 2)]


def test_the_dead_are_unwound_and_the_paused_wait() -> None:
    scheduler = Scheduler()
    seen: list[tuple[str, object]] = []
    dying, paused = Party("dying"), Party("paused")

    def activity(party: Party) -> None:
        try:
            scheduler.wait_until(5.0)
            seen.append((party.name, scheduler.now))
        except Ended:
            seen.append((party.name, "unwound"))
            raise

    scheduler.start_at(0.0, dying, lambda: activity(dying))
    scheduler.start_at(0.0, paused, lambda: activity(paused))
    scheduler.call_at(1.0, lambda: setattr(dying, "dead", True))
    scheduler.call_at(1.0, lambda: setattr(paused, "paused_until", 9.0))
    scheduler.run()
    assert seen == [("dying", "unwound"), ("paused", 9.0)]


def test_what_a_step_raises_ends_the_run() -> None:
    scheduler = Scheduler()
    scheduler.start_at(0.0, Party("a"), lambda: scheduler.wait_until(100.0))
    scheduler.call_at(1.0, lambda: [][0])
    with pytest.raises(IndexError):
        scheduler.run()


@pytest.mark.more(but=2)
@pytest.mark.parametrize(
    ("scenario", "partitions", "processors", "moves"),
    [
        ("cold-start", 32, 8, 0),
        ("all-join", 32, 8, 28),
        ("join", 32, 5, 6),
        ("all-join", 32, 32, 31),
        ("leave", 32, 8, 4),
    ],
)
def test_planned_moves_the_fewest_within_two_cycles(
    scenario: str, partitions: int, processors: int, moves: int
) -> None:
    story = scenario_story(scenario, partitions=partitions, processors=processors, strategy="planned", seed=7)
    figures = measure(story).figures
    assert (figures.moves, figures.fewest_moves) == (moves, moves)
    assert figures.cycles_to_balance <= 2
    assert figures.read_twice == 0
    assert figures.balanced
    assert figures.requests_a_cycle == pytest.approx(2, abs=0.05), "one listing and one batched renewal"


def test_a_cold_start_takes_no_longer_on_a_hub_with_many_partitions() -> None:
    story = scenario_story("cold-start", partitions=600, processors=3, strategy="planned", seed=1)
    assert measure(story).figures.without_owner < 3


def test_an_outage_of_the_store_moves_nothing() -> None:
    story = scenario_story("store-outage", partitions=16, processors=4, strategy="planned", seed=3)
    assert measure(story).figures.moves == 0


def test_a_gap_is_from_the_end_of_trust_to_the_next() -> None:
    history = [
        Span("0", "a", 1.0, 10.0),
        Span("1", "a", 1.0, 12.0),
        Span("0", "b", 13.0, 20.0),
        Span("1", "b", 11.0, 20.0),
    ]
    assert longest_gap(history, 5.0) == 3.0


def test_a_drawing_can_be_read_out() -> None:
    history = [Span("0", "a<b", 0.0, 10.0), Span("1", "c", 2.0, 30.0)]
    picture = ElementTree.fromstring(draw(history, "Who & what", "two owners", 30.0))  # noqa: S314  # our own
    space = "{http://www.w3.org/2000/svg}"
    assert picture.get("role") == "img"
    assert picture.findtext(f"{space}title") == "Who & what"
    assert picture.findtext(f"{space}desc") == "two owners"
    texts = [text.text for text in picture.iter(f"{space}text")]
    assert {"a<b", "c", "0", "1", "0 s"} <= set(texts)
    bars = [bar.findtext(f"{space}title") for bar in picture.iter(f"{space}rect") if bar.findtext(f"{space}title")]
    assert bars == ["partition 0: a<b, 0.0 s to 10.0 s", "partition 1: c, 2.0 s to 30.0 s"]


def test_the_command_measures_and_draws(tmp_path: Path) -> None:
    svg = tmp_path / "join.svg"
    arguments = [
        "simulate",
        "--scenario",
        "join",
        "--partitions",
        "6",
        "--processors",
        "3",
        "--svg",
        str(svg),
        "--json",
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout.splitlines()[0])
    assert document["scenarios"][0]["moves"] == document["scenarios"][0]["fewestMoves"] == 2
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")  # noqa: S314  # our own


def test_the_command_replays_a_seed() -> None:
    result = CliRunner().invoke(app, ["simulate", "--seed", "5"])
    assert result.exit_code == 0
    assert "seed 5: no violation" in result.stdout


def test_the_command_fails_with_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    from leasehold.ownership.holds import Holds

    monkeypatch.setattr(Holds, "trusted", lambda self: dict(self._holds))
    result = CliRunner().invoke(app, ["simulate", "--seed", "50"])
    assert result.exit_code == 1
    assert "two trusted owners" in result.stderr
    assert "leasehold simulate --seed 50" in result.stderr


def test_the_command_wants_to_know_what() -> None:
    assert CliRunner().invoke(app, ["simulate"]).exit_code == 2


def test_nobody_needs_a_second_instance() -> None:
    report = run(Story(seed=0, partitions=3, parts=(Part(name="a"),), ends_at=20.0))
    assert report.violation is None
    assert report.world.judge.moves == 0


def test_two_incarnations_of_a_name_that_both_live_come_to_rest() -> None:
    """The first is paused, its successor takes over, and then it goes on. They must not take each other for dead."""
    for seed in range(5):
        usurped = Fault(at=16.0, kind=FaultKind.USURP, who="a", seconds=35.0)
        report = run(Story(seed=seed, partitions=4, parts=(Part(name="a"), Part(name="b")), faults=(usurped,)))
        assert report.violation is None, report.describe()
        assert sorted(len(one.held()) for one in report.world.alive()) == [1, 1, 2]


def test_a_seed_takes_no_option_of_a_scenario() -> None:
    for option, value in (("--processors", "3"), ("--partitions", "32"), ("--strategy", "planned")):
        result = CliRunner().invoke(app, ["simulate", "--seed", "5", option, value])
        assert result.exit_code == 2
        assert f"{option} belong to --scenario" in result.stderr


@pytest.mark.parametrize(("scenario", "why"), [("join", "one of them joins"), ("leave", "one of them leaves")])
def test_one_processor_neither_joins_nor_leaves_a_fleet(scenario: str, why: str) -> None:
    result = CliRunner().invoke(app, ["simulate", "--scenario", scenario, "--processors", "1"])
    assert result.exit_code == 2
    assert f"--processors 2 or more: {why}" in result.stderr


@pytest.mark.parametrize("words", [("--seed", "5"), ("--scenario", "join", "--partitions", "4", "--processors", "2")])
def test_a_drawing_that_cannot_be_written_is_an_error_that_was_foreseen(tmp_path: Path, words: tuple[str, ...]) -> None:
    for where, why in ((tmp_path / "missing" / "a.svg", "there is no folder"), (tmp_path, "cannot be written")):
        result = CliRunner().invoke(app, ["simulate", *words, "--svg", str(where)])
        assert result.exit_code == 1
        assert f"leasehold: --svg = '{where}': {why}" in result.stderr
        assert "foreseen" not in result.stderr
