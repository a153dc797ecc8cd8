"""What Postgres and Redis stores do when the server, the process or the network is in trouble: the same for both."""

from __future__ import annotations

import itertools
import json
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
import pytest
import redis

from leasehold.errors import MissingDependency, StoreUnavailable
from leasehold.model import Ask, Checkpoint, ConsumerGroup, Ownership, Presence
from leasehold.stores import Store, open_lease_store, open_store
from leasehold.stores.base import PipelineBinding
from leasehold_testkit.clock import ManualClock
from leasehold_testkit.contracts.stores.groups import ending_by_itself, new_group
from leasehold_testkit.contracts.stores.ownership_records import records
from tests.stores.instances import hold_all, manager
from tests.stores.opened import answers
from tests.stores.servers import PostgresServer, RedisServer
from tests.waiting import NEVER, PATIENCE, until

T = TypeVar("T")
Server = PostgresServer | RedisServer
SHORT = 0.5
"""Seconds: a time-out that is waited for. Under it, only what is to be refused is called, or what is called again."""


@pytest.fixture(params=["postgres", "redis"])
def server(request: pytest.FixtureRequest) -> Server:
    """A server of these tests alone, which kill it, stop it and count what is asked of it."""
    found: Server = request.getfixturevalue(f"own_{request.param}")
    return found


GROUP = new_group()
USES: dict[str, Callable[[Store], object]] = {
    "list": lambda store: store.list_ownership(GROUP),
    "claim": lambda store: store.claim_ownership([Ownership(GROUP, "9", "me", 1)]),
    "renew": lambda store: store.renew_ownership([Ownership(GROUP, "0", "me", 1, "etag")]),
    "presence": lambda store: store.renew_ownership([], Presence(GROUP, "me/1")),
    "relinquish": lambda store: store.relinquish_ownership([Ownership(GROUP, "0", "me", 1, "etag")]),
    "withdraw presence": lambda store: store.withdraw_presence(GROUP, ["me/1"]),
    "ask": lambda store: store.ask([Ask(GROUP, "0", 1, "me")]),
    "withdraw ask": lambda store: store.withdraw_asks([Ask(GROUP, "0", 1, "me")]),
    "list checkpoints": lambda store: store.list_checkpoints(GROUP),
    "raise": lambda store: store.raise_owner_level([Checkpoint(GROUP, "0", 1, 1)]),
    "update": lambda store: store.update_checkpoints([Checkpoint(GROUP, "0", 1, 1)]),
    "bind": lambda store: store.bind_pipeline(GROUP, PipelineBinding("p", "s")),
    "rebind": lambda store: store.rebind_pipeline(GROUP, PipelineBinding("p", "s")),
}


@pytest.mark.more
def test_killed_and_started_again(server: Server) -> None:
    """A clear error in time while it is away; then everything goes on, and what was acknowledged is there."""
    store, leases, group = (
        open_store(server.url, timeout=SHORT),
        open_lease_store(server.url, timeout=SHORT),
        new_group(),
    )
    patient, patient_leases = open_store(server.url, timeout=NEVER), open_lease_store(server.url, timeout=NEVER)
    claimed = patient.claim_ownership([Ownership(group, str(p), "me/1", 3) for p in range(50)])
    patient.renew_ownership([], Presence(group, "me/1"))
    patient.update_checkpoints([Checkpoint(group, str(p), 10 * p, 3, "offset") for p in range(50)])
    session = patient_leases.open_session("me", None)
    held = patient_leases.acquire(session, group.hub, ["a", "b"])
    with suppress(StoreUnavailable):  # its connections are there before the server dies, as far as it is quick enough
        store.list_ownership(group)
        leases.heartbeat(session)
    server.kill()
    try:
        for use in USES.values():
            with ending_by_itself(), pytest.raises(StoreUnavailable):
                use(store)
        with pytest.raises(StoreUnavailable):
            leases.heartbeat(session)
    finally:
        server.start()
    until(lambda: answers(lambda: store.list_ownership(group)), "the same store to answer")
    listed = records(patient, group)
    assert listed == {one.partition: one for one in claimed}
    assert {c.partition: (c.sequence_number, c.owner_level) for c in patient.list_checkpoints(group)} == {
        str(p): (10 * p, 3) for p in range(50)
    }
    assert len(patient.renew_ownership(claimed)) == 50
    assert patient_leases.renew(held) == held
    patient_leases.release(held)
    assert patient_leases.acquire(session, group.hub, ["a"])[0].fence > held[0].fence


@pytest.mark.more
@pytest.mark.parametrize("connected", [True, False], ids=["connected", "not yet connected"])
def test_a_server_that_hangs(server: Server, connected: bool) -> None:
    store, leases = open_store(server.url, timeout=SHORT), open_lease_store(server.url, timeout=SHORT)
    if connected:
        until(lambda: answers(lambda: store.list_ownership(GROUP)), "a connection")
        until(lambda: answers(lambda: leases.holders("scope", ["a"])), "a connection")
    with server.frozen():
        for use in (USES["list"], USES["renew"], USES["list checkpoints"]):
            started = time.monotonic()
            with ending_by_itself(), pytest.raises(StoreUnavailable, match=r"no answer within 0\.5 s"):
                use(store)
            assert time.monotonic() - started >= SHORT - 0.1
        with pytest.raises(StoreUnavailable, match="no answer within"):
            leases.holders("scope", ["a"])
    until(lambda: answers(lambda: store.list_ownership(GROUP)), "the same store to answer")
    until(lambda: answers(lambda: leases.holders("scope", ["a"])), "the same leases to answer")


def test_nobody_listens() -> None:
    for url in ("postgresql://127.0.0.1:1/db", "redis://127.0.0.1:1/0"):
        with pytest.raises(StoreUnavailable, match=r"://127\.0\.0\.1:1/.*refused"):
            open_store(url, timeout=5.0).list_ownership(GROUP)


# Processes

PRELUDE = """
import json, os, sys, threading
from dataclasses import replace
from leasehold.model import *
from leasehold.stores import open_lease_store, open_store
arguments = json.loads(sys.argv[1])

def meet(word):
    print(word, flush=True)
    sys.stdin.readline()
"""


class Peer:
    """A process that runs a script and can be met at a line of its own."""

    def __init__(self, script: str, arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", PRELUDE + script, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def meets(self) -> None:
        assert self.process.stdout
        assert self.process.stdout.readline().strip() == "ready"

    def goes_on(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def answer(self) -> object:
        out, _ = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0
        return json.loads(out)


Run = Callable[[str, list[object]], list[object]]


@pytest.fixture
def run_at_once() -> Iterator[Run]:
    peers: list[Peer] = []

    def run(script: str, arguments: list[object]) -> list[object]:
        peers.extend(Peer(script, one) for one in arguments)
        for peer in peers:
            peer.meets()
        for peer in peers:
            peer.goes_on()
        return [peer.answer() for peer in peers]

    yield run
    for peer in peers:
        peer.process.kill()
        with peer.process:
            pass


@pytest.fixture
def untouched(server: Server) -> str:
    """The URL of a store in which nothing has been made yet."""
    name = f"new_{secrets.token_hex(8)}"
    if isinstance(server, RedisServer):
        return f"{server.url}?prefix={name}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return server.database(name)


FIRST_USE = """
name, url = arguments
meet("ready")
store, leases = open_store(url, timeout=60.0), open_lease_store(url, timeout=60.0)
won = len(store.claim_ownership([Ownership(ConsumerGroup("n", "h"), name, name, 1)]))
won += len(leases.acquire(leases.open_session(name, 60.0), "scope", [name]))
print(json.dumps(won))
"""


@pytest.mark.more
def test_processes_use_a_new_store_at_once(untouched: str, run_at_once: Run) -> None:
    assert run_at_once(FIRST_USE, [[str(n), untouched] for n in range(4)]) == [2] * 4
    store = open_store(untouched, timeout=NEVER)
    assert set(records(store, ConsumerGroup("n", "h"))) == {"0", "1", "2", "3"}


ROUNDS = """
name, url, hub, rounds = arguments
GROUP = ConsumerGroup("n", hub)
store = open_store(url, timeout=60.0)
store.list_ownership(GROUP)
meet("ready")
won = []
for _ in range(rounds):
    listed = {record.partition: record for record in store.list_ownership(GROUP).records}
    now = [listed.get(str(p), Ownership(GROUP, str(p), "", 0)) for p in range(10)]
    claims = [replace(record, owner_id=name, owner_level=record.owner_level + 1) for record in now]
    if name in ("1", "3"): claims.reverse()
    won += [(record.partition, record.owner_level) for record in store.claim_ownership(claims)]
print(json.dumps(won))
"""


def pairs(answer: object) -> list[tuple[str, int]]:
    assert isinstance(answer, list)
    return [(partition, level) for partition, level in answer]


@pytest.mark.more
def test_processes_that_claim_at_once_have_one_winner_a_record(server: Server, run_at_once: Run) -> None:
    group = ConsumerGroup("n", new_group().hub)
    answers = run_at_once(ROUNDS, [[str(n), server.url, group.hub, 25] for n in range(4)])
    won = [(partition, level) for answer in answers for partition, level in pairs(answer)]
    final = records(open_store(server.url, timeout=NEVER), group)
    assert len(final) == 10
    for partition, record in final.items():
        levels = sorted(level for p, level in won if p == partition)
        assert levels == list(range(1, record.owner_level + 1)), f"partition {partition}: a level won twice, or lost"
        assert record.owner_level >= 25, "in each round somebody must win"


FORKS = """
url, hub = arguments
GROUP = ConsumerGroup("n", hub)
store, leases = open_store(url, timeout=30.0), open_lease_store(url, timeout=30.0)
session = leases.open_session("parent", 60.0)
stop = threading.Event()
def keep_busy():  # so that a connection is in use while the process forks
    while not stop.is_set():
        store.list_ownership(GROUP)
thread = threading.Thread(target=keep_busy)
thread.start()
meet("ready")
children = []
for number in range(6):
    claimed = store.claim_ownership([Ownership(GROUP, f"parent {number}", "parent", 1)])
    child = os.fork()
    if child == 0:
        try:
            won = store.claim_ownership([Ownership(GROUP, f"child {number}", "child", 1)])
            won += leases.acquire(session, "forks " + hub, [f"child {number}"])
            won += store.renew_ownership(claimed)
            store.close(), leases.close()
            os._exit(0 if len(won) == 3 else 1)
        except BaseException:
            os._exit(2)
    children.append(child)
    store.list_ownership(GROUP)
    assert leases.heartbeat(session)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
stop.set()
thread.join()
print(json.dumps([codes, len(store.list_ownership(GROUP).records)]))
"""


@pytest.mark.more
def test_a_connection_does_not_cross_a_fork(server: Server, run_at_once: Run) -> None:
    script = "import warnings; warnings.filterwarnings('ignore', category=DeprecationWarning)\n" + FORKS
    assert run_at_once(script, [[server.url, new_group().hub]]) == [[[0] * 6, 12]]


NO_DRIVER = """
url, module = arguments
sys.modules[module] = None
meet("ready")
from leasehold.errors import MissingDependency
for opener in (open_store, open_lease_store):
    try:
        opener(url)
    except MissingDependency as error:
        print(json.dumps(str(error)))
        break
"""


@pytest.mark.more
@pytest.mark.parametrize(
    ("scheme", "module", "extra"), [("postgresql", "psycopg", "postgres"), ("redis", "redis", "redis")]
)
def test_a_missing_driver_names_the_extra(scheme: str, module: str, extra: str, run_at_once: Run) -> None:
    [message] = run_at_once(NO_DRIVER, [[f"{scheme}://me:secret@host/0", module]])
    assert str(MissingDependency(f"the store {scheme}://***@host/0", extra)) == message


# How many requests


def requests(server: Server) -> int:
    """How many requests the server has answered so far: scripts in Redis, logged statements in Postgres."""
    if isinstance(server, RedisServer):
        with redis.Redis(port=server.port) as client:
            calls = client.info("commandstats")
        return sum(int(calls.get(name, {"calls": 0})["calls"]) for name in ("cmdstat_evalsha", "cmdstat_eval"))
    return len(re.findall(r"LOG:  (execute|statement)", server.log()))


@pytest.mark.more(but=1)
def test_the_number_of_requests_does_not_depend_on_that_of_partitions(untouched: str, server: Server) -> None:
    url = untouched if isinstance(server, RedisServer) else f"{untouched}&options=-clog_statement%3Dall"
    store = open_store(url, timeout=NEVER)

    def cycle(many: int) -> list[int]:
        group, counts = new_group(), [requests(server)]

        def count(answer: T) -> T:
            counts.append(requests(server))
            return answer

        held = count(store.claim_ownership([Ownership(group, str(p), "me/1", 1) for p in range(many)]))
        count(store.raise_owner_level([Checkpoint(group, str(p), 0, 1) for p in range(many)]))
        count(store.update_checkpoints([Checkpoint(group, str(p), 1, 1) for p in range(many)]))
        assert len(count(store.renew_ownership(held, Presence(group, "me/1")))) == many
        assert len(count(store.list_ownership(group)).records) == many
        return [after - before for before, after in itertools.pairwise(counts)]

    cycle(1)  # connects, makes tables, and lets the server know the scripts
    assert cycle(32) == cycle(2048) == [1, 1, 1, 1, 1]


# Together


class Switched:
    """A store as whichever of two objects is current: a patient one, or one that gives up soon."""

    def __init__(self, current: Store) -> None:
        self.current = current

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current, name)


def test_trust_ends_while_the_server_hangs_and_calls_end_before(server: Server) -> None:
    """A call that hangs is over before trust is, so that its holder is there to notice."""
    patient = open_store(server.url, timeout=NEVER)
    store: Any = Switched(patient)
    clock = ManualClock()
    times = {"load_balancing_interval": 1.0, "partition_expiration": 30.0, "request_timeout": SHORT, "margin": 0.1}
    held = manager(store, store, new_group(), "me", clock, **times)
    assert hold_all(held) == 1
    store.current = open_store(server.url, timeout=SHORT)
    with server.frozen():
        assert not held.tick()
        assert len(held.held()) == 8, "one call that hangs loses nothing"
        clock.advance(20.0)
        assert not held.tick()
        assert len(held.held()) == 8, "trust lasts for 30 s by the slowest clock"
        clock.advance(10.0)
        assert held.held() == {}, "trust is over, whether or not a call is under way"
        held.tick()
        assert held.held() == {}
    store.current = patient
    assert hold_all(held) == 2
