"""What a loop is told, checked together.

Owns the settings that only a loop has, and the way from Python arguments to them: the names are those of the source's
options in Python's spelling, and a value may be text as in an option, or what the text stands for.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from leasehold.config import OwnershipSettings, check_seconds, parse_duration
from leasehold.errors import ConfigError
from leasehold.model import EventPosition, Positions
from leasehold.spark.plan.options import MOST_BYTES, OPTIONS, SourceOptions, settled
from leasehold.store_choice import check_partitions

MOST_EVENTS = 100_000
"""The most events of a batch, unless it is told otherwise."""
_NOT_HERE = {"path", "endingPosition", "lastError", "tables", "maxBytesPerTrigger"}
_DURATIONS = {"trigger_interval", "stop_timeout"}
_OWN = {"trigger_interval", "max_bytes_per_trigger", "stop_timeout", "available_now", "on_error", "max_poison"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """What a loop reads, as `source` says it, and when. Durations in seconds.

    trigger_interval       from the start of one batch to that of the next, at least; 0: as soon as there is something
    max_bytes_per_trigger  about the most bytes of a batch, as Arrow holds them
    stop_timeout           how long a stop waits for the batch at hand before its jobs are cancelled
    available_now          end when all that was in the hub at the start has been consumed, by whomever
    on_error               what is done about events that cannot be computed: `reject`, they are found by halving and
                           set aside with the error; `stop`, the loop ends with it
    max_poison             more of them than this in a batch are an outage, which is waited out
    """

    source: SourceOptions = field(repr=False)
    trigger_interval: float = 0.0
    max_bytes_per_trigger: int = MOST_BYTES
    stop_timeout: float = 20.0
    available_now: bool = False
    on_error: str = "stop"
    max_poison: int = 100

    def __post_init__(self) -> None:
        for name in ("trigger_interval", "stop_timeout"):
            check_seconds(name, getattr(self, name), or_zero=True)
        _check_count("max_bytes_per_trigger", self.max_bytes_per_trigger, "bytes", "64 MiB is the default")
        _check_count("max_poison", self.max_poison, "events", "100 is the default")
        if self.on_error not in ("reject", "stop"):
            raise ConfigError("on_error", self.on_error, "reject or stop", "stop is the default of MicroBatches")


def _check_count(name: str, value: object, of: str, remedy: str) -> None:
    if not (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        raise ConfigError(name, value, f"a whole number of {of} above zero", remedy)


def loop_settings(given: Mapping[str, Any]) -> LoopSettings:
    """The settings that these arguments make. Raises `ConfigError` that names the argument as it was given."""
    names = {python_name(option): option for option in OPTIONS if option not in _NOT_HERE}
    source: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        if name in _OWN:
            own[name] = parse_duration(value, name) if isinstance(value, str) and name in _DURATIONS else value
        elif name in names:
            target, read = OPTIONS[names[name]]
            source[target] = read(value, name) if isinstance(value, str) else _python_value(name, value)
        else:
            close = difflib.get_close_matches(name, [*names, *_OWN], 1)
            hint = f"Did you mean {close[0]}?" if close else "Leave it out"
            raise ConfigError(name, value, f"not an argument; they are {', '.join(sorted({*names, *_OWN}))}", hint)
    source.setdefault("max_events_per_trigger", MOST_EVENTS)
    return LoopSettings(source=settled(source, python_name), **own)


def python_name(option: str) -> str:
    """An option's name as Python spells it: `maxEventsPerTrigger` becomes `max_events_per_trigger`."""
    return re.sub(r"(?<=[a-z])([A-Z])", lambda found: f"_{found[1].lower()}", option)


_NUMBERS = {name.name for name in fields(OwnershipSettings)} | {
    "max_trigger_delay",
    "max_events_per_trigger",
    "min_events_per_trigger",
    "min_partitions",
    "events_per_task",
    "batch_rows",
}


def _python_value(name: str, value: Any) -> Any:
    """A value that is no text, as the settings hold it."""
    if name == "starting_position":
        return _positions(value)
    if name == "columns":
        return OPTIONS["columns"][1](",".join(value), name)
    if name == "partitions" and isinstance(value, Sequence):
        return check_partitions(value)
    if name == "fail_on_data_loss" and isinstance(value, bool):
        return value
    if name in _NUMBERS and isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise ConfigError(name, value, f"not of a type that it can have: {type(value).__name__}", "Give it as text")


def _positions(value: Any) -> Positions:
    if isinstance(value, Positions):
        return value
    if isinstance(value, EventPosition):
        return Positions(value)
    if isinstance(value, datetime):
        return Positions.parse(value.isoformat(), "starting_position")
    if isinstance(value, int) and not isinstance(value, bool):
        return Positions.parse(str(value), "starting_position")
    raise ConfigError(
        "starting_position",
        value,
        "earliest, latest, a sequence number, a time, or an EventPosition",
        "Give one of them",
    )
