"""The pure rules of the plain processor: what is due, when a task is started again, and in which order it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.backoff import Backoff
from leasehold.errors import ConfigError
from leasehold.model import EARLIEST, LATEST, ConsumerGroup, EventPosition, Ownership, Positions
from leasehold.ownership import Hold
from leasehold.processors.events import EACH_BATCH, MANUAL, ON_STOP, CheckpointPolicy, DeliverySettings, Handlers, every
from leasehold.processors.events.arguments import handlers_of, policy_of, table_of
from leasehold.processors.events.checkpointer import Checkpointer, ProcessedEvent
from leasehold.processors.events.delivery import AHEAD_BYTES
from leasehold.processors.events.positions import positions_of
from leasehold.processors.events.restarts import Restarts
from leasehold.processors.events.stopping import EndingStep, StopReason, reason_to_stop, steps

GROUP = ConsumerGroup("n", "h")


# Checkpoint policies


def test_each_batch_is_due_at_the_end_of_a_batch_only() -> None:
    account = Checkpointer(EACH_BATCH, 10, 0.0)
    assert account.due(0.0) is None
    account.note(ProcessedEvent(10), 1, batch_ended=False)
    assert account.due(100.0) is None
    account.note(ProcessedEvent(11), 1, batch_ended=True)
    assert account.due(0.0) == ProcessedEvent(11)
    account.record(ProcessedEvent(11), 0.0)
    assert account.due(0.0) is None


def test_every_n_events() -> None:
    account = Checkpointer(every(events=5), 0, 0.0)
    account.note(ProcessedEvent(3), 4, batch_ended=True)
    assert (account.due(1e6), account.owed()) == (None, ProcessedEvent(3))
    account.note(ProcessedEvent(4), 1, batch_ended=True)
    assert account.due(0.0) == ProcessedEvent(4)
    account.record(ProcessedEvent(4), 0.0)
    account.note(ProcessedEvent(8), 4, batch_ended=True)
    assert account.due(0.0) is None


def test_every_t_seconds_also_without_another_event() -> None:
    account = Checkpointer(every(seconds=10), 0, 100.0)
    assert account.wait(105.0) is None
    account.note(ProcessedEvent(0), 1, batch_ended=True)
    assert (account.due(109.0), account.wait(109.0)) == (None, 1.0)
    assert account.due(110.0) == ProcessedEvent(0)
    account.record(ProcessedEvent(0), 111.0)
    assert account.due(130.0) is None


def test_whichever_comes_first() -> None:
    account = Checkpointer(every(events=100, seconds=10), 0, 0.0)
    account.note(ProcessedEvent(0), 1, batch_ended=True)
    assert account.due(10.0) == ProcessedEvent(0)
    account.record(ProcessedEvent(0), 10.0)
    account.note(ProcessedEvent(100), 100, batch_ended=True)
    assert account.due(10.0) == ProcessedEvent(100)


def test_on_stop_owes_what_is_processed_and_manual_owes_nothing() -> None:
    for policy, owed in ((ON_STOP, ProcessedEvent(7)), (MANUAL, None)):
        account = Checkpointer(policy, 0, 0.0)
        account.note(ProcessedEvent(7), 8, batch_ended=True)
        assert (account.due(1e9), account.owed()) == (None, owed)


def test_a_gap_is_passed_once_all_before_it_is_done_with() -> None:
    for policy, done_with in ((EACH_BATCH, True), (ON_STOP, True), (MANUAL, False)):
        account = Checkpointer(policy, 10, 0.0)
        assert account.passes(10, 15)
        assert not account.passes(11, 15), "event 10 is under way"
        account.note(ProcessedEvent(12), 3, batch_ended=True)
        assert account.passes(13, 15) is done_with, "a policy that records by itself counts what handlers have done"
        account.record(ProcessedEvent(12), 1.0)
        assert account.passes(13, 15)
        account.record(ProcessedEvent(14), 2.0)
        assert not account.passes(13, 15), "it is recorded"
        assert account.restart() == 15
    assert not Checkpointer(CheckpointPolicy(kept=False), 10, 0.0).passes(10, 15)


def test_a_failed_task_goes_on_after_what_is_processed_or_recorded() -> None:
    account = Checkpointer(ON_STOP, 0, 0.0)
    account.note(ProcessedEvent(7), 8, batch_ended=True)
    assert account.restart() == 8
    account.record(ProcessedEvent(9), 0.0)  # by hand, in the middle of a batch
    assert account.restart() == 10
    by_hand = Checkpointer(MANUAL, 0, 0.0)
    by_hand.note(ProcessedEvent(7), 8, batch_ended=True)
    assert by_hand.restart() == 0
    by_hand.record(ProcessedEvent(3), 0.0)
    assert by_hand.restart() == 4


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans())))
def test_what_is_written_never_steps_back(attempts: list[tuple[int, bool]]) -> None:
    account, written = Checkpointer(MANUAL, 0, 0.0), [-1]
    for number, reply_comes in attempts:
        wanted = account.trying(ProcessedEvent(number))
        if wanted is None:
            assert number <= account.recorded.sequence_number
            continue
        assert wanted.sequence_number >= max(number, written[-1])
        written.append(wanted.sequence_number)
        if reply_comes:
            account.record(wanted, 0.0)


@given(
    events=st.none() | st.integers(1, 20),
    batches=st.booleans(),
    sizes=st.lists(st.integers(1, 15), max_size=30),
)
def test_a_checkpoint_is_never_ahead_and_nothing_is_owed_after_it(
    events: int | None, batches: bool, sizes: list[int]
) -> None:
    account, processed = Checkpointer(CheckpointPolicy(batches=batches, events=events), 0, 0.0), -1
    for size in sizes:
        processed += size
        account.note(ProcessedEvent(processed), size, batch_ended=True)
        due = account.due(0.0)
        if due is not None:
            assert due.sequence_number == processed
            account.record(due, 0.0)
            assert account.owed() is None
        elif events is not None:
            assert processed - account.recorded.sequence_number < events
    assert account.owed() in (None, ProcessedEvent(processed))


def test_policies_that_make_no_sense() -> None:
    wrong: list[tuple[Callable[[], object], str]] = [
        (every, "events"),
        (lambda: every(events=0), "events"),
        (lambda: every(seconds=0), "seconds"),
        (lambda: CheckpointPolicy(batches=True, on_stop=False), "on_stop"),
        (lambda: policy_of(ON_STOP, pulls=True), "checkpoint"),
    ]
    for make, field in wrong:
        with pytest.raises(ConfigError) as caught:
            make()
        assert caught.value.field == field
    assert policy_of(None, pulls=True) is MANUAL
    assert policy_of(None, pulls=False) == every(seconds=1.0)


# Restarts


def test_a_row_of_failures_ends_in_giving_up() -> None:
    restarts = Restarts(3, Backoff(1.0, 60.0))
    assert [restarts.failed(10, transient=False) for _ in range(3)] == [1.0, 2.0, None]


def test_progress_begins_a_new_row_and_going_over_the_same_events_does_not() -> None:
    restarts = Restarts(3, Backoff(1.0, 60.0))
    assert [restarts.failed(10, transient=False) for _ in range(2)] == [1.0, 2.0]
    assert restarts.failed(11, transient=False) == 1.0
    assert restarts.failed(5, transient=False) == 2.0
    assert restarts.failed(11, transient=False) is None


def test_transient_errors_are_retried_for_ever() -> None:
    restarts = Restarts(2, Backoff(1.0, 8.0))
    assert [restarts.failed(0, transient=True) for _ in range(6)] == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    assert [restarts.failed(0, transient=False) for _ in range(2)] == [8.0, None]


# Endings


def _hold(level: int, asked_by: str = "") -> Hold:
    return Hold(Ownership(GROUP, "0", "me", level), 0, 1e9, asked_by)


@pytest.mark.parametrize(
    ("hold", "shutdown", "reason"),
    [
        (None, False, StopReason.OWNERSHIP_LOST),
        (None, True, StopReason.OWNERSHIP_LOST),
        (_hold(4), True, StopReason.OWNERSHIP_LOST),
        (_hold(3), True, StopReason.SHUTDOWN),
        (_hold(3, "other"), True, StopReason.SHUTDOWN),
        (_hold(3, "other"), False, StopReason.HANDED_OVER),
        (_hold(3), False, None),
    ],
)
def test_the_reason_to_stop(hold: Hold | None, shutdown: bool, reason: StopReason | None) -> None:
    assert reason_to_stop(hold, 3, shutdown=shutdown) is reason


@pytest.mark.parametrize("reason", StopReason)
@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_the_steps_of_an_ending_come_in_one_order(reason: StopReason, started: bool, again: bool) -> None:
    taken = steps(reason, started=started, again=again)
    assert list(taken) == sorted(taken, key=lambda step: step.value)
    assert taken[0] is EndingStep.DRAIN
    assert (EndingStep.STOP_HANDLER in taken) == started
    assert (EndingStep.CHECKPOINT in taken) == (reason is not StopReason.OWNERSHIP_LOST)
    assert (EndingStep.RELINQUISH in taken) == (reason is not StopReason.OWNERSHIP_LOST and not again)


# What is given


def test_start_positions_in_every_form() -> None:
    at_five = EventPosition.parse("5")
    assert positions_of("latest") == Positions(LATEST)
    assert positions_of(LATEST) == Positions(LATEST)
    assert positions_of(Positions(LATEST)) == Positions(LATEST)
    by_partition = positions_of({"0": "5", "*": LATEST})
    assert [by_partition.of(partition) for partition in "01"] == [at_five, LATEST]
    assert positions_of({"0": at_five}).of("1") == EARLIEST
    asked = positions_of(lambda partition: at_five if partition == "1" else LATEST)
    assert [asked.of(partition) for partition in "01"] == [LATEST, at_five]
    with pytest.raises(ConfigError, match="start"):
        positions_of({"0": "somewhere"})
    assert positions_of(5) == positions_of("5") == Positions(at_five)
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert positions_of(noon) == positions_of("2026-01-31T12:00:00Z")
    assert positions_of({"0": 5, "*": noon}).of("0") == at_five
    for answer in ("5", 5, at_five):
        assert positions_of(lambda partition, answer=answer: answer).of("1") == at_five  # type: ignore[misc]


@pytest.mark.parametrize("wrong", [None, True, -1, 45.0, date(2026, 1, 31), b"latest", ["5"], datetime(2026, 1, 31)])
def test_what_is_no_position_is_refused_where_it_is_given(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"^start[ :].*(a position is earliest|needs an offset)"):
        positions_of(wrong)
    with pytest.raises(ConfigError, match=r"^start\['0'\]"):
        positions_of({"0": wrong})
    with pytest.raises(ConfigError, match=r"^start\('7'\)"):
        positions_of(lambda partition: wrong).of("7")


async def _coroutine(batch: object, context: object) -> None: ...


def _generator(batch: object, context: object) -> Iterator[None]:
    yield


class _Callable:
    async def __call__(self, batch: object, context: object) -> None: ...


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("print", "a function"),
        (_coroutine, "coroutine"),
        (_generator, "coroutine or a generator"),
        (_Callable(), "coroutine"),
        (lambda batch: None, "called with a batch and a context: too many positional"),
        (lambda batch, context, more: None, "called with a batch and a context: missing.*more"),
    ],
)
def test_what_cannot_handle_events_is_refused(wrong: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=f"on_events = .*{said}"):
        handlers_of(wrong)


class _Table:
    """Brings what a processor calls, as a `HandledTable` does."""

    sink: Any = object()

    def on_events(self, batch: object, context: object) -> None: ...

    def on_partition_start(self, context: object) -> None: ...

    def on_partition_stop(self, context: object, reason: object) -> None: ...


class _CalledTable(_Table):
    def __call__(self, batch: object, context: object) -> None: ...


def test_a_table_brings_its_functions_unless_it_is_one_itself() -> None:
    table = _Table()
    assert handlers_of(table) == Handlers(
        table.on_events, on_partition_start=table.on_partition_start, on_partition_stop=table.on_partition_stop
    )
    called = _CalledTable()
    assert handlers_of(called) == Handlers(called)
    given: Any = object()
    tables = [table_of(*each) for each in ((table, None), (table, given), (called, None), (None, None))]
    assert tables == [table.sink, given, None, None]


def test_an_object_without_one_of_the_functions_brings_none() -> None:
    with pytest.raises(ConfigError, match=r"on_events = .*a function"):
        handlers_of(SimpleNamespace(on_events=print, on_partition_start=print))


@pytest.mark.parametrize("fits", [print, lambda *given: None, partial(print, 1), max])
def test_what_can_is_taken(fits: Any) -> None:
    assert handlers_of(fits)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_batch": 0},
        {"prefetch": 0},
        {"attempts": 0},
        {"max_wait": -1},
        {"poll_interval": 0},
        {"restart_backoff": 0},
        {"longest_backoff": 0.1},
        {"max_batch": 5_000},
    ],
)
def test_delivery_settings_that_cannot_be(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        DeliverySettings(**wrong)  # type: ignore[arg-type]


@given(max_batch=st.integers(1, 500), more=st.integers(0, 5_000), event_bytes=st.none() | st.floats(0, 1e6))
def test_what_is_fetched_at_a_time_always_fits(max_batch: int, more: int, event_bytes: float | None) -> None:
    settings = DeliverySettings(max_batch=max_batch, prefetch=max_batch + more)
    rows = settings.chunk(event_bytes)
    assert 1 <= rows <= settings.prefetch
    assert settings.has_room(rows, 0, 0)
    assert rows <= max_batch or rows * (event_bytes or 0.0) <= AHEAD_BYTES / 3


@pytest.mark.parametrize(
    ("settings", "event_bytes", "rows"),
    [
        (DeliverySettings(), None, 100),
        (DeliverySettings(), 100.0, 800),
        (DeliverySettings(), 1_000.0, 200),
        (DeliverySettings(), 100_000.0, 100),
        (DeliverySettings(max_batch=1_000), 100.0, 1_000),
        (DeliverySettings(max_batch=7, prefetch=400), 100.0, 112),
        (DeliverySettings(max_batch=100, prefetch=150), 100.0, 75),
    ],
)
def test_small_events_are_fetched_more_at_a_time(
    settings: DeliverySettings, event_bytes: float | None, rows: int
) -> None:
    assert settings.chunk(event_bytes) == rows


@pytest.mark.parametrize(
    ("count", "nbytes", "room"),
    [(2_900, 1_000, True), (2_901, 1_000, False), (200, AHEAD_BYTES, True), (201, AHEAD_BYTES, False)],
)
def test_room_is_a_number_of_events_and_of_bytes(count: int, nbytes: int, room: bool) -> None:
    assert DeliverySettings().has_room(100, count, nbytes) is room
