"""What a component gets from the program around it.

Owns the one value that holds it, so that components hand it on whole. Promises a default for each part: without any
argument a component runs as in production. Refuses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from leasehold.clock import Clock, SystemClock
from leasehold.notices import Notices

__all__ = ["Runtime"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Time, chance, who hears of what happens, and where relative paths begin. A component uses what it needs of it.

    clock    the time; default: the clocks of the operating system
    rng      chance, in pauses and choices; default: a new `random.Random`
    notices  where notices go; default: new ones, which who subscribes to them hears. Components that are given one
             `Runtime` share its notices
    base     the folder that relative paths in URLs are relative to; default (None): the working directory
    """

    clock: Clock = field(default_factory=SystemClock)
    rng: Random = field(default_factory=Random)
    notices: Notices = field(default_factory=Notices)
    base: Path | None = None
