"""What producers put into events: all of it is delivered, or set aside and named; nothing ends a partition."""

from __future__ import annotations

import json
import logging
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("azure.eventhub")

from azure.eventhub._pyamqp._decode import decode_payload

from leasehold.hubs import Hub, open_hub
from leasehold.hubs.base import EVENT_COLUMNS
from leasehold.hubs.event_hubs.decoding import UNREADABLE, decode
from leasehold.hubs.event_hubs.events import Message, batch_of
from leasehold.hubs.event_hubs.url import VARIABLE
from leasehold_testkit.contracts.hubs.fixtures import rows_of
from leasehold_testkit.emulators.amqp.messages import Message as Sent
from leasehold_testkit.emulators.amqp.types import Described, Symbol, ULong, encode
from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub
from tests.azure_clients import LEAVES_SOCKETS
from tests.hubs.unreadable import (
    ANNOTATIONS,
    BEFORE_A_BODY,
    BODIES,
    BODY,
    BY_NO_CLIENT,
    DATA,
    NO_SECTIONS,
    OTHERS,
    SERVICE,
    STATED,
    VALUE,
    VALUES,
    broken,
)

logging.getLogger("azure").setLevel(logging.CRITICAL)


@pytest.fixture
def memory() -> MemoryHub:
    return MemoryHub(1)


@pytest.fixture
def hub(memory: MemoryHub, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with EventHubsServer({"hub": memory}) as server:
        monkeypatch.setenv(VARIABLE, server.connection_string())
        hub = open_hub(f"eventhubs://{server.namespace}/hub")
        yield hub
        hub.close()


@LEAVES_SOCKETS
def test_a_partition_goes_on_behind_every_event(memory: MemoryHub, hub: Hub) -> None:
    bodies = [*BY_NO_CLIENT.values(), *BODIES.values(), *NO_SECTIONS.values(), *BEFORE_A_BODY]
    memory.append("0", [Sent(one) for body in bodies for one in (body, BODY)])
    rows = rows_of(hub, "0")
    assert len(rows) == 2 * len(bodies)
    assert all(row["body"] == b"body" for row in rows[1::2])


@pytest.mark.parametrize("bare", BODIES.values(), ids=BODIES)
def test_of_a_body_that_cannot_be_read_the_bytes_are_given(bare: bytes) -> None:
    row = _row(SERVICE + bare)
    assert row["body"] == bare[3:]
    (name,) = json.loads(dict(row["systemProperties"])[UNREADABLE])
    assert name in ("data", "amqp-sequence", "amqp-value")
    assert (row["sequenceNumber"], row["offset"]) == (7, "700")


@pytest.mark.parametrize("bare", NO_SECTIONS.values(), ids=NO_SECTIONS)
def test_what_is_no_section_is_given_as_a_body(bare: bytes) -> None:
    assert _row(SERVICE + bare)["body"] == bare


@pytest.mark.parametrize(("name", "bare"), [(name, each) for name, some in OTHERS.items() for each in some])
def test_another_section_that_cannot_be_read_is_kept_with_the_event(name: str, bare: bytes) -> None:
    row = _row(SERVICE + bare + BODY)
    assert row["body"] == b"body"
    said = dict(row["systemProperties"] or {})
    if name == "header":  # nothing of it is given
        assert not said
    else:
        assert {name: bare[3:]} == {key: b64decode(text) for key, text in json.loads(said[UNREADABLE]).items()}


def test_a_producer_does_not_override_what_the_service_says() -> None:
    forged = encode(Described(ULong(ANNOTATIONS), {Symbol("x-opt-sequence-number"): 99, Symbol("mine"): "too"}))
    row = _row(SERVICE + forged + BODY)
    assert row["sequenceNumber"] == 7
    assert dict(row["systemProperties"]) == {"mine": "too"}


def test_an_event_without_annotations_of_the_service_has_no_place() -> None:
    with pytest.raises(ValueError, match="annotations"):
        decode(BODY)


@given(body=st.binary(), stated=st.dictionaries(st.text(), VALUES, max_size=4))
def test_what_the_client_can_read_is_read_as_by_the_client(body: bytes, stated: dict[str, object]) -> None:
    payload = SERVICE + encode(Described(ULong(STATED), stated)) + encode(Described(ULong(DATA), body))
    known = decode_payload(memoryview(payload))
    assert decode(payload)._asdict() == {name: getattr(known, name) for name in Message._fields}


@pytest.mark.parametrize("stated", [True, False, {"a": [True, None, b"b"]}, [1, 2.5, "c"]])
def test_a_property_that_is_no_text_is_its_text_in_json(stated: object) -> None:
    row = _row(SERVICE + encode(Described(ULong(STATED), {"p": stated, "t": "True"})) + BODY)
    said = dict(row["properties"])
    assert json.loads(said["p"]) == ({"a": [True, None, "b"]} if isinstance(stated, dict) else stated)
    assert said["t"] == "True"


@pytest.mark.parametrize(
    "bare", [b"", encode(Described(ULong(STATED), {"p": "q"})), encode(Described(ULong(VALUE), None))]
)
def test_a_message_without_a_body_has_none(bare: bytes) -> None:
    """As a tombstone of Kafka. An empty body is one: it is what the official client sends for it."""
    assert _row(SERVICE + bare)["body"] is None
    for empty in (b"", [b"", b""], ""):
        sections = empty if isinstance(empty, list) else [empty]
        kind = VALUE if isinstance(empty, str) else DATA
        assert _row(SERVICE + b"".join(encode(Described(ULong(kind), one)) for one in sections))["body"] == b""


@given(bare=broken())
def test_no_bytes_raise(bare: bytes) -> None:
    assert _row(SERVICE + bare)["sequenceNumber"] == 7


def _row(payload: bytes) -> dict[str, Any]:
    (row,) = batch_of([decode(payload)], EVENT_COLUMNS, "0", "hub").to_pylist()
    return dict(row)
