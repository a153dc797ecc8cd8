"""The options of `format("leasehold")`, read once and checked together.

Owns their names, defaults and meaning. Option names are case-insensitive, as everywhere in Spark. Refuses
an unknown option, so that a misspelt one is not silently without effect.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from leasehold.backends import masked
from leasehold.combinations import Combination, check, is_mixed, place_at, place_of
from leasehold.config import OwnershipSettings, parse_duration
from leasehold.errors import ConfigError
from leasehold.hubs.base import EVENT_COLUMNS, Hub, owner_reads
from leasehold.listening import Address
from leasehold.model import EARLIEST, LATEST, OwnerId, Positions
from leasehold.spark.plan.origins import Origin, TableAddress, read_addresses
from leasehold.store_choice import NONE, check_alone, check_partitions
from leasehold.stores.stand_ins import NoCheckpoints

MOST_BYTES = 64 * 2**20
"""The most bytes of a batch, unless it is told otherwise: what a driver with Spark's default memory of 1 GiB
carries."""
COLUMNS = (*EVENT_COLUMNS, "ownerLevel")
"""The columns of the source, in order."""
NO_END = "what others have consumed is told by the checkpoints, and there are none"
"""Why reading cannot end by itself without a checkpoint store."""


def _text(value: str, name: str) -> str:
    if not value.strip():
        raise ConfigError(name, value, "a text that is not empty", "Give it a value or leave it out")
    return value.strip()


def _count(value: str, name: str) -> int:
    if not (value.strip().isascii() and value.strip().isdigit() and int(value) > 0):
        raise ConfigError(name, value, "a whole number above zero", "For example 10000")
    return int(value)


def _flag(value: str, name: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise ConfigError(name, value, "true or false", "true is the default")
    return value.strip().lower() == "true"


def _number(value: str, name: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ConfigError(name, value, "a number", "For example 1.25") from None


def _owner_name(value: str, name: str) -> str:
    try:
        return OwnerId(value.strip()).name
    except ConfigError as error:
        raise ConfigError(name, value, error.rule, error.remedy) from None


def _columns(value: str, name: str) -> tuple[str, ...]:
    by_lower = {column.lower(): column for column in COLUMNS}
    chosen = [word.strip().lower() for word in value.split(",")]
    unknown = [word for word in chosen if word not in by_lower]
    if unknown or len(set(chosen)) < len(chosen):
        raise ConfigError(name, value, f"column names, each once, out of {', '.join(COLUMNS)}", "Correct the list")
    return tuple(by_lower[word] for word in chosen)


def _partitions(value: str, name: str) -> tuple[str, ...]:
    named = [word.strip() for word in value.split(",")]
    if not all(named):
        raise ConfigError(name, value, "partition ids with commas between them", "For example 0,3")
    return check_partitions(named)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a reader is told. See `OPTIONS` for the names that Spark users write. URLs may carry secrets: not shown.

    `partitions` is a fixed share, which has no ownership store. A `checkpoint_store` that is `none` is not wanted.
    """

    hub: str = field(repr=False)
    consumer_group: str = "$Default"
    ownership_store: str | None = field(default=None, repr=False)
    checkpoint_store: str | None = field(default=None, repr=False)
    partitions: tuple[str, ...] | None = None
    owner_id: str | None = None
    pipeline: str = ""
    tables: tuple[TableAddress, ...] = field(default=(), repr=False)
    last_error: str = ""
    starting_position: Positions = field(default_factory=lambda: Positions(EARLIEST))
    ending_position: Positions = field(default_factory=lambda: Positions(LATEST))
    max_events_per_trigger: int | None = None
    max_bytes_per_trigger: int = MOST_BYTES
    min_events_per_trigger: int | None = None
    max_trigger_delay: float = 60.0
    fail_on_data_loss: bool = True
    min_partitions: int = 1
    events_per_task: int = 50_000
    batch_rows: int = 10_000
    columns: tuple[str, ...] = COLUMNS
    metrics_listen: Address | None = None
    settings: OwnershipSettings = field(default_factory=OwnershipSettings)

    @property
    def origin(self) -> Origin:
        """The mark that rows carry which are read with these options."""
        return Origin(
            self.consumer_group, self.pipeline, tuple(one.identity for one in self.tables), self.settings.stall_timeout
        )


_Reader = Callable[[str, str], Any]

OPTIONS: Mapping[str, tuple[str, _Reader]] = {
    "hub": ("hub", _text),
    "path": ("hub", _text),
    "consumerGroup": ("consumer_group", _text),
    "store": ("store", _text),
    "ownershipStore": ("ownership_store", _text),
    "checkpointStore": ("checkpoint_store", _text),
    "partitions": ("partitions", _partitions),
    "ownerId": ("owner_id", _owner_name),
    "startingPosition": ("starting_position", Positions.parse),
    "endingPosition": ("ending_position", Positions.parse),
    "maxEventsPerTrigger": ("max_events_per_trigger", _count),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", _count),
    "minEventsPerTrigger": ("min_events_per_trigger", _count),
    "maxTriggerDelay": ("max_trigger_delay", parse_duration),
    "failOnDataLoss": ("fail_on_data_loss", _flag),
    "minPartitions": ("min_partitions", _count),
    "eventsPerTask": ("events_per_task", _count),
    "batchRows": ("batch_rows", _count),
    "columns": ("columns", _columns),
    "metricsListen": ("metrics_listen", Address.parse),
    "strategy": ("strategy", _text),
    "loadBalancingInterval": ("load_balancing_interval", parse_duration),
    "partitionExpiration": ("partition_expiration", parse_duration),
    "foreignExpiration": ("foreign_expiration", parse_duration),
    "requestTimeout": ("request_timeout", parse_duration),
    "margin": ("margin", parse_duration),
    "clockRateRatio": ("clock_rate_ratio", _number),
    "stallTimeout": ("stall_timeout", parse_duration),
    "handOverTimeout": ("hand_over_timeout", parse_duration),
    "settleDelay": ("settle_delay", parse_duration),
    "capacity": ("capacity", _number),
    "maximumPartitions": ("maximum_partitions", _count),
    "pipeline": ("pipeline", _text),
    "tables": ("tables", read_addresses),
    "lastError": ("last_error", _text),
}
"""Every option: its name as users write it, what it sets, and how its text is read."""

_SETTINGS = {field.name for field in fields(OwnershipSettings)}


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the options of a source. Raises `ConfigError` that names the option, its value and what is allowed."""
    by_lower = {name.lower(): name for name in OPTIONS}
    given: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for key, value in options.items():
        name = by_lower.get(key.lower())
        if name is None:
            close = difflib.get_close_matches(key.lower(), by_lower, 1)
            hint = f"Did you mean {by_lower[close[0]]}?" if close else "Leave it out"
            raise ConfigError(key, value, f"not an option; the options are {', '.join(sorted(OPTIONS))}", hint)
        target, read = OPTIONS[name]
        if target == "hub" and target in given:
            raise ConfigError(key, masked(value), "the hub is named twice, by hub and by a path", "Keep one of them")
        (settings if target in _SETTINGS else given)[target] = read(value, name)
    return settled({**given, **settings}, str)


def settled(values: Mapping[str, Any], named: Callable[[str], str]) -> SourceOptions:
    """The options that these values make, by the names of `SourceOptions` and `OwnershipSettings`, and `store`.

    `named` gives an option's name as the user has written it. Raises `ConfigError` for a set that cannot be.
    """
    given = {name: value for name, value in values.items() if name not in _SETTINGS}
    settings = {name: value for name, value in values.items() if name in _SETTINGS}
    with _named_as_options(named):
        check_alone(values)
    store = given.pop("store", None)
    given.setdefault("ownership_store", store)
    given.setdefault("checkpoint_store", store)
    if given.get("partitions") is not None:
        given["ownership_store"] = None
    if "hub" not in given:
        raise ConfigError("hub", None, "is missing", "Name the hub, for example log:///events.db")
    least, most = given.get("min_events_per_trigger"), given.get("max_events_per_trigger")
    if least is not None and most is not None and least > most:
        raise ConfigError(
            named("minEventsPerTrigger"),
            least,
            f"no more than {named('maxEventsPerTrigger')} ({most})",
            "Lower it, or raise the other",
        )
    with _named_as_options(named):
        return SourceOptions(**given, settings=OwnershipSettings(**settings))


@contextmanager
def _named_as_options(named: Callable[[str], str] = str) -> Iterator[None]:
    """Name settings as Spark users write them, or as `named` makes it of that."""
    try:
        yield
    except ConfigError as error:
        names = {target: named(name) for name, (target, _) in OPTIONS.items()}
        raise ConfigError(names.get(error.field, error.field), error.value, error.rule, error.remedy) from None


def check_stores(options: SourceOptions, named: Callable[[str], str] = str) -> None:
    """Refuse stores that do not go together, or with Spark's several processes, as far as their URLs tell.

    `named` gives an option's name as the user has written it.
    """
    ownership, checkpoints = options.ownership_store, options.checkpoint_store
    given = ownership or checkpoints, checkpoints or ownership
    if given[0] and given[1]:
        with _named_as_options(named):
            check(
                Combination(
                    ownership=place_at(given[0]),
                    checkpoints=place_of(NoCheckpoints()) if given[1] == NONE else place_at(given[1]),
                    mixed=is_mixed(options.hub),
                    several_processes=True,
                    settings=options.settings,
                )
            )


def check_tasks(options: SourceOptions, hub: Hub, group_name: str) -> None:
    """Refuse more tasks for a batch than the hub allows for this group. Asks it only if there may be something."""
    if options.min_partitions > 1 and owner_reads(hub, group_name) is not None:
        least, most = options.min_partitions, len(hub.partition_ids())
        anywhere = place_at("")
        with _named_as_options():
            check(Combination(ownership=anywhere, checkpoints=anywhere, least_tasks=least, most_tasks=most))


def require_stores(options: SourceOptions, named: Callable[[str], str] = str) -> tuple[str | None, str | None]:
    """The URLs of the two stores: no ownership for a fixed share, and no checkpoints where none are wanted.

    `named` as above. Raises `ConfigError` where one is missing.
    """
    if options.partitions is not None:
        why = "a fixed share of partitions goes on at its checkpoints"
        return None, require_store(options.checkpoint_store, named("checkpointStore"), why)
    why = "a stream shares partitions through a store"
    ownership = require_store(options.ownership_store, named("ownershipStore"), why)
    if options.checkpoint_store == NONE:
        return ownership, None
    return ownership, require_store(options.checkpoint_store, named("checkpointStore"), why)


def require_store(url: str | None, option: str, why: str) -> str:
    """The URL of a store. Raises `ConfigError` where it is missing."""
    if url is None or url == NONE:
        raise ConfigError(option, url, f"{why}, and none is named", "Name one, for example sqlite:///leasehold.db")
    return url
