"""Notices: who subscribed gets them, in order, and nobody can stop a partition by failing."""

from __future__ import annotations

import threading

import pytest

from leasehold.notices import LossReason, Notice, Notices, OwnershipClaimed
from leasehold_testkit.contracts.stores.groups import at_once
from tests.every_notice import ALL


def test_delivered_by_type() -> None:
    notices = Notices()
    everything: list[Notice] = []
    claims: list[OwnershipClaimed] = []
    notices.subscribe(everything.append, Notice)
    notices.subscribe(claims.append, OwnershipClaimed)
    for notice in ALL:
        notices.publish(notice)
    assert everything == list(ALL)
    assert claims == [ALL[0]]


def test_delivered_in_the_order_of_subscription_in_the_thread_that_caused_it() -> None:
    notices = Notices()
    seen: list[tuple[str, int]] = []
    for name in "abc":
        notices.subscribe(lambda _, name=name: seen.append((name, threading.get_ident())), Notice)  # type: ignore[misc]
    notices.publish(ALL[0])
    assert seen == [(name, threading.get_ident()) for name in "abc"]


def test_a_subscriber_that_raises_is_logged_and_the_others_are_served(caplog: pytest.LogCaptureFixture) -> None:
    notices = Notices()
    seen: list[Notice] = []

    def fail(notice: Notice) -> None:
        raise ZeroDivisionError("mine")

    notices.subscribe(fail, Notice)
    notices.subscribe(seen.append, Notice)
    notices.publish(ALL[0])
    assert seen == [ALL[0]]
    assert "a subscriber failed on OwnershipClaimed(partition='0'" in caplog.text
    assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [ZeroDivisionError]


def test_unsubscribed() -> None:
    notices = Notices()
    seen: list[Notice] = []
    end = notices.subscribe(seen.append, Notice)
    stays = notices.subscribe(seen.append, Notice)
    end()
    end()
    notices.publish(ALL[0])
    assert seen == [ALL[0]]
    stays()
    notices.publish(ALL[0])
    assert seen == [ALL[0]]


def test_a_subscriber_may_subscribe_publish_and_unsubscribe() -> None:
    notices = Notices()
    seen: list[Notice] = []

    def once(notice: OwnershipClaimed) -> None:
        end()
        notices.subscribe(seen.append, Notice)
        notices.publish(ALL[1])

    end = notices.subscribe(once, OwnershipClaimed)
    notices.publish(ALL[0])
    assert seen == [ALL[1]]
    notices.publish(ALL[0])
    assert seen == [ALL[1], ALL[0]]


def test_several_threads() -> None:
    notices = Notices()
    seen: list[Notice] = []
    notices.subscribe(seen.append, Notice)

    def work() -> None:
        for _ in range(100):
            notices.subscribe(lambda _: None, Notice)()
            notices.publish(ALL[0])

    at_once([work] * 8)
    assert len(seen) == 800


@pytest.mark.parametrize("notice", ALL, ids=lambda notice: type(notice).__name__)
def test_notices_are_frozen_values(notice: Notice) -> None:
    with pytest.raises((AttributeError, TypeError)):
        notice.partition = "9"  # type: ignore[attr-defined]
    assert type(notice).__doc__


def test_each_reason_reads_differently() -> None:
    assert [reason.name for reason in LossReason] == ["TAKEN", "LAPSED", "STALLED", "SUPERSEDED"]
    assert len({str(reason) for reason in LossReason}) == 4
    assert all(str(reason) == reason.value.strip() and " " in reason.value for reason in LossReason)
