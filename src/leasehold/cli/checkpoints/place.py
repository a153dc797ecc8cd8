"""Which store and which group a command about checkpoints means.

Owns the options that name a group, and the way from a store's URL or a pipeline file to an opened store. A hub that is
named tells which places there are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leasehold import stores
from leasehold.cli.init import check_lasting
from leasehold.cli.options.settings import set_option
from leasehold.cli.options.waiting import patiently, wait_option
from leasehold.errors import ConfigError
from leasehold.model import ConsumerGroup
from leasehold.ownership.starting import check_pipeline

if TYPE_CHECKING:
    from leasehold.cli.checkpoints.moves import Places
    from leasehold.hubs import Hub
    from leasehold.stores import CheckpointStore

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NamedGroup:
    """What the options of a command say of the group. `wait` is how long to wait for what is away, in seconds."""

    group: str | None
    hub: str | None
    consumer_group: str
    wait: float
    settings: tuple[str, ...]

    def patiently(self, ask: Callable[[], T]) -> T:
        """What `ask` returns, once hub and stores answer."""
        return patiently(ask, self.wait)


@dataclass(frozen=True, slots=True)
class Opened:
    """A store, the group as far as one was named, and the hub of that group with its places, if one was named.

    `file` and `pipeline` are the path and the name of the pipeline file, where one was given in place of a store.
    """

    store: CheckpointStore
    group: ConsumerGroup | None
    hub: Hub | None
    file: str = ""
    pipeline: str = ""

    def check_owner(self, *groups: ConsumerGroup) -> None:
        """Refuse a group that is tied to another pipeline than the file's. Raises `AlreadyInUse`."""
        for group in groups if self.file else ():
            if (bound := self.store.pipeline_binding(group)) is not None:
                check_pipeline(group, bound, self.pipeline, self.file)

    @property
    def places(self) -> Places | None:
        """What the hub has of each partition."""
        return self.hub.partition_properties() if self.hub else None

    @property
    def needed(self) -> ConsumerGroup:
        """The group. Raises `ConfigError` where none was named."""
        if self.group is None:
            raise ConfigError("--group", None, "a store's URL does not say of which group", "Add --hub or --group")
        return self.group


def group_options(command: F) -> F:
    """The options that name a group; the command gets them as `named: NamedGroup`."""

    @functools.wraps(command)
    def collecting(**arguments: Any) -> Any:
        named = NamedGroup(**{name: arguments.pop(name) for name in NamedGroup.__slots__})
        return command(named=named, **arguments)

    wrapped: Any = collecting
    for option in (
        click.option("--group", metavar="NAMESPACE/HUB/NAME", help="The consumer group, as the records name it."),
        click.option("--hub", metavar="URL", help="Take namespace and hub from this hub."),
        click.option(
            "--consumer-group",
            metavar="NAME",
            default="$Default",
            show_default=True,
            help="The group's name, with --hub.",
        ),
    ):
        wrapped = option(wrapped)
    decorated: F = wait_option(set_option(wrapped))
    return decorated


def open_place(store: str, named: NamedGroup, *, must_exist: bool = False) -> Opened:
    """The store at the URL, or of the pipeline file, `store`. Raises `ConfigError` for names that are at odds."""
    return named.patiently(lambda: _open(store, named, must_exist))


def _open(store: str, named: NamedGroup, must_exist: bool) -> Opened:
    from leasehold.hubs import open_hub

    if named.group and named.hub:
        raise ConfigError("--group", named.group, "named already by --hub", "Use one of the two")
    opener = stores.open_existing if must_exist else stores.open_store
    of: ConsumerGroup | None = None
    if named.group:
        parts = named.group.split("/")
        if len(parts) != 3 or not all(parts):
            raise ConfigError("--group", named.group, "NAMESPACE/HUB/NAME", "Three names with two slashes between them")
        of = ConsumerGroup(*parts)
    opened = open_hub(named.hub) if named.hub else None
    if opened is not None:
        of = opened.consumer_group(named.consumer_group)
    if "://" in store or store.partition(":")[0] in stores.BACKENDS:
        if named.settings:
            raise ConfigError("--set", None, "is for a pipeline file, and a store's URL is given", "Leave it out")
        check_lasting(store)
        return Opened(opener(store), of, opened)

    from leasehold.pipeline_file import read_pipeline_file
    from leasehold.pipeline_values import parse_settings

    pipeline = read_pipeline_file(Path(store), settings=parse_settings(named.settings))
    timeout = pipeline.ownership.settings().request_timeout
    if of is None:
        opened = open_hub(pipeline.hub_url)
        of = opened.consumer_group(pipeline.source.consumer_group)
    if pipeline.checkpoint_url is None:
        raise ConfigError(
            f"{store}: ownership.checkpoint_store",
            "none",
            "this pipeline keeps no checkpoints: its places are the watermarks of its table",
            "`leasehold reset` sets those",
        )
    return Opened(opener(pipeline.checkpoint_url, timeout=timeout), of, opened, store, pipeline.name)
