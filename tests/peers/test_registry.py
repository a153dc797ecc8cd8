"""A real registry of schemas, in two releases: what Confluent's serializers register there is read by it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from leasehold import Event
from leasehold.body_format import BodyFormat
from leasehold.cli.app import app
from leasehold.errors import ConfigError, RegistryError
from leasehold.formats import BodyReader
from leasehold.hubs.log import LogHub
from leasehold.registries.confluent import ConfluentRegistry
from leasehold.registries.known_schemas import KnownSchemas
from tests.formats.protobuf_schemas import message_class
from tests.formats.registered import COLUMNS, FLIGHTS, headed, outcome, schema, written
from tests.peers.registry_server import Apicurio
from tests.projected.flights import AVRO, contents, write_registered

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1200)]

BASE = """syntax = "proto3"; package base; import "google/protobuf/timestamp.proto";
message N { int64 n = 1; google.protobuf.Timestamp at = 2; }"""
LEG = 'syntax = "proto3"; package legs; import "base/n.proto"; message Leg { string gate = 1; base.N n = 2; }'
TOP = """syntax = "proto3"; import "legs/leg.proto"; import "google/type/date.proto";
message Other { string id = 1; } message F { string id = 1; legs.Leg leg = 2; google.type.Date day = 3; }"""


@pytest.fixture
def client(registry: Apicurio) -> Iterator[SchemaRegistryClient]:
    """A client that sends a request anew when it has no answer: now and then one never comes."""
    with SchemaRegistryClient({"url": registry.url, "timeout": 10}) as client:
        yield client


@pytest.fixture
def context(request: pytest.FixtureRequest) -> SerializationContext:
    """A topic of the test's own, and so a subject."""
    return SerializationContext(request.node.name.partition("[")[0], MessageField.VALUE)


def read(url: str, how: Mapping[str, Any], bodies: Sequence[bytes | None], columns: pa.Schema = COLUMNS) -> list[Any]:
    return outcome(BodyReader(columns, BodyFormat(registry=url, **how)).read(pa.array(bodies, pa.binary())))


def test_a_schema_that_does_not_go_with_those_of_its_subject_is_not_registered(
    registry: Apicurio, client: SchemaRegistryClient
) -> None:
    ours = ConfluentRegistry(registry.url)
    number = ours.register("taken-value", schema(id="string"))
    client.set_compatibility("taken-value", "BACKWARD")
    assert ours.register("taken-value", schema(id="string")) == number
    with pytest.raises(RegistryError, match=r"does not take this schema for taken-value .*goes with those"):
        ours.register("taken-value", schema(id="int"))
    assert client.get_versions("taken-value") == [1]


def test_bodies_in_avro_of_two_schemas_are_read(registry: Apicurio, client: SchemaRegistryClient) -> None:
    expected = [(f"o{n}", None, n) if n % 3 else (f"n{n}", "B7", n) for n in range(300)]
    assert read(registry.url, {"format": "avro"}, written(client)) == expected
    assert read(f"{registry.url}/", {"format": "avro"}, written(client)) == expected


def test_a_schema_of_avro_that_the_registry_writes_anew_has_the_same_values(
    registry: Apicurio, client: SchemaRegistryClient, context: SerializationContext
) -> None:
    """Apicurio 3 leaves out blanks and puts keys in an order of its own."""
    text = {**AVRO, "namespace": "flights", "doc": "…", "aliases": ["Old"]}
    value = {"id": "a", "delay": 1.5, "op": "u", "at": 7, "paid": Decimal("2.50"), "day": date(2026, 2, 3)}
    seen = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
    columns = pa.schema(
        [
            ("id", pa.string()),
            ("op", pa.string()),
            ("paid", pa.decimal128(8, 2)),
            ("day", pa.date32()),
            ("seen", pa.timestamp("us", "UTC")),
        ]
    )
    for normalized in (False, True):
        serializer = AvroSerializer(client, json.dumps(text), conf={"normalize.schemas": normalized})
        body = serializer({**value, "seen": seen, "note": None}, context)
        row = ("a", "u", Decimal("2.50"), date(2026, 2, 3), seen)
        assert read(registry.url, {"format": "avro"}, [body], columns) == [row]


def test_a_schema_of_avro_is_read_with_those_that_it_refers_to(
    registry: Apicurio, client: SchemaRegistryClient, context: SerializationContext
) -> None:
    base = {"type": "record", "name": "N", "namespace": "legs", "fields": [{"name": "n", "type": "long"}]}
    fields = [{"name": "gate", "type": "string"}, {"name": "n", "type": "N"}]
    leg = {"type": "record", "name": "Leg", "namespace": "legs", "fields": fields}
    to_base, to_leg = (SchemaReference(name, name, 1) for name in ("legs.N", "legs.Leg"))
    client.register_schema("legs.N", Schema(json.dumps(base), "AVRO"))
    client.register_schema("legs.Leg", Schema(json.dumps(leg), "AVRO", [to_base]))
    top = Schema(schema(id="string", leg="legs.Leg", more="legs.N"), "AVRO", [to_base, to_leg])
    body = AvroSerializer(client, top)({"id": "x", "leg": {"gate": "B", "n": {"n": 5}}, "more": {"n": 6}}, context)
    columns = pa.schema([("id", pa.string()), ("leg", pa.string()), ("more", pa.string())])
    expected = [("x", '{"gate":"B","n":{"n":5}}', '{"n":6}')]
    assert read(registry.url, {"format": "avro"}, [body], columns) == expected


@pytest.mark.parametrize("together", [True, False], ids=["many", "few"])
def test_bodies_in_protobuf_of_three_types_of_one_file_are_read(
    registry: Apicurio, client: SchemaRegistryClient, together: bool
) -> None:
    context = SerializationContext("types", MessageField.VALUE)
    kinds = [message_class(FLIGHTS, f"flights.{name}") for name in ("Old", "New", "New.Inner")]
    values: list[dict[str, Any]] = [{"id": "a", "n": 5}, {"id": "b", "n": 6, "gate": "B7", "more": True}, {"id": "c"}]
    write = [ProtobufSerializer(kind, client, {"use.deprecated.format": False}) for kind in kinds]
    bodies = [serializer(kind(**value), context) for serializer, kind, value in zip(write, kinds, values, strict=True)]
    times = 60 if together else 1
    expected = [("a", None, 5), ("b", "B7", 6), ("c", None, None)] * times
    assert read(registry.url, {"format": "protobuf"}, bodies * times) == expected
    number = client.register_schema("text", Schema(FLIGHTS, "PROTOBUF"))  # as Java's serializer registers it
    texts = [body and headed(number, body[5:]) for body in bodies]
    assert read(registry.url, {"format": "protobuf"}, texts * times) == expected


@pytest.mark.parametrize("known", [True, False], ids=["without-googles-files", "with-googles-files"])
def test_a_schema_of_protobuf_is_read_with_those_that_it_refers_to(
    registry: Apicurio, client: SchemaRegistryClient, known: bool
) -> None:
    context = SerializationContext(f"refers-{known}", MessageField.VALUE)
    kind = message_class(TOP, "F", (("base/n.proto", BASE), ("legs/leg.proto", LEG)))
    message = kind(
        id="x", leg={"gate": "B", "n": {"n": 5, "at": {"seconds": 3}}}, day={"year": 2026, "month": 2, "day": 3}
    )
    how = {"use.deprecated.format": False, "skip.known.types": known}
    body = ProtobufSerializer(kind, client, how)(message, context)
    columns = pa.schema([("id", pa.string()), ("leg", pa.string()), ("day", pa.date32())])
    expected = [("x", '{"gate":"B","n":{"n":5,"at":"1970-01-01T00:00:03Z"}}', date(2026, 2, 3))]
    assert read(registry.url, {"format": "protobuf"}, [body], columns) == expected
    assert body is not None
    refers = [SchemaReference("legs/leg.proto", "legs/leg.proto", 1)]
    number = client.register_schema(f"text-{known}", Schema(TOP, "PROTOBUF", refers))  # a text that refers to base64
    assert read(registry.url, {"format": "protobuf"}, [headed(number, body[5:])], columns) == expected


def test_rows_in_protobuf_are_sent_through_it(registry: Apicurio, client: SchemaRegistryClient, tmp_path: Path) -> None:
    (tmp_path / "f.proto").write_text(FLIGHTS)
    (tmp_path / "f.jsonl").write_text('{"id":"a","n":5,"gate":"B7","more":true}\n')
    files = [
        f"log:///{tmp_path}/sent_in_protobuf.db",
        str(tmp_path / "f.jsonl"),
        "--protobuf-schema",
        f"{tmp_path}/f.proto",
    ]
    options = ["--partition-key", "id", "--message", "flights.New", "--partitions", "1", "--registry", registry.url]
    said = CliRunner().invoke(app, ["send", *files, *options])
    assert said.exit_code == 0, said.output
    with closing(LogHub(tmp_path / "sent_in_protobuf.db")) as hub:
        (body,) = next(iter(hub.read("0", 0, 1, columns=("body",)))).column(0).to_pylist()
    kind = message_class(FLIGHTS, "flights.New")
    registered = client.get_latest_version("sent_in_protobuf-value")
    assert registered.schema_id is not None
    assert body[:7] == headed(registered.schema_id, b"\x02\x02")
    assert kind.FromString(body[7:]) == kind(id="a", n=5, gate="B7", more=True)
    assert read(registry.url, {"format": "protobuf"}, [body]) == [("a", "B7", 5)]


def test_a_subject_has_the_numbers_of_all_its_versions(registry: Apicurio, client: SchemaRegistryClient) -> None:
    texts = [schema(id="string", **more) for more in ({}, {"n": ["null", "long"]})]
    numbers = {client.register_schema("of versions/a", Schema(text, "AVRO")) for text in texts}
    assert len(numbers) == 2
    asked = ConfluentRegistry(registry.url)
    assert (asked.numbers("of versions/a"), asked.numbers("of nobody")) == (numbers, set())
    known = KnownSchemas(asked).of_subjects(["of versions/a"])
    assert {number: one and one.kind for number, one in known.items()} == dict.fromkeys(numbers, "AVRO")
    with pytest.raises(ConfigError, match="the registry has no version of it"):
        KnownSchemas(asked).of_subjects(["of nobody"])


def test_the_number_of_a_schema_before_json_is_read_over(
    client: SchemaRegistryClient, context: SerializationContext
) -> None:
    text = json.dumps({"title": "F", "type": "object", "properties": {"id": {"type": "string"}}})
    body = JSONSerializer(text, client)({"id": "a", "n": 5}, context)
    assert outcome(BodyReader(COLUMNS).read(pa.array([body]))) == [("a", None, 5)]


def test_a_number_that_the_registry_does_not_know_rejects_its_events_alone(
    registry: Apicurio, client: SchemaRegistryClient
) -> None:
    good = client.register_schema("alone", Schema(schema(id="string"), "AVRO"))
    for number in (0, 9_999, 2**31 - 1, 2**31, 2**32 - 1):
        expected = [("a", None, None), f"its schema, {number}, is not known to the registry", ("b", None, None)]
        bodies = [headed(good, b"\x02a"), headed(number, b"\x02a"), headed(good, b"\x02b")]
        assert read(registry.url, {"format": "avro"}, bodies) == expected


def test_check_says_of_an_url_without_the_path_of_the_api_that_it_is_wrong(registry: Apicurio, tmp_path: Path) -> None:
    """A run from there would reject every event."""
    LogHub.create(tmp_path / "hub.db", partitions=1).close()
    for url, ready in ((registry.url, True), (registry.root, False), (f"{registry.root}/apis/registry/v2", False)):
        said = CliRunner().invoke(app, ["check", str(write_registered(tmp_path, url)), "--no-spark", "--json"])
        (found,) = (one for one in json.loads(said.stdout)["checks"] if one["part"] == "registry")
        assert (said.exit_code, json.loads(said.stdout)["ready"], found["ok"]) == (int(not ready), ready, ready)
        assert ready or "Check the path of the URL" in found["said"] + found["remedy"]
    with pytest.raises(RegistryError, match="Check the path of the URL"):
        ConfluentRegistry(registry.root).schemas([9_999])


def test_a_run_without_spark_reads_two_versions_of_a_schema_into_its_table(
    registry: Apicurio, client: SchemaRegistryClient, tmp_path: Path
) -> None:
    dice, topic = Random(61), SerializationContext("flights-run", MessageField.VALUE)
    new = {**AVRO, "fields": [{"name": "more", "type": "boolean"}, *AVRO["fields"][::-1]]}
    serializers = [AvroSerializer(client, json.dumps(text)) for text in (AVRO, new)]
    hub = LogHub.create(tmp_path / "hub.db", partitions=1)
    last: dict[str, tuple[Any, ...]] = {}
    versions = set()
    for at in range(200):
        version, delete = dice.randrange(2), dice.random() < 0.2
        name = f"f{dice.randrange(20)}"
        value = {"id": name, "delay": float(at), "op": "d" if delete else "u", "at": at}
        value |= {"paid": Decimal("12.50"), "day": date(2026, 2, 3), "seen": None, "note": None}
        body = serializers[version]({**value, "more": True} if version else value, topic)
        assert body is not None
        versions.add(body[:5])
        hub.send([Event(body)], partition="0")
        last.pop(name, None)
        if not delete:
            last[name] = (name, float(at), "u", at)
    hub.send([Event(headed(9_999, b""))], partition="0")
    hub.close()
    file = write_registered(tmp_path, registry.url)
    said = CliRunner().invoke(app, ["run", str(file), "--no-spark", "--available-now", "--json"])
    assert said.exit_code == 0, said.output
    account = json.loads(said.stdout)
    assert (account["read"], account["rejected"], len(versions)) == (201, 1, 2)
    found = contents(tmp_path)
    assert [row[:4] for row in found["rows"]] == sorted(last.values())
    ((_, place, reason, _),) = found["rejected"]
    assert (place, reason) == (200, "its schema, 9999, is not known to the registry")
