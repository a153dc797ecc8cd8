"""What is counted between scrapes, beside what the Prometheus client itself makes of the same."""

from __future__ import annotations

import sys
import threading

from prometheus_client import CollectorRegistry, Counter, Histogram

from leasehold.metrics.counted import Counted, Timed
from leasehold.metrics.exposition import text_of
from leasehold.metrics.instance import InstanceMetrics
from leasehold.notices import BatchDone, Notices, StoreCalled
from tests.metrics.groups import samples

BUCKETS = (0.005, 0.1, 1.0, 60.0)


def test_a_histogram_is_what_the_client_makes_of_it() -> None:
    registry = CollectorRegistry()
    theirs = Histogram("seconds", "How long.", ["part"], registry=registry, buckets=BUCKETS)
    ours = Timed("seconds", "How long.", "part", BUCKETS, ["read"])
    theirs.labels("read")
    for seconds in (0.0, 0.005, 0.0051, 0.1, 0.3, 1.0, 59.9, 60.0, 61.0, 1e9):
        for part in ("read", 'merge \\ "\n'):
            theirs.labels(part).observe(seconds)
            ours.observe(seconds, part)
    expected = {
        series: value for series, value in samples(text_of(registry.collect())).items() if "_created" not in series
    }
    assert samples(text_of([ours.family()])) == expected
    assert len(expected) == 2 * (len(BUCKETS) + 3)


def test_a_counter_is_what_the_client_makes_of_it() -> None:
    registry = CollectorRegistry()
    lost = Counter("lost", "Why.", ["reason"], registry=registry)
    all_ = Counter("all", "All.", registry=registry)
    ours = [Counted("lost", "Why.", "reason", ["taken"]), Counted("all", "All.")]
    lost.labels("taken")
    lost.labels("lapsed").inc(3)
    all_.inc(2.5)
    ours[0].add(3, "lapsed")
    ours[1].add(2.5)
    expected = {
        series: value for series, value in samples(text_of(registry.collect())).items() if "_created" not in series
    }
    assert samples(text_of(one.family() for one in ours)) == expected
    assert len(expected) == 3


def test_nothing_is_lost_between_threads() -> None:
    notices, metrics = Notices(), InstanceMetrics()
    metrics.watch(notices)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work() -> None:
        for _ in range(2_000):
            notices.publish(BatchDone(3, {"handle": 0.25}))
            notices.publish(StoreCalled("update_checkpoints", 0.5, 2, 1))

    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            told = samples(text_of(metrics.registry.collect()))
            assert told["leasehold_instance_events_total"] == 3 * told["leasehold_instance_batches_total"], "one moment"
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    told = samples(text_of(metrics.registry.collect()))
    assert told["leasehold_instance_batches_total"] == 8_000
    assert told['leasehold_instance_batch_phase_seconds_sum{phase="handle"}'] == 2_000
    assert told['leasehold_instance_checkpoints_total{outcome="refused"}'] == 8_000
