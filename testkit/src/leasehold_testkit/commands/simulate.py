"""`leasehold simulate`: a seed of the simulation replayed, or a scenario measured and drawn."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from leasehold.cli.output import Column, Output, Result, ResultTable, output_option
from leasehold.config import STRATEGY_NAMES
from leasehold.errors import ConfigError, LeaseholdError

SCENARIOS = ("cold-start", "join", "leave", "rolling-restart", "store-outage")
_OF_SCENARIOS = ("partitions", "processors", "strategy")
_NEED_TWO = {"join": "one of them joins", "leave": "one of them leaves"}


class SimulationFailed(LeaseholdError):
    """A rule was violated in a simulation: the message is its shortest trace."""


def _seconds(value: float) -> str:
    return f"{value:.1f} s"


COLUMNS = (
    Column("scenario", "Scenario"),
    Column("strategy", "Strategy"),
    Column("partitions", "Partitions", right=True),
    Column("processors", "Processors", right=True),
    Column("cyclesToBalance", "Cycles to balance", right=True, text=lambda value: f"{value:.2f}"),
    Column("moves", "Moves", right=True),
    Column("fewestMoves", "At least", right=True),
    Column("lostClaims", "Lost claims", right=True),
    Column("requestsPerCycle", "Requests a cycle", right=True, text=lambda value: f"{value:.2f}"),
    Column("eventsReadTwice", "Events read twice", right=True),
    Column("longestWithoutOwner", "Longest without owner", right=True, text=_seconds),
    Column("balanced", "Balanced"),
)


@click.command(short_help="Simulate a fleet: replay a seed, or measure and draw a scenario.")
@click.option("--seed", type=click.IntRange(min=0), default=None, help="Replay the story of this seed.")
@click.option("--entities", is_flag=True, help="Replay the seed's story of handlers and their entities.")
@click.option("--scenario", type=click.Choice(SCENARIOS), help="What happens to the fleet.")
@click.option("--partitions", type=click.IntRange(1, 4_096), default=32, show_default=True, help="How many partitions.")
@click.option("--processors", type=click.IntRange(1, 512), default=8, show_default=True, help="How many instances.")
@click.option(
    "--strategy", type=click.Choice(STRATEGY_NAMES), default="planned", show_default=True, help="How they balance."
)
@click.option("--svg", type=click.Path(path_type=Path), help="Draw who owned what over time into this file.")
@output_option
@click.pass_context
def simulate(
    ctx: click.Context,
    seed: int | None,
    entities: bool,
    scenario: str | None,
    partitions: int,
    processors: int,
    strategy: str,
    svg: Path | None,
    output: Output,
) -> None:
    """Simulate a fleet: replay a seed, or measure and draw a scenario.

    The manager, the strategies and the stores are the real ones; time is virtual, so that it takes seconds.

    With --scenario it is measured how the fleet balances: the load-balancing intervals until nothing moves any more,
    how often a partition changed its owner and how often at least, claims lost to others, requests to the ownership
    store in a cycle at rest, events read twice, and the longest time that a partition was without an owner.

    With --seed alone the story of that seed is run, with everything that goes wrong in it, and checked after every
    step. If a rule is violated the shortest story that still does so is printed with its trace, and the command fails.
    The seed decides everything then, so it takes no --partitions, --processors or --strategy. With --scenario, --seed
    decides about latencies and when exactly each instance starts.

    With --entities it is another story of that seed: events of a few entities go through handlers that raise, are
    parked and tried again, while partitions move, instances stop and crash, and an operator steps in.

    --processors counts all instances that take part: in a join, the one that joins too.

    \b
    Example:
      leasehold simulate --scenario join --partitions 32 --processors 5 --svg join.svg
      leasehold simulate --seed 17
      leasehold simulate --seed 17 --entities
    """
    if entities and (seed is None or scenario is not None or svg is not None):
        raise click.UsageError("--entities replays the story of a --seed, without --scenario and --svg.")
    if scenario is None and seed is None:
        raise click.UsageError("Say --scenario to measure one, or --seed to replay one.")
    if svg is not None and not svg.absolute().parent.is_dir():
        raise ConfigError("--svg", str(svg), f"there is no folder {svg.absolute().parent}", "Make it, or name another")
    if scenario is None:
        assert seed is not None
        given = [name for name in _OF_SCENARIOS if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT]
        if given:
            options = " and ".join(f"--{name}" for name in given)
            raise click.UsageError(f"{options} belong to --scenario: a seed alone decides about its whole story.")
        if entities:
            _replay_entities(seed, output)
            return
        _replay(seed, svg, output)
        return
    if processors < 2 and scenario in _NEED_TWO:
        raise click.UsageError(
            f"A {scenario} takes --processors 2 or more: {_NEED_TWO[scenario]}, and the others are measured."
        )
    _measure(scenario, partitions, processors, strategy, seed or 0, svg, output)


def _replay(seed: int, svg: Path | None, output: Output) -> None:
    from leasehold_testkit.simulation import run_seed
    from leasehold_testkit.simulation.drawing import draw

    report = run_seed(seed)
    world = report.world
    if svg is not None:
        description = f"Simulated seed {seed}: {len(report.story.parts)} instances, {len(report.story.faults)} faults"
        _write(svg, draw(world.history(), "Who owned which partition", description, world.now), output)
    if report.violation is not None:
        raise SimulationFailed(f"{report.violation}\n{report.describe()}")
    output.show(
        Result(
            summary=f"seed {seed}: no violation in {world.cycles:,} dispatch cycles, {world.scheduler.steps:,} steps "
            f"and {world.now:.0f} s of virtual time",
            facts={"seed": seed, "cycles": world.cycles, "steps": world.scheduler.steps, "seconds": world.now},
        )
    )


def _replay_entities(seed: int, output: Output) -> None:
    from leasehold_testkit.simulation.handlers import run_entities, story_of

    report = run_entities(story_of(seed))
    if report.violation is not None:
        raise SimulationFailed(f"{report.violation}\n{report.describe()}")
    events = sum(map(len, report.story.events))
    output.show(
        Result(
            summary=f"seed {seed}: no violation with {events} events of entities, in {len(report.trace)} steps and "
            f"{report.seconds:.0f} s of virtual time",
            facts={"seed": seed, "events": events, "steps": len(report.trace), "seconds": report.seconds},
        )
    )


def _measure(
    scenario: str, partitions: int, processors: int, strategy: str, seed: int, svg: Path | None, output: Output
) -> None:
    from leasehold_testkit.simulation.drawing import draw
    from leasehold_testkit.simulation.scenarios import measure, scenario_story

    story = scenario_story(scenario, partitions=partitions, processors=processors, strategy=strategy, seed=seed)
    measured = measure(story)
    if measured.violation is not None:
        raise SimulationFailed(f"{measured.violation}\n{story.describe()}")
    figures = measured.figures
    row = (
        scenario,
        strategy,
        partitions,
        processors,
        figures.cycles_to_balance,
        figures.moves,
        figures.fewest_moves,
        figures.lost_claims,
        figures.requests_a_cycle,
        figures.read_twice,
        figures.without_owner,
        figures.balanced,
    )
    if svg is not None:
        description = f"{partitions} partitions, {processors} processors, strategy {strategy}, seed {seed}"
        _write(svg, draw(measured.history, f"Ownership over time: {scenario}", description, measured.ended), output)
    output.show(Result(facts={"seed": seed}, table=ResultTable("scenarios", COLUMNS, [row])))


def _write(path: Path, text: str, output: Output) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError("--svg", str(path), f"cannot be written ({error.strerror})", "Name another file") from error
    output.note(f"drawn in {path}")
