"""The contract of sinks that apply messages of queues (the feature STATES), as tests.

Subclass it as `SinkContract`, with the fixtures `open_table`, `contents`, and `aged`, which makes all messages that are
done this many seconds older.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from leasehold.errors import AlreadyInUse, ConfigError, UsageError
from leasehold.sinks.base import Sink
from leasehold.sinks.beside.messages.contract import (
    KnownOfMessage,
    MessageChange,
    MessageName,
    MessageOutcome,
    MessageStep,
    SentAs,
)
from leasehold.sinks.beside.messages.parking import ParkedMessage
from leasehold.sinks.features import STATES
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold_testkit.contracts.sinks.fixtures import UPSERT, Row, SinkFixtures, asked, batch

Open = Callable[[TableSpec], Sink]

STATE = pa.schema({"entity": pa.string(), "value": pa.int64()})
REMEMBER, FAR = 1_000.0, 1e12


def message(number: int, *, queue: str = "shop/orders", enqueued: float = 0.0) -> MessageName:
    return MessageName(queue, f"{number}@{enqueued}", number, enqueued)


def change(number: int, entity: str, version: int, value: int | None, **options: Any) -> MessageChange:
    state = None if value is None else {"entity": entity, "value": value}
    return MessageChange(message(number), (entity,), version, state, **options)


def read_message(sink: Any, schema: pa.Schema, key: tuple[Any, ...], name: MessageName) -> KnownOfMessage:
    """What is known of one message."""
    known: list[KnownOfMessage] = sink.read_messages(schema, key, [name])
    return known[0]


def apply_messages(
    sink: Any, schema: pa.Schema, changes: Sequence[MessageChange], remember: float
) -> list[MessageOutcome]:
    """What became of these changes, each applied to the state that the one before it has left."""
    return list(sink.apply(Batch.of_messages(MessageStep(schema, changes, remember))).messages)


def apply_message(sink: Any, schema: pa.Schema, change_: MessageChange, remember: float) -> MessageOutcome:
    """The same of one change."""
    return apply_messages(sink, schema, [change_], remember)[0]


def parked(number: int, entity: str, *, queue: str = "shop/orders", **options: Any) -> ParkedMessage:
    return ParkedMessage(message(number, queue=queue), (entity,), b"body", "about", **options)


class MessagesContract(SinkFixtures):
    """What every sink must do that has the feature STATES."""

    of = (STATES,)

    @pytest.fixture
    def keeping(self, open_table: Open) -> Any:
        sink = asked(open_table(UPSERT), STATES)
        sink.check_messages(STATE)
        return sink

    def test_a_message_is_applied_once(self, keeping: Any, open_table: Open, contents: Callable[[], object]) -> None:
        first = read_message(keeping, STATE, ("a",), message(1))
        assert (first.done, first.state, first.late) == (False, None, False)
        assert apply_message(keeping, STATE, change(1, "a", first.version, 5), REMEMBER) is MessageOutcome.APPLIED
        other: Any = open_table(UPSERT)
        other.check_messages(STATE)
        again = read_message(other, STATE, ("a",), message(1))
        assert (again.done, again.state) == (True, {"entity": "a", "value": 5})
        assert apply_message(other, STATE, change(1, "a", again.version, 9), REMEMBER) is MessageOutcome.DONE_BEFORE
        assert contents() == [("a", 5)]

    def test_a_state_that_is_not_the_one_that_was_read_is_not_changed(
        self, keeping: Any, contents: Callable[[], object]
    ) -> None:
        read = read_message(keeping, STATE, ("a",), message(1))
        apply_message(keeping, STATE, change(2, "a", read.version, 2), REMEMBER)
        assert apply_message(keeping, STATE, change(1, "a", read.version, 1), REMEMBER) is MessageOutcome.OVERTAKEN
        assert contents() == [("a", 2)]
        again = read_message(keeping, STATE, ("a",), message(1))
        assert (again.done, again.late, again.state) == (False, True, {"entity": "a", "value": 2})
        assert apply_message(keeping, STATE, change(1, "a", again.version, 3), REMEMBER) is MessageOutcome.APPLIED
        assert contents() == [("a", 3)]

    def test_messages_of_an_entity_are_applied_together(self, keeping: Any, contents: Callable[[], object]) -> None:
        names = [message(1), message(2), message(3)]
        read = keeping.read_messages(STATE, ("a",), names)
        assert [(each.done, each.state, each.late, each.version) for each in read] == [(False, None, False, 0)] * 3
        changes = [change(1, "a", 0, 5), change(2, "a", 1, None, changes=False), change(3, "a", 2, 7)]
        assert apply_messages(keeping, STATE, changes, REMEMBER) == [MessageOutcome.APPLIED] * 3
        assert contents() == [("a", 7)]
        again = keeping.read_messages(STATE, ("a",), [*names, message(4)])
        assert [each.done for each in again] == [True, True, True, False]
        together = [change(4, "a", again[0].version, 9), change(5, "a", again[0].version + 1, None)]
        assert apply_messages(keeping, STATE, together, REMEMBER) == [MessageOutcome.APPLIED] * 2
        assert contents() == []

    def test_behind_the_first_that_is_not_applied_nothing_is(
        self, keeping: Any, contents: Callable[[], object]
    ) -> None:
        """Though the version is the one that its change was made for: another's message has made that."""
        apply_message(keeping, STATE, change(1, "a", 0, 1), REMEMBER)
        done, left = MessageOutcome.DONE_BEFORE, MessageOutcome.OVERTAKEN
        assert apply_messages(keeping, STATE, [change(1, "a", 0, 5), change(2, "a", 1, 6)], REMEMBER) == [done, left]
        assert apply_messages(keeping, STATE, [change(2, "a", 0, 5), change(3, "a", 1, 6)], REMEMBER) == [left, left]
        three = [change(4, "a", 1, 4), change(1, "a", 2, 8), change(5, "a", 3, 9)]
        assert apply_messages(keeping, STATE, three, REMEMBER) == [MessageOutcome.APPLIED, done, left]
        assert contents() == [("a", 4)]
        assert [each.done for each in keeping.read_messages(STATE, ("a",), [message(n) for n in (2, 3, 4, 5)])] == [
            *(False, False, True, False)
        ]

    def test_what_was_sent_twice_is_done_once_among_those_applied_together(
        self, keeping: Any, contents: Callable[[], object]
    ) -> None:
        sent = SentAs("digest", REMEMBER)
        changes = [
            MessageChange(MessageName("q", f"{n}@0.0", n, 0.0, sent), ("a",), n, {"entity": "a", "value": n})
            for n in range(2)
        ]
        done = apply_messages(keeping, STATE, changes, REMEMBER)
        assert done == [MessageOutcome.APPLIED, MessageOutcome.DONE_BEFORE]
        assert contents() == [("a", 0)]

    def test_a_parked_message_holds_up_those_behind_it_and_not_those_before_it(self, keeping: Any) -> None:
        assert keeping.parked_messages.park(parked(2, "a"))
        read = keeping.read_messages(STATE, ("a",), [message(1), message(2), message(3)])
        assert [each.behind for each in read] == [False, False, True]
        together = [change(1, "a", 0, 1), change(3, "a", 1, 3)]
        outcomes = apply_messages(keeping, STATE, together, REMEMBER)
        assert outcomes == [MessageOutcome.APPLIED, MessageOutcome.OVERTAKEN]

    def test_what_is_parked_of_each_queue_is_counted(self, keeping: Any, open_table: Open) -> None:
        other: Any = open_table(UPSERT)  # as in a command, which has not looked at the tables before
        assert other.parked_messages.waiting() == {}
        for number, queue in ((1, "shop/orders"), (2, "shop/orders"), (1, "shop/returns")):
            keeping.parked_messages.park(parked(number, "a", queue=queue))
        waiting = other.parked_messages.waiting()
        assert {queue: count for queue, (count, _) in waiting.items()} == {"shop/orders": 2, "shop/returns": 1}
        assert all(oldest > 0 for _, oldest in waiting.values())

    def test_a_state_that_does_not_fit_leaves_all_of_them_undone(
        self, keeping: Any, contents: Callable[[], object]
    ) -> None:
        with pytest.raises(UsageError, match="does not fit"):
            apply_messages(keeping, STATE, [change(1, "a", 0, 1), change(2, "a", 1, 2**70)], REMEMBER)
        assert contents() == []
        assert not read_message(keeping, STATE, ("a",), message(1)).done

    def test_a_row_is_deleted_and_its_version_goes_on(self, keeping: Any, contents: Callable[[], object]) -> None:
        apply_message(keeping, STATE, change(1, "a", 0, 1), REMEMBER)
        read = read_message(keeping, STATE, ("a",), message(2))
        apply_message(keeping, STATE, change(2, "a", read.version, None), REMEMBER)
        assert contents() == []
        gone = read_message(keeping, STATE, ("a",), message(3))
        assert gone.state is None
        assert gone.version not in (0, read.version)

    def test_a_message_without_a_change_is_done_too(self, keeping: Any, contents: Callable[[], object]) -> None:
        apply_message(keeping, STATE, change(1, "a", 0, 1), REMEMBER)
        version = read_message(keeping, STATE, ("a",), message(2)).version
        done = apply_message(keeping, STATE, change(2, "a", version, None, changes=False), REMEMBER)
        assert done is MessageOutcome.APPLIED
        assert contents() == [("a", 1)]
        assert read_message(keeping, STATE, ("a",), message(2)).done

    def test_a_number_of_another_queue_or_of_a_queue_made_anew_is_another_message(self, keeping: Any) -> None:
        apply_message(keeping, STATE, change(7, "a", 0, 1), REMEMBER)
        for name in (message(7, queue="shop/returns"), message(7, enqueued=9.0), message(1, enqueued=9.0)):
            known = read_message(keeping, STATE, ("a",), name)
            assert (known.done, known.late) == (False, False), name

    def test_messages_are_forgotten_after_their_time(self, keeping: Any, aged: Callable[[float], object]) -> None:
        apply_message(keeping, STATE, change(1, "a", 0, 1), REMEMBER)
        aged(REMEMBER / 2)
        apply_message(keeping, STATE, change(2, "b", 0, 1), REMEMBER)
        aged(REMEMBER * 0.6)
        apply_message(keeping, STATE, change(3, "c", 0, 1), REMEMBER)
        done = {n: read_message(keeping, STATE, ("a",), message(n)).done for n in (1, 2, 3)}
        assert done == {1: False, 2: True, 3: True}

    def test_a_clock_that_runs_ahead_forgets_nothing(self, keeping: Any, aged: Callable[[float], object]) -> None:
        """It was forgotten, and took effect again where its completion had got lost."""
        ahead = REMEMBER * 10
        then = time.time() - ahead  # the time, as the service and the process that applied the first know it

        def apply(number: int, sent_as: str) -> MessageOutcome:
            name = MessageName("shop/orders", str(number), number, then + number, SentAs(sent_as, REMEMBER))
            known = read_message(keeping, STATE, ("a",), name)
            change = MessageChange(name, ("a",), known.version, {"entity": "a", "value": number})
            return MessageOutcome(apply_message(keeping, STATE, change, REMEMBER))

        assert apply(1, "x") is MessageOutcome.APPLIED
        aged(ahead)
        assert apply(2, "y") is MessageOutcome.APPLIED
        assert apply(1, "x") is MessageOutcome.DONE_BEFORE
        assert apply(3, "x") is MessageOutcome.DONE_BEFORE, "its sender has sent it again"

    def test_what_a_clock_that_is_behind_has_noted_is_not_old(
        self, keeping: Any, aged: Callable[[float], object]
    ) -> None:
        behind = REMEMBER * 10
        now = time.time() + behind

        def apply(number: int) -> MessageOutcome:
            name = MessageName("shop/orders", str(number), number, now + number)
            version = read_message(keeping, STATE, ("a",), name).version
            change = MessageChange(name, ("a",), version, {"entity": "a", "value": number})
            return MessageOutcome(apply_message(keeping, STATE, change, REMEMBER))

        assert apply(1) is MessageOutcome.APPLIED
        aged(REMEMBER * 2)  # as if the next ones came to a process whose clock is right, or nearly
        assert [apply(2), apply(1)] == [MessageOutcome.APPLIED, MessageOutcome.DONE_BEFORE]

    def test_what_was_sent_twice_is_done_once_for_a_time(
        self, keeping: Any, contents: Callable[[], object], aged: Callable[[float], object]
    ) -> None:
        def name(number: int, sent_as: str | None, queue: str = "shop/orders") -> MessageName:
            sent = None if sent_as is None else SentAs(sent_as, REMEMBER)
            return MessageName(queue, f"{number}@0.0", number, 0.0, sent)

        def apply(name: MessageName, entity: str) -> MessageOutcome:
            known = read_message(keeping, STATE, (entity,), name)
            state = {"entity": entity, "value": (known.state["value"] if known.state else 0) + 1}
            outcome = apply_message(keeping, STATE, MessageChange(name, (entity,), known.version, state), REMEMBER * 9)
            assert known.done is (outcome is MessageOutcome.DONE_BEFORE)
            return MessageOutcome(outcome)

        applied, before = MessageOutcome.APPLIED, MessageOutcome.DONE_BEFORE
        assert apply(name(1, "x"), "a") is applied
        assert [apply(name(2, "x"), "a"), apply(name(3, "x"), "b")] == [before, before]
        assert [apply(name(1, "x"), "a"), apply(name(4, "y"), "a")] == [before, applied]
        assert [apply(name(5, None), "a"), apply(name(6, None), "a")] == [applied, applied]
        assert apply(name(2, "x", queue="shop/returns"), "c") is applied
        aged(REMEMBER / 2)
        assert apply(name(7, "x"), "a") is before
        aged(REMEMBER * 0.6)
        assert [apply(name(8, "x"), "d"), apply(name(9, "x"), "d"), apply(name(1, "x"), "a")] == [
            applied,
            before,
            before,
        ]
        assert contents() == [("a", 4), ("c", 1), ("d", 1)]

    def test_parked_messages_stand_in_the_order_of_the_queue_and_none_overtakes_them(
        self, keeping: Any, contents: Callable[[], object]
    ) -> None:
        parking = keeping.parked_messages
        for number in (5, 3):
            assert parking.park(parked(number, "a", next_at=1.0))
        assert parking.park(parked(4, "b", next_at=FAR))
        assert parking.park(parked(6, "c", queue="shop/returns"))
        assert [each.name.sequence_number for each in parking.first("shop/orders", ("a",), 9)] == [3, 5]
        assert parking.due("shop/orders", 9) == [("a",)]
        behind = {n: read_message(keeping, STATE, ("a",), message(n)).behind for n in (2, 3, 4, 5, 6)}
        assert behind == {2: False, 3: False, 4: True, 5: True, 6: True}
        assert not read_message(keeping, STATE, ("c",), message(9)).behind
        assert apply_message(keeping, STATE, change(4, "a", 0, 4), REMEMBER) is MessageOutcome.OVERTAKEN
        assert apply_message(keeping, STATE, change(3, "a", 0, 3), REMEMBER) is MessageOutcome.APPLIED
        assert parking.first("shop/orders", ("a",), 9) == [parked(5, "a", next_at=1.0)]
        version = read_message(keeping, STATE, ("a",), message(4)).version
        assert apply_message(keeping, STATE, change(4, "a", version, 4), REMEMBER) is MessageOutcome.APPLIED
        assert contents() == [("a", 4)]

    def test_a_parked_message_that_comes_again_or_fails_again_is_one(self, keeping: Any) -> None:
        parking = keeping.parked_messages
        assert parking.park(parked(1, "a"))
        assert parking.park(parked(1, "a", deliveries=2, next_at=FAR, error="no stock"))
        assert parking.first("shop/orders", ("a",), 9) == [parked(1, "a", deliveries=2, next_at=FAR, error="no stock")]
        assert parking.due("shop/orders", 9) == []
        assert apply_message(keeping, STATE, change(1, "a", 0, 1), REMEMBER) is MessageOutcome.APPLIED
        assert not parking.park(parked(1, "a")), "it is done"
        assert parking.first("shop/orders", ("a",), 9) == []

    def test_a_parked_message_that_is_given_up_is_a_rejected_row_and_done(
        self, keeping: Any, set_aside: Callable[[], list[tuple[str, int]]]
    ) -> None:
        parking = keeping.parked_messages
        one, two = parked(1, "a"), parked(2, "a")
        assert parking.park(one)
        assert parking.park(two)
        assert parking.set_aside(one, "no stock")
        assert not parking.set_aside(one, "no stock")
        assert set_aside() == [("0.0", 1)]
        assert read_message(keeping, STATE, ("a",), message(1)).done
        assert parking.due("shop/orders", 9) == [("a",)]
        parking.remove(two)
        assert parking.first("shop/orders", ("a",), 9) == []

    def test_a_parked_message_is_forgotten_with_its_entity(self, keeping: Any) -> None:
        keeping.parked_messages.park(parked(1, "a"))
        keeping.parked_messages.park(parked(2, "b"))
        assert keeping.forget_entity({"entity": "a"}).rejected == 1
        assert keeping.parked_messages.due("shop/orders", 9) == [("b",)]

    def test_a_state_that_does_not_fit_changes_nothing(self, keeping: Any, contents: Callable[[], object]) -> None:
        wrong = MessageChange(message(1), ("a",), 0, {"entity": "a", "value": "many"})
        with pytest.raises(UsageError, match="does not fit the table entities"):
            apply_message(keeping, STATE, wrong, REMEMBER)
        assert contents() == []
        assert not read_message(keeping, STATE, ("a",), message(1)).done

    def test_threads_that_add_up_lose_nothing(self, keeping: Any, contents: Callable[[], object]) -> None:
        def add(numbers: range) -> None:
            for number in numbers:
                outcome = None
                while outcome is not MessageOutcome.APPLIED:
                    known = read_message(keeping, STATE, ("a",), message(number))
                    value = (known.state["value"] if known.state else 0) + 1
                    outcome = apply_message(keeping, STATE, change(number, "a", known.version, value), REMEMBER)
            keeping.close()

        threads = [threading.Thread(target=add, args=(range(start, start + 10),)) for start in (0, 10, 20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert contents() == [("a", 30)]

    def test_a_table_that_a_hub_fills_is_refused(self, open_table: Open) -> None:
        sink: Any = open_table(UPSERT)
        sink.apply(batch(Row("a", 1, 1)))
        with pytest.raises(ConfigError, match="contract-hub"):
            sink.check_messages(STATE)

    def test_a_table_that_a_queue_fills_is_refused_to_a_hub(
        self, keeping: Any, open_table: Open, contents: Callable[[], object]
    ) -> None:
        apply_message(keeping, STATE, change(1, "a", 0, 1), REMEMBER)
        with pytest.raises(AlreadyInUse, match="shop/orders"):
            open_table(UPSERT).apply(batch(Row("b", 1, 1)))
        assert contents() == [("a", 1)]
