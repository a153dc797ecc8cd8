"""What Prometheus is told of a group, and the complaints that users of other lag exporters have."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from leasehold.errors import HubUnavailable, SinkUnavailable, StoreUnavailable
from leasehold.hubs.base import FirstEvent, HeldBack, Hub
from leasehold.hubs.log.hub import LogHub
from leasehold.metrics.exposition import text_of
from leasehold.metrics.group_families import LookedAt, families
from leasehold.metrics.group_looks import GroupLooks
from leasehold.metrics.group_page import document
from leasehold.model import ConsumerGroup, OwnershipListing, Positions
from leasehold.operations.group_watch import WatchedGroup
from leasehold.operations.lag_times import NEAR
from leasehold.operations.verdicts import Standing
from leasehold.sinks.base import TableContents
from leasehold.sinks.set_aside import OutboxCounts, SetAsideCounts
from leasehold_testkit.clock import ManualClock
from tests.metrics.groups import Group, of, samples
from tests.waiting import PATIENCE


class Forward:
    """A hub that passes on what it does not do itself."""

    first_events = Hub.first_events

    def __init__(self, log: LogHub) -> None:
        self.log = log

    def __getattr__(self, name: str) -> object:
        return getattr(self.log, name)


class Transactional(Forward):
    """A log as if transactions were in it: the last `open` numbers of partition 0 are held back."""

    has_gaps = True

    def __init__(self, log: LogHub) -> None:
        super().__init__(log)
        self.held: dict[str, HeldBack] = {}
        self.firsts: dict[str, FirstEvent] = {}

    def first_events(self, starts: Mapping[str, int], timeout: float) -> dict[str, FirstEvent]:
        return {partition: self.firsts[partition] for partition in starts if partition in self.firsts}

    def held_back(self, partitions: Sequence[str], timeout: float) -> dict[str, HeldBack]:
        return self.held


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return Group(tmp_path)


def test_what_a_group_is_told_by(group: Group) -> None:
    group.send("0", 10)
    group.own("0", "a/1", level=7)
    group.reach("0", 4, level=7)
    group.clock.advance(20)
    group.renew()
    told = group.scrape()
    assert of(told, "group_up") == 1
    assert (of(told, "partition_lag_events", "0"), of(told, "group_lag_events")) == (6, 6)
    assert (of(told, "partition_lag_seconds", "0"), of(told, "group_lag_seconds")) == (20, 20)
    assert (of(told, "partition_checkpoint_sequence_number", "0"), of(told, "partition_end_sequence_number", "0")) == (
        4,
        10,
    )
    assert of(told, "partition_acquisitions_total", "0") == 7
    assert {state: of(told, "group_partitions", state=state) for state in ("owned", "free", "expired")} == {
        "owned": 1,
        "free": 1,
        "expired": 0,
    }
    assert of(told, "group_instances") == 1
    assert of(told, "partition_retention_left_seconds", "0") == math.inf  # a log keeps its events
    assert of(told, "group_verdicts", verdict="unknown") == 1  # unread, and not watched for long enough
    assert of(told, "partition_verdict", "1") == Standing.OK
    assert [name for name in told if "nan" in name.lower()] == []
    assert not any(math.isnan(value) for value in told.values())


class Asked(Forward):
    """A log that counts who asks it for times, and tells none once it is `silent`."""

    def __init__(self, log: LogHub) -> None:
        super().__init__(log)
        self.asked: list[dict[str, int]] = []
        self.silent = False

    def enqueued_times(self, starts: Mapping[str, int], timeout: float) -> dict[str, float]:
        self.asked.append(dict(starts))
        return {} if self.silent else self.log.enqueued_times(starts, timeout)

    def retention(self, timeout: float) -> float | None:
        return 1_000.0


def _noted(hubs: list[Asked], hub: Asked) -> Any:
    hubs.append(hub)
    return hub


def test_a_group_that_keeps_up_asks_the_hub_for_no_time(tmp_path: Path) -> None:
    hubs: list[Asked] = []
    group = Group(tmp_path, hub=lambda log: _noted(hubs, Asked(log)))
    group.send("0", 3)
    first = group.clock.wall()
    group.reach("0", 3, at=first)
    assert of(group.scrape(), "partition_lag_seconds", "0") == 0, "nothing is unread"
    group.send("0", 1)
    group.clock.advance(NEAR - 1)
    told = group.scrape()
    assert (of(told, "partition_lag_events", "0"), of(told, "partition_lag_seconds", "0")) == (1, NEAR - 1)
    assert of(told, "partition_retention_left_seconds", "0") == 1_000 - (NEAR - 1)
    assert hubs[0].asked == []


def test_after_a_pause_of_the_stream_the_first_unread_event_counts_and_the_bound_only_where_it_is_not_told(
    tmp_path: Path,
) -> None:
    hubs: list[Asked] = []
    group = Group(tmp_path, hub=lambda log: _noted(hubs, Asked(log)))
    group.send("0", 3)
    group.reach("0", 3, at=group.clock.wall())
    group.clock.advance(500)
    group.send("0", 1)
    group.clock.advance(20)
    told = group.scrape()
    assert hubs[0].asked == [{"0": 3}]
    assert (of(told, "partition_lag_seconds", "0"), of(told, "partition_retention_left_seconds", "0")) == (20, 980)
    hubs[0].silent = True
    group.send("0", 1)
    group.reach("0", 4)
    assert of(group.scrape(), "partition_lag_seconds", "0") is None, "a checkpoint of an older release has no time"
    group.reach("0", 4, at=group.clock.wall() - 20)
    told = group.scrape()
    assert of(told, "partition_lag_seconds", "0") == 20
    assert of(told, "group_partitions_of_unknown_age") == 0


def test_time_until_retention(tmp_path: Path) -> None:
    group = Group(tmp_path, retention=100.0)
    group.send("0", 1)
    group.clock.advance(30)
    told = group.scrape()
    assert of(told, "partition_retention_left_seconds", "0") == 70
    assert of(told, "partition_retention_left_seconds", "1") == math.inf
    assert of(told, "group_retention_left_seconds") == 70


def test_suspects_and_the_reason(group: Group) -> None:
    group.send("0", 5)
    group.reach("0", 2)
    group.own("0", "a/1", claimed_at=1, failures=3, last_error='out of "memory"\nat 5')
    told = group.scrape()
    assert (of(told, "group_suspects"), of(told, "partition_verdict", "0")) == (1, Standing.STALLED)
    page = document(LookedAt("flights", group.look()))
    first = page["partitions"][0]  # type: ignore[index]
    assert "3 owners in a row" in first["why"]
    assert first["lastError"] == 'out of "memory"\nat 5'


def test_what_a_hanging_transaction_holds_back(tmp_path: Path) -> None:
    hubs: list[Transactional] = []

    def transactional(log: LogHub) -> Transactional:
        hubs.append(Transactional(log))
        return hubs[0]

    group = Group(tmp_path, hub=transactional)  # type: ignore[arg-type]
    hubs[0].held = {"0": HeldBack(3, group.clock.wall() - 40)}
    told = group.scrape()
    assert (of(told, "partition_held_back_events", "0"), of(told, "partition_held_back_seconds", "0")) == (3, 40)
    assert (of(told, "partition_held_back_events", "1"), of(told, "partition_held_back_seconds", "1")) == (0, 0)


def test_the_table_is_counted_now_and_then(tmp_path: Path) -> None:
    clocks: list[ManualClock] = []
    counts = iter(range(100))

    def count() -> TableContents:
        clocks[0].advance(1.0)  # a large table
        return TableContents(next(counts), 0)

    group = Group(tmp_path, table=count)
    clocks.append(group.clock)
    assert of(group.scrape(), "table_rows") == 0
    group.clock.advance(19.0)
    assert of(group.scrape(), "table_rows") == 0
    group.clock.advance(1.0)
    assert of(group.scrape(), "table_rows") == 1


def test_a_table_that_is_away_leaves_its_own_figures_out_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def away() -> TableContents:
        raise SinkUnavailable("the table is locked")

    group = Group(tmp_path, table=away)
    group.send("0", 1)
    told = [group.scrape(), group.scrape()]
    assert [of(one, "table_rows") for one in told] == [None, None]
    assert [of(one, "group_lag_events") for one in told] == [1, 1]
    assert [record.getMessage() for record in caplog.records].count(
        "flights: what its table holds cannot be told: the table is locked"
    ) == 1


def test_what_is_set_aside_is_told_and_times_only_while_something_is_parked(tmp_path: Path) -> None:
    counts = SetAsideCounts(3, 2, 4, 1_000.0, 1_300.0)
    told = Group(tmp_path, set_aside=lambda: counts).scrape()
    names = ("dead_letters", "parked_events", "oldest_parked_timestamp_seconds", "next_retry_timestamp_seconds")
    assert [of(told, f"table_{name}") for name in names] == [2, 4, 1_000, 1_300]
    (tmp_path / "two").mkdir()
    told = Group(tmp_path / "two", set_aside=SetAsideCounts).scrape()
    assert [of(told, f"table_{name}") for name in names] == [0, 0, None, None]


def test_what_waits_in_the_outbox_is_told(tmp_path: Path) -> None:
    counts = SetAsideCounts(outbox=OutboxCounts(5, 1_000.0, 1))
    told = Group(tmp_path, set_aside=lambda: counts).scrape()
    names = ("outbox_events", "oldest_outbox_timestamp_seconds", "outbox_refused_events")
    assert [of(told, f"table_{name}") for name in names] == [5, 1_000, 1]
    (tmp_path / "two").mkdir()
    told = Group(tmp_path / "two", set_aside=SetAsideCounts).scrape()
    assert [of(told, f"table_{name}") for name in names] == [0, None, 0]


# the complaints


def test_lag_is_there_when_no_member_is_alive(group: Group) -> None:
    """kafka_exporter#226, #463, beats#23077; kafka-lag-exporter#290, #36."""
    group.send("0", 5)
    group.send("1", 5)
    group.own("0", "a/1")
    told = group.pass_by(70, renewing=False)
    assert [of(told, "partition_lag_events", partition) for partition in "01"] == [5, 5]
    assert (of(told, "group_instances"), of(told, "group_partitions", state="expired")) == (0, 1)
    assert of(told, "group_verdict") == Standing.STOPPED


def test_no_series_goes_or_comes_in_a_rebalance_and_none_has_an_owners_name(group: Group) -> None:
    """kafka_exporter#513, micrometer#2726; amazon-kinesis-client#911, kafka-lag-exporter#25; redpanda, vector."""
    group.send("0", 5)
    group.own("0", "a/1")
    group.own("1", "a/1")
    before = group.scrape()
    group.give_up("1")
    between = group.scrape()
    group.own("1", "b/2", level=2)
    group.reach("1", 0)
    after = group.scrape()
    assert set(before) == set(between) == set(after)
    assert not any("a/1" in series or "b/2" in series for series in after)


def test_restarts_make_no_new_series(group: Group) -> None:
    """amazon-kinesis-client#911 and kafka-lag-exporter#25 again: each restart is another owner id."""
    group.own("0", "a/1")
    series = set(group.scrape())
    for restart in range(2, 20):
        group.own("0", f"a/{restart}", level=restart)
        assert set(group.scrape()) == series
    assert of(group.scrape(), "partition_acquisitions_total", "0") == 19


def test_a_former_owner_leaves_no_lag_behind(group: Group) -> None:
    """confluent-kafka-python#416, vector#24647: there is one lag a partition, whoever holds it."""
    group.send("0", 5)
    group.own("0", "a/1")
    assert of(group.scrape(), "partition_lag_events", "0") == 5
    group.give_up("0")
    group.own("0", "b/2", level=2)
    group.reach("0", 5, level=2)
    assert [value for series, value in group.scrape().items() if "lag_events" in series and '"0"' in series] == [0]


def test_an_idle_partition_has_no_lag_and_is_ok_for_ever(group: Group) -> None:
    """kafka-lag-exporter#111, #125, jmx_exporter#1458: NaN when idle, which spoils the sum."""
    group.send("0", 5)
    group.reach("0", 5)
    told = group.pass_by(600)
    assert (of(told, "partition_lag_seconds", "0"), of(told, "group_lag_seconds")) == (0, 0)
    assert of(told, "partition_verdict", "0") == Standing.OK


def test_what_retention_has_removed_is_no_lag(group: Group) -> None:
    """kafka-lag-exporter#37, redpanda#30624: phantom lag below the beginning of the log."""
    group.send("0", 5)
    group.reach("0", 2)
    group.clock.advance(100)
    group.log.retain(max_age=50)
    told = group.scrape()
    assert (of(told, "partition_lag_events", "0"), of(told, "group_removed_unread_events")) == (0, 3)
    assert of(told, "partition_verdict", "0") == Standing.OK


@pytest.mark.parametrize(
    ("position", "lag"), [("earliest", 5), ("latest", 0), ("3", 2), ("after 3", 1), ('{"0": 4}', 1), ("9", 0)]
)
def test_the_lag_of_a_group_without_a_checkpoint_goes_by_where_it_starts(
    tmp_path: Path, position: str, lag: int
) -> None:
    """kafka_exporter#28, librdkafka#1911."""
    group = Group(tmp_path, positions=Positions.parse(position))
    group.send("0", 5)
    assert of(group.scrape(), "partition_lag_events", "0") == lag


def test_a_slow_topic_is_ok(group: Group) -> None:
    """Burrow#38, #195: an event now and then, each done before the next one comes."""
    group.own("0", "a/1")
    verdicts = set()
    for count in range(1, 20):
        group.send("0", 1)
        verdicts.add(of(group.pass_by(10), "partition_verdict", "0"))
        group.reach("0", count)
        verdicts.add(of(group.pass_by(50), "partition_verdict", "0"))
    assert verdicts == {float(Standing.UNKNOWN), float(Standing.OK)} or verdicts == {float(Standing.OK)}


def test_a_frozen_lag_is_stalled_and_its_age_grows(group: Group) -> None:
    """Burrow#287; azure-sdk-for-java's lag is silent while nothing is read."""
    group.own("0", "a/1")
    group.send("0", 7)
    told = group.pass_by(60)
    assert (of(told, "partition_lag_seconds", "0"), of(told, "partition_verdict", "0")) == (60, Standing.UNKNOWN)
    told = group.pass_by(70)
    assert (of(told, "partition_lag_seconds", "0"), of(told, "partition_verdict", "0")) == (130, Standing.STALLED)
    since = of(told, "partition_last_progress_timestamp_seconds", "0")
    assert since == group.clock.wall() - 120  # the first look


def test_there_is_a_number_for_each_partition(group: Group) -> None:
    """amazon-kinesis-client#249; racecar#309: one stuck partition passes a check of the process."""
    group.send("0", 7)
    for partition in "01":
        group.own(partition, "a/1")
    group.pass_by(120)
    for step in range(1, 13):
        group.send("1", 1)
        group.reach("1", step)
        told = group.pass_by(10)
    assert [of(told, "partition_verdict", partition) for partition in "01"] == [Standing.STALLED, Standing.OK]
    assert (of(told, "group_verdict"), of(told, "group_verdicts", verdict="stalled")) == (Standing.STALLED, 1)


def test_marks_of_transactions_are_no_lag(tmp_path: Path) -> None:
    """spring-kafka#1587: the lag of a topic with transactions is never 0."""
    hubs: list[Transactional] = []
    group = Group(tmp_path, hub=lambda log: hubs.append(Transactional(log)) or hubs[0])  # type: ignore
    group.send("0", 5)
    group.reach("0", 4)
    hubs[0].firsts = {"0": FirstEvent(5, None)}  # the last number is a mark
    assert of(group.scrape(), "partition_lag_events", "0") == 0


def test_partitions_without_data_are_nothing(group: Group) -> None:
    """keda#5249, #830: they scale to the maximum."""
    told = group.scrape()
    assert (of(told, "group_lag_events"), of(told, "group_lag_seconds"), of(told, "group_verdict")) == (0, 0, 1)


def test_a_group_that_stands_still_is_not_looked_into_again(tmp_path: Path) -> None:
    """keda#6720, #7414 and others: to know how late a stopped group is must not cost a receiver at each look."""

    class Counting(Forward):
        asked: ClassVar[list[dict[str, int]]] = []

        def enqueued_times(self, starts: Mapping[str, int], timeout: float) -> dict[str, float]:
            self.asked.append(dict(starts))
            return self.log.enqueued_times(starts, timeout)

        def retention(self, timeout: float) -> float | None:
            return None

    group = Group(tmp_path, hub=Counting)  # type: ignore[arg-type]
    group.send("0", 10)
    assert of(group.pass_by(60), "partition_lag_seconds", "0") == 60
    assert Counting.asked == [{"0": 0}]
    group.reach("0", 4)
    group.send("1", 1)
    told = group.pass_by(20)
    assert Counting.asked == [{"0": 0}, {"0": 4, "1": 0}]
    assert (of(told, "partition_lag_seconds", "0"), of(told, "partition_lag_seconds", "1")) == (80, 20)


# when something is away


class Lane:
    """What opens a group, and fails or hangs when it is told to."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.error: Exception | None = None
        self.hang = threading.Event()
        self.hang.set()

    def __call__(self) -> WatchedGroup:
        assert self.hang.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        return self.group.watched

    def away(self, group: ConsumerGroup) -> OwnershipListing:
        raise StoreUnavailable("the store does not answer")


@pytest.fixture
def lanes(tmp_path: Path) -> Iterator[tuple[Lane, Lane]]:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    both = Lane(Group(tmp_path / "one")), Lane(Group(tmp_path / "two"))
    yield both
    for lane in both:
        lane.hang.set()


def test_a_pipeline_that_is_away_leaves_the_others_alone_and_comes_back(
    lanes: tuple[Lane, Lane], caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    lanes[0].error = StoreUnavailable("the store does not answer")
    looks = GroupLooks({"flights": lanes[0], "orders": lanes[1]}, window=10, clock=clock)
    for _ in range(2):
        page = text_of(families(looks.look()))
        clock.advance(5)
        assert samples(page)['leasehold_group_up{pipeline="flights"}'] == 0
        assert samples(page)['leasehold_group_up{pipeline="orders"}'] == 1
        assert [series for series in samples(page) if "flights" in series] == ['leasehold_group_up{pipeline="flights"}']
    assert len([record for record in caplog.records if "cannot be looked at" in record.getMessage()]) == 1
    lanes[0].error = None
    assert document(looks.look()[0])["up"] is True
    looks.close()


def test_the_same_outage_again_is_said_again(lanes: tuple[Lane, Lane], caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    looks = GroupLooks({"flights": lanes[0]}, window=10, clock=clock)
    assert looks.look()[0].snapshot is not None
    for away in (True, True, False, True):
        with pytest.MonkeyPatch.context() as patched:
            if away:
                patched.setattr(lanes[0].group.store, "list_ownership", lanes[0].away)
            clock.advance(5)
            assert (looks.look()[0].snapshot is None) is away
    assert len([record for record in caplog.records if "cannot be looked at" in record.getMessage()]) == 2
    looks.close()


def test_one_that_hangs_is_not_waited_for_and_is_told_when_it_ends(lanes: tuple[Lane, Lane]) -> None:
    clock = ManualClock()
    names = {"flights": lanes[0], "orders": lanes[1]}
    looks = GroupLooks(names, window=10, timeout=0.2, clock=clock)  # impatient: one hangs, one has been looked at
    lanes[0].hang.clear()
    assert looks._lanes[1].begin().result(PATIENCE)
    first = looks.look()
    assert (first[0].error, first[0].snapshot is None, first[1].snapshot is None) == ("no answer in time", True, False)
    lanes[0].hang.set()
    clock.advance(30)
    patient = GroupLooks({"flights": lanes[0]}, window=10, clock=clock)
    assert patient.look()[0].snapshot is not None
    looks._lanes[0].begin().result(PATIENCE)
    assert looks.look()[0].snapshot is not None
    for one in (looks, patient):
        one.close()


def test_scrapers_that_come_together_share_a_look(lanes: tuple[Lane, Lane]) -> None:
    clock = ManualClock()
    looks = GroupLooks({"flights": lanes[0]}, window=10, clock=clock)
    first = looks.look()[0].snapshot
    clock.advance(0.9)
    assert looks.look()[0].snapshot is first
    clock.advance(0.1)
    assert looks.look()[0].snapshot is not first
    looks.close()


def test_a_hub_that_fails_is_no_traceback(lanes: tuple[Lane, Lane]) -> None:
    lanes[0].error = HubUnavailable("the broker\ndoes not answer")
    looks = GroupLooks({"flights": lanes[0]}, window=10)
    assert document(looks.look()[0]) == {
        "pipeline": "flights",
        "up": False,
        "error": "the broker does not answer",
    }
    looks.close()


# the text format


class Collected(CollectorRegistry):
    def __init__(self, given: list[Metric]) -> None:
        super().__init__()
        self.given = given

    def collect(self) -> list[Metric]:
        return self.given


def test_the_text_is_what_prometheus_client_writes(group: Group) -> None:
    group.send("0", 3_000)
    odd = GaugeMetricFamily("odd", 'a "quoted" \\ text\nof two lines', labels=["name"])
    for name, value in (('a"b\\c\nd', 1.5e300), ("ü", -0.0), ("", math.inf), ("x", 1234567.0), ("y", math.nan)):
        odd.add_metric([name], value)
    bare = GaugeMetricFamily("bare", "no labels", value=3)
    buckets = HistogramMetricFamily("h", "buckets", buckets=[("1.0", 1), ("+Inf", 2)], sum_value=3.0)
    whole = [*families([LookedAt("flights", group.look()), LookedAt("gone", None)]), odd, bare, buckets]
    assert text_of(whole) == generate_latest(Collected(whole))


def test_every_family_is_named_as_prometheus_advises(group: Group) -> None:
    page = text_of(families([LookedAt("flights", group.look())])).decode()
    parsed = list(text_string_to_metric_families(page))
    assert len(parsed) > 20
    for family in parsed:
        assert family.name.startswith("leasehold_")
        assert family.documentation.endswith(".")
        assert {label for sample in family.samples for label in sample.labels} <= {
            "pipeline",
            "partition",
            "state",
            "verdict",
            "hub",
            "consumer_group",
        }
        assert all(isinstance(sample, Sample) for sample in family.samples)
