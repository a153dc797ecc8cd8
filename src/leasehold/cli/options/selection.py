"""What the commands about a pipeline's events share: the pipeline file, `--because`, and a group whose `list` may be
left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from leasehold.cli.options.settings import set_option
from leasehold.cli.output import output_option

F = TypeVar("F", bound=Callable[..., Any])


class ListedByDefault(click.Group):
    """A group whose `list` may be left out."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = not args or args[0] in self.commands
        return super().resolve_command(ctx, args if known else ["list", *args])


def because(why: str) -> Callable[[F], F]:
    """The option `--because`, as `because`."""
    return click.option("--because", metavar="TEXT", required=True, help=why)


def file_and_settings(command: F) -> F:
    """The pipeline file, `--set`, and how the command says its result."""
    return click.argument("file", metavar="PIPELINE.toml", type=click.Path(path_type=Path))(
        set_option(output_option(command))
    )
