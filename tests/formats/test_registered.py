"""Bodies that name their schema, by a registry: what Confluent's own serializer writes, and all that may be wrong."""

from __future__ import annotations

import gzip
import json
import pickle
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from leasehold.body_format import BodyFormat
from leasehold.errors import ConfigError, RegistryError, RegistryUnavailable, Verdict
from leasehold.formats import BodyReader
from leasehold.formats.protobuf.typed_bodies import NO_TYPE
from leasehold.registries import RegisteredSchema, Schemas, open_registry
from leasehold.registries.known_schemas import KnownSchemas
from leasehold.spark.loop.orders import Order, task_order
from leasehold_testkit.emulators.registry import RegistryServer
from tests.formats.protobuf_schemas import message_class
from tests.formats.registered import COLUMNS, FLIGHTS, headed, outcome, schema, written


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with closing(RegistryServer()) as server:
        yield server


def reader(url: str, **how: Any) -> BodyReader:
    return BodyReader(COLUMNS, BodyFormat(format="avro", registry=url, **how))


def test_what_confluents_serializer_writes_is_read_by_the_schema_of_each_body(server: RegistryServer) -> None:
    with SchemaRegistryClient({"url": server.url}) as client:
        bodies = written(client)
    expected = [(f"o{n}", None, n) if n % 3 else (f"n{n}", "B7", n) for n in range(300)]
    one = reader(server.url)
    assert outcome(one.read(pa.array(bodies))) == expected
    kept = outcome(reader(server.url, rescue="rest").read(pa.array(bodies)))
    assert kept == [(*row, None if row[1] is None else '{"more":true}') for row in expected]
    asked = [path for path in server.requests if path.startswith("/schemas/ids/")]
    assert len(asked) == 2
    assert outcome(one.read(pa.array(bodies[::-1]))) == expected[::-1]
    assert [path for path in server.requests if path.startswith("/schemas/ids/")] == asked


def test_the_number_of_a_schema_before_json_is_read_over(server: RegistryServer) -> None:
    context = SerializationContext("flights", MessageField.VALUE)
    text = json.dumps({"title": "F", "type": "object", "properties": {"id": {"type": "string"}}})
    with SchemaRegistryClient({"url": server.url}) as client:
        body = JSONSerializer(text, client)({"id": "a", "n": 5}, context)
    assert body is not None and body[:1] == b"\0"  # noqa: PT018
    wide = ['{"{":1}'.encode(kind) for kind in ("utf-16-be", "utf-32-be", "utf-16-le")]
    bodies = [body, b'{"id":"b"}', None, headed(7, b"{"), headed(7, b"{}"), headed(7, b"[1]"), b"\0", *wide]
    for many in (1, 60):
        read = outcome(BodyReader(COLUMNS).read(pa.array(bodies * many, pa.binary())))
        assert read[:3] == [("a", None, 5), ("b", None, None), "the event has no body"]
        assert read[4] == (None, None, None)
        assert all(isinstance(one, str) for one in [read[3], *read[5 : len(bodies)]])


@pytest.mark.parametrize("together", [True, False], ids=["many", "few"])
def test_what_confluents_serializer_writes_in_protobuf_is_read_by_the_type_of_each_body(
    server: RegistryServer, together: bool
) -> None:
    context = SerializationContext("flights", MessageField.VALUE)
    kinds = [message_class(FLIGHTS, f"flights.{name}") for name in ("Old", "New", "New.Inner")]
    with SchemaRegistryClient({"url": server.url}) as client:
        write = [ProtobufSerializer(kind, client, {"use.deprecated.format": False}) for kind in kinds]
        values: list[dict[str, Any]] = [
            {"id": "a", "n": 5},
            {"id": "b", "n": 6, "gate": "B7", "more": True},
            {"id": "c"},
        ]
        bodies = [write[n](kinds[n](**values[n]), context) for n in range(3)] * (60 if together else 1)
    expected = [("a", None, 5), ("b", "B7", 6), ("c", None, None)] * (60 if together else 1)
    one = BodyReader(COLUMNS, BodyFormat(format="protobuf", registry=server.url))
    assert outcome(one.read(pa.array(bodies))) == expected
    named = BodyReader(COLUMNS, BodyFormat(format="protobuf", registry=server.url, message="flights.New"))
    reason = "it is a message of the type flights.{}, and those of flights.New are read"
    assert outcome(named.read(pa.array(bodies[:3]))) == [reason.format("Old"), expected[1], reason.format("New.Inner")]
    other = BodyReader(COLUMNS, BodyFormat(format="protobuf", registry=server.url, message="flights.Other"))
    assert "no such type of messages" in outcome(other.read(pa.array(bodies[:1])))[0]


def test_a_body_that_tells_no_type_of_its_schema_is_rejected(server: RegistryServer) -> None:
    number = server.register("flights", FLIGHTS, "PROTOBUF")
    heads = {
        b"": NO_TYPE,
        b"\x02": NO_TYPE,
        b"\x02\xff\xff\xff\xff\xff\xff": NO_TYPE,
        b"\x01\x00": NO_TYPE,
        b"\xd0\x0f": NO_TYPE,
        b"\x02\x04": "its schema has no type of messages at the place 2, which the body names",
        b"\x02\x01": "its schema has no type of messages at the place -1, which the body names",
        b"\x04\x02\x02": "its schema has no type of messages at the place 1.1, which the body names",
        b"\x00\x0a\x01x": ("x", None, 0),
        b"\x02\x00\x0a\x01x": ("x", None, 0),
        b"\x02\x02\x1a\x01x": ("x", None, 0),
        b"\x04\x02\x00\x3a\x01x": ("x", None, None),
        b"\x00\x0a\x05x": "the body is not a message of the type flights.Old",
    }
    one = BodyReader(COLUMNS, BodyFormat(format="protobuf", registry=server.url))
    assert outcome(one.read(pa.array([headed(number, head) for head in heads]))) == list(heads.values())
    many = outcome(one.read(pa.array([headed(number, head) for head in heads for _ in range(20)])))
    assert many == [one for one in heads.values() for _ in range(20)]


def test_a_schema_is_read_with_those_that_it_refers_to(server: RegistryServer) -> None:
    leg = 'syntax = "proto3"; package legs; import "base.proto"; message Leg { string gate = 1; base.N n = 2; }'
    base = 'syntax = "proto3"; package base; message N { int64 n = 1; }'
    top = """syntax = "proto3"; import "legs/leg.proto"; import "google/type/date.proto";
    message F { string id = 1; legs.Leg leg = 2; google.type.Date day = 3; }"""
    record = {"type": "record", "name": "Leg", "namespace": "legs", "fields": [{"name": "gate", "type": "string"}]}
    with SchemaRegistryClient({"url": server.url}) as client:
        client.register_schema("base", Schema(base, "PROTOBUF"))
        client.register_schema("leg", Schema(leg, "PROTOBUF", [SchemaReference("base.proto", "base", 1)]))
        number = client.register_schema("f", Schema(top, "PROTOBUF", [SchemaReference("legs/leg.proto", "leg", 1)]))
        client.register_schema("record", Schema(json.dumps(record), "AVRO"))
        refers = [SchemaReference("legs.Leg", "record", 1)]
        avro = client.register_schema("a", Schema(schema(id="string", leg="legs.Leg"), "AVRO", refers))
        lost = [SchemaReference("legs/leg.proto", "nowhere", 1)]
        away = client.register_schema("g", Schema(top, "PROTOBUF", lost))
    columns = pa.schema([("id", pa.string()), ("leg", pa.string())])
    one = BodyReader(columns, BodyFormat(format="protobuf", registry=server.url))
    bodies = [headed(number, b"\0\x0a\x01x\x12\x07\x0a\x01B\x12\x02\x08\x05"), headed(away, b"\0")]
    read = outcome(one.read(pa.array(bodies)))
    assert read == [("x", '{"gate":"B","n":{"n":5}}'), f"its schema, {away}, is not known to the registry"]
    given = pickle.loads(pickle.dumps(one.given(one.schemas_of(pa.array(bodies)))))  # noqa: S301
    assert outcome(given.read(pa.array(bodies))) == read
    other = BodyReader(columns, BodyFormat(format="avro", registry=server.url))
    assert outcome(other.read(pa.array([headed(avro, b"\x02x\x02B")]))) == [("x", '{"gate":"B"}')]


@pytest.mark.parametrize(
    "name",
    [
        "../a.proto",
        "/a.proto",
        "@a.proto",
        "--python_out=.",
        "a/../../b.proto",
        "a\\b.proto",
        "",
        "a\nb.proto",
        "all.set",
        "a" * 300,
    ],
)
def test_a_file_with_a_name_that_leads_elsewhere_rejects_the_bodies(name: str) -> None:
    one = BodyReader(COLUMNS, BodyFormat(format="protobuf", registry="http://localhost"))
    given = one.given({1: RegisteredSchema("PROTOBUF", "message F {}", ((name, "message G {}"),))})
    (reason,) = outcome(given.read(pa.array([headed(1, b"\0")])))
    assert reason.startswith("its schema, 1, cannot be read: not a schema of Protobuf that can be read (it refers to a")


LACKING = {
    "no room for files": "echo all.set: No space left on device >&2; exit 1",
    "no memory": "kill -9 $$",
    "no library": "echo Traceback >&2; exit 1",
}


@pytest.mark.parametrize("what", [*LACKING, "no folder"])
def test_what_the_machine_lacks_to_compile_a_schema_is_waited_for(
    server: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """No event of a good schema is rejected meanwhile, and the same call succeeds later."""
    number = server.register("flights", f"{FLIGHTS}// {what}", "PROTOBUF")
    one = BodyReader(COLUMNS, BodyFormat(format="protobuf", registry=server.url))
    bodies = pa.array([headed(number, b"\0\x0a\x01x")])
    with monkeypatch.context() as patch:
        if what in LACKING:
            (tmp_path / "python").write_text(f"#!/bin/sh\n{LACKING[what]}\n")
            (tmp_path / "python").chmod(0o755)
            patch.setattr(sys, "executable", str(tmp_path / "python"))
        else:
            patch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
        with pytest.raises(RegistryUnavailable, match="cannot be compiled at the moment"):
            one.read(bodies)
    assert outcome(one.read(bodies)) == [("x", None, 0)]


def test_who_is_given_a_schema_needs_no_compiler(
    server: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As tasks of Spark are: by the driver, or in a reader that it has made."""
    good, bad = (server.register("flights", text, "PROTOBUF") for text in (f"{FLIGHTS}// given", "message {"))
    bodies = pa.array([headed(good, b"\0\x0a\x01x"), headed(bad, b"\0")])
    one = BodyReader(COLUMNS, BodyFormat(format="protobuf", registry=server.url))
    order = Order("hub", (), ((),), schemas=one.schemas_of(bodies)).text()
    own = pickle.dumps(
        BodyReader(COLUMNS, BodyFormat(format="protobuf", writer_schema=f"{FLIGHTS}// own", message="flights.Old"))
    )
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    x, reason = outcome(one.given(task_order(order, 0).schemas).read(bodies))
    assert x == ("x", None, 0)
    assert reason.startswith(
        f"its schema, {bad}, cannot be read: not a schema of Protobuf that can be read (schema.proto"
    )
    assert outcome(pickle.loads(own).read(pa.array([b"\x0a\x01x"]))) == [("x", None, 0)]  # noqa: S301


def test_a_file_in_place_of_a_folder_rejects_the_bodies() -> None:
    one = BodyReader(COLUMNS, BodyFormat(format="protobuf", registry="http://localhost"))
    files = (("a/b", "message G {}"), ("a/b/c.proto", "message H {}"))
    (reason,) = outcome(
        one.given({1: RegisteredSchema("PROTOBUF", "message F {}", files)}).read(pa.array([headed(1, b"\0")]))
    )
    assert reason.endswith("(it refers to a/b, and to another file in a folder of that name)")


def test_no_file_of_a_schema_is_code_or_hides_another(tmp_path: Path) -> None:
    code = f"open({str(tmp_path / 'ran')!r}, 'w')"
    files = [("grpc_tools/__init__.py", code), ("schema.proto", 'syntax = "proto3"; message G { string id = 1; }')]
    text = 'syntax = "proto3"; import "schema.proto"; message F { string id = 1; G gate = 2; }'
    one = BodyReader(COLUMNS, BodyFormat(format="protobuf", registry="http://localhost"))
    assert (
        "grpc_tools"
        in outcome(one.given({1: RegisteredSchema("PROTOBUF", text, tuple(files))}).read(pa.array([headed(1, b"\0")])))[
            0
        ]
    )  # which is not a .proto file
    assert not (tmp_path / "ran").exists()
    given = one.given({1: RegisteredSchema("PROTOBUF", text, (files[1],))})
    assert outcome(given.read(pa.array([headed(1, b"\0\x0a\x01x\x12\x03\x0a\x01y")]))) == [("x", '{"id":"y"}', None)]


def test_the_number_is_looked_for_in_what_a_body_is_when_it_is_not_compressed(server: RegistryServer) -> None:
    number = server.register("flights", schema(id="string"))
    one = BodyReader(COLUMNS, BodyFormat(format="avro", registry=server.url, content_encoding="gzip"))
    bodies = pa.array([gzip.compress(headed(number, b"\x02a")), headed(number, b"\x02b"), b"\x1f\x8b"])
    expected = [("a", None, None), ("b", None, None), "the body is not whole gzip"]
    assert outcome(one.read(bodies)) == expected
    assert one.given({}).read(bodies).unknown == {number}
    assert outcome(one.given(one.schemas_of(bodies)).read(bodies)) == expected


def test_what_is_wrong_with_a_body_or_its_schema_rejects_it_alone(server: RegistryServer) -> None:
    good = server.register("flights", schema(id="string"))
    numbers = {
        "json": server.register("flights", "{}", "JSON"),
        "bad": server.register("flights", '{"type":"record"}'),
    }
    bodies = [
        headed(good, b"\x02a"),
        None,
        b"",
        b"\0\0\0",
        b"\1\0\0\0\1\2a",
        headed(good, b"\x02"),
        headed(numbers["json"], b"{}"),
        headed(numbers["bad"], b""),
        headed(99, b"\x02a"),
        headed(good, b"\x02b"),
    ]
    no_header = "the body does not begin with the number of a schema: a byte 0, and four more"
    read = outcome(reader(server.url).read(pa.array(bodies, pa.binary())))
    assert read.pop(7).startswith(f"its schema, {numbers['bad']}, cannot be read: not a schema of Avro")
    assert read == [
        ("a", None, None),
        "the event has no body",
        no_header,
        no_header,
        no_header,
        "the field id is of 1 bytes, and the body has 0 more",
        f"its schema, {numbers['json']}, is of Json, and the format is Avro",
        "its schema, 99, is not known to the registry",
        ("b", None, None),
    ]


def test_a_reader_that_is_given_schemas_asks_nobody_and_tells_which_it_needs(server: RegistryServer) -> None:
    number = server.register("flights", schema(id="string"))
    bodies = pa.array([headed(number, b"\x02a"), headed(7, b"\x02a")])
    first = pickle.loads(pickle.dumps(reader(server.url).given({})))  # noqa: S301 - as Spark brings it to its workers
    assert first.read(bodies).unknown == {number, 7}
    assert not server.requests
    second = first.given({number: RegisteredSchema("AVRO", schema(id="string")), 7: None})
    read = second.read(bodies)
    assert read.unknown == frozenset()
    assert outcome(read) == [("a", None, None), "its schema, 7, is not known to the registry"]


class Late:
    """A registry in which a schema appears when it has been asked for often enough."""

    def __init__(self, **after: int) -> None:
        self._left = {int(number.removeprefix("n")): count for number, count in after.items()}
        self.calls: list[list[int]] = []

    def schemas(self, numbers: Iterable[int]) -> Schemas:
        self.calls.append(list(numbers))
        for number in self.calls[-1]:
            self._left[number] -= 1
        return {n: None if self._left[n] >= 0 else RegisteredSchema("AVRO", '"int"') for n in self.calls[-1]}

    def numbers(self, subject: str) -> list[int]:
        return list(self._left) if subject == "late" else []


def test_a_number_that_is_not_known_is_asked_for_twice_and_again_later() -> None:
    late, paused = Late(n5=3), list[float]()
    known = KnownSchemas(late, paused.append)
    assert known.of([5]) == {5: None}
    assert (late.calls, len(paused), known.all()) == ([[5], [5]], 1, {})
    assert known.of([5]) == {5: RegisteredSchema("AVRO", '"int"')}
    assert known.of([5])
    assert (late.calls, len(paused), list(known.all())) == ([[5]] * 4, 2, [5])


def test_all_numbers_that_are_not_known_wait_together() -> None:
    late, paused = Late(n1=0, n2=1, n3=9, n4=9), list[float]()
    known = KnownSchemas(late, paused.append)
    here = RegisteredSchema("AVRO", '"int"')
    assert known.of([1, 2, 3, 4]) == {1: here, 2: here, 3: None, 4: None}
    assert (late.calls, len(paused)) == ([[1, 2, 3, 4], [2, 3, 4]], 1)


def test_a_subject_has_the_schemas_of_its_versions_which_are_asked_for_once(server: RegistryServer) -> None:
    texts = {server.register("a b/c", one): one for one in (schema(id="string"), schema(id="string", n="int"))}
    server.register("other", schema(n="int"))
    known = KnownSchemas(open_registry(server.url))
    for _ in range(2):
        assert known.of_subjects(["a b/c"]) == {n: RegisteredSchema("AVRO", text) for n, text in texts.items()}
    assert len([path for path in server.requests if path.startswith("/subjects/a%20b%2Fc/versions/")]) == 2
    assert open_registry(server.url).numbers("none") == set()
    with pytest.raises(ConfigError, match="subjects = 'none': the registry has no version of it"):
        known.of_subjects(["other", "none"])


def test_a_schema_that_a_registry_lists_and_does_not_give_yet_is_asked_for_twice() -> None:
    late, paused = Late(n5=1, n6=9), list[float]()
    assert KnownSchemas(late, paused.append).of_subjects(["late"]) == {5: RegisteredSchema("AVRO", '"int"'), 6: None}
    assert len(paused) == 1


def test_hundreds_of_numbers_that_nobody_knows_are_refused_in_seconds(server: RegistryServer) -> None:
    number = server.register("flights", schema(id="string"))
    bodies = [headed(number, b"\x02a"), *(headed(1000 + n, b"") for n in range(200))]
    read = outcome(reader(server.url).read(pa.array(bodies)))
    assert read[0] == ("a", None, None)
    assert read[1:] == [f"its schema, {1000 + n}, is not known to the registry" for n in range(200)]
    assert sorted(server.requests) == sorted(
        [f"/schemas/ids/{number}", *(f"/schemas/ids/{1000 + n}" for n in range(200) for _ in range(2))]
    )


def test_a_registry_that_is_away_is_waited_for_and_one_that_refuses_needs_a_person() -> None:
    with closing(RegistryServer(user="me", password="a:b@c/")) as server:  # noqa: S106
        number = server.register("flights", schema(id="string"))
        inside = server.url.replace("http://", "http://me:a%3Ab%40c%2F@")
        assert outcome(reader(inside).read(pa.array([headed(number, b"\x02a")]))) == [("a", None, None)]
        with pytest.raises(RegistryError, match="Check the URL, and the user") as refused:
            open_registry(server.url.replace("http://", "http://me:secret@")).schemas([number])
        assert refused.value.verdict is Verdict.MEND
        assert "secret" not in str(refused.value)
    with pytest.raises(RegistryUnavailable) as away:
        open_registry(inside).schemas([number])
    assert away.value.verdict is Verdict.PASSES
    assert "a%3A" not in str(away.value)


def test_a_path_without_a_registry_needs_a_person_and_rejects_no_event(server: RegistryServer) -> None:
    for path in ("/apis", "/schemas/ids/1?"):
        with pytest.raises(RegistryError, match="Check the path of the URL") as refused:
            reader(f"{server.url}{path}").read(pa.array([headed(1, b"\x02a")]))
        assert refused.value.verdict is Verdict.MEND


def test_a_number_that_no_schema_can_have_is_not_asked_for(server: RegistryServer) -> None:
    """A registry may answer as it does where nothing is: a body could stop the pipeline."""
    numbers = (2**31, 2**32 - 1)
    read = outcome(reader(server.url).read(pa.array([headed(number, b"") for number in numbers])))
    assert read == [f"its schema, {number}, is not known to the registry" for number in numbers]
    assert not server.requests


def test_a_registry_that_is_asked_too_often_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = 429, {"error_code": 429, "message": "Too Many\nRequests"}
    monkeypatch.setattr(RegistryServer, "_answer", lambda *_: answer)
    with closing(RegistryServer()) as server, pytest.raises(RegistryUnavailable, match=r"429: Too Many\\nRequests"):
        open_registry(server.url).schemas([1])


def test_urls_that_are_none_are_refused() -> None:
    for url, said in (
        ("localhost:8081", "a URL of http or https"),
        ("http://localhost:8081?color=red", "color is not an option of a registry"),
    ):
        with pytest.raises(ConfigError, match=said):
            reader(url)
    with pytest.raises(ConfigError, match="bodies in Avro are read by the schema that wrote them"):
        BodyFormat(format="avro", writer_schema="{}", registry="http://localhost:8081")
    assert "secret" not in repr(BodyFormat(format="avro", registry="http://me:secret@localhost"))
