"""The main job under faults: what real processes of one pipeline go through, whatever its hub and its stores.

Owns the scenarios. `tests/faults/test_faults*.py` play them on each hub and store: `make test` those that a file names,
and `make soak` all. Instances are killed, paused and cut off; the table is right every time. Nothing expires unless a
scenario lets it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.faults.fleet import POISON, SHORT, Fleet
from tests.faults.instance import Instance
from tests.waiting import take

NewFleet = Callable[..., Fleet]
Scenario = Callable[[NewFleet, str], None]
"""Plays with a fleet that it makes, with the mode of its table."""


def killed_in_batch_0_and_later_and_replayed_by_another(new_fleet: NewFleet, mode: str) -> None:
    fleet = new_fleet(mode=mode)
    fleet.send(300)
    fleet.close_gate("blue")
    blue = fleet.launch("blue")
    fleet.wait_in_batch("blue")  # batch 0: nothing has been committed
    blue.kill()
    fleet.expire("blue")
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
    fleet.expire("green")
    fleet.wait_owned(blue=4)
    fleet.wait_consumed()
    fleet.check_table()
    assert blue.stop()["replayed"] > 0
    assert all(record.owner_id == "" for record in fleet.records().values())


def paused_for_longer_than_the_expiration(new_fleet: NewFleet, mode: str) -> None:
    fleet = new_fleet(mode=mode)
    fleet.send(100)
    blue, green = fleet.launch("blue"), fleet.launch("green")
    fleet.wait_owned(blue=2, green=2)
    fleet.wait_consumed()

    # All of it, in the middle of a batch: green takes over, and blue's late batch changes nothing.
    fleet.close_gate("blue")
    fleet.send(100)
    fleet.wait_in_batch("blue")
    with fleet.paused(*blue.everything()):
        fleet.expire("blue")
        fleet.wait_owned(green=4)
        fleet.wait_consumed()
        fleet.check_table()
    fleet.open_gate("blue")
    _settle(fleet)

    # Its Python alone: that is what renews.
    with fleet.paused(blue.python):
        fleet.send(100)
        fleet.expire("blue")
        fleet.wait_owned(green=4)
        fleet.wait_consumed()
    _settle(fleet)

    # Its JVM alone: Python goes on renewing, so nobody else may go on.
    with fleet.paused(blue.jvm):
        fleet.send(100)
        fleet.wait_renewed("blue")
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


def hub_and_table_away(new_fleet: NewFleet, mode: str) -> None:
    """A batch that finds the table locked is tried until it is not."""
    fleet = new_fleet(mode=mode)
    fleet.send(100)
    blue = fleet.launch("blue")
    fleet.wait_owned(blue=4)
    fleet.wait_consumed()
    with fleet.kind.away():
        fleet.until(lambda: "while the hub is away" in blue.said(), "blue to notice")
    fleet.send(50)
    fleet.wait_consumed()
    fleet.check_table()
    assert {record.owner_level for record in fleet.records().values()} == {1}, "what is held stays held"
    with fleet.table_locked():
        fleet.send(100)
        fleet.until(lambda: "trying again in" in blue.said(), "the batch to fail")
    fleet.wait_consumed()
    fleet.check_table()
    blue.stop()


def stores_away_for_longer_than_the_expiration(new_fleet: NewFleet, mode: str) -> None:
    fleet = new_fleet(mode=mode, expiration=SHORT)
    fleet.send(100)
    blue, green = fleet.launch("blue"), fleet.launch("green")
    fleet.wait_owned(blue=2, green=2)
    fleet.wait_consumed()
    owners = {p: record.owner_id for p, record in fleet.records().items()}
    for outage in (fleet.stores_locked, fleet.stores_database.away):
        with outage():
            fleet.send(100)
            take(2 * SHORT)
        _settle(fleet)
    assert {p: record.owner_id for p, record in fleet.records().items()} == owners, "a healthy fleet shuffled"
    blue.stop()
    green.stop()


def two_available_now_runs(new_fleet: NewFleet, mode: str) -> None:
    fleet = new_fleet(mode=mode)
    fleet.send(500)
    both = [fleet.launch(name, "--available-now") for name in ("blue", "green")]
    accounts = [instance.account() for instance in both]
    assert sum(account["applied"] for account in accounts) == 2000
    fleet.check_table()


def one_more_available_now_run_finds_nothing_to_do(new_fleet: NewFleet, mode: str) -> None:
    fleet = new_fleet(mode=mode)
    fleet.send(500)
    assert fleet.launch("blue", "--available-now").account()["applied"] == 2000
    again = fleet.launch("green", "--available-now").account()
    assert (again["applied"], again["replayed"], again["superseded"]) == (0, 0, 0)
    fleet.check_table()


def a_join_reads_no_event_twice_and_a_signal_to_all_processes_ends_in_order(new_fleet: NewFleet, mode: str) -> None:
    """Blue is in the middle of a batch when green asks for half of what it has; green gets it when that is done.

    Then SIGTERM goes to all of green's processes in the middle of a batch: Spark's Java leaves the signal to the
    application, which finishes the batch at hand. A stop like any other.
    """
    fleet = new_fleet(mode=mode)
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
    fleet.wait_renewed("blue")  # nobody takes what a live instance is busy with
    assert len(fleet.owned_by("blue")) == 4
    fleet.send(200)
    fleet.open_gate("blue")
    fleet.wait_owned(blue=2, green=2)
    fleet.send(200)
    fleet.wait_consumed()
    fleet.check_table()
    assert sorted(record.owner_level - levels[p] for p, record in fleet.records().items()) == [0, 0, 1, 1]

    fleet.close_gate("green")
    fleet.send(50)
    fleet.wait_in_batch("green")
    assert green.java_ignores(signal.SIGTERM)
    green.signal_all(signal.SIGTERM)
    fleet.open_gate("green")
    account = green.account()
    _check_clean_end(fleet, green)
    fleet.wait_consumed()
    blue.signal_all(signal.SIGINT)
    accounts = [account, blue.account()]
    _check_clean_end(fleet, blue)
    assert not fleet.store.list_ownership(fleet.group).presences
    fleet.check_table()
    assert [(one["replayed"], one["refused"]) for one in accounts] == [(0, 0), (0, 0)]
    assert sum(one["applied"] for one in accounts) == 4 * 1050
    assert account["restarts"] == 0, "the batch at hand is finished"


def _check_clean_end(fleet: Fleet, instance: Instance) -> None:
    since = instance.said()[instance.heard :]
    # Not every traceback: Spark's Python workers may print one, or half of one, when Java ends before them.
    for complaint in ("leasehold: ", "ERROR", "py4j", "Exception occurred", "/leasehold/"):
        assert complaint not in since, since
    fleet.until(lambda: not fleet.owned_by(instance.name), "what it had to be given up")


def a_poison_event_stops_nobody(new_fleet: NewFleet, mode: str) -> None:
    """One event fails every batch it is in: it is found and rejected, and all others are applied."""
    fleet = new_fleet(mode=mode)
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


def latest_loses_nothing_when_batch_0_is_killed(new_fleet: NewFleet, mode: str) -> None:
    fleet = new_fleet(mode=mode, start="latest")
    fleet.send(100)
    fleet.forget_sent()
    fleet.close_gate("blue")
    blue = fleet.launch("blue")
    fleet.wait_owned(blue=4)
    fleet.until(lambda: len(fleet.checkpoints()) == 4, "the start to be recorded")
    fleet.send(100)
    fleet.wait_in_batch("blue")
    blue.kill()
    fleet.expire("blue")
    fleet.send(100)
    account = fleet.launch("green", "--available-now").account()
    assert account["applied"] == 800
    fleet.check_table()


CASES: tuple[tuple[Scenario, str], ...] = (
    (killed_in_batch_0_and_later_and_replayed_by_another, "append"),
    (killed_in_batch_0_and_later_and_replayed_by_another, "upsert"),
    (killed_in_batch_0_and_later_and_replayed_by_another, "merge"),
    (paused_for_longer_than_the_expiration, "append"),
    (paused_for_longer_than_the_expiration, "upsert"),
    (hub_and_table_away, "append"),
    (stores_away_for_longer_than_the_expiration, "append"),
    (stores_away_for_longer_than_the_expiration, "upsert"),
    (two_available_now_runs, "append"),
    (two_available_now_runs, "upsert"),
    (one_more_available_now_run_finds_nothing_to_do, "append"),
    (a_join_reads_no_event_twice_and_a_signal_to_all_processes_ends_in_order, "append"),
    (a_poison_event_stops_nobody, "append"),
    (latest_loses_nothing_when_batch_0_is_killed, "append"),
)
"""Each scenario with the modes of a table that it is played in."""


def played(*quick: tuple[Scenario, str]) -> pytest.MarkDecorator:
    """Parameters `scenario` and `mode` of a test: all cases. Those that are not `quick` are for `make soak`."""
    assert set(quick) <= set(CASES)
    return pytest.mark.parametrize(
        ("scenario", "mode"),
        [
            pytest.param(*case, id=f"{case[0].__name__}-{case[1]}", marks=() if case in quick else pytest.mark.soak)
            for case in CASES
        ],
    )
