"""The option `--set`: values over those of a pipeline file, for one call of a command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def set_option(command: F) -> F:
    """The option `--set`; the command gets it as `settings: tuple[str, ...]`, for `parse_settings`."""
    option = click.option(
        "--set",
        "settings",
        metavar="KEY=VALUE",
        multiple=True,
        help="Take this value in place of the pipeline file's, for example sink.url=sqlite:///other.db. May be given "
        "more than once. A list is a,b or in brackets; paths start at the file's folder. Put a secret into a variable, "
        "and write '${VARIABLE}': what is on a command line, every user of the machine can see.",
    )
    return option(command)
