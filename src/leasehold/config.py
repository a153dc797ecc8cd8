"""Settings that are checked when they are made, each alone and all together.

Owns the numbers that decide who may hold a partition and for how long, and refuses a set of them that
cannot keep its promise. Durations are seconds, as floats; in text they carry a unit (`2s`, `500ms`, `10m`).
"""

from __future__ import annotations

import math
import re
from dataclasses import MISSING, dataclass, fields
from typing import Any

from leasehold.errors import ConfigError

__all__ = [
    "OwnershipSettings",
]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_ABOVE_ZERO = (
    "load_balancing_interval",
    "partition_expiration",
    "foreign_expiration",
    "request_timeout",
    "stall_timeout",
    "hand_over_timeout",
)
STRATEGY_NAMES = ("planned", "greedy", "balanced")


def parse_duration(text: str, field: str) -> float:
    """Seconds from `2s`, `1.5m`, `500ms`, `2h`, `7d`. Raises `ConfigError` that names `field`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*", text)
    if not match:
        raise ConfigError(field, text, "a duration is a number and a unit: ms, s, m, h or d", 'For example "10s"')
    seconds = float(match[1]) * _UNITS[match[2]]
    check_number(field, seconds, rule="a finite duration", remedy="Leave it out, or give a shorter one")
    return seconds


def is_number(value: float, *, above: float | None = None, least: float | None = None) -> bool:
    """Whether a value is finite, and above one number or no less than another. NaN is neither above nor below any."""
    finite = isinstance(value, int) or math.isfinite(value)  # of an `int` that no float holds it would raise
    return finite and (above is None or value > above) and (least is None or value >= least)


def check_number(
    field: str,
    value: float,
    *,
    above: float | None = None,
    least: float | None = None,
    rule: str = "",
    remedy: str = "Leave it out for the default",
) -> None:
    """Refuse what is not a finite number above `above`, or no less than `least`, by a `ConfigError` that names `field`.

    `rule` says it in other words.
    """
    if not is_number(value, above=above, least=least):
        said = "a finite number" if least is None else f"at least {least:,}"
        raise ConfigError(field, value, rule or (said if above is None else f"more than {above:,}"), remedy)


def check_seconds(field: str, seconds: float, *, or_zero: bool = False) -> None:
    """Refuse a duration that is no number of seconds above zero, or, with `or_zero`, of zero or more.

    Raises `ConfigError` that names `field`.
    """
    remedy = "Give a number of seconds"
    if or_zero:
        check_number(field, seconds, least=0, rule="a duration of zero or more", remedy=remedy)
    else:
        check_number(field, seconds, above=0, rule="a duration above zero", remedy=remedy)


def default_where_none(settings: Any) -> None:
    """Have each field of a dataclass that is None at its default: a setting that is None is one that was not given.

    So it is with `start=os.environ.get("START")` where that variable is not set. For `__post_init__`. Raises
    `ConfigError` for a field without a default.
    """
    for one in fields(settings):
        if getattr(settings, one.name) is None:
            default = one.default if one.default_factory is MISSING else one.default_factory()
            check_given(one.name, None if default is MISSING else one)
            object.__setattr__(settings, one.name, default)


def check_given(field: str, value: object) -> None:
    """Refuse None where there is no default. Raises `ConfigError` that says where None comes from."""
    if value is None:
        rule = "None, and it has no default; os.environ.get gives None for a variable that is not set"
        raise ConfigError(field, None, rule, "Set the variable, or read it by os.environ[…], which names it")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipSettings:
    """How partitions are held. All durations in seconds.

    load_balancing_interval  between two dispatch cycles of an instance
    partition_expiration     an ownership not renewed for longer than this may be taken by anybody
    foreign_expiration       the same for the records of other SDKs' processors in a mixed fleet, which renew as rarely
                             as every 36 s; never less than `partition_expiration`
    strategy                 `planned` (all compute the same target, in which nothing moves that need not), `greedy`
                             (claim the whole fair share) or `balanced` (one claim a cycle)
    request_timeout          the longest that one call to a store may take
    margin                   how much earlier than the store a holder ends its trust in its own hold
    clock_rate_ratio         how much faster one machine's clock may run than another's
    stall_timeout            renewal stops when the work makes no progress for this long
    hand_over_timeout        how long to wait for the live owner of a partition, once asked, before it is stolen
    settle_delay             the pause between announcing itself and the first claim, so that instances which start
                             together see each other
    capacity                 this instance's share beside that of others: 2 is twice as much as 1
    maximum_partitions       the most partitions that this instance takes; None for no limit

    Refused unless two renewals fit in the time that a holder may trust itself, even if one of them takes its full
    time and clocks differ:
    `partition_expiration ≥ clock_rate_ratio x (2 x load_balancing_interval + request_timeout + margin)`.
    """

    load_balancing_interval: float = 10.0
    partition_expiration: float = 30.0
    foreign_expiration: float = 180.0
    strategy: str = "planned"
    request_timeout: float = 3.0
    margin: float = 1.0
    clock_rate_ratio: float = 1.25
    stall_timeout: float = 600.0
    hand_over_timeout: float = 30.0
    settle_delay: float = 1.0
    capacity: float = 1.0
    maximum_partitions: int | None = None

    def __post_init__(self) -> None:
        default_where_none(self)
        for name in _ABOVE_ZERO:
            check_seconds(name, getattr(self, name))
        for name in ("margin", "settle_delay"):
            check_seconds(name, getattr(self, name), or_zero=True)
        check_number("capacity", self.capacity, above=0, rule="a number above zero", remedy="1 is the default")
        if (most := self.maximum_partitions) is not None:
            check_number("maximum_partitions", most, least=0, rule="zero or more", remedy="Leave it out for no limit")
        check_number("clock_rate_ratio", self.clock_rate_ratio, least=1, remedy="1.25 is the default")
        if self.strategy not in STRATEGY_NAMES:
            raise ConfigError(
                "strategy", self.strategy, f"one of {', '.join(STRATEGY_NAMES)}", "planned is the default"
            )
        if self.partition_expiration < self.shortest_expiration:
            enough = math.ceil(self.shortest_expiration * 10) / 10
            raise ConfigError(
                "partition_expiration",
                self.partition_expiration,
                f"at least clock_rate_ratio ({self.clock_rate_ratio:g}) x (2 x load_balancing_interval "
                f"({self.load_balancing_interval:g} s) + request_timeout ({self.request_timeout:g} s) + margin "
                f"({self.margin:g} s)) = {self.shortest_expiration:g} s, or a single slow renewal loses partitions",
                f"Set it to {enough:g}s or more, or shorten load_balancing_interval",
            )
        if self.stall_timeout < self.partition_expiration:
            raise ConfigError(
                "stall_timeout",
                self.stall_timeout,
                f"no shorter than partition_expiration ({self.partition_expiration:g} s)",
                "600 s is the default",
            )

    def expiration_of_others(self, *, mixed: bool) -> float:
        """How long the record of another SDK's processor counts, in seconds. There are none but in a mixed fleet."""
        return max(self.partition_expiration, self.foreign_expiration) if mixed else self.partition_expiration

    @property
    def shortest_expiration(self) -> float:
        """The shortest `partition_expiration` that goes with the other settings, in seconds."""
        return self.clock_rate_ratio * (2 * self.load_balancing_interval + self.request_timeout + self.margin)
