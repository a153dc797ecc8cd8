"""Receivers that refuse several events at once, though each alone may pass, and one that they refuse alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from leasehold.handlers.answers import Effects, Emit
from leasehold.hubs.event_hubs.url import VARIABLE
from leasehold.queues.service_bus import queue as of_service_bus
from leasehold_testkit.emulators.amqp.conditions import ARGUMENT_ERROR, NOT_ALLOWED
from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub
from leasehold_testkit.emulators.service_bus import ServiceBusServer
from tests.azure_clients import LEAVES_SOCKETS, close_at_once
from tests.handlers.batches import rows
from tests.handlers.outbox_bench import Bench, outbox_of, sent
from tests.hubs.kafka_cluster import Cluster
from tests.queues.conftest import server, url
from tests.waiting import PATIENCE, until

__all__ = ["server"]
pytestmark = LEAVES_SOCKETS
PRODUCE = 0


@dataclass(frozen=True)
class Receiver:
    """Where an outbox is sent to. `refusing` refuses each send of at least this many events, or just the next ones."""

    url: str
    refusing: Callable[[int], AbstractContextManager[None]]
    ids: Callable[[Path], list[str]]
    """Those of the events that are there, in order."""


def _kafka(request: pytest.FixtureRequest, code: int) -> Receiver:
    request.getfixturevalue("monkeypatch").setenv("LEASEHOLD_KAFKA_REQUEST_TIMEOUT", f"{PATIENCE:g}s")
    cluster: Cluster = request.getfixturevalue("cluster")
    target = cluster.url(cluster.topic(1))

    @contextmanager
    def refusing(least: int) -> Iterator[None]:
        cluster.fail(PRODUCE, *[code] * (1 if least > 1 else 2))  # the first time beside others, for all that is known
        yield

    return Receiver(target, refusing, lambda folder: [name for name, *_ in sent(target, folder)])


def _event_hubs(request: pytest.FixtureRequest, condition: str) -> Receiver:
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    close_at_once(patch, "azure.eventhub")
    served = EventHubsServer({"Sent": MemoryHub(1)})
    served.start()
    request.addfinalizer(served.stop)
    patch.setenv(VARIABLE, served.connection_string())
    target = f"eventhubs://{served.namespace}/Sent"
    return Receiver(
        target,
        lambda least: served.faults.refusing_sends(condition, least=least),
        lambda folder: [name for name, *_ in sent(target, folder)],
    )


def _queue(request: pytest.FixtureRequest, condition: str) -> Receiver:
    request.getfixturevalue("monkeypatch").setattr(of_service_bus, "_RETRIES", 0)
    served: ServiceBusServer = request.getfixturevalue("server")

    def ids(folder: Path) -> list[str]:
        entity, shared = served._named("orders"), served._shared
        assert shared is not None
        found: Any = served._ask(shared.namespace.do(entity, lambda now: entity.alive.peek(1, 1_000, now)))
        return [each.content.message_id for each in found]

    return Receiver(url(served), lambda least: served.faults.refusing_sends(condition, least=least), ids)


RECEIVERS = {
    **{
        f"Kafka: {code}": (_kafka, getattr(KafkaError, code))
        for code in ("RECORD_LIST_TOO_LARGE", "POLICY_VIOLATION", "INVALID_RECORD")
    },
    **{f"Event Hubs: {condition}": (_event_hubs, condition) for condition in (ARGUMENT_ERROR, NOT_ALLOWED)},
    **{f"queue: {condition}": (_queue, condition) for condition in (ARGUMENT_ERROR, NOT_ALLOWED)},
}


ALONE = {name: receiver for name, receiver in RECEIVERS.items() if name != f"queue: {NOT_ALLOWED}"}
"""Those that say of one event that it is its own fault; the other says that the URL names another kind of queue."""


@pytest.fixture(params=list(RECEIVERS.values()), ids=list(RECEIVERS))
def receiver(request: pytest.FixtureRequest) -> Receiver:
    made: Callable[[pytest.FixtureRequest, Any], Receiver] = request.param[0]
    return made(request, request.param[1])


@pytest.fixture
def bench(receiver: Receiver, tmp_path: Path) -> Iterator[Bench]:
    """Closed before its receiver is."""
    made = Bench(tmp_path, f"sqlite:////{tmp_path}/table.db", lambda query: rows(tmp_path, query))
    yield made
    made.close()


@pytest.mark.more(but=1)
def test_what_is_refused_together_is_sent_one_by_one(
    bench: Bench, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    table = bench.table(receiver.url)
    with receiver.refusing(2):
        bench.give(table, 0, "a", "a", "a")
        until(lambda: outbox_of(table).counts().waiting == 0, "an outbox that is sent")
    assert outbox_of(table).counts().refused == 0
    assert "the outbox waits" not in caplog.text
    named = [f"h/0/{number}/{place}" for number in range(3) for place in range(2)]
    assert list(dict.fromkeys(receiver.ids(bench.folder))) == named


@pytest.mark.more
@pytest.mark.parametrize("receiver", list(ALONE.values()), ids=list(ALONE), indirect=True)
def test_what_is_refused_alone_is_set_aside_and_the_rest_goes_on(bench: Bench, receiver: Receiver) -> None:
    table = bench.table(receiver.url)
    bench.answers = {0: Effects({"events": 1}, [Emit("refused", key="a")])}
    with receiver.refusing(1):
        bench.give(table, 0, "a")
        until(lambda: outbox_of(table).counts().waiting == 0, "an outbox that waits for nothing")
    (refused,) = outbox_of(table).refused(9)
    assert refused.event.body == b"refused"
    assert "refuse" in refused.reason
    bench.give(table, 1, "a")
    until(lambda: outbox_of(table).counts().waiting == 0, "an outbox that is sent")
    assert receiver.ids(bench.folder) == ["h/0/1/0", "h/0/1/1"]
    assert outbox_of(table).counts().refused == 1
