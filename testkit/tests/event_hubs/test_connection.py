"""The state machine: what a connection answers, where an error ends, and what a peer can make it hold."""

from __future__ import annotations

import pytest
from tests.waiting import NEVER

from leasehold_testkit.emulators.amqp.conditions import AmqpError
from leasehold_testkit.emulators.amqp.connection import Connection, Stage
from leasehold_testkit.emulators.amqp.frames import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER
from leasehold_testkit.emulators.amqp.limits import Limits
from leasehold_testkit.emulators.amqp.links import ACCEPTED, Disposed, Flowed, Link, LinkState, rejected
from leasehold_testkit.emulators.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Performative,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Transfer,
)
from leasehold_testkit.emulators.amqp.types import Described, ULong
from testkit.tests.event_hubs.wire import (
    RECORDED,
    Peer,
    begin,
    condition,
    consumer,
    flow,
    frame,
    opening,
    producer,
    transfers,
)

SMALL = Limits(
    frame_size=512, message_size=2_000, partial_bytes=3_000, sessions=3, links=4, credit=10, handshake_timeout=NEVER
)
BUSY = AmqpError("com.microsoft:server-busy", "later")


@pytest.fixture
def peer() -> Peer:
    return Peer(SMALL)


@pytest.fixture
def opened(peer: Peer) -> Peer:
    assert [type(p) for p in peer.say(opening())] == [Open, Begin]
    return peer


def only(performatives: list[Performative]) -> Performative:
    (performative,) = performatives
    return performative


# opening and closing


def test_a_login_and_an_open() -> None:
    connection = Connection(SMALL)
    connection.receive(SASL_HEADER)
    assert connection.output().startswith(SASL_HEADER)
    connection.receive(frame(SaslInit(mechanism="ANONYMOUS")))
    connection.receive(AMQP_HEADER + frame(Open(container_id="x", idle_time_out=30_000)))
    assert connection.stage is Stage.OPEN
    assert connection.peer_idle_timeout == 30.0


def test_what_the_server_says_during_a_login() -> None:
    peer = Peer()
    mechanisms = only(peer.say(SASL_HEADER))
    assert isinstance(mechanisms, SaslMechanisms)
    assert "ANONYMOUS" in mechanisms.mechanisms
    assert peer.say(SaslInit(mechanism="MSSBCBS")) == [SaslOutcome(code=0)]


@pytest.mark.parametrize("name", sorted(RECORDED))
@pytest.mark.parametrize("size", [1, 7, 50])
def test_what_the_official_client_sent_is_served_without_an_error(name: str, size: int) -> None:
    peer, data = Peer(), RECORDED[name]
    answers = [answer for at in range(0, len(data), size) for answer in peer.say(data[at : at + size])]
    assert not any(isinstance(answer, Close | End | Detach) and answer.error is not None for answer in answers)
    assert peer.links
    assert peer.delivered


def test_a_close_is_answered(opened: Peer) -> None:
    assert opened.say(Close()) == [Close()]
    assert opened.connection.closed
    assert opened.say(begin(), channel=1) == []


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"AMQP\x00\x00\x09\x01",
        b"AMQP\x02\x01\x00\x00",
        frame(Open(container_id="x")),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["http", "AMQP 0-9-1", "TLS header", "frame", "TLS hello"],
)
def test_another_protocol_is_told_which_one_is_spoken(data: bytes) -> None:
    connection = Connection(SMALL)
    connection.receive(data)
    assert connection.closed
    assert connection.output() == AMQP_HEADER


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (frame(begin()), "amqp:illegal-state"),
        (frame(Open(container_id="x", max_frame_size=100)), "amqp:invalid-field"),
        (frame(Open(container_id="x"), channel=1), "amqp:illegal-state"),
        (frame(SaslInit(mechanism="PLAIN")), "amqp:connection:framing-error"),
        (AMQP_HEADER, "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x09\x02\x00\x00\x00\x3f", "amqp:decode-error"),
    ],
)
def test_an_error_before_the_open_is_answered_with_open_and_close(peer: Peer, said: bytes, error: str) -> None:
    opened, closed = peer.say(AMQP_HEADER, said)
    assert isinstance(opened, Open)
    assert condition(closed) == error
    assert peer.connection.closed


def test_an_error_during_a_login_refuses_it(peer: Peer) -> None:
    *_, outcome = peer.say(SASL_HEADER, b"\x00\x00\x00\x09\x02\x01\x00\x00\x3f")
    assert outcome == SaslOutcome(code=2)
    assert peer.connection.closed


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"\x00\x01\x00\x00\x02\x00\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x08\x01\x00\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x08\x02\x01\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x09\x02\x00\x00\x00\x3f", "amqp:decode-error"),
        (frame(flow())[:8] + b"\xff" * 4 + frame(flow())[12:], "amqp:decode-error"),
        (frame(begin(), payload=b"what is this"), "amqp:decode-error"),
        (frame(begin()), "amqp:illegal-state"),
        (frame(begin(), channel=3), "amqp:connection:framing-error"),
        (frame(flow(), channel=2), "amqp:not-allowed"),
        (frame(Open(container_id="x")), "amqp:illegal-state"),
        (frame(producer(handle=4)), "amqp:connection:framing-error"),
    ],
)
def test_an_error_of_the_connection_closes_it(opened: Peer, said: bytes, error: str) -> None:
    closed = only(opened.say(said))
    assert isinstance(closed, Close)
    assert condition(closed) == error
    assert opened.connection.closed
    assert opened.say(frame(producer())) == []


@pytest.mark.parametrize("idle", [None, 0, 1_000, 60_000, (1 << 32) - 1])
def test_a_peer_is_shown_signs_of_life_as_often_as_it_asks(peer: Peer, idle: int | None) -> None:
    (opened,) = peer.say(AMQP_HEADER, frame(Open(container_id="x", idle_time_out=idle)))
    assert isinstance(opened, Open)
    assert peer.connection.peer_idle_timeout == (idle / 1_000 if idle else None)


@pytest.mark.parametrize("idle", [1, 20, 999])
def test_a_peer_that_asks_for_more_than_two_a_second_is_refused(peer: Peer, idle: int) -> None:
    opened, closed = peer.say(AMQP_HEADER, frame(Open(container_id="x", idle_time_out=idle)))
    assert isinstance(opened, Open)
    assert isinstance(closed, Close)
    assert condition(closed) == "amqp:not-allowed"
    assert peer.connection.closed


def test_an_empty_frame_is_progress_and_nothing_else(opened: Peer) -> None:
    before = opened.connection.frames
    assert opened.say(EMPTY_FRAME) == []
    assert opened.connection.frames == before + 1
    opened.connection.keep_alive()
    assert opened.connection.output() == EMPTY_FRAME


# sessions


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (frame(flow(handle=2)), "amqp:session:unattached-handle"),
        (transfers(b"x", handle=2), "amqp:session:unattached-handle"),
        (transfers(b"x", handle=1), "amqp:session:unattached-handle"),
        (frame(Detach(handle=2)), "amqp:session:unattached-handle"),
        (frame(producer(handle=0)), "amqp:session:handle-in-use"),
    ],
    ids=["flow", "transfer", "transfer to a consumer", "detach", "attach"],
)
def test_an_error_of_a_session_ends_it_and_no_other(opened: Peer, said: bytes, error: str) -> None:
    opened.say(producer(0), consumer(1))
    opened.say(begin(), channel=1)
    ended = only(opened.say(said))
    assert isinstance(ended, End)
    assert condition(ended) == error
    assert opened.say(flow(), producer(2)) == [], "what still arrives for it is ignored"
    assert [type(p) for p in opened.say(producer(), channel=1)] == [Attach, Flow]
    assert opened.say(End()) == []
    assert isinstance(only(opened.say(begin())), Begin)
    assert {link.state for link in opened.links[:2]} == {LinkState.GONE}


def test_frames_for_a_session_that_the_peer_has_ended_are_ignored(opened: Peer) -> None:
    opened.say(producer())
    assert opened.say(End()) == [End()]
    assert opened.say(Detach(handle=0, closed=True)) == []
    assert not opened.connection.closed


def test_links_are_limited_over_all_sessions(opened: Peer) -> None:
    opened.say(begin(), channel=1)
    opened.say(*(producer(handle) for handle in range(4)))
    assert condition(only(opened.say(producer(), channel=1))) == "amqp:resource-limit-exceeded"


def test_handles_and_channels_are_used_again(opened: Peer) -> None:
    for _ in range(20):
        opened.say(*(producer(handle) for handle in range(4)))
        detached = opened.say(*(Detach(handle=handle, closed=True) for handle in range(4)))
        assert detached == [Detach(handle=handle, closed=True) for handle in range(4)]
    for _ in range(20):
        assert [type(p) for p in opened.say(producer(), End(), begin())] == [Attach, Flow, End, Begin]


# producers


def test_a_message_in_one_piece_and_in_many(opened: Peer) -> None:
    opened.say(producer())
    opened.say(transfers(b"one", delivery=0), transfers(b"x" * 1_000, delivery=1, size=300))
    assert [delivered.payload for delivered in opened.delivered] == [b"one", b"x" * 1_000]
    for delivered in opened.delivered:
        opened.connection.settle(delivered, ACCEPTED)
    assert opened.answers() == [
        Disposition(role=True, first=number, last=number, settled=True, state=Described(ULong(0x24), []))
        for number in (0, 1)
    ]


def test_a_message_may_be_refused(opened: Peer) -> None:
    opened.say(producer(), transfers(b"one"))
    opened.connection.settle(opened.delivered[0], rejected(BUSY))
    disposition = only(opened.answers())
    assert isinstance(disposition, Disposition)
    assert disposition.state.value[0].value[0] == "com.microsoft:server-busy"


def test_a_settled_message_has_no_outcome(opened: Peer) -> None:
    opened.say(producer(), Transfer(handle=0, delivery_id=0, settled=True))
    opened.connection.settle(opened.delivered[0], ACCEPTED)
    assert opened.answers() == []


def test_an_aborted_message_is_forgotten(opened: Peer) -> None:
    opened.say(producer(), frame(Transfer(handle=0, delivery_id=0, more=True), payload=b"x" * 100))
    assert opened.connection.held_bytes == 100
    opened.say(Transfer(handle=0, aborted=True), transfers(b"next", delivery=1))
    assert opened.connection.held_bytes == 0
    assert [delivered.payload for delivered in opened.delivered] == [b"next"]


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (transfers(b"x" * 2_001, size=400), "amqp:link:message-size-exceeded"),
        (frame(Transfer(handle=0)), "amqp:invalid-field"),
        (frame(Transfer(handle=0, delivery_id=0, more=True), Transfer(handle=0, delivery_id=1)), "amqp:invalid-field"),
        (b"".join(transfers(b"x", delivery=n) for n in range(11)), "amqp:link:transfer-limit-exceeded"),
    ],
    ids=["too large", "no delivery id", "two at once", "no credit"],
)
def test_an_error_of_a_link_detaches_it_and_no_other(opened: Peer, said: bytes, error: str) -> None:
    opened.say(producer(), producer(1))
    detached = only(opened.say(said))
    assert isinstance(detached, Detach)
    assert detached.closed
    assert condition(detached) == error
    assert opened.connection.held_bytes == 0
    assert opened.say(transfers(b"late", delivery=50)) == [], "what still arrives for it is ignored"
    before = len(opened.delivered)
    opened.say(transfers(b"fine", handle=1, delivery=51))
    assert len(opened.delivered) == before + 1
    assert opened.say(Detach(handle=0, closed=True)) == []
    assert [type(p) for p in opened.say(producer())] == [Attach, Flow]


def test_messages_that_wait_for_the_window_are_limited_over_all_links() -> None:
    peer = Peer(Limits(frame_size=512, message_size=2_000, waiting_bytes=4_000, links=4))
    peer.say(opening(frame_size=512, window=1), *(frame(begin(1), channel=other) for other in (1, 2)))
    for channel in range(3):
        peer.say(consumer(), flow(window=1), channel=channel)
        assert not peer.connection.closed
        assert peer.connection.send(peer.links[channel], b"x" * 2_000)
    assert peer.connection.waiting_bytes == 0, "nothing is held of a connection that is closed"
    assert condition(peer.answers()[-1]) == "amqp:resource-limit-exceeded"


def test_a_link_is_looked_at_once_a_read_however_often_its_credit_is_said(opened: Peer) -> None:
    opened.say(consumer(0), consumer(1))
    chatter = b"".join(frame(flow(0, window=window)) for window in (100, 0) * 500) + frame(flow(1))
    asked = opened.connection.receive(chatter)
    assert [request.link.handle for request in asked if isinstance(request, Flowed)] == [0, 1]


def unsettled(peer: Peer) -> Link:
    """A receiver that settles what it gets."""
    peer.accepts = False
    peer.say(consumer(0))
    (link,) = peer.links
    peer.connection.accept(link, unsettled=True)
    peer.say(flow(0, credit=100))
    return link


def test_a_disposition_finds_its_deliveries_and_is_answered(opened: Peer) -> None:
    link = unsettled(opened)
    for number in range(3):
        assert opened.connection.send(link, b"x", b"tag%d" % number)
    assert [each.settled for each in opened.answers() if isinstance(each, Transfer)] == [False] * 3
    (asked,) = opened.connection.receive(frame(Disposition(role=True, first=1, last=2, state=ACCEPTED)))
    assert isinstance(asked, Disposed)
    assert asked.deliveries == ((1, link, b"tag1"), (2, link, b"tag2"))
    opened.connection.settled(asked, 1, ACCEPTED)
    said = only(opened.answers())
    assert isinstance(said, Disposition)
    assert (said.role, said.first, said.last, said.settled, said.state) == (False, 1, 1, True, ACCEPTED)
    opened.connection.settled(asked, 1, ACCEPTED)
    assert opened.answers() == [], "a delivery is settled once"


def test_a_disposition_of_deliveries_that_there_are_not_costs_nothing(opened: Peer) -> None:
    link = unsettled(opened)
    assert opened.connection.send(link, b"x", b"tag")
    said = frame(Disposition(role=True, first=0, last=0xFFFFFFFF, state=ACCEPTED))
    (asked,) = opened.connection.receive(said)
    assert isinstance(asked, Disposed)
    assert asked.deliveries == ((0, link, b"tag"),)
    opened.connection.settled(asked, 0, ACCEPTED)
    assert opened.connection.receive(said) == []


def test_a_receiver_that_settles_nothing_gets_no_more_than_the_limit() -> None:
    peer = Peer(Limits(unsettled=3))
    peer.say(opening())
    link = unsettled(peer)
    assert [peer.connection.send(link, b"x", b"t") for _ in range(4)] == [True, True, True, False]
    (asked,) = peer.connection.receive(frame(Disposition(role=True, first=0, settled=True, state=ACCEPTED)))
    assert isinstance(asked, Disposed)
    peer.connection.settled(asked, 0, ACCEPTED)
    assert peer.connection.send(link, b"x", b"t")


def test_messages_that_have_begun_are_limited_over_all_links(opened: Peer) -> None:
    opened.say(producer(), producer(1))
    piece = b"x" * 400
    for handle in (0, 1):
        first = frame(Transfer(handle=handle, delivery_id=handle, more=True), payload=piece)
        more = frame(Transfer(handle=handle, more=True), payload=piece)
        answers = opened.say(first, more, more, more)
    assert condition(only(answers)) == "amqp:resource-limit-exceeded"
    assert opened.connection.held_bytes == 0


def test_credit_is_granted_anew(opened: Peer) -> None:
    _, granted = opened.say(producer())
    assert isinstance(granted, Flow)
    assert granted.link_credit == 10
    grants = []
    for number in range(100):
        opened.say(transfers(b"x", delivery=number))
        opened.connection.settle(opened.delivered[-1], ACCEPTED)
        grants += [answer for answer in opened.answers() if isinstance(answer, Flow)]
    assert {grant.link_credit for grant in grants} == {10}
    assert 10 <= len(grants) <= 20


def test_the_window_of_a_session_is_opened_anew(opened: Peer) -> None:
    opened.say(producer())
    windows = []
    for _ in range(6_000):
        answers = opened.say(Transfer(handle=0, delivery_id=0, more=True))
        windows += [answer for answer in answers if isinstance(answer, Flow)]
    assert len(windows) == 2
    assert windows[-1].next_incoming_id == 5_002


# consumers


def test_messages_go_out_within_the_credit_of_the_link(opened: Peer) -> None:
    opened.say(consumer())
    (link,) = opened.links
    assert not opened.connection.send(link, b"no credit yet")
    opened.say(flow(credit=3))
    assert [opened.connection.send(link, b"m%d" % n) for n in range(5)] == [True] * 3 + [False] * 2
    sent = opened.answers()
    assert [p.delivery_id for p in sent if isinstance(p, Transfer)] == [0, 1, 2]
    assert all(p.settled for p in sent if isinstance(p, Transfer))
    opened.say(flow(credit=3, count=1, received=1), EMPTY_FRAME)
    assert opened.connection.send(link, b"credit of one left")
    assert not opened.connection.send(link, b"none left")


def test_messages_go_out_within_the_window_of_the_session(peer: Peer) -> None:
    peer.say(opening(window=2), consumer(), flow(window=2))
    (link,) = peer.links
    assert peer.connection.send(link, b"x" * 2_000)
    assert len(peer.answers()) == 2
    assert not peer.connection.send(link, b"waits for the first")
    rest = peer.say(flow(received=2, window=100, count=0))
    assert [p.more for p in rest if isinstance(p, Transfer)] == [True, True, False]
    assert peer.connection.send(link, b"next")


def test_pieces_fit_the_peers_frames(peer: Peer) -> None:
    peer.say(opening(frame_size=512), consumer(), flow())
    peer.connection.send(peer.links[0], b"x" * 5_000)
    data = peer.connection.output()
    sizes = []
    while data:
        size = int.from_bytes(data[:4], "big")
        sizes.append(size)
        data = data[size:]
    assert max(sizes) == 512
    assert sum(sizes) > 5_000


def test_a_drain_uses_the_credit_up(opened: Peer) -> None:
    opened.say(consumer(), Flow(incoming_window=9, next_outgoing_id=0, outgoing_window=9, handle=0, link_credit=5))
    drained = Flow(
        incoming_window=9, next_outgoing_id=0, outgoing_window=9, handle=0, link_credit=5, drain=True, delivery_count=0
    )
    opened.say(drained)
    opened.connection.drained(opened.links[0])
    answer = only(opened.answers())
    assert isinstance(answer, Flow)
    assert (answer.link_credit, answer.delivery_count) == (0, 5)


def test_a_flow_may_ask_for_an_echo(opened: Peer) -> None:
    answer = only(opened.say(Flow(incoming_window=9, next_outgoing_id=0, outgoing_window=9, echo=True)))
    assert isinstance(answer, Flow)
    assert answer.handle is None


def test_numbers_wrap(peer: Peer) -> None:
    start = Begin(next_outgoing_id=0xFFFFFFFF, incoming_window=9, outgoing_window=9)
    peer.say(AMQP_HEADER, Open(container_id="x"), start, producer(), consumer(1))
    peer.say(transfers(b"one", delivery=0xFFFFFFFF), transfers(b"two", delivery=0))
    assert [delivered.payload for delivered in peer.delivered] == [b"one", b"two"]
    far = Flow(
        next_incoming_id=0,
        incoming_window=0xFFFFFFFF,
        next_outgoing_id=1,
        outgoing_window=9,
        handle=1,
        delivery_count=0xFFFFFFFF,
        link_credit=2,
    )
    peer.say(far)
    assert peer.links[1].credit == 1


def test_a_window_and_a_credit_may_be_as_large_as_the_numbers_go(opened: Peer) -> None:
    """As Rust's client says its window. Such a number is no negative one."""
    opened.say(consumer(), flow(window=0xFFFFFFFF, credit=0xFFFFFFFF))
    assert opened.links[0].ready
    assert opened.links[0].credit == 0xFFFFFFFF
    assert opened.connection.send(opened.links[0], b"one")
    opened.say(flow(received=1, window=0xFFFFFFFF, credit=0xFFFFFFFF, count=1))
    assert opened.connection.send(opened.links[0], b"two")


# refusing


@pytest.mark.parametrize("attach", [producer(), consumer(), producer(address=None)])
def test_a_link_is_refused_as_amqp_wants_it(attach: Attach) -> None:
    peer = Peer(accepts=False)
    peer.say(opening(), attach)
    peer.connection.refuse(peer.links[0], BUSY)
    attached, detached = peer.answers()
    assert isinstance(attached, Attach)
    assert attached.role is not attach.role
    assert (attached.source is None) is attach.role, "what was asked for is not there"
    assert (attached.target is None) is not attach.role
    assert isinstance(detached, Detach)
    assert condition(detached) == BUSY.condition


def test_an_answer_to_a_link_that_has_gone_is_not_sent() -> None:
    peer = Peer(accepts=False)
    answers = peer.say(opening(), producer(), Detach(handle=0, closed=True))
    assert [type(p) for p in answers] == [Open, Begin, Attach, Detach]
    peer.connection.accept(peer.links[0])
    peer.connection.refuse(peer.links[0], BUSY)
    assert peer.answers() == []


def test_a_transfer_before_the_link_is_attached_ends_the_session() -> None:
    peer = Peer(accepts=False)
    *_, ended = peer.say(opening(), producer(), transfers(b"early"))
    assert condition(ended) == "amqp:illegal-state"
