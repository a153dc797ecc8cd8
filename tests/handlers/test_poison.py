"""Some entities raise, some hang, some end their process: all others come out right, the dead letters hold the rest."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leasehold import DeliverySettings, Event, EventProcessor
from leasehold.handlers import Failures
from leasehold.handlers.table import HandledTable, Retries
from leasehold.hubs.log.hub import LogHub
from leasehold.processors.events import Handlers
from tests.handlers.batches import rows
from tests.handlers.handler_program import OFTEN
from tests.handlers.slow_handlers import told
from tests.handlers.timed_calls import NO_ANSWER, SHORT, timed
from tests.waiting import PATIENCE, until

__all__ = ["timed"]

PARTITIONS = 2
REASONS = {
    "raises": "ValueError: no good",
    "hangs": NO_ANSWER,
    "dies": "HandlerDied: its process ended by SIGSEGV",
}


def sent(folder: Path, accounts: list[str], events: int) -> dict[str, list[tuple[str, int]]]:
    """Send this many events of each account, by turns; where each account's stand: partition and number."""
    hub = LogHub.create(folder / "log.db", partitions=PARTITIONS)
    for turn in range(events):
        bodies = ((account, json.dumps({"account": account, "amount": turn}).encode()) for account in accounts)
        hub.send([Event(body, partition_key=account) for account, body in bodies])
    found = defaultdict(list)
    for partition, known in hub.partition_properties().items():
        for batch in hub.read(partition, 0, known.end, columns=["body", "sequenceNumber"]):
            for body, number in zip(*(batch[name].to_pylist() for name in ("body", "sequenceNumber")), strict=True):
                found[json.loads(body)["account"]].append((partition, number))
    hub.close()
    return found


def check_campaign(
    folder: Path, url: str, look: Callable[[str], list[Any]], accounts: list[str], events: int, seconds: float
) -> None:
    standing = sent(folder, accounts, events)
    poison = {account: kind for account in accounts if (kind := account.partition("-")[0]) in REASONS}
    table = HandledTable(
        told,
        url,
        table="accounts",
        pipeline="p",
        schema="account STRING, amount BIGINT",
        state="account STRING, seen STRING",
        failures=Failures(retries=Retries(deliveries=2, first=0.05, longest=0.2), handler_timeout=SHORT),
    )
    processor = EventProcessor(
        f"log:////{folder}/log.db",
        f"sqlite:////{folder}/store.db",
        Handlers(table.on_events, on_partition_start=table.on_partition_start),
        table=table.sink,
        ownership=OFTEN,
        delivery=DeliverySettings(max_batch=50),
    )
    table.level_of = processor.recorded_owner_level
    good = {
        account: ",".join(str(number) for _, number in its)
        for account, its in standing.items()
        if account not in poison
    }
    dead = sorted((*place_, REASONS[kind]) for account, kind in poison.items() for place_ in standing[account])

    def settled() -> bool:
        return (
            dict(look("SELECT account, seen FROM accounts")) == good
            and len(look("SELECT 1 FROM accounts_rejected")) >= len(dead)
            and not look("SELECT 1 FROM leasehold_parked")
        )

    with closing(table), processor:
        until(lambda: processor.running, "a processor that runs")
        until(settled, "the end of the campaign", seconds)
    assert sorted(look("SELECT partition, sequence_number, reason FROM accounts_rejected")) == dead


def named(count: int, **poison: int) -> list[str]:
    """This many accounts, with this many of each kind of poison among them."""
    kinds = [f"{kind}-{number}" for kind, several in poison.items() for number in range(several)]
    accounts = [f"a{number}" for number in range(count - len(kinds))]
    for at, account in enumerate(kinds):
        accounts.insert(at * len(accounts) // len(kinds), account)
    return accounts


@pytest.mark.usefixtures("timed")
def test_one_in_a_hundred_raises_and_one_hangs(tmp_path: Path) -> None:
    accounts = named(100, raises=1, hangs=1)
    check_campaign(
        tmp_path, f"sqlite:////{tmp_path}/table.db", lambda query: rows(tmp_path, query), accounts, 1, PATIENCE
    )


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.usefixtures("timed")
@pytest.mark.parametrize("where", ["sqlite", "postgres"])
def test_many_raise_hang_and_end_their_process(tmp_path: Path, request: pytest.FixtureRequest, where: str) -> None:
    url, look = f"sqlite:////{tmp_path}/table.db", lambda query: rows(tmp_path, query)
    if where == "postgres":
        there = request.getfixturevalue("place")
        url, look = there.url, there.look
    check_campaign(tmp_path, url, look, named(2_000, raises=20, hangs=20, dies=5), 3, 1_200)
