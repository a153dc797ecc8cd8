"""Entity tables, micro-batches and handlers over Spark Connect, with the server that is in PySpark's package."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from leasehold.spark.handlers.jobs import stated_cores
from leasehold.spark.session.keeping import pause_between
from tests.repository import ROOT
from tests.sinks.postgres import Place, place_on
from tests.spark.connect_program import EVENTS, KEYS
from tests.stores.servers import PostgresServer
from tests.waiting import PATIENCE

OUTCOMES = {"keyed": "58 2", "transformed": "58 2", "hung": "57 3", "scattered": "58 2", "leased": "58 2"}
SAID_OF_TABLES = 10
"""The number of lines that the program says of `connect_table`, which come first."""


@dataclass(frozen=True)
class Ran:
    """What the program has said and written."""

    tables: list[str]
    said: list[str]
    place: Place


@pytest.fixture(scope="module", params=[["hung", "leased"], pytest.param([*OUTCOMES], marks=pytest.mark.soak)], ids=len)
def ran(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer
) -> Iterator[Ran]:
    """One program for all tests of this file: most of what it costs is its server."""
    with ExitStack() as stack:
        place = stack.enter_context(place_on(postgres_server.url))
        tables: list[str] = request.param
        yield Ran(tables, _said_by("connect_program", tmp_path_factory.mktemp("connect"), place.url, *tables), place)


def _said_by(program: str, folder: Path, *words: str) -> list[str]:
    """What a program prints in lines that begin with "said "; it ends well.

    Its server has one port, so that one program runs at a time, whichever worker of the tests has started it.
    """
    paths = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    here = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": os.pathsep.join(paths)}
    with Path(tempfile.gettempdir(), "leasehold-connect-programs").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        done = subprocess.run(
            [sys.executable, "-m", f"tests.spark.{program}", folder, *words],
            cwd=folder,
            env={**os.environ, **here},
            capture_output=True,
            text=True,
            timeout=4 * PATIENCE,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return [line.partition("said ")[2] for line in done.stdout.splitlines() if "said " in line]


@pytest.mark.more
def test_a_table_that_batches_and_queries_fill(ran: Ran) -> None:
    assert ran.said[:SAID_OF_TABLES] == [
        "pyspark.sql.connect.dataframe timestamp[us, tz=UTC] 2026-01-31T08:00:00+00:00",
        "True",
        "[{'s': None, 'e': []}, {'s': {'a': [1]}, 'e': []}]",
        "1 0",
        "0 1",
        "[8, 8, 8, 8, 8] 34 6",
        "on_error reject",
        "34 6",
        "['a', 'its schema, 9, i']",
        "1 0 0",
    ]
    assert ran.place.look("SELECT count(*), sum(n) FROM numbers") == [(34, 338)]


@pytest.mark.more
def test_tables_that_handlers_fill(ran: Ran) -> None:
    assert ran.said[SAID_OF_TABLES:-2] == [
        "2 [0, 1, 2, 3, 4, 5, 6, 7] 8",
        "[(0, [0, 1, 2, 3]), (1, [0, 1, 2, 3])]",
        *(f"{table} {OUTCOMES[table]}" for table in ran.tables),
        "url tasks read states, and those of a server of Spark Connect have no file of this machine",
    ]
    for table in ran.tables:
        wrong = (13, 14, 15) if table == "hung" else (13, 14)
        for key, total, trail in ran.place.look(f"SELECT order_id, total, trail FROM {table}"):
            mine = [n for n in range(EVENTS) if f"k{n % KEYS}" == key and n not in wrong]
            applied = [int(n) for n in trail.split()]
            assert (sorted(applied), total) == (mine, sum(mine))
            assert applied == mine or table in ("scattered", "leased"), "what comes late from another partition is late"
        assert ran.place.look(f"SELECT count(*) FROM {table}") == [(KEYS,)]


@pytest.mark.more
def test_a_loop_that_waits_uses_its_session_until_it_ends(ran: Ran) -> None:
    assert ran.said[-2:] == ["[] True", "False"]


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [
        ("3600000ms", 30.0),
        ("60m", 30.0),
        ("45s", 15.0),
        ("9000", 3.0),
        (" 1MIN ", 20.0),
        ("10ms", 0.1),
        ("0", 0.1),
        ("-1", 30.0),
        (None, 30.0),
        ("", 30.0),
        ("soon", 30.0),
        ("9" * 400 + "d", 30.0),
    ],
)
def test_a_session_is_used_three_times_within_its_timeout(timeout: str | None, seconds: float) -> None:
    assert pause_between(timeout) == seconds


@pytest.mark.soak
def test_a_loop_that_waits_for_longer_than_a_session_lives_goes_on(tmp_path: Path) -> None:
    assert _said_by("connect_idle_program", tmp_path) == ["1 event", "another session is closed", "2 events"]


@pytest.mark.parametrize(
    ("stated", "cores"), [("8", 8), ("010", 10), (None, 2), ("", 2), ("0", 2), ("-3", 2), ("many", 2), ("9" * 20, 2)]
)
def test_a_stated_parallelism_that_is_no_number_of_tasks_counts_as_not_stated(stated: str | None, cores: int) -> None:
    assert stated_cores(stated) == cores
