"""What `leasehold status` says of a group in the middle of something."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from leasehold.cli.app import app
from leasehold.cli.output import TableOutput
from leasehold.cli.status import describe
from leasehold.hubs.base import FirstEvent, HeldBack
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Ask, Checkpoint, Ownership, Presence
from leasehold.operations.lag_times import GroupTimes, lag_times
from leasehold.operations.progress import GroupProgress, group_progress
from leasehold.stores.base import StoreFeatures
from leasehold.stores.memory.store import MemoryStore
from leasehold_testkit.clock import ManualClock
from leasehold_testkit.simulation.hub import SimulatedHub


class Scene:
    """A group of one hub, whose records a test writes itself."""

    def __init__(self, folder: Path, features: StoreFeatures | None = None) -> None:
        self.hub = LogHub.create(folder / "hub.db", partitions=3)
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock, features)
        self.group = self.hub.consumer_group("g")

    def own(self, partition: str, owner: str, **more: object) -> Ownership:
        record = Ownership(self.group, partition, owner, 5)
        [record] = self.store.claim_ownership([dataclasses.replace(record, **more)])  # type: ignore[arg-type]
        return record

    def announce(self, owner: str, **more: object) -> None:
        presence = dataclasses.replace(Presence(self.group, owner), **more)  # type: ignore[arg-type]
        self.store.renew_ownership([], presence)

    def look(self) -> GroupProgress:
        return group_progress(self.hub, self.group, self.store, self.store, 30.0)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_an_instance_without_a_partition_is_named(scene: Scene) -> None:
    scene.announce("a/1", pipeline="flights")
    scene.announce("b/2")
    scene.own("0", "a/1")
    progress = scene.look()
    assert [(one.owner_id, one.partitions, one.pipeline) for one in progress.instances] == [
        ("a/1", 1, "flights"),
        ("b/2", 0, ""),
    ]
    said = describe("flights", progress)
    assert said.summary == "flights: 3 partitions, 2 instances, lag 0\nwithout a partition: b/2"
    assert said.facts["instances"] == ["a/1", "b/2"]
    assert said.table is not None
    assert [column.key for column in said.table.columns][-1] == "lag"


def test_what_others_wrote_is_one_short_line_for_people_and_whole_for_programs(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = f"b\n0  z/1  \x1b[2J{'x' * 1_000_000}"
    scene.announce(hostile)
    scene.store.update_checkpoints([Checkpoint(scene.group, "0", -1, 5)])
    scene.own("0", f"a{hostile}", failures=3, last_error=hostile)
    record = scene.own("1", "c/1")
    scene.store.ask([Ask(scene.group, "1", record.owner_level, hostile)])
    said = describe("flights", scene.look())
    TableOutput().show(said)
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == ["Partition", "0", "1", "2", "flights:", "without"]
    assert all(line.isprintable() and len(line) < 6_000 for line in shown)
    assert "3 owners in a row came to a bad end and no event was done, taken last: b\\n0" in shown[1]
    assert shown[2].rstrip().endswith("… waits for it")
    assert said.facts["instances"] == sorted([f"a{hostile}", hostile, "c/1"])
    assert said.facts["suspects"] == [{"partition": "0", "failures": 3, "lastError": hostile}]


def test_the_dead_do_not_count(scene: Scene) -> None:
    scene.announce("a/1")
    scene.own("0", "b/2")
    scene.clock.advance(31)
    scene.announce("c/3")
    assert [one.owner_id for one in scene.look().instances] == ["c/3"]


def test_a_notebook_shows_a_table_and_no_html_of_others(scene: Scene) -> None:
    scene.own("0", "<b>/1")
    scene.own("1", "dead/1")
    scene.clock.advance(31)
    scene.own("0", "<b>/1", etag=scene.store.list_ownership(scene.group).records[0].etag)
    shown = scene.look()._repr_html_().splitlines()
    assert shown[1] == "<caption>3 partitions, 1 instances, lag 0</caption>"
    assert shown[3:6] == [
        "<tr><td>0</td><td>&lt;b&gt;/1</td><td>5</td><td>-</td><td>0</td><td>0</td></tr>",
        "<tr><td>1</td><td>dead/1 (expired)</td><td>5</td><td>-</td><td>0</td><td>0</td></tr>",
        "<tr><td>2</td><td>-</td><td>0</td><td>-</td><td>0</td><td>0</td></tr>",
    ]


def test_without_a_clock_every_owner_counts_and_no_age_is_given(tmp_path: Path) -> None:
    scene = Scene(tmp_path, StoreFeatures(shared=True, own_clock=False))
    scene.own("0", "a/1")
    scene.clock.advance(1000)
    progress = scene.look()
    assert (progress.partitions[0].alive, progress.partitions[0].age) == (True, None)


def test_what_nobody_has_room_for(scene: Scene) -> None:
    scene.announce("a/1", maximum=1)
    scene.own("1", "a/1")
    progress = scene.look()
    assert progress.unserved == ("0", "2")
    said = describe("flights", progress)
    assert "no instance takes partitions 0, 2: each that is there has its maximum_partitions" in said.summary
    assert said.facts["unserved"] == ["0", "2"]


def test_a_group_that_nobody_runs_has_nothing_unserved(scene: Scene) -> None:
    assert scene.look().unserved == ()


def test_who_waits_for_a_partition(scene: Scene) -> None:
    scene.own("0", "a/1")
    scene.store.ask([Ask(scene.group, "0", 5, "b/2"), Ask(scene.group, "1", 5, "b/2")])
    said = describe("flights", scene.look())
    assert said.table is not None
    assert [row["remark"] for row in said.table.records()] == ["b/2 waits for it", "", ""]


def test_a_suspect_is_shown_with_its_error_until_its_checkpoint_moves(scene: Scene) -> None:
    for partition in ("0", "1"):
        scene.hub.append(pa.table({"body": pa.array([b"x"] * 9, pa.binary())}), partition=partition)
    scene.store.update_checkpoints([Checkpoint(scene.group, "0", 4, 5), Checkpoint(scene.group, "1", 4, 5)])
    scene.own("0", "a/1", claimed_at=4, failures=3, last_error="out of memory")
    scene.own("1", "a/1", claimed_at=4, failures=1, last_error="killed")
    said = describe("flights", scene.look())
    assert said.table is not None
    assert [row["remark"] for row in said.table.records()] == [
        "3 owners in a row came to a bad end and no event was done, taken last: out of memory",
        "1 owner came to a bad end and no event was done: killed",
        "",
    ]
    assert said.facts["suspects"] == [{"partition": "0", "failures": 3, "lastError": "out of memory"}]
    scene.store.update_checkpoints([Checkpoint(scene.group, "0", 5, 5)])
    assert describe("flights", scene.look()).facts["suspects"] == []


def test_what_a_person_has_to_mend_is_shown_until_the_checkpoint_moves(scene: Scene) -> None:
    scene.hub.append(pa.table({"body": pa.array([b"x"] * 9, pa.binary())}), partition="0")
    scene.store.update_checkpoints([Checkpoint(scene.group, "0", 4, 5)])
    scene.own("0", "a/1", claimed_at=4, last_error="no INSERT on flights")
    said = describe("flights", scene.look())
    assert said.table is not None
    assert said.table.records()[0]["remark"] == "waits until a person mends this: no INSERT on flights"
    assert (said.facts["toMend"], said.facts["suspects"]) == (
        [{"partition": "0", "lastError": "no INSERT on flights"}],
        [],
    )
    scene.store.update_checkpoints([Checkpoint(scene.group, "0", 5, 5)])
    assert describe("flights", scene.look()).facts["toMend"] == []


# the lag in seconds, and what is left until retention removes what is unread


def appended(scene: Scene, partition: str, at: float, count: int = 5) -> None:
    """Events that were enqueued at a time."""
    clock = ManualClock()
    clock.advance(at - clock.wall())
    LogHub(scene.hub.url.removeprefix("log:///"), clock=clock).append(
        pa.table({"body": pa.array([b"x"] * count, pa.binary())}), partition=partition
    )


def times_at(scene: Scene, now: float, retention: float | None = None) -> GroupTimes:
    return lag_times(scene.hub, scene.look().partitions, now, retention=retention)


NOON = 1_800_000_000.0


def test_the_lag_in_seconds_is_the_age_of_the_first_unread_event(scene: Scene) -> None:
    appended(scene, "0", NOON)
    appended(scene, "0", NOON + 100)
    appended(scene, "1", NOON + 200)
    scene.store.update_checkpoints([Checkpoint(scene.group, "0", 4, 1)])
    times = times_at(scene, NOON + 300, retention=250.0)
    assert [one.lag for one in times.partitions] == [200.0, 100.0, 0.0]
    assert [one.left for one in times.partitions] == [50.0, 150.0, None]
    assert (times.lag, times.left, times.retention) == (200.0, 50.0, 250.0)
    scene.store.update_checkpoints([Checkpoint(scene.group, "0", 3, 2)])
    assert times_at(scene, NOON + 300, retention=250.0).partitions[0].left == 0.0, "it may be removed at any moment"


def test_a_group_that_stands_still_falls_behind_though_nothing_comes(scene: Scene) -> None:
    appended(scene, "2", NOON)
    assert [times_at(scene, NOON + passed).lag for passed in (0, 60, 3600)] == [0.0, 60.0, 3600.0]


def test_a_clock_that_is_behind_makes_no_event_from_the_future(scene: Scene) -> None:
    appended(scene, "2", NOON)
    assert times_at(scene, NOON - 5).lag == 0.0


def test_the_first_event_that_is_left_counts_where_retention_was_faster(scene: Scene) -> None:
    for at in (0, 100):
        appended(scene, "0", NOON + at)
    clock = ManualClock()
    clock.advance(NOON + 200 - clock.wall())
    assert LogHub(scene.hub.url.removeprefix("log:///"), clock=clock).retain(max_age=150) == 5
    scene.store.update_checkpoints([Checkpoint(scene.group, "0", 1, 1)])
    assert times_at(scene, NOON + 200).lag == 100.0
    said = describe("flights", scene.look(), times_at(scene, NOON + 200))
    assert said.table is not None
    assert said.table.records()[0]["remark"] == "the hub has removed what was unread from 2 up to 5"


def test_a_hub_that_ends_before_what_was_read_is_said(scene: Scene) -> None:
    appended(scene, "0", NOON)
    scene.store.update_checkpoints([Checkpoint(scene.group, "0", 11, 1)])
    end = scene.hub.partition_properties()["0"].end
    said = describe("flights", scene.look())
    assert said.table is not None
    assert said.table.records()[0]["remark"] == (
        f"the hub ends at {end}, before what was read: it has lost acknowledged events"
    )


def test_a_log_keeps_events_until_it_is_told_otherwise(scene: Scene) -> None:
    appended(scene, "0", NOON)
    times = times_at(scene, NOON + 100)
    assert times.retention == math.inf
    said = describe("flights", scene.look(), times)
    assert said.facts["secondsLeft"] is None
    assert said.facts["retention"] == {"known": True, "seconds": None}
    assert said.table is not None
    assert [cell.text(None) for cell in said.table.columns][-1] == "never"


class Silent(SimulatedHub):
    """A hub that says nothing of times, as any that leaves the defaults of `Hub` as they are."""

    def __init__(self) -> None:
        super().__init__(3, 0.0, lambda: 0.0)


class Gaps(Silent):
    """A hub whose numbers have gaps."""

    has_gaps = True

    def __init__(self, firsts: dict[str, FirstEvent], held: dict[str, HeldBack]) -> None:
        super().__init__()
        self.firsts, self.held = firsts, held

    def first_events(self, starts: Mapping[str, int], timeout: float) -> dict[str, FirstEvent]:
        return {partition: one for partition, one in self.firsts.items() if partition in starts}

    def held_back(self, partitions: Sequence[str], timeout: float) -> dict[str, HeldBack]:
        return self.held


def test_numbers_without_an_event_are_no_lag_and_what_is_held_back_is_said(scene: Scene) -> None:
    for partition in ("0", "1", "2"):
        appended(scene, partition, NOON, 10)
    firsts = {"0": FirstEvent(10, None), "1": FirstEvent(6, NOON), "2": FirstEvent(12, NOON)}
    times = lag_times(
        Gaps(firsts, {"0": HeldBack(7, NOON - 3600), "1": HeldBack(1, None)}),
        scene.look().partitions,
        NOON + 60,
        retention=100.0,
    )
    assert [(one.unread, one.lag, one.left) for one in times.partitions] == [
        (0, 0.0, None),
        (4, 60.0, 40.0),
        (0, 0.0, None),
    ]
    said = describe("flights", scene.look(), times)
    assert said.facts["lag"] == 4
    assert said.facts["heldBack"] == 8
    assert "does not tell how old" not in said.summary
    assert said.table is not None
    assert [(row["lag"], row["remark"]) for row in said.table.records()] == [
        (0, "an open transaction holds back 7 offsets behind the end, the oldest for 61 minutes"),
        (4, "an open transaction holds back 1 offset behind the end"),
        (0, ""),
    ]


def test_what_is_not_known_is_said_to_be_unknown(scene: Scene) -> None:
    appended(scene, "0", NOON)
    progress = scene.look()
    times = lag_times(Silent(), progress.partitions, NOON)
    assert [(one.lag, one.left) for one in times.partitions] == [(None, None), (0.0, None), (0.0, None)]
    said = describe("flights", progress, times)
    assert "does not tell how old" in said.summary
    assert said.facts["retention"] == {"known": False, "seconds": None}
    assert said.table is not None
    unread, left = said.table.columns[-2:]
    assert (unread.text(None), left.text(None)) == ("unknown", "unknown")


PIPELINE = """
name = "flights"
[source]
hub = "log:///hub.db"
{source}
[ownership]
store = "sqlite:///leasehold.db"
[sink]
url = "sqlite:///entities.db"
table = "flights"
keys = ["id"]
"""


@pytest.mark.parametrize(
    ("source", "options", "retention"),
    [
        ("", [], None),
        ('retention = "1d"', [], 86_400.0),
        ('retention = "1d"', ["--retention", "2h"], 7_200.0),
    ],
)
def test_the_retention_that_was_stated_last_counts(
    scene: Scene, tmp_path: Path, source: str, options: list[str], retention: float | None
) -> None:
    scene.hub.append(pa.table({"body": pa.array([b"x"] * 9, pa.binary())}), partition="0")
    file = tmp_path / "flights.toml"
    file.write_text(PIPELINE.format(source=source))
    CliRunner().invoke(app, ["init", f"sqlite:///{tmp_path}/leasehold.db"])
    said = CliRunner().invoke(app, ["status", str(file), "--json", *options])
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout)
    assert found["retention"] == {"known": True, "seconds": retention}
    assert 0 <= found["lagSeconds"] < 60
    assert [row["lag"] for row in found["partitions"]] == [9, 0, 0]
    [left, *others] = [row["secondsLeft"] for row in found["partitions"]]
    assert others == [None, None]
    assert left is None if retention is None else retention - 60 < left <= retention
    table = CliRunner().invoke(app, ["status", str(file), *options]).stdout
    assert "Oldest unread" in table
    assert ("never" in table) == (retention is None)


@pytest.mark.parametrize("store", ["typo.db", "folder/typo.db"])
def test_a_mistyped_store_is_refused_and_not_made(scene: Scene, tmp_path: Path, store: str) -> None:
    file = tmp_path / "flights.toml"
    file.write_text(PIPELINE.format(source="").replace("leasehold.db", store))
    before = sorted(tmp_path.iterdir())
    said = CliRunner().invoke(app, ["status", str(file)])
    assert said.exit_code == 1
    assert "there is no store at sqlite:///" in said.stderr
    assert sorted(tmp_path.iterdir()) == before
