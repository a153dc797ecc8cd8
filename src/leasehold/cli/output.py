"""What a command says: results on stdout, as a table for people or as JSON for programs; all else on stderr.

A command makes one call with both sides of its result, and never asks which of them is wanted. JSON is one
document a line, and each text in it is whole. A table that does not go to a terminal is as wide as its content. What
others wrote (owner ids, errors, bodies) cannot tell the terminal anything, and a cell shows no more of it than can be
read (`leasehold.printable.excerpt`). A summary, and an error, may have lines of ours: whoever writes the sentence takes
an excerpt of each text of others in it.
Progress is shown only where stderr is a terminal.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable
from rich.text import Text

from leasehold.cli.options.logs import log_options, logger, logs_json
from leasehold.printable import excerpt, printable_json, printable_lines, shortened
from leasehold.printable import utc as utc

_UNLIMITED = 100_000  # columns of a page that is no terminal
_SHOWN = 160  # characters
_SHORT = 20  # characters of a remark that stays in its cell


def plain(value: object) -> str:
    """A value as people read it: `-` for nothing, thousands apart, three digits behind the point."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return str(value)


def short(value: object) -> str:
    """The same, cut off where a cell of a table would be too long for it: a reason, a body."""
    return shortened(plain(value), _SHOWN)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its key in JSON, its title in a table, and how a value is written there. `hidden`: in JSON alone.

    `remark`: a sentence or more, which stands under a table that is wider than the terminal.
    """

    key: str
    title: str
    right: bool = False
    text: Callable[[Any], str] = plain
    hidden: bool = False
    remark: bool = False

    def cell(self, value: object) -> str:
        """A value as people see it in this column, whoever wrote it."""
        return excerpt(self.text(value))


@dataclass(frozen=True, slots=True)
class ResultTable:
    """Rows of a result; `key` names the list of them in JSON."""

    key: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[object]]

    def records(self) -> list[dict[str, object]]:
        """The rows as JSON objects."""
        keys = [column.key for column in self.columns]
        return [dict(zip(keys, row, strict=True)) for row in self.rows]

    def rendered(self) -> RichTable:
        """The rows as a table for a terminal; a value that does not fit goes on in the next line."""
        return self._drawn(self._cells())

    def laid_out(self, width: int) -> tuple[RichTable, list[str]]:
        """The same; where it is wider than this, each remark stands under it once, by the number in its cells."""
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(self._titles(), *cells, strict=True)]
        if sum(widths) + 2 * (len(widths) - 1) <= width:
            return self._drawn(cells), []
        numbers: dict[str, int] = {}
        for row in cells:
            for place, column in enumerate(self._shown()):
                if column.remark and len(row[place]) > _SHORT:
                    row[place] = f"({numbers.setdefault(row[place], len(numbers) + 1)})"
        return self._drawn(cells), [f"({number}) {remark}" for remark, number in numbers.items()]

    def _shown(self) -> list[Column]:
        return [column for column in self.columns if not column.hidden]

    def _titles(self) -> list[str]:
        return [column.title for column in self._shown()]

    def _cells(self) -> list[list[str]]:
        return [
            [one.cell(value) for one, value in zip(self.columns, row, strict=True) if not one.hidden]
            for row in self.rows
        ]

    def _drawn(self, cells: Sequence[Sequence[str]]) -> RichTable:
        table = RichTable(box=None, pad_edge=False, header_style="bold", show_edge=False)
        for column in self._shown():
            table.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
        for row in cells:
            table.add_row(*map(Text, row))  # Text: no markup in data
        return table


@dataclass(frozen=True, slots=True)
class Result:
    """All that a command has to say: `facts` and tables go to programs, tables and `summary` to people.

    `others` are further tables; people see those that have rows.
    """

    summary: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)
    table: ResultTable | None = None
    others: Sequence[ResultTable] = ()


class Output(ABC):
    """Where a command puts what it has to say."""

    def __init__(self, *, logs_json: bool = False) -> None:
        self.logs_json = logs_json
        self.results = _console(stderr=False)
        self.messages = _console(stderr=True)

    @abstractmethod
    def show(self, result: Result) -> None:
        """Put a result on stdout."""

    def note(self, text: str) -> None:
        """Put a remark on stderr: a line of the log, where that is JSON."""
        if self.logs_json:
            logger.info("%s", text)
        else:
            self.messages.print(Text(printable_lines(text)))

    @contextmanager
    def progress(self, what: str, total: float) -> Iterator[Callable[[float], None]]:
        """A bar on stderr for the length of the block; call the yielded function with how much is done by now."""
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
        if self.logs_json or not self.messages.is_terminal:
            yield lambda done: None
            return
        with Progress(*columns, TimeRemainingColumn(), console=self.messages, transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.update(task, completed=done)


class TableOutput(Output):
    """For people."""

    def show(self, result: Result) -> None:
        if result.table is not None:
            self._put(result.table)
        for other in result.others:
            if other.rows:
                self.results.print()
                self._put(other)
        if result.summary:
            self.results.print(Text(printable_lines(result.summary)))

    def _put(self, table: ResultTable) -> None:
        drawn, remarks = table.laid_out(self.results.width)
        self.results.print(drawn)
        for remark in remarks:
            self.results.print(Text(remark))


class JsonOutput(Output):
    """For programs: one JSON object a result, each on a line of its own."""

    def show(self, result: Result) -> None:
        document = dict(result.facts)
        for table in (result.table, *result.others):
            if table is not None:
                document[table.key] = table.records()
        click.echo(printable_json(document))


class _Remarks(Console):
    """A console for remarks: where nobody reads them any more, it says no more, and whatever runs goes on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


def _console(*, stderr: bool) -> Console:
    """A console that prints data as it is; wrapped only at the edge of a terminal."""
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return (_Remarks if stderr else Console)(
        stderr=stderr,
        width=None if terminal else _UNLIMITED,
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=False,
    )


F = TypeVar("F", bound=Callable[..., Any])


def output_option(command: F) -> F:
    """The options `--json` and `--log-format`; the command gets them as `output: Output`."""

    def made(ctx: click.Context, param: click.Parameter, as_json: bool) -> Output:
        made_as = JsonOutput if as_json else TableOutput
        return made_as(logs_json=logs_json(ctx))

    option = click.option("--json", "output", is_flag=True, callback=made, help="Print JSON, for programs.")
    return option(log_options(command))
