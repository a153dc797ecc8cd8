"""Events that cannot be computed, in a real instance: some are rejected, all are an outage, one that hangs is a
suspect."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from leasehold.balancing.suspects import SUSPECT_AFTER
from tests.faults.fleet import OWNERSHIP, Fleet
from tests.waiting import NEVER, take

pytestmark = pytest.mark.timeout(1200)

STALL = 10.0
"""Seconds without progress after which a batch counts as one that hangs. One that is only slow is then tried again."""
STALLS = OWNERSHIP.replace(f'stall_timeout = "{2 * NEVER}s"', f'stall_timeout = "{STALL}s"')
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


@pytest.mark.more  # tests/spark/test_salvage.py has it in one process
@pytest.mark.parametrize("lasts", [0.0, pytest.param(60.0, marks=pytest.mark.soak)])
def test_none_are_rejected_in_an_outage_and_then_exactly_those_that_raise(
    new_fleet: Callable[..., Fleet], lasts: float
) -> None:
    fleet = new_fleet(mode="append", gate=ODD, bad=False, limit=1000)
    (fleet.folder / "outage").touch()
    fleet.send(1)
    blue = fleet.launch("blue")
    fleet.until(lambda: "That is an outage, so nothing is rejected" in blue.said(), "the outage to be said")
    take(lasts)
    assert blue.process.poll() is None
    assert len(fleet.owned_by("blue")) == 4, "what is held stays held"
    assert re.search(r"^\d\d:\d\d:\d\d starting Spark$", blue.said(), re.MULTILINE), "what takes long is said, and when"
    (fleet.folder / "outage").unlink()
    fleet.wait_consumed()
    assert rejected(fleet) == []
    assert fleet.query("SELECT count(*) FROM entities") == [(4,)]

    fleet.send(75)
    fleet.wait_consumed()
    found = rejected(fleet)
    assert {str(reason).partition(" is odd")[0].split()[-1] for _, reason in found} == {"7", "107", "207"}
    assert all(b'"n":' in bytes(body) for body, _ in found if isinstance(body, bytes))
    assert fleet.query("SELECT count(*), count(DISTINCT n) FROM entities") == [(301, 301)]
    account = blue.stop()
    assert (account["applied"], account["rejected"]) == (301, 3)


@pytest.mark.more
def test_a_hang_is_said_and_ends_nothing(new_fleet: Callable[..., Fleet]) -> None:
    fleet = new_fleet(mode="append", gate=ODD, bad=False, limit=1000, expiration=STALL, ownership=STALLS)
    fleet.send(1)
    blue = fleet.launch("blue")
    fleet.wait_consumed()
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
