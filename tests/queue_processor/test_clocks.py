"""Queues whose clock is far from that of their readers: the service alone decides which locks are held."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from leasehold.errors import LeaseholdError, QueueUnavailable, Verdict
from leasehold.handlers.contract import EntityEvent
from leasehold.hubs.log.hub import LogHub
from leasehold.operations.aside.contract import EntryFilter
from leasehold.operations.aside.dead_letters import DeadLettersAside
from leasehold.operations.bridging import Bridge
from leasehold.processors.queues import QueueDelivery
from leasehold.queues import locks, open_queue
from leasehold.queues.keys import key_by
from leasehold.runtime import Runtime
from tests.azure_clients import LEAVES_SOCKETS
from tests.queue_processor.accounts import logs, processor
from tests.queue_processor.runs import QUICK, running
from tests.queues.conftest import url
from tests.queues.messages import bodies, received
from tests.queues.servers import Server
from tests.waiting import NEVER, PATIENCE, until

pytestmark = LEAVES_SOCKETS
KINDS = {"messages": "orders", "sessions": "sessions?sessions=true"}


@pytest.fixture(params=[-3 * NEVER, 3 * NEVER], ids=["readers ahead", "readers behind"])
def apart(request: pytest.FixtureRequest, server: Server) -> Server:
    """A server whose clock is further from that of this process than a lock lasts."""
    server.clock.seconds += request.param
    return server


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def post(server: Server, path: str, count: int) -> str:
    """Put this many messages into the queue, and name it."""
    name = path.partition("?")[0]
    server.send(name, *(json.dumps({"account": "a", "n": n}) for n in range(count)), session_id="a")
    return name


@pytest.mark.more(but=2)
def test_a_processor_completes_what_it_applies(apart: Server, path: str, tmp_path: Path) -> None:
    deliveries: list[int] = []
    name = post(apart, path, 9)
    made = processor(
        url(apart, path),
        tmp_path,
        "one",
        lambda event: deliveries.append(event.delivery),
        delivery=QueueDelivery(**QUICK, at_once=2),
    )
    with running(made):
        until(lambda: apart.count(name) == 0 or made.counts["lost"] > 0, "an empty queue")
    assert logs(tmp_path) == {"a": list(range(9))}
    assert deliveries == [1] * 9
    assert (made.counts["received"], made.counts["lost"]) == (9, 0)
    assert apart.count(name, dead=True) == 0


class Behind:
    """The server's clock, by which its time passes, with a wall that is far behind."""

    def __init__(self, server: Server) -> None:
        self.monotonic = server.clock.monotonic
        self._of = server.clock.wall

    def wall(self) -> float:
        return self._of() - 1_000 * NEVER


def test_a_clock_behind_costs_one_delivery_of_what_takes_long(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that are old, in a queue whose locks end sooner than any lock is trusted."""
    monkeypatch.setattr(locks, "LONGEST", 4 * NEVER)
    clock = Behind(server)

    def in_time() -> bool:
        known = [*made._room._known.values()]
        counts = {held.message.sequence_number: held.message.delivery_count for held in known}
        renewed = all(held.trust.renew_at > clock.monotonic() for held in known)
        return renewed and counts == server.failed_deliveries("orders")

    def long(event: EntityEvent) -> None:
        for _ in range(0 if event.row["n"] else 20):
            server.let_pass(0.4 * NEVER)
            until(in_time, "what is due of the locks")

    post(server, "orders", 2)
    server.let_pass(100 * NEVER)
    made = processor(url(server), tmp_path, "one", long, runtime=Runtime(clock=clock))
    with running(made):
        until(lambda: server.count("orders") == 0, "an empty queue")
    assert logs(tmp_path) == {"a": [0, 1]}
    assert made.counts["received"] == 4, "each of the two came again, once"
    assert server.count("orders", dead=True) == 0


def test_all_that_is_asked_of_a_message_is_done(apart: Server, path: str) -> None:
    name = post(apart, path, 5)
    with closing(open_queue(url(apart, path))) as queue:
        held = received(queue, 5)
        assert len(queue.renew(held)) == 5
        assert queue.complete(held[:1]) == queue.complete(held[1:3]) == []
        assert queue.dead_letter(held[3], "bad", "no amount")
        queue.abandon(held[4:])
    with closing(open_queue(url(apart, path))) as other:
        (again,) = received(other, 1)
        assert (again.body, again.delivery_count) == (held[4].body, 1)
    assert (apart.count(name), apart.count(name, dead=True)) == (1, 1)


def test_a_lock_that_the_service_has_ended_is_lost(apart: Server, path: str) -> None:
    post(apart, path, 2)
    with closing(open_queue(url(apart, path))) as queue:
        held = received(queue, 2)
        apart.let_pass(NEVER)
        assert queue.complete(held) == held
        again = received(queue, 2)
        assert [each.delivery_count for each in again] == [1, 1]
        assert queue.complete(again) == []


def test_a_token_that_the_service_does_not_take_may_be_the_clocks_fault(server: Server) -> None:
    with closing(open_queue(url(server))) as queue:
        assert queue.peek(0, 1) == []
        server.faults.detach_links("amqp:unauthorized-access", description="the token is expired")
        with pytest.raises(QueueUnavailable, match=r"the token is expired.*the clock of this machine") as raised:
            queue.receive(1, PATIENCE)
    assert raised.value.verdict is not Verdict.PASSES


def test_a_bridge_completes_what_it_appends(apart: Server, path: str, tmp_path: Path) -> None:
    name, told = post(apart, path, 3), list[LeaseholdError]()
    with (
        closing(LogHub.create(tmp_path / "orders.db", partitions=1)) as hub,
        closing(open_queue(url(apart, path))) as queue,
    ):
        mover = Bridge(queue, hub, key_of=key_by("session"), say=told.append, pause=lambda seconds: False)
        done = mover.step(3, PATIENCE)
        while done.received < 3:
            done += mover.step(3, PATIENCE)
    assert (done.appended, done.lost, told) == (3, 0, [])
    assert apart.count(name) == 0


@pytest.mark.more(but=2)
def test_dead_letters_are_sent_again_once(apart: Server, path: str) -> None:
    name = post(apart, path, 2)
    with closing(open_queue(url(apart, path))) as queue:
        for message in received(queue, 2):
            assert queue.dead_letter(message, "bad", "no amount")
        with closing(DeadLettersAside(open_queue(url(apart, path)))) as letters:
            assert letters.retry(EntryFilter(), None, lambda seen: None).left == []
        assert set(bodies(received(queue, 2))) == {b'{"account": "a", "n": 0}', b'{"account": "a", "n": 1}'}
    assert (apart.count(name), apart.count(name, dead=True)) == (2, 0)
