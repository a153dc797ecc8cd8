"""`leasehold send`: the rows of files become events of a hub.

Owns the making of an embedded log that does not exist yet, and the account of what was sent when something
fails in between: sending is not one transaction, neither across files nor within one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from leasehold.backends import local_file_of, masked
from leasehold.cli.options.waiting import said_when_slow
from leasehold.cli.output import Column, Output, Result, ResultTable, output_option
from leasehold.errors import ConfigError, LeaseholdError, MissingDependency
from leasehold.hubs import Hub, open_hub
from leasehold.model import Event
from leasehold.printable import counted, span
from leasehold.settings.names import naming

if TYPE_CHECKING:
    import pyarrow as pa

    from leasehold.cli.rows.row_file import FileRows, RowFile
    from leasehold.formats.avro.writing import AvroWriter

    BodyWriter = Callable[[pa.Array], tuple[pa.Array, int | None, str]]
    """As `AvroWriter.write`."""

_COLUMNS = (Column("file", "File"), Column("events", "Events", right=True))


@click.command(short_help="Send the rows of files to a hub, as events.")
@click.argument("hub", metavar="HUB_URL")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--partition-key",
    "key",
    metavar="COLUMN",
    required=True,
    help="The column whose text is the partition key. Rows of one key keep their order; rows where it is null "
    "all go to one partition.",
)
@click.option(
    "--partitions",
    metavar="N",
    type=click.IntRange(min=1),
    help="Make an embedded log with N partitions (4 if not said), or grow one that has fewer.",
)
@click.option(
    "--null", "nulls", metavar="TEXT", multiple=True, help="A text that stands for null in CSV files. Repeatable."
)
@click.option(
    "--batch-rows",
    metavar="N",
    type=click.IntRange(min=1, max=1_000_000),
    default=40_000,
    show_default=True,
    help="The most rows that are read and sent at once.",
)
@click.option(
    "--avro-schema",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the bodies in Avro by this schema (.avsc), in place of JSON. It takes the extra avro.",
)
@click.option(
    "--registry",
    metavar="URL",
    help="Register that schema there, as the value of the topic, and begin each body with its number, as Confluent's "
    "serializers do. It takes the extra registry.",
)
@output_option
def send(
    hub: str,
    files: tuple[Path, ...],
    key: str,
    partitions: int | None,
    nulls: tuple[str, ...],
    batch_rows: int,
    avro_schema: Path | None,
    registry: str | None,
    output: Output,
) -> None:
    """Send the rows of files to a hub, as events.

    Each row becomes one event; its body is the row as a JSON object, or with --avro-schema in Avro. FILE is CSV
    (.csv), JSON lines (.jsonl, .ndjson, .json), each also with .gz, or Parquet (.parquet). An embedded log that
    does not exist is made.

    A line of JSON goes as it is written, digit for digit; only NaN in it becomes null. One in which a name
    occurs twice in an object is refused.

    \b
    Example:
      leasehold send log:///hubs/flights.db flights.csv --partition-key tailnum --partitions 8

    What a value of Parquet becomes: numbers and true/false stay what they are, NaN becomes null, infinity
    is refused. Dates, times and timestamps become ISO 8601 text (in UTC with a Z where they have a time
    zone), decimals become text, binary becomes base64 text, null stays null.

    In a CSV file (UTF-8, with a header) a column is numbers if every value in it is one, digit for digit;
    else true/false if every value is; else text, with a warning where nearly all are numbers. A number with
    a leading zero or a plus is text. An empty field is null; NA, N/A, #N/A, NaN, null, NULL and None are
    null in a column of numbers or true/false. A CSV file with a bad row is refused before anything of it is
    sent.

    With --avro-schema each field of the schema takes the column of its name, by the rules for bodies: a row
    that the schema does not hold exactly is refused; columns without a field are left out. With --registry
    as well, the subject is the name of the topic (or of the event hub, or of the log's file) and "-value".

    Sending is not one transaction: when it fails, the message says how many events have been sent by then.
    Sending a file again sends its rows again.
    """
    try:
        from leasehold.cli.rows.files import open_rows
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "pyarrow":
            raise MissingDependency("leasehold send", "log") from error
        raise
    with _nothing_sent():
        avro = None if avro_schema is None else _in_avro(avro_schema)
        if registry is not None and avro is None:
            raise ConfigError("--registry", masked(registry), "is for bodies in Avro", "Give --avro-schema as well")
        sources = [open_rows(path, key, batch_rows=batch_rows, nulls=nulls) for path in files]
        with said_when_slow(masked(hub)):
            target = _opened(hub, partitions)
    try:
        write: BodyWriter | None = None if avro is None else avro.write
        if registry is not None and avro is not None:
            with _nothing_sent():
                write = _registered(avro, registry, target.url)
        started = time.monotonic()
        counts = _send_all(sources, target, output, write)
        seconds = time.monotonic() - started
        with said_when_slow(masked(hub)):
            count = len(target.partition_ids())
    finally:
        target.close()
    total = sum(counts)
    rate = round(total / seconds) if seconds else total
    output.show(
        Result(
            summary=f"sent {counted(total, 'event')} to {target.url} ({counted(count, 'partition')}) "
            f"in {span(seconds)}, {rate:,} a second",
            facts={
                "hub": target.url,
                "partitions": count,
                "events": total,
                "seconds": round(seconds, 3),
                "eventsPerSecond": rate,
            },
            table=ResultTable(
                "files", _COLUMNS, [(str(f.path), sent) for f, sent in zip(sources, counts, strict=True)]
            ),
        )
    )


@contextmanager
def _nothing_sent() -> Iterator[None]:
    """Have an error of the block say that nothing has been sent."""
    try:
        yield
    except LeaseholdError as error:
        error.add_note("Nothing has been sent.")
        raise


def _opened(url: str, partitions: int | None) -> Hub:
    """The hub; an embedded log is made if it is missing, and grown if `partitions` says so."""
    if url.startswith("log://"):
        from leasehold.hubs.log.hub import LogHub

        return LogHub.create(local_file_of(url, Path.cwd(), "hub"), partitions=partitions)
    if partitions is not None:
        raise ConfigError(
            "--partitions", partitions, "only an embedded log (log://) is made by this command", "Leave it out"
        )
    return open_hub(url)


@dataclass
class Account:
    """What is in the hub by now: the events of the files that are done, and of the one at hand.

    Of the file at hand `within` events are known to be there. The first `whole` rows are among them, and the others are
    of the `sending` rows behind these, which the hub was given last.
    """

    counts: list[int] = field(default_factory=list)
    within: int = 0
    whole: int = 0
    sending: int = 0

    def add(self, count: int) -> None:
        """The hub has taken another `count` events."""
        self.within += count

    def rows_done(self) -> None:
        """All rows that the hub was given are there."""
        self.whole, self.sending = self.within, 0

    def file_done(self) -> None:
        """The next file begins."""
        self.counts.append(self.within)
        self.within = self.whole = 0

    def sentence(self, path: Path, *, exact: bool) -> str:
        """What there is to say when the file at hand, `path`, fails. `exact`: nothing is there but what is known of."""
        total = sum(self.counts) + self.within
        exact = exact or not self.sending
        if not total and exact:
            return "Nothing has been sent."
        if not total:
            return f"Of {path} some of the {self.sending:,} rows being sent may be in the hub. They stay there."
        said = f"By then {counted(total, 'event')} had been sent, {self.within:,} of them from {path}"
        if part := self.within - self.whole:
            some = f"{part:,} of the next" if self.whole else f"{part:,} of its first"
            whole = f"its first {self.whole:,} rows, and " if self.whole else ""
            said += f" ({whole}{some} {self.sending:,}, not in the order of the file)"
        if not exact:
            said += f", and perhaps more of the {self.sending:,} rows that were being sent"
        return f"{said}. They stay in the hub."


def _in_avro(path: Path) -> AvroWriter:
    """What writes rows by the schema in this file."""
    from leasehold.body_format import schema_text

    try:
        from leasehold.formats.avro.writing import AvroWriter
    except ModuleNotFoundError as error:
        raise MissingDependency("leasehold send --avro-schema", "avro") from error
    with naming(lambda _: "--avro-schema"):
        return AvroWriter(schema_text(str(path), Path()))


def _registered(avro: AvroWriter, registry: str, hub: str) -> BodyWriter:
    """What writes rows behind the number that the schema has in a registry, as the value of this hub's topic."""
    from leasehold.formats.schema_headers import with_header
    from leasehold.registries import open_registry
    from leasehold.registries.confluent import ConfluentRegistry

    topic = urlsplit(hub).path.rpartition("/")[2].removesuffix(".db")
    with said_when_slow(masked(registry)), naming(lambda _: "--registry"):
        found = open_registry(registry)
        if not isinstance(found, ConfluentRegistry):
            rule = "only Confluent's registries are written to: here bodies begin with the numbers of schemas"
            raise ConfigError("registry", masked(registry), rule, "Leave it out, or send with Azure's own encoder")
        number = found.register(f"{topic}-value", avro.text)

    def write(bodies: pa.Array) -> tuple[pa.Array, int | None, str]:
        written, bad, reason = avro.write(bodies)
        return with_header(written, number), bad, reason

    return write


def _send_all(sources: Sequence[RowFile], hub: Hub, output: Output, write: BodyWriter | None) -> list[int]:
    """Send the files one after another; how many events each had. An error carries a note of what was sent."""
    send, account = _sender(hub), Account()
    before = 0
    try:
        with output.progress("sending", sum(source.size for source in sources)) as done:
            for source in sources:
                for rows in source.rows() if write is None else _written(source, write):
                    account.sending = len(rows.bodies)
                    with said_when_slow(masked(hub.url)):
                        send(rows, account.add)
                    account.rows_done()
                    done(before + rows.bytes_read)
                account.file_done()
                before += source.size
                done(before)
    except BaseException as error:
        if len(account.counts) < len(sources):
            path = sources[len(account.counts)].path
            error.add_note(account.sentence(path, exact=_leaves_nothing(hub) and isinstance(error, Exception)))
        raise
    return account.counts


def _written(source: RowFile, write: BodyWriter) -> Iterator[FileRows]:
    """The rows of a file with their bodies in Avro. Raises `UsageError` for a row that the schema does not take."""
    done = 0
    for rows in source.rows():
        bodies, bad, reason = write(rows.bodies)
        if bad is not None:
            source.refuse(reason, f"row {done + bad + 1}")
        done += len(bodies)
        yield replace(rows, bodies=bodies)


def _leaves_nothing(hub: Hub) -> bool:
    """Whether an append that raises has left nothing in the hub. On a server it may be there all the same."""
    from leasehold.hubs.log.hub import LogHub

    return isinstance(hub, LogHub)


def _sender(hub: Hub) -> Callable[[FileRows, Callable[[int], object]], object]:
    """How rows are sent: as Arrow where the hub takes it. Events without a key keep to one partition.

    It is given what to call with the number of events each time that some of the rows are in the hub.
    """
    from leasehold.hubs.log.hub import Keyless, LogHub

    if isinstance(hub, LogHub):
        log = hub
        return lambda rows, sent: log.send_table(rows.table(), keyless=Keyless.ONE_PARTITION, appended=sent)

    def as_events(rows: FileRows, sent: Callable[[int], object]) -> None:
        pairs = zip(rows.bodies.to_pylist(), rows.keys.to_pylist(), strict=True)
        sent(hub.send(Event(body, partition_key="" if key is None else key) for body, key in pairs))

    return as_events
