"""`leasehold dead-letters`, on the local server."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest
from click.testing import CliRunner

from leasehold.cli.app import app
from leasehold.queues import Queue, open_queue
from leasehold_testkit.emulators.service_bus import ServiceBusServer
from tests.azure_clients import LEAVES_SOCKETS
from tests.queues.conftest import url
from tests.queues.messages import received
from tests.queues.servers import Message, connected, send

pytestmark = [LEAVES_SOCKETS, pytest.mark.usefixtures("drains")]


def run(*arguments: str) -> list[Any]:
    ran = CliRunner().invoke(app, ["dead-letters", *arguments, "--json"])
    assert ran.exit_code == 0, ran.output
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.fixture
def dead(server: ServiceBusServer) -> str:
    """The URL of a queue with three dead letters, two for one reason, and a message that is alive."""
    with connected(server) as client:
        send(
            client,
            "orders",
            *(Message(f"body {n}", message_id=f"m{n}", application_properties={"n": n}) for n in range(4)),
        )
    with closing(open_queue(url(server))) as queue:
        for at, message in enumerate(received(queue, 3)):
            assert queue.dead_letter(message, "NoAmount" if at < 2 else "Broken", f"because {at}")
    return url(server)


def test_dead_letters_are_listed_and_shown_and_stay(server: ServiceBusServer, dead: str) -> None:
    (said,) = run(dead)
    listed = said["deadLetters"]
    assert [(each["sequenceNumber"], each["reason"], each["body"]) for each in listed] == [
        *((1, "NoAmount", "body 0"), (2, "NoAmount", "body 1"), (3, "Broken", "body 2")),
    ]
    assert [each["sequenceNumber"] for each in run(dead, "--reason-has", "because 1")[0]["deadLetters"]] == [2]
    assert [each["sequenceNumber"] for each in run("list", dead, "--limit", "1")[0]["deadLetters"]] == [1]
    (shown,) = run("show", dead, "--event", "3")
    assert (shown["messageId"], shown["description"], shown["properties"]["n"]) == ("m2", "because 2", "2")
    assert run("show", dead, "--event", "99") == []
    assert server.count("orders", dead=True) == 3
    with closing(open_queue(dead)) as queue, closing(queue.dead_letters()) as letters:
        assert [each.delivery_count for each in letters.peek(0, 9)] == [0, 0, 0], "looking counts no delivery"


def test_what_is_resubmitted_is_a_message_as_it_was_first(server: ServiceBusServer, dead: str) -> None:
    (said,) = run("resubmit", dead, "--reason-has", "NoAmount")
    assert said == {"resubmitted": 2, "left": []}
    assert (server.count("orders"), server.count("orders", dead=True)) == (3, 1)
    with closing(open_queue(dead)) as queue:
        found = {message.message_id: message for message in received(queue, 3)}
    assert found["m0"].body == b"body 0"
    assert found["m0"].properties == {"n": "0"}
    assert found["m0"].sequence_number == 5


def test_a_mended_body_is_sent_in_place_of_the_dead_letters_own(server: ServiceBusServer, dead: str) -> None:
    ran = CliRunner().invoke(app, ["dead-letters", "export", dead, "--reason-has", "NoAmount"])
    first, second = map(json.loads, ran.stdout.splitlines())
    first["body"] = '{"amount": 5}'
    lines = [json.dumps(line) for line in (first, second, second | {"sequenceNumber": 99})]
    words = ["aside", "retry", dead, "--from", "-", "--json"]
    said = json.loads(CliRunner().invoke(app, words, input="\n".join(lines)).stdout)
    assert (said["resubmitted"], [one["sequenceNumber"] for one in said["left"]]) == (2, [99])
    assert (server.count("orders"), server.count("orders", dead=True)) == (3, 1)
    with closing(open_queue(dead)) as queue:
        found = {message.message_id: message for message in received(queue, 3)}
    assert (found["m0"].body, found["m0"].properties) == (b'{"amount": 5}', {"n": "0"})
    assert found["m1"].body == b"body 1"


ONCE = {
    "a queue": "once",
    "a queue with sessions": "once-sessions?sessions=true",
    "a topic": "once-news/subscriptions/all",
}


def made_dead(queue: Queue, count: int) -> None:
    for message in received(queue, count):
        assert queue.dead_letter(message, "NoAmount", "")


@pytest.mark.more
@pytest.mark.parametrize("path", ONCE.values(), ids=ONCE)
def test_what_is_resubmitted_is_no_duplicate_of_what_it_was(server: ServiceBusServer, path: str) -> None:
    """Three times, since each copy is a message that may fail like its first."""
    sent = [Message(f"{n}", message_id=f"m{n}", session_id="s") for n in range(3)]
    with connected(server) as client:
        send(client, entity := path.partition("/")[0].partition("?")[0], *sent)
    server.send(entity, "3", session_id="s")  # without an id
    with closing(open_queue(url(server, path))) as queue:
        for _ in range(3):
            made_dead(queue, 4)
            assert run("resubmit", url(server, path), "--all")[0]["resubmitted"] == 4
        found = received(queue, 4)
        named = sorted((each.body, each.message_id, each.properties) for each in found)
        firsts = ((b"0", "m0"), (b"1", "m1"), (b"2", "m2"), (b"3", None))
        assert named == [(*first, {}) for first in firsts], "a copy is named as its first"
        assert {each.session_id for each in found} == {"s"}
        assert queue.complete(found) == []


@pytest.mark.parametrize(("path", "copies"), [("once", 1), ("orders", 2)])
def test_a_resubmission_that_ended_between_copy_and_removal_is_done_again(
    server: ServiceBusServer, path: str, copies: int
) -> None:
    """A queue that detects duplicates has the message once: it drops the second copy."""
    with connected(server) as client:
        send(client, path, Message("a", message_id="m"))
    with closing(open_queue(url(server, path))) as queue:
        made_dead(queue, 1)
        with closing(queue.dead_letters()) as dead:
            (letter,) = received(dead, 1)
            dead.resubmit([letter])
            dead.abandon([letter])  # as its lock ends
        assert server.count(path, dead=True) == 1
        assert run("resubmit", url(server, path), "--all")[0]["resubmitted"] == 1
        assert (server.count(path), server.count(path, dead=True)) == (copies, 0)


def test_what_is_dropped_is_gone_and_the_rest_can_be_taken_at_once(server: ServiceBusServer, dead: str) -> None:
    assert run("drop", dead, "--event", "2")[0]["dropped"] == 1
    assert [each["sequenceNumber"] for each in run(dead)[0]["deadLetters"]] == [1, 3]
    assert run("drop", dead, "--all")[0]["dropped"] == 2
    assert (server.count("orders"), server.count("orders", dead=True)) == (1, 0)
    assert run("drop", dead, "--all")[0]["dropped"] == 0


@pytest.mark.more
def test_what_cannot_be_sent_again_stays_and_says_why(server: ServiceBusServer) -> None:
    from azure.servicebus.amqp import AmqpAnnotatedMessage

    with connected(server) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(AmqpAnnotatedMessage(value_body="x"))
    with closing(open_queue(url(server))) as queue:
        (message,) = received(queue, 1)
        assert message.body is None
        queue.dead_letter(message, "r", "d")
    (said,) = run("resubmit", url(server), "--all")
    assert said["resubmitted"] == 0
    assert "can only be dropped" in said["left"][0]["why"]
    assert server.count("orders", dead=True) == 1


@pytest.mark.parametrize("arguments", [(), ("--all", "--event", "1")])
def test_which_ones_are_meant_has_to_be_said(server: ServiceBusServer, arguments: tuple[str, ...]) -> None:
    ran = CliRunner().invoke(app, ["dead-letters", "drop", url(server), *arguments])
    assert ran.exit_code == 1
    assert "say either which events" in ran.stderr
