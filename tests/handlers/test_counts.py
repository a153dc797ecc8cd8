"""What a handled table counts adds up, of random batches and in a real processor: told by what it was given."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from leasehold import DeliverySettings, Event, EventProcessor
from leasehold.counts import EVENTS, Counts
from leasehold.errors import HandlerUnavailable
from leasehold.handlers.contract import Delete, EntityEvent, Reject, Skip, entity
from leasehold.handlers.settings import Failures
from leasehold.handlers.table import HandledTable, Retries
from leasehold.hubs.log import LogHub
from leasehold.notices import Notices, TableApplied
from leasehold.runtime import Runtime
from leasehold.sinks.features import BOOKKEEPING, STATES, require
from leasehold.sinks.rules.skipping import SkipNote
from leasehold_testkit.clock import ManualClock
from tests.handlers.batches import database, given
from tests.handlers.handler_program import OFTEN
from tests.waiting import until

BATCHES = 60
KINDS = ("add",) * 8 + ("none", "delete", "reject", "unreadable", "fails", "fails once")


@entity(keys=["account"])
def counting(state: dict[str, Any] | None, event: EntityEvent) -> dict[str, Any] | Skip | Delete:
    """Does with an event what it says."""
    match event.row["kind"]:
        case "none":
            return Skip()
        case "delete":
            return Delete()
        case "reject":
            raise Reject("it says so")
        case "fails":
            raise ValueError("it says so")
        case "fails once" if event.delivery == 1:
            raise KeyError("it says so")
    return {"events": (state["events"] if state else 0) + 1}


def body(account: str, kind: str) -> object:
    return [account] if kind == "unreadable" else {"account": account, "kind": kind}


class Heard:
    """What is told of commits."""

    def __init__(self) -> None:
        self.notices = Notices()
        self.counts = Counts()
        self.notices.subscribe(self._hear, TableApplied)

    def _hear(self, told: TableApplied) -> None:
        self.counts = self.counts.plus(told.counts)

    def taken(self) -> Counts:
        found, self.counts = self.counts, Counts()
        return found


def table_at(url: str, runtime: Runtime) -> HandledTable:
    return HandledTable(
        counting,
        url,
        table="accounts",
        pipeline="accounts",
        schema="account STRING, kind STRING",
        state="account STRING, events BIGINT",
        failures=Failures(retries=Retries(first=1.0, longest=1.0, deliveries=2)),
        runtime=runtime,
    )


@pytest.fixture(params=["sqlite", "postgres"])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Callable[[str], list[Any]]]:
    return database(request, tmp_path)


def expected(events: list[tuple[str, str]], first: int, mark: int, noted: set[int], waiting: set[str]) -> Counts:
    """What becomes of these events, one by one."""
    found, changed, waits = dict.fromkeys(EVENTS, 0), set(), set(waiting)
    aside = 0
    for number, (account, kind) in enumerate(events, first):
        if number <= mark:
            found["replayed"] += 1
        elif number in noted:
            found["skipped"] += 1
        elif kind == "unreadable":
            found["used"] += 1
            aside += 1
        elif account in waits or kind.startswith("fails"):
            waits.add(account)
            found["parked"] += 1
        else:
            found["used"] += 1
            aside += kind == "reject"
            changed |= {account} if kind in ("add", "delete") else set()
    return Counts(**found, applied=len(changed), rejected=aside)


def test_the_counts_of_random_batches_add_up(there: tuple[str, Callable[[str], list[Any]]]) -> None:
    url, look = there
    random, clock, heard = Random("counts"), ManualClock(), Heard()
    total, events, noted, level = Counts(), list[tuple[str, str]](), set[int](), 2

    def count(table: str) -> int:
        return int(look(f"SELECT count(*) FROM {table}")[0][0])

    with closing(table_at(url, Runtime(clock=clock, rng=Random(1), notices=heard.notices))) as table:
        parks, skips = require(table.sink, STATES, "a test"), require(table.sink, BOOKKEEPING, "a test")
        mark = -1
        for _ in range(BATCHES):
            first = max(0, mark + 1 - random.choice([0, 0, 4]))
            end = mark + 1 + random.randrange(1, 25)
            events += [(f"a{random.randrange(12)}", random.choice(KINDS)) for _ in range(end - len(events))]
            bodies = [body(*one) for one in events[first:end]]
            if random.random() < 0.2:
                table.on_events(*given(level - 1, first, *bodies))
                assert heard.taken() == Counts(refused=len(bodies))
            if random.random() < 0.3:
                note = SkipNote("h", "0", end - 1, b"{}", "{}", because="it is wrong", noted_by="ada")
                noted |= {end - 1} if skips.note_skip(note).passed is None else set()
            waiting = {account for (account,) in parks.parked_entities("h", "0")}
            parked, aside = count("leasehold_parked"), count("accounts_rejected")
            try:
                table.on_events(*given(level, first, *bodies))
            except HandlerUnavailable:
                assert heard.taken() == Counts()
                continue
            told = heard.taken()
            wanted = expected(events[first:end], first, mark, noted, waiting)
            retried = Counts(retried=told.retried, retried_rejected=told.retried_rejected)
            assert told == wanted.plus(retried)
            assert told.read == len(bodies)
            assert count("leasehold_parked") == parked + told.parked - told.retried
            assert count("accounts_rejected") == aside + told.rejected + told.skipped + told.retried_rejected
            total, mark = total.plus(told), end - 1
            clock.advance(random.choice([0.0, 5.0]))
    never = {"filtered", "refused", "duplicates", "superseded", "untimely"}
    assert {name for name, number in total.named().items() if not number} == never


def test_the_counts_of_a_processor_add_up(tmp_path: Path) -> None:
    random, heard = Random("processor"), Heard()
    sent = [(f"a{random.randrange(40)}", random.choice(KINDS)) for _ in range(800)]
    hub = LogHub.create(tmp_path / "log.db", partitions=2)
    hub.send(Event(json.dumps(body(*one)).encode(), partition_key=one[0]) for one in sent)
    runtime = Runtime(notices=heard.notices)
    with closing(table_at(f"sqlite:////{tmp_path}/table.db", runtime)) as table:
        processor = EventProcessor(
            hub,
            f"sqlite:////{tmp_path}/store.db",
            table.on_events,
            table=table.sink,
            name="one",
            ownership=OFTEN,
            delivery=DeliverySettings(max_batch=50),
            runtime=runtime,
        )
        table.level_of = processor.recorded_owner_level
        with processor:
            until(lambda: heard.counts.read == len(sent), "all events to be read")
            until(lambda: heard.counts.retried == heard.counts.parked, "no parked event to be left")
    told = heard.counts
    assert (told.used + told.parked, told.retried) == (len(sent), told.parked)
    assert told.rejected + told.retried_rejected > sum(kind in ("reject", "unreadable") for _, kind in sent)
    hub.close()
