"""What follows a failure, from Spark's text or our own error."""

from __future__ import annotations

import pytest

from leasehold.errors import KeyFromTwoPartitions, SinkError, SinkUnavailable
from leasehold.spark.failures import LONGEST_PAUSE, Kind, describe_ranges, pause_before_restart, sort_failure

OFFSET = 'Some(leasehold@1: {"hub":"h","ranges":{"0":[5,9,2],"1":[7,7,1],"2":[0,3,4]}})'


@pytest.mark.parametrize(
    ("text", "raised", "kind", "message"),
    [
        ("…", SinkUnavailable("locked"), Kind.TRANSIENT, "locked"),
        ("…", KeyFromTwoPartitions("two"), Kind.PERMANENT, "two"),
        ("…", SinkError("odd"), Kind.UNKNOWN, "odd"),
        ("…", ValueError("mine"), Kind.UNKNOWN, "ValueError: mine"),
        ("x\nleasehold.errors.HubUnavailable: gone for now\nat org…", None, Kind.TRANSIENT, "gone for now"),
        ("leasehold.errors.StoreUnavailable: a\nleasehold.errors.DataLoss: b", None, Kind.LOST, "b"),
        ("leasehold.errors.ConfigError: hub: is missing", None, Kind.PERMANENT, "hub: is missing"),
        ("leasehold.errors.NoSuchThing: x", None, Kind.UNKNOWN, "leasehold.errors.NoSuchThing: x"),
        ("\n  Job aborted.\n", None, Kind.UNKNOWN, "Job aborted."),
        ("", None, Kind.UNKNOWN, "the query failed without a word"),
    ],
)
def test_sorting(text: str, raised: BaseException | None, kind: Kind, message: str) -> None:
    failure = sort_failure(text, raised, OFFSET)
    assert (failure.kind, failure.message) == (kind, message)
    assert failure.batch == "partition 0 [5, 9), partition 2 [0, 3)"


@pytest.mark.parametrize("text", ["", "None", "-", '{"hub"', '{"hub":"h"}'])
def test_no_ranges(text: str) -> None:
    assert describe_ranges(text) == ""


def test_pauses_grow_to_a_limit_and_differ() -> None:
    assert [pause_before_restart(n, 0.999999) for n in (1, 2, 3)] == pytest.approx([0.5, 1.0, 2.0], rel=1e-3)
    assert pause_before_restart(1, 0.0) == 0.25
    assert pause_before_restart(1000, 0.999) <= LONGEST_PAUSE
