"""What happens to a few entities, drawn from a seed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

FOR_EVER = 99
"""An event whose handler raises this often is a dead letter."""


@dataclass(frozen=True, slots=True)
class Told:
    """An event: of which entity, and for how many tries its handler raises. `version` is its place among all."""

    entity: str
    version: int
    fails: int


@dataclass(frozen=True, slots=True)
class EntityStory:
    """Who takes part. `events` are those of each partition, `steps` how many things happen before all is calm.

    `pauses` is how likely something else happens at a point where an instance may be stopped.
    """

    seed: int
    instances: int
    events: tuple[tuple[Told, ...], ...]
    steps: int
    pauses: float
    spread: bool = False
    exclusive: bool = False


def story_of(seed: int) -> EntityStory:
    """The story of a seed: a third of them with entities in one partition each, a third spread, a third exclusive."""
    rng = Random(f"entities {seed}")
    spread, exclusive = seed % 3 > 0, seed % 3 == 2
    partitions, entities = rng.randint(2, 3), rng.randint(1, 4)
    events: list[list[Told]] = [[] for _ in range(partitions)]
    for version in range(rng.randint(8, 24)):
        number = rng.randrange(entities)
        place = rng.randrange(partitions) if spread else number % partitions
        fails = rng.choice((0, 0, 0, 0, 1, 1, 2, FOR_EVER))
        events[place].append(Told(f"e{number}", version, fails))
    return EntityStory(
        seed=seed,
        instances=rng.randint(2, 3),
        events=tuple(map(tuple, events)),
        steps=rng.randint(15, 40),
        pauses=rng.choice((0.05, 0.15, 0.3)),
        spread=spread,
        exclusive=exclusive,
    )
