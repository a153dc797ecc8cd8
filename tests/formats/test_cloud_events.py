"""Events as the SDK of CloudEvents writes them, and headers that nobody meant: docs/reference/formats.md."""

from __future__ import annotations

import io
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from gzip import compress
from typing import Any

import pyarrow as pa
import pytest
from cloudevents.core.bindings import amqp, kafka
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from fastavro import schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from leasehold.errors import ConfigError, UsageError
from leasehold.formats import BodyFormat, BodyReader, ReadBodies
from leasehold.handlers.settings import Bodies
from leasehold.hubs.arrow import TEXT_MAP
from leasehold_testkit.emulators.registry import RegistryServer

AT = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
COLUMNS = pa.schema(
    [
        ("ce_id", pa.string()),
        ("flight", pa.string()),
        ("ce_type", pa.string()),
        ("delay", pa.float64()),
        ("ce_time", pa.timestamp("us", "UTC")),
        ("ce_subject", pa.string()),
        ("ce_datacontenttype", pa.string()),
        ("ce_gates", pa.string()),
    ]
)
ROW = {
    "ce_id": "1",
    "flight": "LH1",
    "ce_type": "com.example.landed",
    "delay": 1.5,
    "ce_time": AT,
    "ce_subject": "München",
    "ce_datacontenttype": "application/json",
    "ce_gates": "7",
}
AVRO = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "flight", "type": "string"}, {"name": "delay", "type": "double"}],
}
STRUCTURED = {"content-type": "application/cloudevents+json"}
BINARY = {"ce_specversion": "1.0", "ce_id": "1", "ce_source": "/gates", "ce_type": "landed"}
ATTRIBUTES = {name.removeprefix("ce_"): value for name, value in BINARY.items()}
NOTHING = dict.fromkeys(COLUMNS.names)

Headers = Mapping[str, str | None] | Sequence[tuple[str, str | None]]


def event(data: Any = None, **more: Any) -> CloudEvent:
    attributes = {"id": "1", "source": "/gates", "type": "com.example.landed", "time": AT, "specversion": "1.0"}
    more = {"datacontenttype": "application/json", "subject": "München", "gates": 7} | more
    return CloudEvent({**attributes, **more}, data)


LANDED = {"flight": "LH1", "delay": 1.5}


def pairs(headers: Headers) -> list[tuple[str, str | None]]:
    return list(headers.items() if isinstance(headers, Mapping) else headers)


def read(
    *events: tuple[bytes | None, Headers] | tuple[bytes | None, Headers, Headers],
    schema: pa.Schema = COLUMNS,
    **how: Any,
) -> ReadBodies:
    """What is read of events: a body each, its properties and its system properties."""
    headers = pa.table(
        {
            "properties": pa.array([pairs(one[1]) for one in events], TEXT_MAP),
            "systemProperties": pa.array([pairs(one[2]) if len(one) > 2 else [] for one in events], TEXT_MAP),
        }
    )
    reader = BodyReader(schema, BodyFormat(envelope="cloudevents", **how))
    return reader.read(pa.array([one[0] for one in events], pa.binary()), headers)


def reason_of(body: bytes | None, headers: Headers, system: Headers = (), **how: Any) -> str:
    """Why one event is rejected, beside one that is not."""
    found = read((json.dumps(LANDED).encode(), BINARY), (body, headers, system), **how)
    assert found.reasons is not None
    good, reason = found.reasons.to_pylist()
    assert good is None
    assert isinstance(reason, str)
    return reason


def of_kafka(message: kafka.KafkaMessage) -> tuple[bytes, Headers]:
    """A message as the hub gives it."""
    return message.value, {name: value.decode() for name, value in message.headers.items()}


def of_amqp(message: amqp.AMQPMessage) -> tuple[bytes, Headers, Headers]:
    """The same, of Event Hubs: values that are no text are as in JSON."""
    stated = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in message.application_properties.items()
    }
    return message.application_data, stated, message.properties


# Both modes


def test_both_modes_of_the_sdk_give_the_same_row() -> None:
    one = event(LANDED)
    found = read(
        of_kafka(kafka.to_binary_event(one)),
        of_kafka(kafka.to_structured_event(one)),
        of_amqp(amqp.to_binary(one, JSONFormat())),
        of_amqp(amqp.to_structured(one, JSONFormat())),
    )
    assert found.reasons is None
    assert found.columns.schema == COLUMNS
    assert found.columns.to_pylist() == [ROW] * 4


def test_properties_of_amqp_may_have_a_colon() -> None:
    body, stated, system = of_amqp(amqp.to_binary(event(LANDED), JSONFormat()))
    colons = {name.replace("cloudEvents_", "cloudEvents:"): value for name, value in dict(pairs(stated)).items()}
    assert read((body, colons, system)).columns.to_pylist() == [ROW]


def test_data_in_avro_is_the_body_or_base64() -> None:
    out = io.BytesIO()
    schemaless_writer(out, AVRO, LANDED)
    one = event(out.getvalue(), datacontenttype="application/avro")
    how = {"format": "avro", "writer_schema": json.dumps(AVRO)}
    events = of_kafka(kafka.to_binary_event(one)), of_kafka(kafka.to_structured_event(one))
    assert read(*events, **how).columns.to_pylist() == [ROW | {"ce_datacontenttype": "application/avro"}] * 2
    found = read(of_kafka(kafka.to_structured_event(event(LANDED))), **how)
    assert found.reasons is not None
    assert found.reasons.to_pylist() == ["the data of the event is JSON, and the format is Avro"]


def test_the_schemas_that_data_names_are_those_of_a_registry() -> None:
    out = io.BytesIO()
    schemaless_writer(out, AVRO, LANDED)
    with closing(RegistryServer()) as server:
        number = server.register("flights", json.dumps(AVRO))
        one = event(b"\0" + number.to_bytes(4, "big") + out.getvalue())
        sent = [of_kafka(kafka.to_binary_event(one)), of_kafka(kafka.to_structured_event(one))]
        assert read(*sent, format="avro", registry=server.url).columns.to_pylist() == [ROW] * 2
        reader = BodyReader(COLUMNS, BodyFormat(envelope="cloudevents", format="avro", registry=server.url)).given({})
    headers = pa.table({"properties": pa.array([pairs(stated) for _, stated in sent], TEXT_MAP)})
    assert reader.read(pa.array([body for body, _ in sent]), headers).unknown == {number}


def test_numbers_of_the_data_stay_as_they_are_written() -> None:
    schema = pa.schema([("n", pa.decimal128(30, 5)), ("raw", pa.string())])
    data = '{"n": 1234567890123456789.00001, "raw": {"a" : 1e3,"a":[ ]}}'
    text = json.dumps({**ATTRIBUTES, "data": 0}).replace("0}", f"{data}}}")
    binary, structured = read((data.encode(), BINARY), (text.encode(), STRUCTURED), schema=schema).columns.to_pylist()
    assert structured == binary
    assert binary["raw"] == '{"a" : 1e3,"a":[ ]}'


def test_fields_that_no_column_takes_are_rescued_of_the_data_alone() -> None:
    one = event({**LANDED, "gate": "B7"})
    events = of_kafka(kafka.to_binary_event(one)), of_kafka(kafka.to_structured_event(one))
    assert [row["rest"] for row in read(*events, rescue="rest").columns.to_pylist()] == ['{"gate":"B7"}'] * 2


def test_what_is_compressed_is_decompressed_before_its_envelope_is_opened() -> None:
    one = event(LANDED)
    events = [of_kafka(kafka.to_binary_event(one)), of_kafka(kafka.to_structured_event(one))]
    events = [(compress(body), headers) for body, headers in events]
    found = read(*events, (b"\x1f\x8bx", BINARY), content_encoding="gzip")
    assert found.columns.to_pylist()[:2] == [ROW] * 2
    assert found.reasons is not None
    assert found.reasons.to_pylist() == [None, None, "the body is not whole gzip"]


def test_a_reader_of_attributes_alone_looks_at_no_data() -> None:
    schema = pa.schema([("ce_type", pa.string())])
    one = event(b"\xff", datacontenttype="image/png")
    found = read(of_kafka(kafka.to_binary_event(one)), of_kafka(kafka.to_structured_event(one)), schema=schema)
    assert found.reasons is None
    assert found.columns.to_pylist() == [{"ce_type": "com.example.landed"}] * 2


def test_headers_are_those_of_their_events_wherever_chunks_begin() -> None:
    sent = [json.dumps({"n": n}).encode() for n in range(40_000)]
    bodies = pa.chunked_array([sent[:20_000], sent[20_000:]])
    maps = pa.array([list({**BINARY, "ce_id": str(n)}.items()) for n in range(40_001)], TEXT_MAP)
    headers = pa.table({"properties": pa.chunked_array([maps[1:7], maps[7:]])})
    schema = pa.schema([("n", pa.int64()), ("ce_id", pa.string())])
    found = BodyReader(schema, BodyFormat(envelope="cloudevents")).read(bodies, headers)
    assert found.reasons is None
    assert all(row["ce_id"] == str(row["n"] + 1) for row in found.columns.to_pylist())


# Events without data


def test_an_event_without_data_is_a_row_of_its_attributes() -> None:
    one = event()
    without = ROW | {"flight": None, "delay": None}
    (body, headers), structured = of_kafka(kafka.to_binary_event(one)), of_kafka(kafka.to_structured_event(one))
    assert body == b""
    found = read((None, headers), (body, headers), structured)
    assert found.reasons is None
    assert found.columns.to_pylist() == [without] * 3


def test_a_null_of_json_is_data_in_both_modes() -> None:
    text = json.dumps({**ATTRIBUTES, "data": None}).encode()
    assert reason_of(b"null", BINARY) == reason_of(text, STRUCTURED) == "the body is not a JSON object: it is null"


def test_an_empty_message_of_protobuf_is_data() -> None:
    schema = pa.schema([("flight", pa.string()), ("ce_id", pa.string())])
    how = {"format": "protobuf", "writer_schema": 'syntax = "proto3"; message Flight { string flight = 1; }'}
    found = read((b"", BINARY), (None, BINARY), schema=schema, **how)
    assert found.columns.to_pylist() == [{"flight": "", "ce_id": "1"}, {"flight": None, "ce_id": "1"}]


def test_a_null_body_without_an_envelope_is_rejected() -> None:
    assert reason_of(None, {}).startswith("no CloudEvent: it has no header ce_specversion")
    assert reason_of(None, STRUCTURED) == "the event has no body"


# No CloudEvents


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, "no CloudEvent: it has no header ce_specversion, and no content-type application/cloudevents+json"),
        ({"content-type": "application/json"}, "no CloudEvent: it has no header ce_specversion"),
        ({"content-type": "application/cloudevents-batch+json; charset=UTF-8"}, "is a batch of them"),
        ({"content-type": "application/cloudevents+avro", **BINARY}, "no CloudEvent that is read here: its format is"),
        ({**BINARY, "ce_specversion": "0.3"}, 'no CloudEvent of version 1: its specversion is "0.3"'),
        ({**BINARY, "ce_id": ""}, "no CloudEvent: it has no id"),
        ({**BINARY, "ce_type": None}, "no CloudEvent: it has no type"),
        ({name: value for name, value in BINARY.items() if name != "ce_source"}, "no CloudEvent: it has no source"),
    ],
)
def test_an_event_in_neither_mode_is_rejected_by_name(headers: Headers, said: str) -> None:
    assert said in reason_of(json.dumps(LANDED).encode(), headers)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[]", "the body is not a JSON object: it is an array"),
        (b'{"id": 1', "the body is not a JSON object: "),
        (b"\xff", "the body is not valid UTF-8"),
        (b"{}", "no CloudEvent: it has no specversion"),
        (b'{"specversion": "1.0", "id": "1", "id": "2"}', "the field id occurs twice in one object"),
        ({**ATTRIBUTES, "id": None}, "no CloudEvent: it has no id"),
        ({**ATTRIBUTES, "specversion": "2.0"}, 'no CloudEvent of version 1: its specversion is "2.0"'),
        ({**ATTRIBUTES, "subject": ["a"]}, "the field ce_subject is an array, which is not a STRING"),
        ({**ATTRIBUTES, "time": "noon"}, 'the field ce_time is "noon", which is not a TIMESTAMP'),
        ({**ATTRIBUTES, "data": "{}"}, 'the body is not a JSON object: it is "{}"'),
        ({**ATTRIBUTES, "data": [{}]}, "the body is not a JSON object: it is an array"),
        ({**ATTRIBUTES, "data": {"delay": "late"}}, "the field delay is "),
        ({**ATTRIBUTES, "data": {}, "data_base64": "e30="}, "no CloudEvent: it has both data and data_base64"),
        ({**ATTRIBUTES, "data_base64": "e30"}, 'the field data_base64 is "e30", which is not base64'),
        ({**ATTRIBUTES, "data_base64": 7}, "the field data_base64 is 7, which is not a BINARY"),
        ({**ATTRIBUTES, "data_base64": b64encode(b"\xff").decode()}, "the body is not valid UTF-8"),
        (
            {**ATTRIBUTES, "datacontenttype": "text/xml", "data": {}},
            "the field data is an object or array, which is not",
        ),
    ],
)
def test_a_structured_event_that_cannot_be_read_is_rejected(body: Any, said: str) -> None:
    assert said in reason_of(body if isinstance(body, bytes) else json.dumps(body).encode(), STRUCTURED)


def test_text_of_another_type_is_read_by_the_format_in_both_modes() -> None:
    text = json.dumps({**ATTRIBUTES, "datacontenttype": "text/plain", "data": json.dumps(LANDED)}).encode()
    found = read((text, STRUCTURED), (json.dumps(LANDED).encode(), {**BINARY, "content-type": "text/plain"}))
    structured, binary = found.columns.to_pylist()
    assert structured == binary
    assert (binary["flight"], binary["ce_datacontenttype"]) == ("LH1", "text/plain")


# Hostile headers


def test_names_of_headers_and_types_of_content_compare_without_regard_to_case() -> None:
    body, headers = of_kafka(kafka.to_binary_event(event(LANDED)))
    loud = {name.upper(): value for name, value in dict(pairs(headers)).items()}
    structured = kafka.to_structured_event(event(LANDED)).value
    found = read((body, loud), (structured, {"Content-Type": "Application/CloudEvents+JSON; charset=utf-8"}))
    assert found.columns.to_pylist() == [ROW] * 2


def test_a_header_that_is_there_twice_has_one_value() -> None:
    body = json.dumps(LANDED).encode()
    twice = [*BINARY.items(), ("CE_ID", "1")]
    assert read((body, twice)).columns.to_pylist()[0]["ce_id"] == "1"
    said = "the header ce_id is there twice, with different values"
    assert reason_of(body, [*BINARY.items(), ("CE_ID", "2")]) == said
    assert reason_of(body, [*BINARY.items(), ("Content-Type", "a/b"), ("content-type", "c/d")]).startswith(
        "the header content-type is there twice"
    )
    unread = [*BINARY.items(), ("ce_other", "1"), ("CE_other", "2")]
    assert read((body, unread)).reasons is None
    as_kafka_has_it = [[name, b64encode(value.encode()).decode()] for name, value in BINARY.items()]
    both = {"headersBase64": json.dumps([*as_kafka_has_it, ["ce_id", b64encode(b"2").decode()]])}
    assert reason_of(body, {**BINARY, "ce_id": "2"}, both) == said


def test_a_header_that_is_not_utf_8_is_no_attribute() -> None:
    body = json.dumps(LANDED).encode()
    exact = [[name, b64encode(value.encode()).decode()] for name, value in BINARY.items()]
    exact.append(["ce_subject", b64encode(b"\xff").decode()])
    system = {"headersBase64": json.dumps(exact)}
    assert reason_of(body, {**BINARY, "ce_subject": "\\xff"}, system) == "the header ce_subject is not UTF-8"
    unreadable = {"headersUnreadable": "the name of a header is not UTF-8"}
    assert "cannot be read" in reason_of(body, {}, unreadable)


def test_the_content_type_of_amqp_comes_before_a_property_of_the_name() -> None:
    body = kafka.to_structured_event(event(LANDED)).value
    found = read((body, {"content-type": "text/plain"}, STRUCTURED))
    assert found.columns.to_pylist() == [ROW]


def test_a_time_in_milliseconds_is_one_of_amqp_alone() -> None:
    body = json.dumps(LANDED).encode()
    attributes = {**ATTRIBUTES, "time": "1770091506007"}
    of_amqp = {f"cloudEvents:{name}": value for name, value in attributes.items()}
    schema = pa.schema([("ce_time", pa.string())])
    assert read((body, of_amqp), schema=schema).columns.to_pylist() == [{"ce_time": "2026-02-03T04:05:06.007Z"}]
    assert "which is not a TIMESTAMP" in reason_of(body, {**BINARY, "ce_time": "1770091506007"})
    assert "which is not a TIMESTAMP" in reason_of(body, {**of_amqp, "cloudEvents:time": "9" * 18})


def test_a_time_of_nanoseconds_is_cut_where_somebody_asks_for_it() -> None:
    body, headers = json.dumps(LANDED).encode(), {**BINARY, "ce_time": "2026-02-03T04:05:06.0000001Z"}
    assert "finer than the microseconds" in reason_of(body, headers)
    assert read((body, headers), timestamps="truncate").columns.to_pylist()[0]["ce_time"] == AT


WHOLE = json.dumps({**ATTRIBUTES, "data": LANDED}).encode()
texts = st.text(st.characters(codec="utf-8"), max_size=12)
names = st.sampled_from([*BINARY, "CE_ID", "content-type", "Content-Type", "cloudEvents:specversion", "ce_time"])
values = st.sampled_from(["1.0", *STRUCTURED.values()])
of_hub = st.sampled_from(["headersBase64", "headersUnreadable", "content-type", "x"])
hostile = st.lists(st.tuples(names | texts, values | texts | st.none()), max_size=8)
system = st.lists(st.tuples(of_hub, texts | st.just('[["ce_id"]]')), max_size=2)
bodies = st.none() | st.binary(max_size=20) | st.sampled_from([WHOLE, b"{}"])


@given(st.lists(st.tuples(bodies, hostile, system), max_size=4))
def test_nothing_that_bodies_and_headers_hold_raises(events: list[tuple[bytes | None, Headers, Headers]]) -> None:
    found = read(*events)
    assert found.columns.num_rows == len(events)
    for row, reason in zip(found.columns.to_pylist(), found.reasons.to_pylist() if found.reasons else [], strict=False):
        assert reason is not None or row["ce_id"]


# Settings


@pytest.mark.parametrize("column", ["ce_Id", "ce_data", "ce_", "ce_data_base64"])
def test_a_column_that_no_attribute_can_fill_is_refused(column: str) -> None:
    with pytest.raises(ConfigError, match="a column that begins with ce_ takes an attribute"):
        BodyReader(pa.schema([(column, pa.string())]), BodyFormat(envelope="cloudevents"))
    BodyReader(pa.schema([(column, pa.string())]))


@pytest.mark.parametrize(("column", "type_"), [("ce_id", pa.int64()), ("ce_time", pa.timestamp("us"))])
def test_an_attribute_is_text(column: str, type_: pa.DataType) -> None:
    with pytest.raises(ConfigError, match="an attribute is a STRING"):
        BodyReader(pa.schema([(column, type_)]), BodyFormat(envelope="cloudevents"))


def test_an_envelope_is_not_read_without_headers() -> None:
    reader = BodyReader(COLUMNS, BodyFormat(envelope="cloudevents"))
    with pytest.raises(UsageError, match="an envelope is told by headers"):
        reader.read(pa.array([b"{}"]))


def test_another_envelope_is_refused() -> None:
    with pytest.raises(ConfigError, match="envelope = 'soap': cloudevents"):
        BodyFormat(envelope="soap")


def test_handlers_and_queues_take_no_envelope() -> None:
    with pytest.raises(ConfigError, match="the body alone is kept and read"):
        Bodies("id STRING", BodyFormat(envelope="cloudevents"))
