"""`leasehold aside`: what is set aside is listed, shown, tried again, dropped, exported, and brought in again mended.

Owns what is shown, and the names: `rejected`, `parked`, `outbox` and `dead-letters` are this command for one kind, with
`--kind` left out. `operations.aside` has the rules.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

import click

from leasehold.cli.aside_help import EXAMPLES, RETRY
from leasehold.cli.options.selection import ListedByDefault
from leasehold.cli.options.settings import set_option
from leasehold.cli.output import Column, Output, Result, ResultTable, output_option, short, utc
from leasehold.errors import ConfigError, MissingDependency
from leasehold.printable import counted, printable

if TYPE_CHECKING:
    from leasehold.operations.aside.contract import Aside, Done, EntryFilter, Left
    from leasehold.operations.aside.exported import ExportedFile
    from leasehold.pipeline_file import PipelineFile

KINDS = ("rejected", "parked", "dropped", "refused", "dead-letters")
NUMBERED = ("refused", "dead-letters")
"""Kinds whose entries have a number and no partition."""
SHOWN = 100
"""Entries that `show` shows."""
HIDDEN = ("hub", "bodyEncoding", "source", "properties", "example")
TITLES = {
    "sequenceNumber": "Event",
    "place": "Row",
    "key": "Entity",
    "next": "Next try",
    "because": "To be skipped",
    "notedBy": "Said by",
    "droppedFor": "Was dropped",
    "source": "With",
    "why": "Left as it is",
}
"""Titles that are not the words of the key."""
WORDS = {
    "applied": "applied",
    "rejected": "rejected still",
    "superseded": "older than what was there",
    "filtered": "filtered by the transform",
    "unread": "going to be read again anyway",
    "gone": "not there any more",
    "duplicates": "sent twice by their producers",
    "parked": "to be tried by the owners of their partitions",
    "retried": "to be tried, or sent, by the owners of their partitions",
    "leftToInstances": "of them of a hub that the pipeline does not read any more: the file names no handler to "
    "call here without Spark, and instances try them within two minutes",
    "triedHere": "of them of a hub that the pipeline does not read any more, tried here",
    "stillParked": "still parked",
    "resubmitted": "sent again",
    "dropped": "dropped",
}
"""What became of entries, for people."""


@dataclass(frozen=True, slots=True)
class Request:
    """What of which target a command was asked for. `everything`: with `--all`; `source`: the file of `--from`."""

    target: str
    settings: tuple[str, ...]
    kind: str | None = None
    table: str | None = None
    events: tuple[str, ...] = ()
    reason_has: str | None = None
    hub: str | None = None
    partition: str | None = None
    key: tuple[str, ...] = ()
    since: str | None = None
    everything: bool = False
    source: IO[str] | None = None

    def choice(self) -> EntryFilter:
        """Which entries. Raises `ConfigError`."""
        from leasehold.operations.aside.contract import EntryFilter, parse_event, parse_number

        parse = parse_number if self.kind in NUMBERED or "://" in self.target else parse_event
        events = frozenset(map(parse, self.events)) if self.events else None
        since = None if self.since is None else _moment(self.since, time.time())
        return EntryFilter(events, self.reason_has, self.hub, self.partition, self.key, since)

    @property
    def some(self) -> bool:
        """Whether options choose among the entries."""
        return any((self.events, self.reason_has, self.hub, self.partition, self.key, self.since))

    def opened(self, close: ExitStack) -> Sequence[Aside]:
        """What is set aside there. Raises `ConfigError`, `UsageError`, `SinkUnavailable` and `QueueUnavailable`."""
        from leasehold.operations.aside.opening import opened
        from leasehold.pipeline_values import parse_settings

        return opened(self.target, self.kind, parse_settings(self.settings), _transform, close, self.table)

    def one(self, close: ExitStack) -> Aside:
        """The only kind that is asked for. Raises `ConfigError`, too."""
        if self.kind is None and "://" not in self.target:
            raise ConfigError("--kind", None, "one kind at a time", f"Give one of {', '.join(KINDS)}")
        return self.opened(close)[0]


def _moment(text: str, now: float) -> float:
    """A time, or how long ago it was, in seconds since 1970. Raises `ConfigError`."""
    from leasehold.config import parse_duration

    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return now - parse_duration(text, "--since")


def _transform(pipeline: PipelineFile) -> Any:
    try:
        from leasehold.spark.retrying import Retransform
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("pyspark", "pyarrow", "py4j"):
            raise MissingDependency("leasehold rejected retry", "spark") from error
        raise
    return Retransform(pipeline)


def list_(request: Request, limit: int, output: Output) -> None:
    """Count what is set aside by reason, and list it. What this shows first, `list`, may be left out.

    Totals are exact, whatever --limit shows. Reasons are counted without their values, for which "…" stands; --json has
    an example of each. A body is cut here, and whole in `show` and in JSON; one that is not UTF-8 text is in base64
    there, and `bodyEncoding` says so.

    Of a pipeline without --kind this counts every kind. Beside rejected rows stand the events that a person has noted
    to be skipped (`leasehold skip`), and beside parked events how many messages of which queue are parked.
    """
    choice = request.choice()
    said, reasons, tables = list[str](), list[dict[str, object]](), list[ResultTable]()
    with ExitStack() as close:
        asides = request.opened(close)
        found = [(aside, aside.survey(choice, limit)) for aside in asides]
        for aside, survey in found:
            none = f"{aside.where} has no {'such ' if request.some else ''}{aside.noun}s"
            said.append(f"{counted(survey.total, aside.noun)} of {aside.where}" if survey.total else none)
            said[-1] += f", the first {limit} are listed" if survey.total > limit and len(found) == 1 else ""
            for group in survey.groups[:limit]:
                times = {"first": utc(group.first), "last": utc(group.last), "example": group.example}
                kind = {"kind": aside.kind} if len(asides) > 1 else {}
                reasons.append({**kind, "reason": group.reason, "count": group.number, **times})
            if len(found) == 1:
                tables.append(_table(_camel(aside.kind), [entry.record for entry in survey.entries]))
            for key, (noun, tail), records in aside.beside():
                tables.append(_table(key, records))
                said += [f"{counted(len(records), noun)} {tail}"] if records else []
        facts = {"where": asides[0].where, "totals": {_camel(aside.kind): survey.total for aside, survey in found}}
    counts = _table("reasons", reasons)
    output.show(Result("; ".join(said), facts, counts if reasons else None, tables if reasons else (counts, *tables)))


def show(request: Request, output: Output) -> None:
    """Show entries whole: reason, body, and what else there is of them. At most 100."""
    choice = request.choice()
    with ExitStack() as close:
        entries = list(islice(request.one(close).chosen(choice), SHOWN))
    for entry in entries:
        there = [(key, value) for key, value in entry.record.items() if value not in (None, "", "{}", {})]
        lines = [f"{_title(key).lower()}: {_whole(value)}" for key, value in there if key != "bodyEncoding"]
        output.show(Result("\n".join(lines) + "\n", entry.record))


def export(request: Request, output: Output) -> None:
    """Print entries whole, a JSON object a line, for `retry --from`. They stay as they are.

    Lines may be left out of the file, and bodies mended. What names an entry has to stay: where it is from, and when it
    was set aside.
    """
    from leasehold.operations.aside.exported import line_of

    choice = request.choice()
    with ExitStack() as close:
        aside = request.one(close)
        for entry in aside.chosen(choice):
            click.echo(line_of(aside.kind, entry.record))


def retry(request: Request, dry_run: bool, output: Output) -> None:
    """Try entries again, as they are, or with the bodies of a file that `export` has written and a person mended."""

    def tried(aside: Aside, choice: EntryFilter, file: ExportedFile | None) -> Done:
        return aside.retry(choice, file, lambda seen: output.note(f"{counted(seen, aside.noun)} tried"))

    _change(request, dry_run, output, tried)


def drop(request: Request, because: str, dry_run: bool, output: Output) -> None:
    """Drop entries for good. The entities of parked events go on as if these had never been.

    Of rejected rows and parked events it is noted which they were, when and why, without their bodies: `leasehold aside
    list --kind dropped` lists the notes. Of other kinds nothing is kept: `export` them before.
    """
    _change(request, dry_run, output, lambda aside, choice, file: aside.drop(choice, because))


def _change(
    request: Request, dry_run: bool, output: Output, change: Callable[[Aside, EntryFilter, ExportedFile | None], Done]
) -> None:
    """Change what was asked for, or say what that is. Raises `ConfigError` for neither some nor all, or both."""
    from leasehold.operations.aside.exported import read_lines

    if [request.some, request.everything, request.source is not None].count(True) != 1:
        rule = "say either which events, or that all are meant"
        raise ConfigError(
            "--all", None, rule, "Give --event, or another option that chooses; or --all, or --from, alone"
        )
    choice, left = request.choice(), list["Left"]()
    with ExitStack() as close:
        aside = request.one(close)
        file = None if request.source is None else read_lines(aside.kind, aside.names, request.source)
        if dry_run:
            entries = list(aside.taken(choice, file, left))
            mended = sum(entry.mended is not None for entry in entries)
            said = [
                f"nothing was changed: {counted(len(entries), aside.noun)} chosen",
                f"{mended:,} with mended bodies",
            ]
            counts: Mapping[str, int] = {"chosen": len(entries), "mended": mended}
        else:
            done = change(aside, choice, file)
            counts, left = done.counts, [*done.left]
            first, *rest = counts
            said = [f"{counted(counts[first], aside.noun)} {WORDS.get(first, first)}"]
            said += [f"{counts[name]:,} {WORDS.get(name, name)}" for name in rest if counts[name]]
    said += [f"{len(left):,} left as they are"] if left else []
    records = [
        {"hub": one.hub, "partition": one.partition, "sequenceNumber": one.number, "why": one.why} for one in left
    ]
    output.show(Result(", ".join(said), counts, None, (_table("left", records),)))


def _table(key: str, records: Sequence[Mapping[str, object]]) -> ResultTable:
    """Records as a table; all have the same keys."""
    keys = [*records[0]] if records else []
    columns = [
        Column(name, _title(name), name in ("sequenceNumber", "place", "count"), _cell, hidden=name in HIDDEN)
        for name in keys
    ]
    return ResultTable(key, columns, [[record[name] for name in keys] for record in records])


def _cell(value: object) -> str:
    return short(", ".join(map(str, value))) if isinstance(value, list) else short(value)


def _whole(value: object) -> str:
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _title(key: str) -> str:
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in key)
    return TITLES.get(key, words[:1].upper() + words[1:])


def _camel(kind: str) -> str:
    return "deadLetters" if kind == "dead-letters" else kind


CHOOSING = (
    click.option(
        *("--event", "events"),
        multiple=True,
        metavar="[PARTITION:]NUMBER",
        help="This one, by partition and sequence number; by number alone where that is its name. May be given more "
        "than once.",
    ),
    click.option("--reason-has", metavar="TEXT", help="Those with this text in their reason."),
    click.option("--key", multiple=True, metavar="[NAME=]VALUE", help="Those of this entity, where that can be read."),
    click.option("--partition", metavar="ID", help="Those of this partition."),
    click.option("--hub", metavar="ID", help="Those of the hub of this identity, where the table has several."),
    click.option("--since", metavar="TIME", help="Those set aside since 2026-11-29T08:00 (UTC), or in the last 2h."),
)
ALL = click.option("--all", "everything", is_flag=True, help="All of the kind.")
DRY_RUN = click.option("--dry-run", is_flag=True, help="Say how many are chosen, and change nothing.")
FILE = click.File(encoding="utf-8", errors="surrogateescape")
FROM = click.option(
    "--from", "source", type=FILE, metavar="FILE", help="Those of this file, with its bodies; - is stdin."
)
AT_MOST = click.IntRange(min=1, max=2**31 - 1)
LIMIT = click.option(
    "--limit", type=AT_MOST, default=20, show_default=True, help="How many entries and reasons to show."
)
TABLE = click.option("--table", metavar="NAME", help="Those of this table, where the pipeline fills several.")
KIND = click.option("--kind", type=click.Choice(KINDS), help="Which kind of what is set aside.")
BECAUSE = click.option("--because", metavar="TEXT", default="", help="Why: kept with the note of what was dropped.")
ACTIONS: Mapping[str, tuple[Callable[..., None], Iterable[Callable[[Any], Any]]]] = {
    "list": (list_, (LIMIT,)),
    "show": (show, ()),
    "retry": (retry, (FROM, ALL, DRY_RUN)),
    "drop": (drop, (ALL, BECAUSE, DRY_RUN)),
    "export": (export, ()),
}


def _command(name: str, action: str, kind: str | None) -> click.Command:
    """An action as a command, for one kind, or for that which `--kind` says."""
    run, options = ACTIONS[action]

    def called(**arguments: Any) -> None:
        given = {field.name: arguments.pop(field.name) for field in fields(Request) if field.name in arguments}
        run(Request(**{"kind": kind, **given}), **arguments)

    metavar = "QUEUE_URL" if kind == "dead-letters" else "PIPELINE.toml" if kind else "PIPELINE.toml|QUEUE_URL"
    decorated: Any = called
    ours = (*(() if kind else (KIND,)), *(() if kind == "dead-letters" else (TABLE,)))
    all_options = click.argument("target", metavar=metavar), *ours, *CHOOSING, *options
    for option in (output_option, set_option, *reversed(all_options)):
        decorated = option(decorated)
    help = f"{run.__doc__}\n\n{RETRY}" if action == "retry" else run.__doc__
    return click.command(name, help=help, short_help=(run.__doc__ or "").partition(".")[0] + ".")(decorated)


def _group(name: str, kind: str | None, short_help: str, names: Mapping[str, str] | None = None) -> click.Group:
    """A group with the actions, each under its own name if `names` has no other."""
    group = ListedByDefault(name, help=f"{short_help}\n\n{EXAMPLES[name]}", short_help=short_help)
    for action in ACTIONS:
        group.add_command(_command((names or {}).get(action, action), action, kind))
    return group


aside = _group("aside", None, "List what is set aside, try it again, drop it, or export it to mend it.")
rejected = _group("rejected", "rejected", "List the rejected events of a pipeline, try them again, or drop them.")
rejected.add_command(_command("dropped", "list", "dropped"))
parked = _group("parked", "parked", "List the events that wait for their handler, try them now, or drop them.")
outbox = _group("outbox", "refused", "List the emitted events that their hub refuses, send them again, or drop them.")
dead_letters = _group(
    *("dead-letters", "dead-letters", "List the dead letters of a queue, send them again, or drop them."),
    {"retry": "resubmit"},
)
