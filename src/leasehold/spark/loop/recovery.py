"""What a loop does about a failure that it understands.

Owns the steps that follow from a kind of failure (`plan/failures.py`), for every loop: none of them writes anything,
and all of them leave the events of the batch to be planned again.
"""

from __future__ import annotations

from collections.abc import Sequence

from leasehold.errors import HubError
from leasehold.model import EventRange
from leasehold.spark.loop.feed import Feed
from leasehold.spark.loop.orders import describe
from leasehold.spark.plan.failures import Failure, FailureKind
from leasehold.spark.plan.share import Share

LONGEST_ERROR = 500
"""How many characters of an error are kept with the partitions that it ended the work on."""


def plan_again(failure: Failure, ranges: Sequence[EventRange], feed: Feed, share: Share) -> None:
    """Give the batch of these ranges back, with what has been learned from its failure.

    Raises `HubError` where a worker or memory is lost to a single event: there is no smaller batch.
    """
    if failure.kind is FailureKind.TAKEN:
        share.manager.lose(failure.partition, failure.owner_level)
    elif failure.kind is FailureKind.TOO_LARGE:
        feed.learn({failure.partition: failure.mean_bytes}, {})
    elif failure.kind is FailureKind.LOST and not feed.narrow(ranges):
        raise HubError(
            f"{describe(ranges)}: a worker, or memory, is lost whenever this one event is computed: "
            f"{failure.message}. Give Spark more memory (spark.driver.memory, spark.executor.memory), or let the "
            "transform pass it over"
        )
    elif failure.kind is FailureKind.MEND:
        put_on_record(ranges, failure.message, share)
    feed.give_back()


def put_on_record(ranges: Sequence[EventRange], error: str, share: Share) -> None:
    """Have the ownership records of a batch's partitions say what a person has to mend, which is no bad end."""
    for one in ranges:
        share.manager.put_on_record(one.partition, one.owner_level, error[:LONGEST_ERROR])


def give_up(ranges: Sequence[EventRange], error: str, share: Share) -> None:
    """Give up the partitions of a batch that came to a bad end, with the reason on record.

    Whoever acquires them next, this instance or another, takes them last and one by one (`balancing.suspects`).
    """
    for one in ranges:
        share.manager.let_go(one.partition, one.owner_level, error)
