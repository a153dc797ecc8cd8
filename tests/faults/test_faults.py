"""The main job with real processes that are killed, paused and cut off. The table is right every time."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import FunctionType

import pytest

from tests.faults.fleet import EXPIRATION, POISON, Fleet
from tests.faults.instance import Instance, paused

pytestmark = pytest.mark.timeout(240)


APPEND, UPSERT = pytest.param("append"), pytest.param("upsert")
SLOW_APPEND, SLOW_UPSERT, SLOW_MERGE = (
    pytest.param(mode, marks=pytest.mark.soak) for mode in ("append", "upsert", "merge")
)


def again(test: Callable[..., None], *modes: object) -> Callable[..., None]:
    """A test of this module for another one, with the fleet that is made there: the same code, without its marks."""
    copy = FunctionType(test.__code__, test.__globals__, test.__name__)
    copy.__annotations__ = test.__annotations__
    return pytest.mark.parametrize("fleet", modes, indirect=True)(copy) if modes else copy


@pytest.mark.parametrize("fleet", [APPEND, SLOW_UPSERT, SLOW_MERGE], indirect=True)
def test_killed_in_batch_0_and_later_and_replayed_by_another(fleet: Fleet) -> None:
    fleet.send(300)
    fleet.close_gate("blue")
    blue = fleet.launch("blue")
    fleet.wait_in_batch("blue")  # batch 0: nothing has been committed
    blue.kill()
    fleet.open_gate("blue")
    blue, green = fleet.launch("blue"), fleet.launch("green")
    fleet.wait_owned(blue=2, green=2)
    fleet.wait_consumed()
    fleet.check_table()
    assert all(record.owner_level > 1 for record in fleet.records().values())
    fleet.send(300)
    fleet.wait_consumed()
    fleet.check_table()

    # Green commits a batch in the table while no checkpoint can be written, and is killed: blue replays it.
    partition = min(fleet.owned_by("green"))
    fleet.close_gate("green")
    fleet.send(50, partition)
    fleet.wait_in_batch("green")
    with fleet.stores_locked():
        fleet.open_gate("green")
        end = fleet.hub.partition_properties()[partition].end
        fleet.until(lambda: fleet.watermark(partition) == end - 1, "green to have committed its batch")
        green.kill()
    fleet.wait_owned(blue=4)
    fleet.wait_consumed()
    fleet.check_table()
    assert blue.stop()["replayed"] > 0
    assert all(record.owner_id == "" for record in fleet.records().values())


@pytest.mark.parametrize("fleet", [SLOW_APPEND, UPSERT], indirect=True)
def test_paused_for_longer_than_the_expiration(fleet: Fleet) -> None:
    fleet.send(100)
    blue, green = fleet.launch("blue"), fleet.launch("green")
    fleet.wait_owned(blue=2, green=2)
    fleet.wait_consumed()

    # All of it, in the middle of a batch: green takes over, and blue's late batch changes nothing.
    fleet.close_gate("blue")
    fleet.send(100)
    fleet.wait_in_batch("blue")
    with paused(*blue.everything()):
        fleet.wait_owned(green=4)
        fleet.wait_consumed()
        fleet.check_table()
    fleet.open_gate("blue")
    _settle(fleet)

    # Its Python alone: that is what renews.
    with paused(blue.python):
        fleet.send(100)
        fleet.wait_owned(green=4)
        fleet.wait_consumed()
    _settle(fleet)

    # Its JVM alone: Python goes on renewing, so nobody else may go on.
    with paused(blue.jvm):
        fleet.send(100)
        time.sleep(1.5 * EXPIRATION)
        assert len(fleet.owned_by("blue")) == 2
    _settle(fleet)

    # Green's JVM is gone while nothing comes: it gives up what it holds, and ends.
    python = green.python
    green.expected_to_fail = True
    green.jvm.kill()
    fleet.until(lambda: len(fleet.owned_by("blue")) == 4, "blue to own all")
    fleet.until(lambda: green.process.poll() not in (None, 0) or not python.is_running(), "the application to fail")
    assert "Java process has ended" in green.said()
    fleet.send(100)
    fleet.wait_consumed()
    fleet.check_table()
    blue.stop()


def _settle(fleet: Fleet) -> None:
    fleet.wait_owned(blue=2, green=2)
    fleet.send(50)
    fleet.wait_consumed()
    fleet.check_table()


@pytest.mark.parametrize("fleet", [APPEND, SLOW_UPSERT], indirect=True)
def test_store_hub_and_database_away(fleet: Fleet) -> None:
    fleet.send(100)
    blue, green = fleet.launch("blue"), fleet.launch("green")
    fleet.wait_owned(blue=2, green=2)
    fleet.wait_consumed()
    owners = {p: record.owner_id for p, record in fleet.records().items()}

    with fleet.stores_locked():
        fleet.send(100)
        time.sleep(2 * EXPIRATION)
    _settle(fleet)
    with fleet.stores_database.away():
        fleet.send(100)
        time.sleep(2 * EXPIRATION)
    _settle(fleet)
    assert {p: record.owner_id for p, record in fleet.records().items()} == owners, "a healthy fleet shuffled"

    with fleet.kind.away():
        time.sleep(2 * EXPIRATION)
    _settle(fleet)
    with fleet.table_locked():
        fleet.send(100)
        time.sleep(12)  # longer than the table waits for a lock: the batch fails and is tried again
    _settle(fleet)
    blue.stop()
    green.stop()


@pytest.mark.parametrize("fleet", [APPEND, SLOW_UPSERT], indirect=True)
def test_two_available_now_runs(fleet: Fleet) -> None:
    fleet.send(500)
    both = [fleet.launch(name, "--available-now") for name in ("blue", "green")]
    accounts = [instance.account() for instance in both]
    assert sum(account["applied"] for account in accounts) == 2000
    fleet.check_table()
    again = fleet.launch("blue", "--available-now").account()
    assert (again["applied"], again["replayed"], again["superseded"]) == (0, 0, 0), "one more finds nothing to do"
    fleet.check_table()


@pytest.mark.parametrize("fleet", [APPEND], indirect=True)
def test_stopped_by_a_signal_to_all_of_its_processes(fleet: Fleet) -> None:
    """Spark's Java leaves the signal to the application, which finishes the batch at hand: a stop like any other."""
    fleet.send(50)
    blue = fleet.launch("blue")
    fleet.wait_consumed()
    fleet.close_gate("blue")
    fleet.send(50)
    fleet.wait_in_batch("blue")
    blue.signal_all(signal.SIGTERM)
    time.sleep(2)  # time in which Java would end
    assert blue.jvm_runs()
    fleet.open_gate("blue")
    applied = blue.account()["applied"]
    assert applied > 200, "the batch at hand is finished"
    assert fleet.query("SELECT count(*) FROM entities") == [(applied,)]
    _check_clean_end(fleet, blue)


def _check_clean_end(fleet: Fleet, instance: Instance) -> None:
    since = instance.said()[instance.heard :]
    # Not every traceback: Spark's Python workers may print one, or half of one, when Java ends before them.
    for complaint in ("leasehold: ", "ERROR", "py4j", "Exception occurred", "/leasehold/"):
        assert complaint not in since, since
    fleet.until(lambda: all(record.owner_id == "" for record in fleet.records().values()), "all to be given up")
    assert not fleet.store.list_ownership(fleet.group).presences


@pytest.mark.parametrize("fleet", [APPEND], indirect=True)
def test_a_join_reads_no_event_twice(fleet: Fleet) -> None:
    """Blue is in the middle of a batch when green asks for half of what it has; green gets it when that is done."""
    fleet.send(400)
    blue = fleet.launch("blue")
    fleet.wait_owned(blue=4)
    fleet.wait_consumed()
    levels = {p: record.owner_level for p, record in fleet.records().items()}
    fleet.close_gate("blue")
    fleet.send(200)
    fleet.wait_in_batch("blue")
    green = fleet.launch("green")
    fleet.until(lambda: len(fleet.asks()) == 2, "green to ask for its share")
    time.sleep(EXPIRATION)  # nobody takes what a live instance is busy with
    assert len(fleet.owned_by("blue")) == 4
    fleet.send(200)
    fleet.open_gate("blue")
    fleet.wait_owned(blue=2, green=2)
    fleet.send(200)
    fleet.wait_consumed()
    fleet.check_table()
    assert sorted(record.owner_level - levels[p] for p, record in fleet.records().items()) == [0, 0, 1, 1]
    green.signal_all(signal.SIGINT)
    accounts = [green.account(), blue.stop()]
    _check_clean_end(fleet, green)
    assert [(one["replayed"], one["refused"]) for one in accounts] == [(0, 0), (0, 0)]
    assert sum(one["applied"] for one in accounts) == 4000


@pytest.mark.parametrize("fleet", [APPEND], indirect=True)
def test_a_poison_event_stops_nobody(fleet: Fleet) -> None:
    """One event fails every batch it is in: it is found and rejected, and all others are applied."""
    fleet.send(20)
    fleet.poison("1")
    fleet.send(20)
    blue = fleet.launch("blue")
    fleet.wait_consumed()
    fleet.check_table(poison=1)
    ((partition, number, reason),) = fleet.query(
        "SELECT partition, sequence_number, reason FROM entities_rejected WHERE body = ?", POISON
    )
    assert (partition, number) == ("1", 22)
    assert "a poisonous event" in str(reason)
    fleet.send(20)
    fleet.wait_consumed()
    fleet.check_table(poison=1)
    assert blue.stop()["rejected"] == 1 + 3 * 4 * 2
    assert fleet.status()["suspects"] == []


def test_latest_loses_nothing_when_batch_0_is_killed(new_fleet: Callable[..., Fleet]) -> None:
    fleet = new_fleet(mode="append", start="latest")
    fleet.send(100)
    fleet.forget_sent()
    fleet.close_gate("blue")
    blue = fleet.launch("blue")
    fleet.wait_owned(blue=4)
    fleet.until(lambda: len(fleet.checkpoints()) == 4, "the start to be recorded")
    fleet.send(100)
    fleet.wait_in_batch("blue")
    blue.kill()
    fleet.send(100)
    account = fleet.launch("green", "--available-now").account()
    assert account["applied"] == 800
    fleet.check_table()
