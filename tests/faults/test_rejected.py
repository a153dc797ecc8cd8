"""`leasehold rejected retry` as a process of its own, beside an instance that runs."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.faults.fleet import Fleet

MENDED = "SELECT id, CAST(-1 AS BIGINT) AS n, hub, partition, sequenceNumber, ownerLevel FROM events"


@pytest.mark.soak
def test_retry_beside_an_instance(new_fleet: Callable[..., Fleet]) -> None:
    """Bodies of one of the kinds that nobody could read are mended; the instance goes on, and knows nothing of it."""
    fleet = new_fleet(mode="append", limit=40)
    fleet.send(60)
    blue = fleet.launch("blue")
    query = "SELECT count(*) FROM entities_rejected WHERE reason LIKE '%a text%'"

    def count(sql: str) -> int:
        try:
            return int(fleet.query(sql)[0][0])
        except sqlite3.Error:  # the table is not there yet
            return 0

    fleet.until(lambda: count("SELECT count(*) FROM entities") >= 60 * len(fleet.hub.partition_ids()), "all is read")
    bad = count(query)
    assert bad
    before = count("SELECT count(*) FROM entities")
    text = (fleet.folder / "pipeline.toml").read_text()
    mended = text.replace('schema = "id STRING, n BIGINT"', 'schema = "id STRING, n STRING"')
    mended = mended.replace('python = "gate:transform"', f'sql = "{MENDED}"')
    (fleet.folder / "mended.toml").write_text(mended)
    words = [sys.executable, "-m", "leasehold", "rejected", "retry", "mended.toml", "--reason-has", "a text", "--json"]
    said = subprocess.run(words, cwd=fleet.folder, capture_output=True, text=True, timeout=200, check=False)
    assert said.returncode == 0, said.stderr[-2000:]
    told = json.loads(said.stdout)
    assert (told["applied"], told["rejected"], told["left"]) == (bad, 0, [])
    assert count(query) == 0
    assert count("SELECT count(*) FROM entities WHERE n = -1 AND id = 'bad'") == bad
    fleet.send(10)
    fleet.until(lambda: count("SELECT count(*) FROM entities") > before + bad, "the instance goes on")
    assert blue.process.poll() is None
