"""Events that cannot be computed, in a real instance: some are rejected, all are an outage, one that hangs is a
suspect."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from leasehold.balancing.suspects import SUSPECT_AFTER
from tests.faults.fleet import Fleet

pytestmark = pytest.mark.timeout(280)

ODD = """\
import os, pathlib, time

from pyspark.sql import functions as F

HERE = pathlib.Path(__file__).parent


@F.udf("BIGINT")
def passed(n):
    if (HERE / "outage").exists():
        raise ConnectionError("the service is away")
    if n % 100 == 7:
        raise ValueError(f"{n} is odd")
    while n == 50 and (HERE / "hang").exists():
        time.sleep(0.1)
    return n


def transform(events):
    return events.select("id", passed("n").alias("n"), "hub", "partition", "sequenceNumber", "ownerLevel")
"""


def rejected(fleet: Fleet) -> list[tuple[object, ...]]:
    return fleet.query("SELECT body, reason FROM entities_rejected ORDER BY sequence_number")


def test_exactly_the_events_that_raise_are_rejected(new_fleet: Callable[..., Fleet]) -> None:
    fleet = new_fleet(mode="append", gate=ODD, bad=False, limit=1000)
    fleet.send(75)
    blue = fleet.launch("blue", "--available-now")
    account = blue.account()
    assert (account["applied"], account["rejected"]) == (297, 3)
    assert re.search(r"^\d\d:\d\d:\d\d starting Spark$", blue.said(), re.MULTILINE), "what takes long is said, and when"
    found = rejected(fleet)
    assert {str(reason).partition(" is odd")[0].split()[-1] for _, reason in found} == {"7", "107", "207"}
    assert all(b'"n":' in bytes(body) for body, _ in found if isinstance(body, bytes))
    assert fleet.query("SELECT count(*), count(DISTINCT n) FROM entities") == [(297, 297)]


@pytest.mark.parametrize("outage", [0, pytest.param(60, marks=pytest.mark.soak)])
def test_when_all_fail_nothing_is_rejected_and_a_hang_is_said_and_ends_nothing(
    new_fleet: Callable[..., Fleet], outage: float
) -> None:
    fleet = new_fleet(mode="append", gate=ODD, bad=False, limit=1000, ownership='stall_timeout = "6s"\n')
    (fleet.folder / "outage").touch()
    fleet.send(1)
    blue = fleet.launch("blue")
    fleet.until(lambda: "That is an outage, so nothing is rejected" in blue.said(), "the outage to be said", 300)
    time.sleep(outage)
    assert blue.process.poll() is None
    assert len(fleet.owned_by("blue")) == 4, "what is held stays held"
    (fleet.folder / "outage").unlink()
    fleet.wait_consumed()
    assert rejected(fleet) == []
    assert fleet.query("SELECT count(*) FROM entities") == [(4,)]

    (fleet.folder / "hang").touch()
    fleet.send(12)
    fleet.until(lambda: "no progress for the stall timeout" in blue.said(), "the hang to be said")
    # Asked of the store: a command for each look would keep the machine busier than the instance does.
    fleet.until(
        lambda: any(
            record.failures >= SUSPECT_AFTER and "no progress" in record.last_error
            for record in fleet.records().values()
        ),
        "the partition to be a suspect, with its error",
    )
    assert any("no progress" in (one["lastError"] or "") for one in fleet.status()["suspects"])
    (fleet.folder / "hang").unlink()
    fleet.wait_consumed()
    assert fleet.query("SELECT count(*), count(DISTINCT n) FROM entities") == [(51, 51)]
    assert [str(reason).partition(" is odd")[0].split()[-1] for _, reason in rejected(fleet)] == ["7"]
    assert blue.stop()["applied"] >= 1
