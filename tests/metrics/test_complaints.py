"""What users of other lag exporters and scalers complain of, beside what `test_group_metrics` has of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold.clock import Clock
from leasehold.errors import HubUnavailable
from leasehold.hubs.log.hub import LogHub
from leasehold.metrics.exposition import text_of
from leasehold.metrics.group_families import families
from leasehold.metrics.group_looks import GroupLooks
from leasehold.metrics.instance import InstanceMetrics
from leasehold.model import PartitionProperties
from leasehold.notices import LossReason, Notices, OwnershipClaimed, OwnershipLost, StoreCalled
from leasehold.operations.verdicts import Standing
from leasehold_testkit.clock import ManualClock
from tests.metrics.groups import Group, of, samples


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return Group(tmp_path)


def lags(told: dict[str, float]) -> list[float | None]:
    return [of(told, "partition_lag_events", "0"), of(told, "partition_lag_events", "1"), of(told, "group_lag_events")]


def test_a_group_that_has_read_everything_is_told_so_whatever_the_hub_still_keeps(group: Group) -> None:
    """keda#6720, keda#7414: on Event Hubs the number was stuck above 0, and nothing was scaled down."""
    for partition in "01":
        group.send(partition, 5)
        group.own(partition, "a/1")
    assert lags(group.scrape()) == [5, 5, 10]
    group.reach("0", 5)
    group.reach("1", 5)
    assert lags(group.scrape()) == [0, 0, 0]
    group.clock.advance(100)
    group.log.retain(max_age=50)  # partitions are empty, and their numbers go on
    group.give_up("0")
    group.give_up("1")  # nobody is left either
    told = group.pass_by(600, renewing=False)
    assert lags(told) == [0, 0, 0]
    assert (of(told, "group_lag_seconds"), of(told, "group_verdict")) == (0, Standing.OK)


def test_a_checkpoint_of_a_hub_that_was_made_anew_is_no_lag_without_bound(group: Group) -> None:
    """keda#6720 again: a checkpoint behind the end made an enormous number of it."""
    group.send("0", 5)
    group.own("0", "a/1")
    group.reach("0", 9_000)
    told = group.scrape()
    assert (lags(told), of(told, "partition_verdict", "0")) == ([0, 0, 0], Standing.REWOUND)


def test_the_number_stays_the_same_through_each_step_of_a_rebalance(group: Group) -> None:
    """keda#5096, keda#1482, numaflow#1529: it flapped while partitions moved, and each step scaled and moved again."""
    for partition in "01":
        group.send(partition, 5)
        group.own(partition, "a/1")
        group.reach(partition, 2)
    seen = [lags(group.scrape())]
    group.give_up("1")
    seen.append(lags(group.scrape()))  # free
    group.own("1", "b/1", level=2)
    seen.append(lags(group.scrape()))  # held by another, who has recorded nothing yet
    seen.append(lags(group.pass_by(40, renewing=False)))  # all are expired
    group.own("0", "c/1", level=2)
    group.own("1", "c/1", level=3)
    seen.append(lags(group.scrape()))
    group.reach("1", 2, level=3)
    seen.append(lags(group.scrape()))
    assert seen == [[3, 3, 6]] * 6


def test_a_hub_that_is_away_is_not_a_lag_of_zero(tmp_path: Path) -> None:
    """keda#4098: everything was scaled to 0 while brokers were replaced."""

    class Replaced(LogHub):
        away = False

        def partition_properties(self, partitions: object = None) -> dict[str, PartitionProperties]:
            if self.away:
                raise HubUnavailable("the brokers are being replaced")
            return super().partition_properties()

    clock: Clock = ManualClock()
    hubs: list[Replaced] = []

    def replaced(log: LogHub) -> LogHub:
        hubs.append(Replaced(tmp_path / "hub.db"))
        return hubs[0]

    group = Group(tmp_path, hub=replaced)
    group.send("0", 5)
    looks = GroupLooks({"flights": lambda: group.watched}, window=60, clock=clock)

    def told() -> dict[str, float]:
        assert isinstance(clock, ManualClock)
        clock.advance(5)
        return samples(text_of(families(looks.look())))

    assert lags(told()) == [5, 0, 5]
    hubs[0].away = True
    assert told() == {'leasehold_group_up{pipeline="flights"}': 0}
    hubs[0].away = False
    assert lags(told()) == [5, 0, 5]
    looks.close()
    hubs[0].close()


def test_what_the_balancing_does_is_counted() -> None:
    """azure-sdk-for-java#38351: a processor had no metrics of its load balancing."""
    notices, metrics = Notices(), InstanceMetrics(ManualClock())
    metrics.watch(notices)
    notices.publish(StoreCalled("claim_ownership", 0.01, 3, 2))
    notices.publish(OwnershipClaimed("0", 1, ""))
    notices.publish(OwnershipClaimed("1", 4, "b/1"))
    notices.publish(OwnershipLost("1", 4, LossReason.TAKEN))
    told = {
        name.removeprefix("leasehold_instance_"): value
        for name, value in samples(text_of(metrics.registry.collect())).items()
    }
    assert (told["partitions"], told['partition_owner_level{partition="0"}']) == (1, 1)
    assert (told['claims_total{outcome="won"}'], told['claims_total{outcome="lost"}']) == (2, 1)
    assert told['partitions_lost_total{reason="taken"}'] == 1


def test_a_group_of_streaming_queries_has_a_lag_while_the_query_runs_and_while_it_does_not(group: Group) -> None:
    """azure-event-hubs-spark#574: a streaming query had no lag. It is told by the records, whoever has written them."""
    group.send("0", 8)
    group.own("0", "spark-application/1")
    group.reach("0", 3)
    assert lags(group.scrape()) == [5, 0, 5]
    group.give_up("0")
    assert lags(group.pass_by(60, renewing=False)) == [5, 0, 5]
