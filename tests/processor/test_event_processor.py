"""The plain processor on a real log and a store in memory or SQLite: delivery, checkpoints, failures, endings."""

from __future__ import annotations

import logging
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import ConfigError, HubUnavailable, SinkError, SinkUnavailable, StoreError, UsageError, Verdict
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event, EventPosition
from leasehold.notices import EventsLost
from leasehold.processors.events import MANUAL, ON_STOP, EventBatch, EventProcessor, PartitionContext, StopReason, every
from leasehold.processors.events.arguments import Stores
from leasehold.processors.events.delivery import AHEAD_BYTES
from leasehold.processors.events.error_reports import PASSED, TOLD_AGAIN, ErrorReports
from leasehold.stores import Store, open_store
from leasehold.stores.sqlite.store import SqliteStore
from leasehold_testkit.clock import ManualClock
from tests.processor import plain
from tests.processor.plain import (
    DELIVERY,
    SETTINGS,
    Handler,
    LeadingClock,
    TellingStore,
    await_cycles,
    caught_up,
    log,
    send,
)
from tests.waiting import NEVER, PATIENCE, take, until

Start = Callable[..., EventProcessor]


@pytest.fixture
def make() -> Iterator[Start]:
    """Makes processors with short pauses, and stops them at the end."""
    made: list[EventProcessor] = []
    before = set(threading.enumerate())  # what other tests have left is theirs

    def make(hub: LogHub | str, store: Stores, handler: Handler | None = None, **more: Any) -> EventProcessor:
        given: dict[str, Any] = {"ownership": SETTINGS, "name": f"p{len(made)}"} | more
        if handler is not None:
            given |= {
                "on_partition_start": handler.on_start,
                "on_partition_stop": handler.on_stop,
                "on_error": handler.on_error,
            }
            if "on_event" not in given:
                given["on_events"] = handler.on_events
        made.append(plain.processor(hub, store, **given))
        return made[-1]

    def ours(*names: str) -> list[str]:
        return [each.name for each in set(threading.enumerate()) - before if each.name.startswith(names)]

    yield make
    stopped = [processor.stop(PATIENCE) for processor in made]
    assert all(stopped)
    assert ours("leasehold-partition-", "leasehold-errors") == []  # those that call what is the test's
    until(lambda: not ours("leasehold-"), "the other threads to end")


# Stores


def test_a_pair_of_stores_by_their_urls(tmp_path: Path, make: Start) -> None:
    hub, handler = log(tmp_path, 1, each=3), Handler()
    owners, places = (f"sqlite:///{tmp_path / name}.db" for name in ("owners", "places"))
    make(hub, (owners, places), handler).start()
    group = hub.consumer_group("$Default")
    until(lambda: [one.sequence_number for one in open_store(places).list_checkpoints(group)] == [2], "the checkpoint")
    assert len(open_store(owners).list_ownership(group).records) == 1
    assert open_store(owners).list_checkpoints(group) == []


@pytest.mark.parametrize("by", ["batch", "event", "caller"])
def test_a_checkpoint_says_when_its_event_was_enqueued(tmp_path: Path, make: Start, by: str) -> None:
    hub, store = log(tmp_path, 1, each=3), TellingStore()
    group = hub.consumer_group("$Default")
    handler = Handler(lambda batch, context: context.update_checkpoint(batch[-1]) if by == "caller" and batch else None)
    more: dict[str, Any] = {"on_event": lambda event, context: None} if by == "event" else {}
    make(hub, store, handler, **more).start()
    until(lambda: [one.sequence_number for one in store.list_checkpoints(group)] == [2], "the checkpoint")
    [read] = hub.read("0", 2, 3, columns=["enqueuedTime"])
    [checkpoint] = store.list_checkpoints(group)
    assert checkpoint.enqueued_time == pytest.approx(read.column("enqueuedTime")[0].as_py().timestamp(), abs=1e-6)


# Delivery


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_every_event_in_order_exactly_from_the_checkpoint_on(tmp_path: Path, make: Start, kind: str) -> None:
    hub = log(tmp_path, partitions=3, each=95)
    store: Store = TellingStore() if kind == "memory" else SqliteStore(tmp_path / "store.db")
    first = Handler()
    with make(hub, store, first):
        first.wait(3 * 95)
    assert first.got == {partition: list(range(95)) for partition in "012"}
    assert sorted(first.started) == [(partition, 1) for partition in "012"]
    assert sorted(first.stopped) == [(partition, 1, StopReason.SHUTDOWN) for partition in "012"]

    send(hub, 7, "0", "2")
    second = Handler()
    with make(hub, store, second):
        second.wait(14)
        send(hub, 3)
        second.wait(14 + 9)
    assert second.got == {"0": [*range(95, 105)], "1": [*range(95, 98)], "2": [*range(95, 105)]}
    assert sorted(second.started) == [(partition, 2) for partition in "012"]
    assert first.errors == second.errors == []


def test_a_batch_says_all_that_a_fence_needs(tmp_path: Path, make: Start) -> None:
    hub = LogHub.create(tmp_path / "hub.db", partitions=1)
    sent = [
        Event(b"a", partition_key="k", properties={"colour": "red"}, publisher="p"),
        Event(b"b"),
        Event(b"", properties={"colour": "blue", "size": ""}),
    ]
    began = time.time() - 1e-6  # the log rounds
    for event in sent:
        hub.send([event], partition="0")
    contexts: list[PartitionContext] = []
    handler = Handler(lambda batch, context: contexts.append(context))
    with make(hub, TellingStore(), handler):
        handler.wait(3)
    (events,) = [[event for batch in handler.batches for event in batch]]
    for number, (event, was) in enumerate(zip(events, sent, strict=True)):
        assert (event.sequence_number, event.offset, event.partition) == (number, str(number), "0")
        assert began <= event.enqueued_time <= time.time() + 1e-6
        assert replace(event, partition="", sequence_number=-1, offset=None, enqueued_time=0.0) == was
    batch, context = handler.batches[0], contexts[0]
    assert (batch.hub, batch.owner_level, batch.first, batch.last_offset) == (hub.identity, 1, 0, str(batch.last))
    assert (context.hub, context.partition, context.owner_level, context.start) == (hub.identity, "0", 1, 0)
    assert context.fence_columns(events[1]) == {
        "hub": hub.identity,
        "partition": "0",
        "sequenceNumber": 1,
        "ownerLevel": 1,
    }
    table = batch.arrow()
    assert table.column("ownerLevel").to_pylist() == [1] * len(batch)
    assert table.column("body").to_pylist() == [event.body for event in batch]
    assert not context.trusted
    assert context.stop_reason is StopReason.SHUTDOWN


def test_one_event_at_a_time(tmp_path: Path, make: Start) -> None:
    hub = log(tmp_path, each=25)
    got: list[tuple[str, int]] = []
    store, handler = TellingStore(), Handler()

    def on_event(event: Event, context: PartitionContext) -> None:
        assert context.partition == event.partition
        got.append((event.partition, event.sequence_number))

    with make(hub, store, handler, on_event=on_event):
        until(lambda: len(got) >= 50, "all events")
    for partition in "01":
        assert [number for where, number in got if where == partition] == list(range(25))
    assert store.checkpoints(hub) == {"0": 24, "1": 24}
    assert len([told for told in store.told if told[0].startswith("checkpoint")]) < 20  # at ends of batches


def test_an_ask_or_a_stop_is_heard_between_single_events(tmp_path: Path, make: Start) -> None:
    hub = log(tmp_path, partitions=1, each=10)
    store, got, second = TellingStore(), list[int](), threading.Event()

    def on_event(event: Event, context: PartitionContext) -> None:
        got.append(event.sequence_number)
        if event.sequence_number == 1:
            second.set()
            until(lambda: context.stop_reason is not None, "the stop to be heard")

    processor = make(hub, store, on_event=on_event)
    processor.start()
    assert second.wait(PATIENCE)
    assert processor.stop(PATIENCE)
    assert got == [0, 1]
    assert store.checkpoints(hub) == {"0": 1}


def test_batches_have_a_largest_size_and_wait_to_be_full(tmp_path: Path, make: Start) -> None:
    hub = log(tmp_path, partitions=1)
    handler = Handler()
    patient = replace(DELIVERY, max_batch=5, prefetch=7, max_wait=60.0)
    with make(hub, TellingStore(), handler, delivery=patient):
        for _ in range(10):
            send(hub, 1)
        handler.wait(10)
    assert [len(batch) for batch in handler.batches] == [5, 5]


def test_a_batch_that_is_not_full_waits_no_longer_than_it_should(tmp_path: Path, make: Start) -> None:
    hub, handler = log(tmp_path, partitions=1, each=3), Handler()
    with make(hub, TellingStore(), handler, delivery=replace(DELIVERY, max_wait=0.1)):
        handler.wait(3)
    assert [len(batch) for batch in handler.batches] == [3]


def test_a_start_function_that_gives_no_position_ends_the_instance_with_the_reason(tmp_path: Path, make: Start) -> None:
    """It was accepted, and failed each cycle for ever."""
    for wrong in (None, 45.0, "somewhere"):
        processor = make(log(tmp_path, 1, each=1), TellingStore(), Handler(), start=lambda partition, w=wrong: w)
        with pytest.raises(ConfigError, match=r"start\('0'\).*a position is earliest"):
            processor.run()


class CountedHub(LogHub):
    """A log that counts what has been fetched of it."""

    fetched = 0

    def read(self, *arguments: Any, **named: Any) -> Iterator[Any]:
        for batch in super().read(*arguments, **named):
            self.fetched += batch.num_rows
            yield batch


@pytest.mark.more(but=3)
@pytest.mark.parametrize(("max_batch", "prefetch"), [(10, 30), (1, 1), (7, 7), (100, 150), (7, 400)])
def test_no_more_is_fetched_ahead_than_allowed(tmp_path: Path, make: Start, max_batch: int, prefetch: int) -> None:
    log(tmp_path, partitions=1, each=1_000)
    hub = CountedHub(tmp_path / "hub.db")
    entered, go_on = threading.Event(), threading.Event()

    def hold_on(batch: EventBatch, context: PartitionContext) -> None:
        entered.set()
        assert go_on.wait(PATIENCE)

    handler = Handler(hold_on)
    delivery = replace(DELIVERY, max_batch=max_batch, prefetch=prefetch)
    with make(hub, TellingStore(), handler, delivery=delivery) as processor:
        assert entered.wait(PATIENCE)
        until(lambda: hub.fetched >= min(max_batch, prefetch // 2), "what is fetched ahead")
        await_cycles(processor.notices, 3)  # meanwhile more might come
        assert hub.fetched <= max_batch + prefetch
        go_on.set()
        handler.wait(1_000)
    assert handler.got["0"] == list(range(1_000))


def test_large_events_are_fetched_ahead_up_to_a_number_of_bytes(tmp_path: Path, make: Start) -> None:
    LogHub.create(tmp_path / "hub.db", partitions=1).send([Event(bytes(AHEAD_BYTES // 20))] * 200)
    hub = CountedHub(tmp_path / "hub.db")
    entered, go_on = threading.Event(), threading.Event()

    def hold_on(batch: EventBatch, context: PartitionContext) -> None:
        entered.set()
        assert go_on.wait(PATIENCE)

    handler = Handler(hold_on)
    with make(hub, TellingStore(), handler, delivery=replace(DELIVERY, max_batch=10, prefetch=150)) as processor:
        assert entered.wait(PATIENCE)
        until(lambda: hub.fetched >= 30, "what is fetched ahead")
        await_cycles(processor.notices, 3)  # meanwhile more might come
        assert hub.fetched <= 10 + 30
        go_on.set()
        handler.wait(200)
    assert handler.got["0"] == list(range(200))


# Start positions


def has_started(handler: Handler, partitions: int) -> bool:
    return len(handler.started) == partitions


def test_where_a_group_starts(tmp_path: Path, make: Start) -> None:
    hub = log(tmp_path, partitions=3, each=20)
    starts: list[tuple[Any, dict[str, list[int]]]] = [
        ("latest", {}),
        ({"0": "15", "1": "latest", "*": EventPosition.parse("18")}, {"0": [*range(15, 20)], "2": [18, 19]}),
        (17, {partition: [17, 18, 19] for partition in "012"}),
        (datetime.now(UTC) + timedelta(hours=1), {}),
        (lambda p: str(17 + int(p)), {"0": [17, 18, 19], "1": [18, 19], "2": [19]}),
        (lambda p: EventPosition.parse(f"{17 + int(p)}"), {"0": [17, 18, 19], "1": [18, 19], "2": [19]}),
    ]
    for number, (start, expected) in enumerate(starts):
        handler = Handler()
        with make(hub, TellingStore(), handler, start=start, consumer_group=f"group {number}"):
            until(partial(has_started, handler, 3), "all to have started")
            handler.wait(sum(map(len, expected.values())))
        assert handler.got == expected


# Checkpoint policies


@pytest.mark.parametrize(
    ("policy", "recorded"),
    [(every(events=25), [29, 59, 89, 99]), (ON_STOP, [99]), (MANUAL, []), (every(seconds=3_600), [99])],
)
def test_policies(tmp_path: Path, make: Start, policy: Any, recorded: list[int]) -> None:
    hub, store, handler = log(tmp_path, partitions=1, each=95), TellingStore(), Handler()
    whole = replace(DELIVERY, max_batch=10, prefetch=30, max_wait=NEVER)
    with make(hub, store, handler, checkpoint=policy, delivery=whole):
        handler.wait(90)
        send(hub, 5)
        handler.wait(100)
    assert [told for told in store.told if told[0] != "relinquish"] == [(f"checkpoint {n}", "0") for n in recorded]


def test_every_t_seconds_comes_without_another_event(tmp_path: Path, make: Start) -> None:
    hub, store, handler = log(tmp_path, partitions=1, each=5), TellingStore(), Handler()
    with make(hub, store, handler, checkpoint=every(seconds=0.2)):
        until(lambda: store.checkpoints(hub).get("0") == 4, "the checkpoint")
        assert store.told == [("checkpoint 4", "0")]


def test_a_handler_is_called_again_when_it_asked_though_nothing_comes(tmp_path: Path, make: Start) -> None:
    hub, calls = log(tmp_path, partitions=1), queue.Queue[list[int]]()
    pauses = iter((0.0, 0.05))

    def on_events(batch: EventBatch, context: PartitionContext) -> None:
        if (pause := next(pauses, None)) is not None:
            context.call_again(pause)
        calls.put([event.sequence_number for event in batch])

    with make(hub, TellingStore(), on_events=on_events, on_partition_start=lambda context: context.call_again(0.01)):
        assert [calls.get(timeout=PATIENCE) for _ in range(3)] == [[], [], []]
        send(hub, 1)
        assert calls.get(timeout=PATIENCE) == [0], "each call has to be asked for"
    assert calls.empty()


def test_a_call_is_for_batches_alone(tmp_path: Path, make: Start) -> None:
    hub, got = log(tmp_path, partitions=1), queue.Queue[int]()
    on_start, on_event = (lambda context: context.call_again(0.0)), (lambda event, context: got.put(0))
    with make(hub, TellingStore(), on_event=on_event, on_partition_start=on_start):
        send(hub, 1)
        assert got.get(timeout=PATIENCE) == 0


def test_a_checkpoint_by_hand(tmp_path: Path, make: Start) -> None:
    hub, store = log(tmp_path, partitions=1, each=10), TellingStore()
    answers: list[bool] = []

    def by_hand(batch: EventBatch, context: PartitionContext) -> None:
        answers.append(context.update_checkpoint(batch[5]))
        answers.append(context.update_checkpoint(batch[2]))  # is recorded already: it does not step back
        with pytest.raises(UsageError, match="has not been given out"):
            context.update_checkpoint(replace(batch[5], sequence_number=99))
        with pytest.raises(UsageError, match="has not been given out"):
            context.update_checkpoint(replace(batch[5], partition="other"))

    handler = Handler(by_hand)
    with make(hub, store, handler, checkpoint=MANUAL, delivery=replace(DELIVERY, max_wait=60.0)):
        handler.wait(10)
    assert answers == [True, True]
    assert store.told == [("checkpoint 5", "0"), ("relinquish", "0")]
    assert handler.errors == []


def test_data_is_kept_with_a_checkpoint_and_found_by_who_acquires_the_partition_next(
    tmp_path: Path, make: Start
) -> None:
    hub, store = log(tmp_path, partitions=1, each=10), TellingStore()
    found: list[tuple[int, dict[str, str]]] = []

    def keep(batch: EventBatch, context: PartitionContext) -> None:
        if not found:
            assert context.update_checkpoint(batch[5])
            assert context.update_checkpoint(batch[5], data={"file": "first"}), "for the same place too"
            assert context.update_checkpoint(batch[5], data={"file": "seven"})
            assert context.update_checkpoint(batch[2], data={"file": "late"}), "is recorded already"
            for bad in ({"n": 1}, {"much": "x" * 2_000}):
                with pytest.raises(ConfigError, match="data"):
                    context.update_checkpoint(batch[6], data=bad)  # type: ignore[arg-type]
        found.append((context.start, dict(context.data)))

    for wanted, wait in ((1, 60.0), (2, 0.0)):  # the first batch holds all ten events
        handler = Handler(keep)
        with make(hub, store, handler, checkpoint=MANUAL, delivery=replace(DELIVERY, max_wait=wait)):
            until(lambda wanted=wanted: len(found) >= wanted, "a batch")  # type: ignore[misc]
        assert handler.errors == []
    assert found[:2] == [(0, {}), (6, {"file": "seven"})]


def test_a_checkpoint_that_cannot_be_written_is_written_later(tmp_path: Path, make: Start) -> None:
    hub, store, handler = log(tmp_path, partitions=1, each=5), TellingStore(), Handler()
    store.checkpoints_away.set()
    with make(hub, store, handler):
        handler.wait(5)
        until(lambda: handler.errors, "the error")
        send(hub, 1)
        handler.wait(6)
        store.checkpoints_away.clear()
        send(hub, 1)
        until(lambda: store.checkpoints(hub)["0"] == 6, "the checkpoint")
    assert set(handler.errors) == {("0", "StoreUnavailable: the checkpoints are away")}


@pytest.mark.parametrize("single", [False, True])
def test_a_partition_whose_checkpoints_are_refused_comes_to_a_bad_end(
    tmp_path: Path, make: Start, caplog: pytest.LogCaptureFixture, single: bool
) -> None:
    """Which no waiting mends. It was tried without a pause, with a line for each try."""
    hub, store, handler = log(tmp_path, partitions=2, each=5), TellingStore(), Handler()
    store.refusal = StoreError("the checkpoints may not be written: start again", verdict=Verdict.RESTART)
    store.checkpoints_refused.set()
    given: dict[str, Any] = {"on_event": lambda event, context: None} if single else {}
    with make(hub, store, handler, delivery=replace(DELIVERY, attempts=3), **given):
        until(lambda: {p for p, r in store.records(hub).items() if r.last_error} == {"0", "1"}, "the bad ends")
        tried = store.checkpoints_tried
        send(hub, 5)
    assert handler.stopped[0][1:] == (1, StopReason.FAILED)
    assert "could not be written 3 times in a row" in store.records(hub)["0"].last_error
    assert "start again" in store.records(hub)["0"].last_error
    ends = len([1 for *_, reason in handler.stopped if reason is StopReason.FAILED])
    assert tried <= 3 * (2 + ends)  # it may have begun anew already
    assert len(caplog.records) <= 6 + 3 * ends
    assert "Traceback" not in caplog.text


def test_checkpoints_that_are_refused_and_mend_are_written_and_said_once(
    tmp_path: Path, make: Start, caplog: pytest.LogCaptureFixture
) -> None:
    hub, store, handler = log(tmp_path, partitions=1, each=5), TellingStore(), Handler()
    store.checkpoints_refused.set()
    with make(hub, store, handler, delivery=replace(DELIVERY, attempts=3)):
        until(lambda: store.checkpoints_tried >= 5, "some tries")
        store.checkpoints_refused.clear()
        until(lambda: store.checkpoints(hub).get("0") == 4, "the checkpoint")
        until(lambda: "written after all" in caplog.text, "the line")
    assert len([1 for line in caplog.messages if "grant the right" in line]) == 1
    assert handler.errors == [("0", "StoreError: the checkpoints may not be written: grant the right")]
    assert handler.stopped == [("0", 1, StopReason.SHUTDOWN)]


def test_a_stop_does_not_wait_for_checkpoints_that_are_refused(tmp_path: Path, make: Start) -> None:
    hub, store, handler = log(tmp_path, partitions=1, each=5), TellingStore(), Handler()
    slow = replace(DELIVERY, attempts=1_000, restart_backoff=60.0, longest_backoff=60.0)
    processor = make(hub, store, handler, delivery=slow, checkpoint=ON_STOP)
    processor.start()
    handler.wait(5)
    store.checkpoints_refused.set()
    assert processor.stop(PATIENCE)
    assert store.checkpoints_tried == 1
    assert store.records(hub)["0"].owner_id == ""


class RefusingStore(TellingStore):
    """A store whose ownership may not be read for a time."""

    refused = False
    refusals = 0

    def list_ownership(self, group: Any) -> Any:
        if self.refused:
            self.refusals += 1
            raise StoreError("the records may not be read: grant the right")
        return super().list_ownership(group)


def test_a_store_that_refuses_the_balancer_is_said_once(
    tmp_path: Path, make: Start, caplog: pytest.LogCaptureFixture
) -> None:
    hub, store, handler = log(tmp_path, partitions=1, each=5), RefusingStore(), Handler()
    with make(hub, store, handler) as processor:
        handler.wait(5)
        store.refused = True
        until(lambda: store.refusals >= 3, "three cycles that fail")
        store.refused = False
        until(lambda: "dispatch cycles work again" in caplog.text, "the end of it")
        send(hub, 5)
        handler.wait(10)
        assert processor.partitions == {"0": 1}
    assert [line for line in caplog.messages if "grant the right" in line] == [
        "dispatch cycle failed: the records may not be read: grant the right"
    ]
    assert handler.errors == [(None, "StoreError: the records may not be read: grant the right")]


def test_what_a_service_says_again_is_told_once_in_five_minutes_and_what_a_handler_raises_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[tuple[str, str | None]] = []
    clock = ManualClock()
    reports = ErrorReports(lambda error, partition: told.append((str(error), partition)), clock)
    reports.start()
    for _ in range(3):  # in turn: two calls fail in each cycle
        for partition in (None, "0"):
            reports.report(StoreError("list: refused"), partition)
            reports.report(HubUnavailable("read: away"), partition)
        reports.report(ValueError("the handler's"), "0")
    clock.advance(TOLD_AGAIN)
    reports.report(StoreError("list: refused"))
    reports.close()
    services = [(said, partition) for said, partition in told if said != "the handler's"]
    each = [(said, partition) for partition in (None, "0") for said in ("list: refused", "read: away")]
    assert services == [*each, ("list: refused", None)]
    assert told.count(("the handler's", "0")) == 3
    assert len(caplog.records) == len(services) + 1


def test_that_a_partition_goes_on_is_told_and_what_fails_then_is_news(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    reports = ErrorReports(None, clock)
    reports.goes_on("0")
    for _ in range(2):
        reports.report(SinkUnavailable("locked"), "0")
        reports.report(SinkUnavailable("locked"), "0")
        reports.goes_on("0")
        reports.goes_on("1")
        clock.advance(PASSED)
        reports.goes_on("0")
        reports.goes_on("0")
    assert caplog.messages == ["partition 0: SinkUnavailable: locked", "partition 0 goes on again"] * 2


def test_what_a_handler_raises_is_logged_with_its_traceback_and_all_else_in_its_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reports = ErrorReports(None, ManualClock())
    reports.report(TimeoutError("the work has not gone on"), "0")
    for raised in (SinkError("permission denied for table orders"), ValueError("the handler's")):
        try:
            raise raised
        except (SinkError, ValueError) as error:
            reports.report(error, "0")
    assert [(one.getMessage(), bool(one.exc_info)) for one in caplog.records] == [
        ("partition 0: TimeoutError: the work has not gone on", False),
        ("partition 0: SinkError: permission denied for table orders", False),
        ("partition 0: ValueError: the handler's", True),
    ]


# The order of an ending


def test_a_stop_drains_then_tells_then_records_then_relinquishes(tmp_path: Path, make: Start) -> None:
    hub, told = log(tmp_path, partitions=2, each=100), list[tuple[str, str]]()
    store, entered, go_on = TellingStore(told), threading.Event(), threading.Event()

    def hold_on(batch: EventBatch, context: PartitionContext) -> None:
        if batch.partition == "0":
            entered.set()
            assert go_on.wait(PATIENCE)
        told.append((f"handled {batch.last}", batch.partition))

    def on_stop(context: PartitionContext, reason: StopReason) -> None:
        told.append((f"stop: {reason.name}", context.partition))

    processor = make(hub, store, on_events=hold_on, on_partition_stop=on_stop, checkpoint=ON_STOP)
    processor.start()
    assert entered.wait(PATIENCE)
    until(lambda: ("handled 99", "1") in told, "partition 1 to be done")
    assert processor.stop(0.5) is False  # its handler holds on until it is told
    # Partition 1 has ended, nobody here takes it again, and partition 0 is held under its handler.
    until(lambda: store.records(hub)["1"].owner_id == "", "partition 1 to be given up")
    await_cycles(processor.notices, 5)
    assert store.records(hub)["1"].owner_level == 1
    assert [what for what, partition in told if partition == "0"] == []
    assert processor.partitions == {"0": 1}
    go_on.set()
    assert processor.stop(PATIENCE)
    ending = ["handled 9", "stop: SHUTDOWN", "checkpoint 9", "relinquish"]
    assert [what for what, partition in told if partition == "0"] == ending
    assert [what for what, partition in told if partition == "1"][-3:] == [
        "stop: SHUTDOWN",
        "checkpoint 99",
        "relinquish",
    ]
    assert store.list_ownership(hub.consumer_group("$Default")).presences == ()


def test_a_stop_handler_that_fails_leaves_out_the_checkpoint_and_nothing_else(tmp_path: Path, make: Start) -> None:
    hub, store = log(tmp_path, partitions=1, each=5), TellingStore()
    handler = Handler()

    def on_stop(context: PartitionContext, reason: StopReason) -> None:
        raise OSError("nothing could be flushed")

    processor = make(
        hub,
        store,
        on_events=handler.on_events,
        on_partition_stop=on_stop,
        on_error=handler.on_error,
        checkpoint=ON_STOP,
    )
    with processor:
        handler.wait(5)
    assert store.told == [("relinquish", "0")]
    assert handler.errors == [("0", "OSError: nothing could be flushed")]


def test_stop_from_inside_a_handler_only_asks(tmp_path: Path, make: Start) -> None:
    hub, store, answers = log(tmp_path, partitions=1, each=5), TellingStore(), list[bool]()
    handler = Handler(lambda batch, context: answers.append(processor.stop()))
    processor = make(hub, store, handler)
    processor.run()
    assert answers == [False]
    assert store.checkpoints(hub)["0"] == handler.batches[-1].last
    assert store.told[-1] == ("relinquish", "0")


INTERRUPTED = """
import os, signal, sys, threading, time
from pathlib import Path
from leasehold import EventProcessor, Handlers, OwnershipSettings
from leasehold.hubs.log.hub import LogHub

def on_events(batch, context):
    os.kill(os.getpid(), int(sys.argv[2]))
    while context.stop_reason is None:
        time.sleep(0.01)
    print("handled")

def on_stop(context, reason):
    print(reason.name)

hub = LogHub(Path(sys.argv[1]))
quick = OwnershipSettings(settle_delay=0)
EventProcessor(hub, "memory://here", Handlers(on_events, on_partition_stop=on_stop), ownership=quick).run()
print("ended", [thread.name for thread in threading.enumerate()], signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""


@pytest.mark.more
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_run_ends_in_order_when_the_process_is_asked_to_end(tmp_path: Path, signum: int) -> None:
    log(tmp_path, partitions=1, each=1)
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "hub.db"), str(int(signum))]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert ran.stdout.splitlines() == ["handled", "SHUTDOWN", "ended ['MainThread'] True"], ran.stderr
    assert ran.returncode == 0


def test_a_processor_runs_once(tmp_path: Path, make: Start) -> None:
    processor = make(log(tmp_path), TellingStore(), Handler())
    with pytest.raises(UsageError, match="start it first"):
        processor.wait()
    with processor:
        assert processor.running
        assert not processor.wait(0)
        with pytest.raises(UsageError, match="runs once"):
            processor.start()
    assert processor.wait(0)
    unused = make(log(tmp_path), TellingStore(), Handler())
    assert unused.stop()
    unused.run()
    with pytest.raises(UsageError, match="stopped before it was started"):
        unused.start()


# Hand-over, loss, slow handlers


def test_a_planned_rebalance_reads_no_event_twice(tmp_path: Path, make: Start) -> None:
    hub, store = log(tmp_path, partitions=4, each=400), TellingStore()
    slowly = lambda batch, context: take(0.002)  # noqa: E731 - the work of both handlers
    one, two = Handler(slowly), Handler(slowly)
    with make(hub, store, one, checkpoint=every(events=45)) as first:
        one.wait(100)
        with make(hub, store, two, checkpoint=every(events=45)) as second:
            until(lambda: len(first.partitions) == len(second.partitions) == 2, "both to hold two")
            until(lambda: one.count + two.count >= 1_600, "all events")
            moved = set(second.partitions)
            assert {(p, reason) for p, _, reason in one.stopped} == {(p, StopReason.HANDED_OVER) for p in moved}
        until(lambda: len(first.partitions) == 4, "the first one to hold all again")
    for partition in "0123":
        assert one.got.get(partition, []) + two.got.get(partition, []) == list(range(400))
    assert one.errors == two.errors == []


def test_a_slow_handler_keeps_its_partition_and_is_never_cut(tmp_path: Path, make: Start) -> None:
    clock = LeadingClock()
    hub, store = log(tmp_path, partitions=2, each=20), TellingStore(clock=clock)
    patient = replace(SETTINGS, stall_timeout=100 * NEVER)
    both, trusted = threading.Event(), list[bool]()

    def slow(batch: EventBatch, context: PartitionContext) -> None:
        if batch.partition == "0" and batch.first == 0:
            assert both.wait(PATIENCE)
            for _ in range(8):  # longer than a partition that nobody renews is safe
                clock.step(first, second)
                trusted.append(context.trusted)

    one, two = Handler(slow), Handler()
    first, second = (make(hub, store, each, ownership=patient, clock=clock) for each in (one, two))
    with first:
        until(lambda: one.started, "the first one to have begun")
        with second:
            both.set()
            until(lambda: one.count + two.count >= 40, "all events")
    assert trusted == [True] * 8
    for partition in "01":
        assert one.got.get(partition, []) + two.got.get(partition, []) == list(range(20))


def test_a_stolen_partition_stops_after_its_handler_and_without_a_checkpoint(tmp_path: Path, make: Start) -> None:
    hub, told = log(tmp_path, partitions=1, each=20), list[tuple[str, str]]()
    store, entered = TellingStore(told), threading.Event()

    def work(batch: EventBatch, context: PartitionContext) -> None:
        if batch.owner_level == 1:
            entered.set()
            until(lambda: not context.trusted, "the loss to be known")
            assert context.stop_reason is StopReason.OWNERSHIP_LOST
            assert context.update_checkpoint(batch) is False
            told.append(("handled", "0"))

    handler = Handler(work)
    with make(hub, store, handler):
        assert entered.wait(PATIENCE)
        store.steal(hub, "0")
        until(lambda: handler.stopped, "the stop handler")
    assert handler.stopped[0] == ("0", 1, StopReason.OWNERSHIP_LOST)
    assert told[0] == ("handled", "0")
    assert ("checkpoint 9", "0") not in told[1:2]


def test_a_partition_that_comes_back_waits_for_its_former_handler(tmp_path: Path, make: Start) -> None:
    hub, store = log(tmp_path, partitions=1, each=10), TellingStore()
    entered, go_on, running = threading.Event(), threading.Event(), list[int]()
    most = 0

    def work(batch: EventBatch, context: PartitionContext) -> None:
        nonlocal most
        running.append(context.owner_level)
        most = max(most, len(running))
        entered.set()
        assert go_on.wait(PATIENCE)
        running.remove(context.owner_level)

    handler = Handler(work)
    with make(hub, store, handler) as processor:
        assert entered.wait(PATIENCE)
        store.steal(hub, "0")  # and the thief dies of it
        store.expire(hub, "0")
        until(lambda: processor.partitions.get("0", 0) > 2, "the partition to be held again")
        await_cycles(processor.notices, 4)
        assert (handler.stopped, running) == ([], [1])
        go_on.set()
        until(lambda: len(handler.started) >= 2, "work to begin again")
    assert (most, len(handler.started)) == (1, 2)
    assert [reason for *_, reason in handler.stopped] == [StopReason.OWNERSHIP_LOST, StopReason.SHUTDOWN]


def test_a_handler_that_hangs_costs_its_own_partition_only(tmp_path: Path, make: Start) -> None:
    hub, store = log(tmp_path, partitions=2, each=5), TellingStore()
    clock, inside, go_on = LeadingClock(), threading.Event(), threading.Event()

    def hang(batch: EventBatch, context: PartitionContext) -> None:
        if batch.partition == "0" and batch.owner_level == 1:
            inside.set()
            go_on.wait(PATIENCE)

    handler = Handler(hang)
    with make(hub, store, handler, clock=clock) as processor:
        assert inside.wait(PATIENCE)
        for _ in range(7):
            clock.step(processor)
            send(hub, 1, "1")
            until(lambda: caught_up(hub, ["1"], handler), "the other partition")
        until(lambda: any("TimeoutError" in error for _, error in handler.errors), "the hung handler to be noticed")
        until(lambda: "TimeoutError" in store.records(hub)["0"].last_error, "the record of it")
        send(hub, 5, "1")
        until(lambda: len(handler.got.get("1", [])) >= 17, "the other partition to go on")
        assert handler.got["1"] == list(range(17))
        assert processor.partitions["1"] == 1
        go_on.set()
        until(lambda: handler.got.get("0", [])[5:] == list(range(5)), "the partition to be begun again")
    assert handler.stopped[0] == ("0", 1, StopReason.OWNERSHIP_LOST)


# Failures


def test_a_task_that_fails_is_reported_and_started_again(tmp_path: Path, make: Start) -> None:
    hub, store, failures = log(tmp_path, partitions=2, each=30), TellingStore(), list[int]()

    def fail(batch: EventBatch, context: PartitionContext) -> None:
        if batch.partition == "0" and batch.first <= 15 <= batch.last and len(failures) < 3:
            failures.append(batch.first)
            raise ValueError(f"attempt {len(failures)}")

    handler = Handler(fail)
    with make(hub, store, handler):
        handler.wait(60)
    assert handler.got == {"0": list(range(30)), "1": list(range(30))}
    assert handler.errors == [("0", f"ValueError: attempt {n}") for n in (1, 2, 3)]
    assert [reason for p, _, reason in handler.stopped if p == "0"] == [*[StopReason.FAILED] * 3, StopReason.SHUTDOWN]
    assert len([p for p, _ in handler.started if p == "0"]) == 4
    assert store.records(hub)["0"].owner_level == 1


def test_a_start_handler_that_fails_is_tried_again_and_not_stopped(tmp_path: Path, make: Start) -> None:
    hub, store, handler = log(tmp_path, partitions=1, each=5), TellingStore(), Handler()
    attempts: list[int] = []

    def on_start(context: PartitionContext) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise RuntimeError("not yet")

    processor = make(
        hub,
        store,
        on_events=handler.on_events,
        on_partition_start=on_start,
        on_partition_stop=handler.on_stop,
        on_error=handler.on_error,
    )
    with processor:
        handler.wait(5)
    assert handler.errors == [("0", "RuntimeError: not yet")]
    assert [reason for *_, reason in handler.stopped] == [StopReason.SHUTDOWN]


def test_an_error_that_is_no_exception_is_a_failure_too(tmp_path: Path, make: Start) -> None:
    hub, once = log(tmp_path, partitions=1, each=5), list[int]()

    def leave(batch: EventBatch, context: PartitionContext) -> None:
        if not once:
            once.append(1)
            raise CancelledError

    handler = Handler(leave)
    with make(hub, TellingStore(), handler):
        handler.wait(5)
    assert handler.errors == [("0", "CancelledError: ")]


def test_a_handler_that_calls_exit_stops_the_processor(tmp_path: Path, make: Start) -> None:
    hub, store = log(tmp_path, partitions=1, each=5), TellingStore()

    def leave(batch: EventBatch, context: PartitionContext) -> None:
        raise SystemExit(3)

    handler = Handler(leave)
    processor = make(hub, store, handler)
    processor.start()
    with pytest.raises(SystemExit, match="3"):
        processor.wait(PATIENCE)
    assert not processor.running
    assert handler.errors == [("0", "SystemExit: 3")]
    assert handler.stopped == [("0", 1, StopReason.FAILED)]
    assert "SystemExit" in store.records(hub)["0"].last_error


def test_a_poison_partition_is_given_up_and_others_go_on(tmp_path: Path, make: Start) -> None:
    hub, store = log(tmp_path, partitions=2, each=5), TellingStore()

    def poison(batch: EventBatch, context: PartitionContext) -> None:
        if batch.partition == "0":
            raise ValueError("poison")

    handler = Handler(poison)
    with make(hub, store, handler, delivery=replace(DELIVERY, attempts=3)):
        handler.wait(5)
        until(lambda: store.records(hub)["0"].failures >= 2, "the partition to be suspect")
        send(hub, 20, "1")
        until(lambda: handler.got.get("1") == list(range(25)), "the other partition to go on")
        level = store.records(hub)["0"].owner_level
    assert level >= 2
    assert "ValueError: poison" in store.records(hub)["0"].last_error
    assert store.checkpoints(hub)["0"] == -1
    assert len([level for p, level in handler.started if (p, level) == ("0", 1)]) == 3
    assert {reason for p, _, reason in handler.stopped if p == "0"} >= {StopReason.FAILED}


def test_a_database_that_is_away_is_no_poison(tmp_path: Path, make: Start) -> None:
    hub, store, failures = log(tmp_path, partitions=1, each=5), TellingStore(), list[int]()

    def away(batch: EventBatch, context: PartitionContext) -> None:
        if len(failures) < 6:
            failures.append(1)
            raise SinkUnavailable("the database is away")

    handler = Handler(away)
    with make(hub, store, handler, delivery=replace(DELIVERY, attempts=2)):
        handler.wait(5)
    assert len(handler.errors) == 6
    assert store.records(hub)["0"].owner_level == 1


def test_a_handler_that_fails_by_hand_policy_goes_back_to_its_checkpoint(tmp_path: Path, make: Start) -> None:
    hub, store, failed = log(tmp_path, partitions=1, each=40), TellingStore(), list[int]()

    def work(batch: EventBatch, context: PartitionContext) -> None:
        if batch.first <= 5 <= batch.last:
            context.update_checkpoint(batch[5 - batch.first])
        if batch.first <= 25 <= batch.last and not failed:
            failed.append(1)
            raise ValueError("once")

    handler = Handler(work)
    with make(hub, store, handler, checkpoint=MANUAL):
        until(lambda: handler.got.get("0", [])[-1:] == [39], "all events")
    again = handler.got["0"].index(6, handler.got["0"].index(6) + 1)
    assert handler.got["0"][again:] == list(range(6, 40))


class AwayHub(LogHub):
    """A log that is away on command."""

    away = False

    def partition_properties(self, *arguments: Any) -> Any:
        if self.away:
            raise HubUnavailable("the hub is away")
        return super().partition_properties(*arguments)


def test_a_hub_that_is_away_is_reported_and_tried_again(tmp_path: Path, make: Start) -> None:
    log(tmp_path, partitions=1, each=5)
    hub, handler = AwayHub(tmp_path / "hub.db"), Handler()
    with make(hub, TellingStore(), handler):
        handler.wait(5)
        hub.away = True
        until(lambda: (None, "HubUnavailable: the hub is away") in handler.errors, "the error")
        hub.away = False
        send(hub, 5)
        handler.wait(10)
    assert handler.got["0"] == list(range(10))
    assert handler.started == [("0", 1)]


def test_the_balancers_troubles_are_heard_and_a_slow_listener_delays_nothing(tmp_path: Path, make: Start) -> None:
    hub, store = log(tmp_path, partitions=1, each=5), TellingStore()
    heard, go_on = threading.Event(), threading.Event()

    def on_error(error: BaseException, partition: str | None) -> None:
        assert (str(error), partition) == ("the store is away", None)
        heard.set()
        go_on.wait(PATIENCE)

    handler = Handler()
    with make(hub, store, on_events=handler.on_events, on_error=on_error) as processor:
        handler.wait(5)
        store.away.set()
        assert heard.wait(PATIENCE)
        store.away.clear()
        await_cycles(processor.notices, 5)
        send(hub, 5)
        handler.wait(10)
        go_on.set()


def test_an_on_error_that_fails_is_logged(tmp_path: Path, make: Start, caplog: pytest.LogCaptureFixture) -> None:
    failed = Handler(lambda batch, context: 1 / 0)

    def on_error(error: BaseException, partition: str | None) -> None:
        raise ValueError("the listener too")

    with (
        caplog.at_level(logging.ERROR),
        make(log(tmp_path, partitions=1, each=1), TellingStore(), on_events=failed.on_events, on_error=on_error),
    ):
        until(lambda: "on_error failed on ZeroDivisionError" in caplog.text, "the log")


# Events that are gone


def test_events_that_are_gone_fail_the_partition_or_are_told_of(tmp_path: Path, make: Start) -> None:
    hub, store = log(tmp_path, partitions=2, each=10), TellingStore()
    before = Handler()
    with make(hub, store, before):
        before.wait(20)
    send(hub, 10, "0")
    hub.retain(max_age=0)
    send(hub, 5)

    handler = Handler()
    with make(hub, store, handler):
        until(lambda: handler.errors, "the loss to be reported")
        until(lambda: handler.got.get("1") == list(range(10, 15)), "the other partition to go on")
        until(lambda: "DataLoss" in store.records(hub)["0"].last_error, "the partition to be given up")
    assert "0" not in handler.got
    assert "[10, 20)" in handler.errors[0][1]
    assert "fail_on_data_loss" in handler.errors[0][1]

    lost: list[EventsLost] = []
    handler = Handler()
    processor = make(hub, store, handler, delivery=replace(DELIVERY, fail_on_data_loss=False))
    processor.notices.subscribe(lost.append, EventsLost)
    with processor:
        until(lambda: handler.got.get("0") == list(range(20, 25)), "what is left")
    assert lost == [EventsLost("0", 10, 20)]
    assert store.checkpoints(hub)["0"] == 24


@pytest.mark.parametrize("policy", [None, MANUAL, ON_STOP], ids=["each second", "manual", "on stop"])
def test_a_gap_with_nothing_behind_it_is_passed_by_the_checkpoint(tmp_path: Path, make: Start, policy: Any) -> None:
    hub, store = log(tmp_path, partitions=2, each=10), TellingStore()
    more: dict[str, Any] = {} if policy is None else {"checkpoint": policy}
    before = Handler(lambda batch, context: context.update_checkpoint(batch))
    with make(hub, store, before, **more):
        before.wait(20)
    send(hub, 5, "0")
    hub.retain(max_age=0)

    lost: list[EventsLost] = []
    handler = Handler()
    processor = make(hub, store, handler, delivery=replace(DELIVERY, fail_on_data_loss=False), **more)
    processor.notices.subscribe(lost.append, EventsLost)
    with processor:
        until(lambda: store.checkpoints(hub) == {"0": 14, "1": 9}, "the place behind the gap")
        send(hub, 3)
        until(lambda: handler.count >= 6, "what follows")
    assert lost == [EventsLost("0", 10, 15)]
    assert handler.got == {"0": [15, 16, 17], "1": [10, 11, 12]}
    assert handler.errors == []


def test_a_puller_passes_a_gap_with_nothing_behind_it_though_the_store_is_away_for_a_while(
    tmp_path: Path, make: Start
) -> None:
    hub, store = log(tmp_path, partitions=1, each=5), TellingStore()
    hub.retain(max_age=0)
    store.checkpoints_away.set()
    processor = make(hub, store, delivery=replace(DELIVERY, fail_on_data_loss=False), on_error=lambda *told: None)
    with processor:
        client = processor.next_partition_client(timeout=PATIENCE)
        assert client is not None
        with client:
            nothing = client.receive(0.3)
            assert nothing is not None
            assert not nothing
            store.checkpoints_away.clear()
            until(lambda: client.receive(0.1) is not None and store.checkpoints(hub) == {"0": 4}, "the checkpoint")


# What is given


def test_urls_and_pairs_of_stores(tmp_path: Path, make: Start) -> None:
    hub, handler = log(tmp_path, partitions=1, each=5), Handler()
    with make(hub.url, f"sqlite:///{tmp_path}/store.db", handler):
        handler.wait(5)
    send(hub, 5)
    again, ownership = Handler(), TellingStore()
    with make(hub, (ownership, SqliteStore(tmp_path / "store.db")), again):
        again.wait(5)
    assert again.got == {"0": [5, 6, 7, 8, 9]}
    assert ownership.checkpoints(hub) == {}


def test_maximum_partitions(tmp_path: Path, make: Start) -> None:
    hub, handler = log(tmp_path, partitions=4, each=5), Handler()
    settings = replace(SETTINGS, maximum_partitions=3)
    with make(hub, TellingStore(), handler, ownership=settings) as processor:
        handler.wait(15)
        await_cycles(processor.notices, 3)
        assert len(processor.partitions) == 3


def test_what_does_not_go_together(tmp_path: Path) -> None:
    hub, store = log(tmp_path), TellingStore()
    for more, field in (
        ({"on_events": print, "on_event": print}, "on_event"),
        ({"on_partition_start": print}, "on_partition_start"),
        ({"on_partition_stop": print}, "on_partition_stop"),
        ({"checkpoint": ON_STOP}, "checkpoint"),
        ({"on_events": print, "checkpoint": "each"}, "checkpoint"),
        ({"start": "nowhere"}, "start"),
    ):
        with pytest.raises(ConfigError) as caught:
            plain.processor(hub, store, **more)
        assert caught.value.field == field
    with pytest.raises(UsageError, match="run\\(\\) needs on_events or on_event"):
        EventProcessor(hub, store).run()


def test_an_instance_that_may_not_work_says_so(tmp_path: Path, make: Start) -> None:
    hub, store, handler = log(tmp_path, partitions=2, each=5), TellingStore(), Handler()
    with make(hub, store, handler, pipeline="one"):
        handler.wait(10)
        other = Handler()
        with pytest.raises(UsageError, match="of pipeline 'one' works in consumer group"):
            make(hub, store, other, pipeline="two").run()
        assert other.got == {}
        assert "AlreadyInUse" in other.errors[0][1]


def test_the_level_on_record(tmp_path: Path, make: Start) -> None:
    hub, handler = log(tmp_path, partitions=2, each=1), Handler()
    with make(hub, TellingStore(), handler) as processor:
        handler.wait(2)
        assert processor.recorded_owner_level(hub.identity, "1") == 1
        assert processor.recorded_owner_level(hub.identity, "9") is None
        assert processor.recorded_owner_level("another", "1") is None


def test_a_hub_that_ends_before_what_was_read_is_an_error(tmp_path: Path, make: Start) -> None:
    """As after an unclean election, or with a log that was restored from an older copy."""
    hub, store = log(tmp_path, partitions=1, each=5), TellingStore()
    hub.close()
    shutil.copy(tmp_path / "hub.db", tmp_path / "older.db")
    hub, before = LogHub(tmp_path / "hub.db"), Handler()
    send(hub, 5)
    with make(hub, store, before):
        before.wait(10)
    before_level = store.records(hub)["0"].owner_level
    hub.close()
    for old in tmp_path.glob("hub.db*"):
        old.unlink()
    shutil.copy(tmp_path / "older.db", tmp_path / "hub.db")
    hub, handler = LogHub(tmp_path / "hub.db"), Handler()
    with make(hub, store, handler):
        until(lambda: "EndWentBack" in store.records(hub)["0"].last_error, "the partition to be given up")
        until(lambda: store.records(hub)["0"].failures >= 4, "the partition to be a suspect")
        record = store.records(hub)["0"]
    tries = record.owner_level - before_level
    assert tries - record.failures in (0, 1), "a try is not counted, and so the next is not later"
    assert "progress is at sequence number 10, and the hub ends at 5" in str(handler.errors)
    assert handler.got == {}
    hub.close()
