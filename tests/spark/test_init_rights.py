"""Files whose table Spark fills, run by a user of Postgres with exactly what `leasehold init --sql` prints."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from leasehold import Event
from leasehold.hubs.log import LogHub
from tests.few_rights import few_rights
from tests.repository import ROOT
from tests.stores.servers import PostgresServer

FILE = """
name = "flights"
[source]
hub = "log:///hub.db"
deduplicate_by = "id"
deduplicate_for = "1h"
[ownership]
store = "{url}"
[transform]
schema = "id STRING, n BIGINT"
sql = "SELECT id, n, hub, partition, sequenceNumber, ownerLevel FROM events"
[sink]
url = "{url}"
table = "flights"
{mode}
"""


def command(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "leasehold", words[0], "flights.toml", *words[1:]],
        cwd=folder, env=dict(os.environ, PYTHONPATH=str(ROOT / "src")), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.more  # three sessions of Spark; what the sink does with these rights is in tests/cli/test_rights.py
@pytest.mark.parametrize("mode", ['keys = ["id"]\ndelete_when = "n < 0"', 'mode = "append"'])
def test_a_run_on_spark_needs_what_init_prints(postgres_server: PostgresServer, tmp_path: Path, mode: str) -> None:
    with few_rights(postgres_server) as few, closing(LogHub.create(tmp_path / "hub.db", partitions=2)) as hub:
        (tmp_path / "flights.toml").write_text(FILE.format(url=few.url, mode=mode))
        hub.send([Event(b'{"id": "a", "n": 1}'), Event(b"no JSON"), Event(b'{"id": "b", "n": 2}')], partition="0")
        few.run(command(tmp_path, "init", "--sql"))
        assert "flights can start" in command(tmp_path, "check", "--timeout", "60")
        command(tmp_path, "run", "--available-now")
        assert few.look("SELECT id, n FROM flights ORDER BY 1") == [("a", 1), ("b", 2)]
        assert few.look("SELECT count(*) FROM flights_rejected") == [(1,)]
