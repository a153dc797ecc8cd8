"""The options `--log-format` and `--log-level`: what goes to stderr.

Owns the handlers of the root logger in a process of this command line. As text, which is the default, a command says
what it always said: remarks and errors of its own, and what is logged at WARNING and above. As JSON each line of stderr
is one record (`leasehold.logs`), remarks, notices, warnings of Python and the error at the end included. Two writers
are not ours: click, of a command line that it cannot read (exit code 2), and Spark's Java.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import click

from leasehold.logs import JsonFormatter
from leasehold.printable import PrintableFormatter, printable_lines

logger = logging.getLogger("leasehold.cli")
"""What a command has to say on the way."""

_KEY = "leasehold.log_format"
_LEVELS = ["debug", "info", "warning", "error"]
F = TypeVar("F", bound=Callable[..., Any])


def log_options(command: F) -> F:
    """The options `--log-format` and `--log-level`, which take effect before the command is called."""
    level = click.option(
        "--log-level",
        type=click.Choice(_LEVELS),
        envvar="LEASEHOLD_LOG_LEVEL",
        expose_value=False,
        is_eager=True,
        callback=_set_level,
        help="The least that is logged: warning for text, info for json, unless said. At debug each checkpoint is.",
    )
    form = click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        envvar="LEASEHOLD_LOG_FORMAT",
        expose_value=False,
        is_eager=True,
        callback=_set_format,
        help="How stderr is written: as text for people, or as JSON, one record with ECS names a line.",
    )
    return level(form(command))


def logs_json(ctx: click.Context) -> bool:
    """Whether this call writes JSON to stderr."""
    return bool(ctx.meta.get(_KEY) == "json")


def remark(text: str) -> None:
    """Say something on stderr, from the thread that the command was called in."""
    remark_from_any_thread()(text)


def remark_from_any_thread() -> Callable[[str], None]:
    """What says something on stderr, later and from any thread. Made in the thread that the command was called in."""
    ctx = click.get_current_context(silent=True)
    as_json = ctx is not None and logs_json(ctx)

    def say(text: str) -> None:
        if as_json:
            logger.info("%s", text)
        else:
            click.echo(f"leasehold: {printable_lines(text)}", err=True)

    return say


def show_warnings() -> None:
    """Log as text from now on, warnings and above, unless the options have said how."""
    root = logging.getLogger()
    if root.handlers:
        return
    _log_with(PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"), logging.WARNING)


def _set_format(ctx: click.Context, param: click.Parameter, value: str) -> None:
    ctx.meta[_KEY] = value
    if value != "json":
        return
    _log_with(JsonFormatter(), logging.WARNING)
    if logging.getLogger("leasehold").level == logging.NOTSET:
        logging.getLogger("leasehold").setLevel(logging.INFO)
    logging.captureWarnings(capture=True)
    threading.excepthook = _log_end_of_thread


def _set_level(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    logging.getLogger("leasehold").setLevel(value.upper())
    show_warnings()


def _log_with(formatter: logging.Formatter, level: int) -> None:
    root = logging.getLogger()
    for former in list(root.handlers):
        root.removeHandler(former)
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    root.addHandler(handler)
    root.setLevel(level)


def _log_end_of_thread(end: threading.ExceptHookArgs) -> None:
    if end.exc_value is not None and end.exc_type is not SystemExit:
        name = end.thread.name if end.thread else "a thread"
        logger.error("%s has ended by an error", name, exc_info=(end.exc_type, end.exc_value, end.exc_traceback))
