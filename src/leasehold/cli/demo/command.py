"""`leasehold demo`: the main job on real input, with one of two instances killed half way.

Owns a folder of its own for each run, the two processes it starts in it (each with all its children in a
process group of its own) and the comparison at the end. Promises to leave no process and
no file but the picture behind, and to fail if a single row of the table differs from the answer.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from leasehold.cli.demo.course import Course
from leasehold.cli.demo.data import FIELDS, SCHEMA, FlightEvents, State, check_installed, expected_table
from leasehold.cli.output import Output, Result, output_option
from leasehold.cli.status import describe
from leasehold.errors import ConfigError, LeaseholdError, StoreUnavailable
from leasehold.operations.progress import GroupProgress, PartitionProgress, group_progress

PARTITIONS = 8
TIME_LIMIT = 240.0
"""Seconds after which the demo gives up."""
PIPELINE = f"""\
name = "flights"

[source]
hub = "log:///flights-hub.db"
max_events_per_trigger = 25000

[ownership]
store = "sqlite:///leasehold.db"
load_balancing_interval = "1s"
partition_expiration = "7500ms"

[transform]
schema = "{SCHEMA}"
sql = "SELECT {", ".join(FIELDS)}, hub, partition, sequenceNumber, ownerLevel FROM events"

[sink]
url = "sqlite:///entities.db"
table = "flights"
keys = ["flight"]
"""


class DemoFailed(LeaseholdError):
    """The demo did not come to its end, or the table is not the answer."""


@click.command(short_help="Run the main job on a million real events, and check the result.")
@click.option("--flights", "limit", metavar="N", type=click.IntRange(min=1), help="Take only the first N flights.")
@click.option(
    "--picture",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    default=Path("leasehold-demo.svg"),
    show_default=True,
    help="Where the picture of the run goes.",
)
@output_option
def demo(limit: int | None, picture: Path, output: Output) -> None:
    """Run the main job on a million real events, and check the result.

    The events are those of the 336,776 flights that left New York in 2013, keyed by tail number, in an embedded
    log of 8 partitions. Two instances of one pipeline share them and keep a table of flights. Half way one is
    killed; the other takes over. At the end every row is compared with an answer computed straight from the CSV
    file, and a picture is drawn: who owned what and when, how fast, the kill and the take-over.

    \b
    Example:
      leasehold demo
    """
    if not picture.parent.is_dir():
        raise ConfigError("--picture", str(picture), "there is no such folder", "Name a file in one that is there")
    check_installed()
    with tempfile.TemporaryDirectory(prefix="leasehold-demo-") as folder:
        run = _Demo(Path(folder), limit, output)
        events = run.send()
        took_over, seconds = run.process(events)
        rows, differences = run.compare()
    picture.write_text(run.course.picture(), encoding="utf-8")
    if differences:
        raise DemoFailed(f"{len(differences)} of {rows:,} rows differ, for example: {differences[0]}")
    output.show(
        Result(
            summary=f"compared {rows:,} rows of {len(FIELDS)} columns with the answer from the CSV file: all equal\n"
            f"{events:,} events in {seconds:.0f} s: {events / seconds:,.0f} events/s\n"
            f"taken over {took_over:.1f} s after the kill\n"
            f"who owned what, and when: {picture.absolute()}",
            facts={
                "rows": rows,
                "differences": 0,
                "events": events,
                "seconds": round(seconds, 1),
                "eventsPerSecond": round(events / seconds),
                "takeoverSeconds": round(took_over, 1),
                "picture": str(picture.absolute()),
            },
        )
    )


@dataclass
class _Demo:
    folder: Path
    limit: int | None
    output: Output
    instances: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    course: Course = field(default_factory=lambda: Course(0))

    def send(self) -> int:
        """Fill the hub."""
        from leasehold.hubs.log.hub import Keyless, LogHub

        self.output.note("reading the flights of 2013")
        events = FlightEvents(self.limit)
        hub = LogHub.create(self.folder / "flights-hub.db", partitions=PARTITIONS)
        started = time.monotonic()
        sent = 0
        with self.output.progress("sending", len(events)) as advance:
            for table in events.tables():
                sent += hub.send_table(table, keyless=Keyless.ONE_PARTITION)
                advance(sent)
        spent = time.monotonic() - started
        self.output.note(f"sent {sent:,} events to {PARTITIONS} partitions in {spent:.1f} s")
        hub.close()
        return sent

    def process(self, events: int) -> tuple[float, float]:
        """Run two instances, kill one half way, wait for the end. Returns takeover time and time in all."""
        (self.folder / "flights.toml").write_text(PIPELINE, encoding="utf-8")
        try:
            for name in ("blue", "green"):
                self.instances[name] = self._start(name)
            self.output.note("started two instances, blue and green; each waits for its Spark, 10 to 60 seconds")
            return self._watch(events)
        finally:
            for instance in self.instances.values():
                _kill(instance)

    def compare(self) -> tuple[int, list[str]]:
        """How many rows were compared, and what differs."""
        self.output.note("computing the answer from the CSV file")
        answer = expected_table(self.limit)
        columns = ", ".join(FIELDS)
        with contextlib.closing(sqlite3.connect(self.folder / "entities.db")) as connection:
            table: dict[str, State] = {row[0]: row[1:] for row in connection.execute(f"SELECT {columns} FROM flights")}
            (rejected,) = connection.execute("SELECT count(*) FROM flights_rejected").fetchone()
        differences = [
            f"flight {flight}: the table says {table.get(flight)}, the answer {answer.get(flight)}"
            for flight in sorted(answer.keys() | table.keys())
            if answer.get(flight) != table.get(flight)
        ]
        if rejected:
            differences.append(f"{rejected} events were rejected")
        return len(answer), differences

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "leasehold.cli.app", "run", "flights.toml", "--owner-id", name]
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(  # noqa: S603 - our own command
                command, cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def _watch(self, events: int) -> tuple[float, float]:
        course = self.course = Course(events)
        deadline = time.monotonic() + TIME_LIMIT
        with _live(self.output) as show:
            for progress in self._status():
                now = time.monotonic()
                course.note(progress.partitions, now)
                if course.may_kill:
                    _kill(self.instances["blue"])
                    course.killed = time.monotonic()
                show(progress, course.done / events, course.describe())
                if course.done == events and course.killed is None:
                    raise DemoFailed("all was done before both instances had a partition: nothing to take over")
                if course.done == events and course.takeover is not None:
                    break
                self._check_running(course.killed is not None)
                if now > deadline:
                    raise DemoFailed(f"not done after {TIME_LIMIT:.0f} s; the log of green:\n{self._log('green')}")
        self._stop("green")
        assert course.takeover is not None
        return course.takeover, now - course.began

    def _status(self) -> Iterator[GroupProgress]:
        from leasehold.hubs import open_hub
        from leasehold.pipeline_file import read_pipeline_file
        from leasehold.stores import open_store

        file = read_pipeline_file(self.folder / "flights.toml")
        hub, store = open_hub(file.hub_url), open_store(file.ownership_url or "")
        group = hub.consumer_group(file.source.consumer_group)
        expiration = file.ownership.settings().partition_expiration
        while True:
            with contextlib.suppress(StoreUnavailable):
                yield group_progress(hub, group, store, store, expiration)
            time.sleep(0.25)

    def _check_running(self, killed: bool) -> None:
        for name, instance in self.instances.items():
            if instance.poll() is not None and not (killed and name == "blue"):
                raise DemoFailed(f"the instance {name} ended with code {instance.returncode}:\n{self._log(name)}")

    def _stop(self, name: str) -> None:
        """Stop an instance as a user would, and see that it ends well."""
        instance = self.instances[name]
        instance.terminate()
        if instance.wait(timeout=60) != 0:
            raise DemoFailed(f"stopping {name} gave code {instance.returncode}:\n{self._log(name)}")
        self.output.note(f"stopped green: {self._log(name).strip().splitlines()[-1]}")

    def _log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")[-3000:]


def _kill(instance: subprocess.Popen[bytes]) -> None:
    """SIGKILL for a process and all it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(instance.pid, signal.SIGKILL)
    instance.wait()


@contextlib.contextmanager
def _live(output: Output) -> Iterator[Show]:
    """A table that is redrawn in place on a terminal, and a line now and then elsewhere."""
    show = Show(output)
    if output.messages.is_terminal:
        with Live(console=output.messages, auto_refresh=False) as live:
            show.live = live
            yield show
    else:
        yield show


class Show:
    """Shows who owns what, from the first owner on, and says nothing twice: what it waits for was said at the start."""

    EVERY = 5.0
    """Seconds between two lines of the same event."""

    def __init__(self, output: Output) -> None:
        self.live: Live | None = None
        self._output = output
        self._last = 0.0
        self._event = self._said = ""

    def __call__(self, progress: GroupProgress, done: float, event: str) -> None:
        status = describe("flights", progress)
        if self.live is not None and status.table is not None:
            below = Text(f"{done:.0%} done. {event}")
            self.live.update(Group(status.table.rendered(), below), refresh=True)
        elif shares := _shares(progress.partitions):
            line = f"{done:4.0%}  {shares}{'; ' if event else ''}{event}"
            due = event != self._event or time.monotonic() - self._last >= self.EVERY
            if due and line != self._said:
                self._last, self._event, self._said = time.monotonic(), event, line
                self._output.note(line)


def _shares(rows: Sequence[PartitionProgress]) -> str:
    """How many partitions each instance owns; `""` where nobody owns one."""
    owners = [row.owner.partition("/")[0] for row in rows if row.owner]
    return ", ".join(f"{name} owns {owners.count(name)}" for name in sorted(set(owners)))
