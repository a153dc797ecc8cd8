"""What the commands about set-aside events share: `parked`, `rejected`, `outbox` and `dead-letters`.

Owns the options that choose events, opening the table beside which they are kept, the refusal of a change that names
neither events nor all, and how a list is summed up and a body shown.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leasehold.cli.options.settings import set_option
from leasehold.cli.output import output_option
from leasehold.errors import ConfigError
from leasehold.printable import counted

if TYPE_CHECKING:
    from leasehold.pipeline_file import PipelineFile
    from leasehold.sinks.base import Sink
    from leasehold.sinks.beside.set_aside.contract import Selection

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")


class ListedByDefault(click.Group):
    """A group whose `list` may be left out."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = not args or args[0] in self.commands
        return super().resolve_command(ctx, args if known else ["list", *args])


@dataclass(frozen=True, slots=True)
class Asked:
    """Which events of which pipeline a command was asked for. `everything`: with `--all`."""

    file: Path
    settings: tuple[str, ...]
    events: tuple[str, ...] = ()
    reason_has: str | None = None
    hub: str | None = None
    everything: bool = False

    @property
    def some(self) -> bool:
        """Whether the options name some of the events."""
        return bool(self.events or self.reason_has or self.hub)

    def check(self) -> None:
        """Refuse a change of neither some events nor all, or of both. Raises `ConfigError`."""
        check_named(self.some, self.everything, "events", "--event", "--reason-has or --hub")

    def opened(self, rows_of: Callable[[Sink], R]) -> tuple[PipelineFile, R, Selection]:
        """The pipeline, what `rows_of` gives of its table, and the events. Raises `ConfigError`, `SinkUnavailable`."""
        from leasehold.operations.rejected import parse_event
        from leasehold.sinks.beside.set_aside.contract import Selection

        chosen = Selection(frozenset(map(parse_event, self.events)) if self.events else None, self.reason_has, self.hub)
        return *open_rows(self.file, self.settings, rows_of), chosen


def asks(*options: Callable[[Any], Any]) -> Callable[[Callable[..., object]], Any]:
    """The options that choose events, those of the command alone, and the pipeline file.

    The command gets the choice as `request`, an `Asked`, and its own options by their names.
    """
    choosing = (
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

    def decorate(command: Callable[..., object]) -> Any:
        @functools.wraps(command)
        def called(**arguments: Any) -> object:
            fields = [name for name in Asked.__dataclass_fields__ if name in arguments]
            return command(request=Asked(**{name: arguments.pop(name) for name in fields}), **arguments)

        decorated: Any = file_and_settings(called)
        for option in reversed((*choosing, *options)):
            decorated = option(decorated)
        return decorated

    return decorate


def limit(what: str) -> Callable[[F], F]:
    """The option `--limit`, as `limit`."""
    return click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help=what)


def because(why: str) -> Callable[[F], F]:
    """The option `--because`, as `because`."""
    return click.option("--because", metavar="TEXT", required=True, help=why)


def all_of(what: str) -> Callable[[F], F]:
    """The option `--all`, as `everything`."""
    return click.option("--all", "everything", is_flag=True, help=f"All {what}.")


def file_and_settings(command: F) -> F:
    """The pipeline file, `--set`, and how the command says its result."""
    return click.argument("file", metavar="PIPELINE.toml", type=click.Path(path_type=Path))(
        set_option(output_option(command))
    )


def open_rows(file: Path, settings: tuple[str, ...], rows_of: Callable[[Sink], R]) -> tuple[PipelineFile, R]:
    """The pipeline of a file, and what `rows_of` gives of its table. Raises `ConfigError` and `SinkUnavailable`."""
    from leasehold.operations.rejected import check_there
    from leasehold.pipeline_file import read_pipeline_file
    from leasehold.pipeline_values import parse_settings
    from leasehold.sinks import open_sink

    pipeline = read_pipeline_file(file, settings=parse_settings(settings))
    sink = open_sink(pipeline.sink_url, pipeline.table_spec())
    check_there(sink)
    return pipeline, rows_of(sink)


def check_named(has_choice: bool, everything: bool, what: str, option: str, other_options: str) -> None:
    """Refuse a change that says neither which, by `option` or `other_options`, nor that all are meant, or both.

    Raises `ConfigError`.
    """
    if everything == has_choice:
        joined = f"{option}, {other_options}" if " or " in other_options else f"{option} or {other_options}"
        rule = f"say either which {what}, or that all are meant"
        raise ConfigError("--all" if everything else option, None, rule, f"Give {joined}; or --all alone")


def summed_up(number: int, what: str, where: str, at_most: int, none: str) -> str:
    """A list in one line: how many it shows, and whether there may be more. `none` is said of an empty list."""
    said = f"{counted(number, what)} of {where}" if number else none
    return f"{said}; the first {at_most} are listed" if number == at_most else said


def shown_body(body: object) -> tuple[object, str]:
    """A body as JSON has it, and how: as `text`, or in `base64` where it is bytes that are not UTF-8."""
    if not isinstance(body, bytes):
        return body, "text"
    try:
        return body.decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"
