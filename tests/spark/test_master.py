"""A Spark master that cannot be reached is said at once, and not after a minute of Spark's own silence."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from leasehold.errors import SparkUnavailable
from leasehold.hubs.log.hub import LogHub
from leasehold.spark.session.opening import check_master
from tests.waiting import PATIENCE, until

PIPELINE = """
name = "p"
[source]
hub = "log:///hub.db"
[ownership]
store = "sqlite:///s.db"
[sink]
url = "sqlite:///table.db"
table = "events"
keys = ["id"]
[spark]
master = "{master}"
"""


@pytest.fixture
def closed() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port


def test_only_a_master_that_answers_is_started_on(closed: int) -> None:
    with pytest.raises(SparkUnavailable, match=rf"127.0.0.1:{closed}.*refused.*correct master"):
        check_master(f"spark://127.0.0.1:{closed}")
    with socket.create_server(("127.0.0.1", 0)) as there:
        check_master(f"spark://127.0.0.1:{closed},127.0.0.1:{there.getsockname()[1]}")
    check_master("local[2]")


@pytest.mark.more
def test_a_run_says_what_it_waits_for_and_ends_with_it(tmp_path: Path, closed: int) -> None:
    LogHub.create(tmp_path / "hub.db", partitions=1)
    (tmp_path / "p.toml").write_text(PIPELINE.format(master=f"spark://127.0.0.1:{closed}"))
    saying = (tmp_path / "said").read_text
    with (tmp_path / "said").open("w") as said:
        run = subprocess.Popen(
            [sys.executable, "-m", "leasehold.cli.app", "run", str(tmp_path / "p.toml")], stdout=said, stderr=said
        )
        try:
            until(lambda: "Waiting" in saying() or run.poll() is not None, "it to say what it waits for")
            assert "Waiting for it" in saying()
            run.terminate()
            assert run.wait(PATIENCE) == 1
        finally:
            run.kill()
            run.wait()
    text = saying()
    assert "Traceback" not in text
    assert text.count("leasehold: ") == 1
    assert f"Spark's master spark://127.0.0.1:{closed} cannot be reached" in text.splitlines()[-1]
