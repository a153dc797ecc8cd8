"""The options of `format("leasehold")`, read once and checked together: those of the table in `leasehold.settings`.

Owns what of them needs Spark's columns and tables to be read, and which contradict each other. Option names are
case-insensitive, as everywhere in Spark. Refuses an unknown option, so that a misspelt one is not silently without
effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from leasehold.backends import masked
from leasehold.combinations import Combination, check, place_at
from leasehold.config import OwnershipSettings
from leasehold.errors import ConfigError
from leasehold.hubs.base import EVENT_COLUMNS, Hub
from leasehold.listening import Address
from leasehold.model import EARLIEST, LATEST, Positions
from leasehold.settings.kinds import Read
from leasehold.settings.names import naming, option_name
from leasehold.settings.table import OPTIONS, find
from leasehold.spark.plan.origins import Origin, TableAddress, read_addresses
from leasehold.store_choice import NONE, check_alone, check_places

COLUMNS = (*EVENT_COLUMNS, "ownerLevel")
"""The columns of the source, in order."""


def _columns(value: str, name: str) -> tuple[str, ...]:
    by_lower = {column.lower(): column for column in COLUMNS}
    chosen = [word.strip().lower() for word in value.split(",")]
    unknown = [word for word in chosen if word not in by_lower]
    if unknown or len(set(chosen)) < len(chosen):
        raise ConfigError(name, value, f"column names, each once, out of {', '.join(COLUMNS)}", "Correct the list")
    return tuple(by_lower[word] for word in chosen)


READS: Mapping[str, Read] = {"columns": _columns, "tables": read_addresses, "metrics_listen": Address.parse}
"""How the texts of settings are read of which the table does not know enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a reader is told, as `leasehold.settings.table` explains it. URLs may carry secrets: not shown.

    `partitions` is a fixed share, which has no ownership store. A `checkpoint_store` that is `none` is not wanted.
    `max_bytes_per_trigger` is by default what a driver with Spark's default memory of 1 GiB carries.
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
    max_bytes_per_trigger: int = 64 * 2**20
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


_SETTINGS = {field.name for field in fields(OwnershipSettings)}
_ANY_CASE = {name.lower(): name for name in OPTIONS}


def parse_options(options: Mapping[str, str | None]) -> SourceOptions:
    """Read the options of a source. Raises `ConfigError` that names the option, its value and what is allowed.

    `path`, which Spark makes of what `load` is given, is another name of `hub`.
    """
    given: dict[str, Any] = {}
    for key, value in options.items():
        if value is None:
            continue  # not given, as for every setting
        name = "path" if key.lower() == "path" else _ANY_CASE.get(key.lower(), key)
        setting = find("hub" if name == "path" else name, OPTIONS, "an option", value)
        if setting.name == "hub" in given:
            raise ConfigError(key, masked(value), "the hub is named twice, by hub and by a path", "Keep one of them")
        given[setting.name] = setting.read(value, name, READS)
    return settled(given, option_name)


def settled(values: Mapping[str, Any], named: Callable[[str], str]) -> SourceOptions:
    """The options that these values make, by the names of `SourceOptions` and `OwnershipSettings`, and `store`.

    `named` gives a setting's name as the user has written it. Raises `ConfigError` for a set that cannot be.
    """
    given = {name: value for name, value in values.items() if name not in _SETTINGS}
    settings = {name: value for name, value in values.items() if name in _SETTINGS}
    with naming(named):
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
            rule = f"no more than {named('max_events_per_trigger')} ({most})"
            raise ConfigError("min_events_per_trigger", least, rule, "Lower it, or raise the other")
        return SourceOptions(**given, settings=OwnershipSettings(**settings))


def check_stores(options: SourceOptions, named: Callable[[str], str] = option_name) -> None:
    """Refuse stores that do not go together, or with Spark's several processes, as far as their URLs tell.

    `named` gives a setting's name as the user has written it.
    """
    ownership, checkpoints = options.ownership_store, options.checkpoint_store
    if ownership or checkpoints:
        with naming(named):
            check_places(options.hub, ownership or checkpoints, checkpoints or ownership, options.settings)


def check_tasks(options: SourceOptions, hub: Hub, group_name: str) -> None:
    """Refuse more tasks for a batch than the hub allows for this group. Asks it only if there may be something."""
    if options.min_partitions > 1 and hub.one_reader_per_partition(group_name):
        least, most = options.min_partitions, len(hub.partition_ids())
        anywhere = place_at("")
        with naming(option_name):
            check(Combination(ownership=anywhere, checkpoints=anywhere, least_tasks=least, most_tasks=most))


def require_stores(options: SourceOptions, named: Callable[[str], str] = option_name) -> tuple[str | None, str | None]:
    """The URLs of the two stores: no ownership for a fixed share, and no checkpoints where none are wanted.

    `named` as above. Raises `ConfigError` where one is missing.
    """
    if options.partitions is not None:
        why = "a fixed share of partitions goes on at its checkpoints"
        return None, require_store(options.checkpoint_store, named("checkpoint_store"), why)
    why = "a stream shares partitions through a store"
    ownership = require_store(options.ownership_store, named("ownership_store"), why)
    if options.checkpoint_store == NONE:
        return ownership, None
    return ownership, require_store(options.checkpoint_store, named("checkpoint_store"), why)


def require_store(url: str | None, option: str, why: str) -> str:
    """The URL of a store. Raises `ConfigError` where it is missing."""
    if url is None or url == NONE:
        raise ConfigError(option, url, f"{why}, and none is named", "Name one, for example sqlite:///leasehold.db")
    return url
