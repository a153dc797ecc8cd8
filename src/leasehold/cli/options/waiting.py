"""The option `--wait`, and what a command does with it: hubs and stores that are away are waited for, which is said.

Owns the word about an answer that takes its time, too: many a client tries again by itself for long before it says
that nobody is there. Promises that nobody sits in front of a command for longer than `SILENT` seconds without being
told what it waits for.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from leasehold.cli.options.logs import remark_from_any_thread
from leasehold.cli.options.numbers import FiniteRange
from leasehold.errors import LeaseholdError
from leasehold.waiting import COMMAND, sentence, when_there

SILENT = 2.0
"""Seconds for which a command waits without a word."""

_OF_A_FILE = re.compile(r"\b(log|sqlite):///")

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def wait_option(command: F) -> F:
    """The option `--wait`; the command gets it as `wait: float`, in seconds."""
    option = click.option(
        "--wait",
        type=FiniteRange(min=0, for_ever=True),
        default=COMMAND,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for a hub or store that is away.",
    )
    return option(command)


def patiently(ask: Callable[[], T], wait: float, what: str = "the hub and the stores") -> T:
    """What `ask` returns, once hub and stores answer: within `wait` seconds, or it raises what they did not.

    `what` is asked, for people.
    """
    remark = remark_from_any_thread()
    with said_when_slow(what) as answered:

        def say(error: LeaseholdError, patience: float) -> None:
            answered()
            remark(sentence(error, patience))

        return when_there(ask, patience=wait, say=say)


@contextmanager
def said_when_slow(what: str) -> Iterator[Callable[[], None]]:
    """Say once, on stderr, what is waited for, if the block takes longer than `SILENT` seconds: a server or a file.

    `what` has the URL, where it is one; a file gives no answer: another process locks it, or its disk is slow.
    Not any more once what the block is given has been called.
    """
    remark = remark_from_any_thread()
    is_file = _OF_A_FILE.search(what)
    said = f"waiting for {what}: the file is locked or slow" if is_file else f"waiting for an answer of {what}"
    timer = threading.Timer(SILENT, remark, [said])
    timer.daemon = True
    timer.start()
    try:
        yield timer.cancel
    finally:
        timer.cancel()
