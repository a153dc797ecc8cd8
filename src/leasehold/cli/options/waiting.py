"""The option `--wait`, and what a command does with it: hubs and stores that are away are waited for, which is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from leasehold.cli.options.logs import remark
from leasehold.errors import LeaseholdError
from leasehold.waiting import COMMAND, sentence, when_there

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def wait_option(command: F) -> F:
    """The option `--wait`; the command gets it as `wait: float`, in seconds."""
    option = click.option(
        "--wait",
        type=click.FloatRange(min=0),
        default=COMMAND,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for a hub or store that is away.",
    )
    return option(command)


def patiently(ask: Callable[[], T], wait: float) -> T:
    """What `ask` returns, once hub and stores answer: within `wait` seconds, or it raises what they did not."""
    return when_there(ask, patience=wait, say=_say)


def _say(error: LeaseholdError, patience: float) -> None:
    remark(sentence(error, patience))
