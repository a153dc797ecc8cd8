"""The options that choose events which are kept beside a table, and the group of commands about them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from leasehold.cli.options.settings import set_option
from leasehold.cli.output import output_option
from leasehold.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])


class ListedByDefault(click.Group):
    """A group whose `list` may be left out."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = not args or args[0] in self.commands
        return super().resolve_command(ctx, args if known else ["list", *args])


def selection(command: F) -> F:
    """The options that choose events; the command gets them as `events`, `reason_has` and `hub`."""
    options = (
        click.option(
            "--event",
            "events",
            multiple=True,
            metavar="PARTITION:NUMBER",
            help="This event, by its partition and sequence number. May be given more than once.",
        ),
        click.option("--reason-has", metavar="TEXT", help="Those with this text in their reason."),
        click.option("--hub", metavar="ID", help="Those of the hub of this identity, where the table has several."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def file_and_settings(command: F) -> F:
    """The pipeline file, `--set`, and how the command says its result."""
    return click.argument("file", metavar="PIPELINE.toml", type=click.Path(path_type=Path))(
        set_option(output_option(command))
    )


def check_chosen(events: tuple[str, ...], reason_has: str | None, hub: str | None, everything: bool) -> None:
    """Refuse a change that says neither which events, nor that all are meant, or both. Raises `ConfigError`."""
    if everything == bool(events or reason_has or hub):
        raise ConfigError(
            "--all" if everything else "--event",
            None,
            "say either which events, or that all are meant",
            "Give --event, --reason-has or --hub; or --all alone",
        )
