"""Events that a person has noted to be skipped, in a table that a handler fills: it is called for none of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from leasehold import Event
from leasehold.handlers import Failures
from leasehold.handlers.contract import EntityEvent, HandlerFailed, entity
from leasehold.handlers.settings import Spread
from leasehold.handlers.table import HandledTable
from leasehold.hubs.log import LogHub
from leasehold.sinks.features import BOOKKEEPING, require
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.skipping import SkipNote
from tests.handlers import handler_program
from tests.handlers.batches import body, database, given, overtaken_once, rows
from tests.handlers.processes import Processes
from tests.waiting import until

Look = Callable[[str], list[Any]]
TABLE = "SELECT account, events FROM accounts ORDER BY 1"


class Counts:
    """A handler that counts the events of an account, and remembers which it was called for; one place breaks it."""

    def __init__(self) -> None:
        self.called: list[int] = []
        self.breaks_at: int | None = None

    def __call__(self, state: dict[str, Any] | None, event: EntityEvent) -> dict[str, Any]:
        self.called.append(event.sequence_number)
        if event.row["place"] == self.breaks_at:
            raise ValueError("never that")
        return {"events": 1 + (state["events"] if state else 0)}


@pytest.fixture(params=["sqlite", "postgres"])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Look]:
    return database(request, tmp_path)


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
def new(there: tuple[str, Look], counts: Counts) -> Iterator[Callable[..., HandledTable]]:
    """Makes a table of the handler."""
    made: list[HandledTable] = []

    def count(state: dict[str, Any] | None, event: EntityEvent) -> dict[str, Any]:
        return counts(state, event)

    def make(**more: Any) -> HandledTable:
        made.append(
            HandledTable(
                entity(keys=["account"])(count),
                there[0],
                table="accounts",
                pipeline="accounts",
                schema="account STRING, amount BIGINT, place BIGINT",
                state="account STRING, events BIGINT",
                **more,
            )
        )
        return made[-1]

    yield make
    for one in made:
        one.close()


def note(table: HandledTable, number: int) -> None:
    """As another process does it."""
    skips = require(table.sink, BOOKKEEPING, "a test")
    assert skips.note_skip(SkipNote("h", "0", number, b"{}", "{}", "it breaks", "ada@tower")).passed is None


def rejected(look: Look) -> list[Any]:
    return look("SELECT sequence_number, reason FROM accounts_rejected ORDER BY 1")


SKIPPED = (1, "skipped by ada@tower: it breaks")


def test_the_handler_is_not_called_for_it(
    new: Callable[..., HandledTable], there: tuple[str, Look], counts: Counts
) -> None:
    table = new()
    note(table, 1)
    table.on_events(*given(1, 0, body(0), body(1), body(2)))
    assert counts.called == [0, 2]
    assert (there[1](TABLE), rejected(there[1])) == ([("a", 2)], [SKIPPED])


def test_one_that_is_noted_while_it_is_computed_is_computed_again_without(
    new: Callable[..., HandledTable], there: tuple[str, Look], counts: Counts
) -> None:
    table = new()
    table.on_events(*given(1, 0, body(0)))
    overtaken_once(table, lambda: note(table, 1))
    table.on_events(*given(1, 1, body(1), body(2)))
    assert counts.called == [0, 1, 2, 2]
    assert (there[1](TABLE), rejected(there[1])) == ([("a", 2)], [SKIPPED])


def test_one_that_is_noted_after_it_was_applied_is_not(
    new: Callable[..., HandledTable], there: tuple[str, Look]
) -> None:
    table = new()
    table.on_events(*given(1, 0, body(0), body(1)))
    skips = require(table.sink, BOOKKEEPING, "a test")
    assert skips.note_skip(SkipNote("h", "0", 1, b"{}", "{}", "late", "ada@tower")).passed == 1
    table.on_events(*given(1, 2, body(2)))
    assert (there[1](TABLE), rejected(there[1])) == ([("a", 3)], [])


def test_a_partition_that_stands_goes_on(
    new: Callable[..., HandledTable], there: tuple[str, Look], counts: Counts
) -> None:
    """With the policy `wait`, by which an event whose handler raises holds up its partition."""
    table, counts.breaks_at = new(failures=Failures(on_failure="wait")), 1
    batch = given(1, 0, body(0), body(1), body(2))
    for _ in range(2):
        with pytest.raises(HandlerFailed):
            table.on_events(*batch)
    note(table, 1)
    table.on_events(*batch)
    assert (there[1](TABLE), rejected(there[1])) == ([("a", 2)], [SKIPPED])


def test_in_a_table_whose_entities_are_in_several_partitions(
    new: Callable[..., HandledTable], there: tuple[str, Look], counts: Counts
) -> None:
    table = new(spread=Spread("place"))
    note(table, 1)
    overtaken_once(table, lambda: note(table, 2))
    table.on_events(*given(1, 0, body(0), body(1), body(2), body(3)))
    assert 1 not in counts.called
    assert there[1](TABLE) == [("a", 2)]
    assert [number for number, _ in rejected(there[1])] == [1, 2]


def test_another_owner_skips_what_the_former_has_not_come_to(
    new: Callable[..., HandledTable], there: tuple[str, Look], counts: Counts
) -> None:
    first, second = new(), new()
    first.on_events(*given(1, 0, body(0)))
    note(first, 1)
    second.on_events(*given(2, 1, body(1), body(2), start=1))
    with closing(first):
        first.on_events(*given(1, 1, body(1), body(2), start=1))
    assert counts.called == [0, 2]
    assert (there[1](TABLE), rejected(there[1])) == ([("a", 2)], [SKIPPED])


@pytest.mark.more
def test_of_two_processes_one_is_killed_while_a_partition_stands(tmp_path: Path) -> None:
    """Whoever holds the partition when the note comes, or afterwards, skips the event, and once."""
    hub = LogHub.create(tmp_path / "log.db", partitions=2)
    for partition, other in (("0", "x"), ("1", "y")):
        bodies = [body(0, "shared"), body(0, other), body(1, other)]
        hub.send([Event(json.dumps(one).encode()) for one in bodies], partition=partition)
    with ExitStack() as stack, closing(handler_program.table(tmp_path)) as beside:
        processes = Processes(stack, tmp_path)
        first = processes.start("one")
        processes.start("two")

        def standing() -> list[str]:
            marks = beside.sink.watermarks(hub.identity)
            return [partition for partition in "01" if marks.get(partition, Watermark()).sequence_number < 0]

        until(lambda: len(standing()) == 1, "one partition to go on, whose entity the other one has too")
        (partition,) = standing()
        require(beside.sink, BOOKKEEPING, "a test").note_skip(
            SkipNote(hub.identity, partition, 0, b"{}", "{}", "it is the other's", "ada@tower")
        )
        first.kill()
        processes.start("one")  # takes the partitions of its predecessor at once
        until(lambda: standing() == [] and len(rows(tmp_path)) == 3, "both partitions to be consumed")
    hub.close()
    assert rows(tmp_path) == [("shared", 1, 1), ("x", 2, 2), ("y", 2, 2)]
    found = rows(tmp_path, "SELECT partition, sequence_number, reason FROM accounts_rejected")
    assert found == [(partition, 0, "skipped by ada@tower: it is the other's")]
