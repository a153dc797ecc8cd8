"""Rows of files sent in Protobuf, bare and through a registry: what Google's runtime and Confluent's client read."""

from __future__ import annotations

import base64
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import json_format

from leasehold.cli.app import app
from leasehold.formats import BodyFormat, BodyReader
from leasehold.hubs.log.hub import LogHub
from leasehold.registries.protobuf import compiled
from leasehold_testkit.emulators.registry import RegistryServer
from tests.formats.protobuf_schemas import message_class
from tests.projected.flights import contents
from tests.projected.protobuf_flights import PROTO as FLIGHT
from tests.projected.protobuf_flights import write_protobuf


def send(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["send", f"log:///{folder}/hub.db", *arguments])


def write_lines(folder: Path, text: str) -> str:
    (folder / "f.jsonl").write_text(text)
    return str(folder / "f.jsonl")


PROTO = """syntax = "proto3"; package flights;
import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto"; import "google/type/date.proto";
import "google/protobuf/duration.proto"; import "confluent/type/decimal.proto";
enum Status { PLANNED = 0; LATE = 1; }
message Gate { string name = 1; }
message Flight {
  message Leg { string gate = 1; optional int64 n = 2; }
  string id = 1; optional double delay = 2; confluent.type.Decimal fare = 3; google.protobuf.Timestamp at = 4;
  map<string, Leg> legs = 5; repeated uint32 seats = 6; Status status = 7; google.type.Date day = 8;
  oneof note { string text = 9; int32 code = 10; } google.protobuf.UInt64Value large = 11; map<int32, bool> open = 12;
  bytes raw = 13; google.protobuf.Duration took = 14; repeated Leg others = 15; fixed64 count = 16;
}"""
IN_PROTOBUF: dict[str, Any] = {
    **{"id": "a", "delay": 1.5, "fare": "-2.50", "at": "1969-02-03T04:05:06.007008Z", "seats": [0, 2**32 - 1]},
    **{"legs": {"x": {"gate": "B7", "n": 0}, "e": {"gate": ""}}, "status": "LATE", "day": "2026-02-03", "code": 0},
    **{"large": 0, "open": {"-1": False, "7": True}, "raw": "AAE=", "took": "-1.5s", "count": 2**64 - 1, "more": 1},
    "others": [{"gate": "C"}, {"gate": "", "n": 5}],
}
NULLS = dict.fromkeys(("delay", "fare", "at", "seats", "legs", "day", "code", "large", "open", "took", "others"))


def in_protobuf(
    folder: Path, *lines: dict[str, Any], schema: str | bytes = PROTO, more: tuple[str, ...] = ()
) -> Result:
    """What sending these lines by the schema says."""
    path = folder / "flight.proto"
    path.write_bytes(schema.encode() if isinstance(schema, str) else schema)
    rows = write_lines(folder, "\n".join(json.dumps({**IN_PROTOBUF, **line}) for line in lines))
    more = more or ("--message", "flights.Flight")
    return send(folder, rows, "--partition-key", "id", "--protobuf-schema", str(path), "--partitions", "1", *more)


def sent_bodies(folder: Path) -> list[bytes]:
    with closing(LogHub(folder / "hub.db")) as hub:
        return [body for batch in hub.read("0", 0, 100, columns=("body",)) for body in batch.column(0).to_pylist()]


def expected_of(kind: Any) -> list[Any]:
    """The two messages of `IN_PROTOBUF` and of one that has `NULLS`."""
    whole: Any = {name: value for name, value in IN_PROTOBUF.items() if name not in ("fare", "day", "more")}
    first = json_format.ParseDict(whole, kind())
    first.fare.value, first.fare.precision, first.fare.scale = b"\xff\x06", 3, 2
    first.day.year, first.day.month, first.day.day = 2026, 2, 3
    return [first, kind(id="b", status=1, raw=b"\0\1", count=2**64 - 1)]


def test_rows_are_written_in_protobuf(tmp_path: Path) -> None:
    assert in_protobuf(tmp_path, {}, {**NULLS, "id": "b"}).exit_code == 0
    kind = message_class(PROTO, "flights.Flight")
    assert [kind.FromString(body) for body in sent_bodies(tmp_path)] == expected_of(kind)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"id": None}, 'row 2: the field id is null, which the schema does not tell from ""'),
        ({"legs": {"x": {"gate": None}}}, 'row 2: the field legs.gate is null, which the schema does not tell from ""'),
        ({"status": None}, "row 2: the field status is null, which the schema does not tell from PLANNED"),
        ({"status": "LANDED"}, "row 2: the field status is LANDED, which is no symbol of flights.Status"),
        ({"status": 1}, "row 2: the field status is 1, which the schema cannot hold as it is"),
        ({"text": "x"}, "row 2: the field text is x, which the schema cannot hold as it is"),
        ({"seats": [2**32]}, "row 2: the field seats is none of its type (Value out of range"),
        ({"seats": [1, None]}, "row 2: the field seats has a null in it"),
        ({"count": -1}, "row 2: the field count is none of its type (Value out of range"),
        ({"open": {"x": True}}, "row 2: the field open has the key x, which is not of its type"),
        ({"open": {"07": True}}, "row 2: the field open is "),
        ({"at": "2026-02-03T04:05:06.0000001Z"}, "row 2: the field at is "),
        ({"took": "1.50s"}, "row 2: the field took is 1.50s, which the schema cannot hold as it is"),
        ({"took": "a while"}, "row 2: the field took is none of its type"),
        ({"fare": "1e3"}, "row 2: the field fare is 1e3, which the schema cannot hold as it is"),
        ({"fare": "NaN"}, "row 2: the field fare is none of its type (NaN is not a decimal)"),
        ({"code": 2**31}, "row 2: the field code is 2147483648, which no INT holds"),
    ],
)
def test_a_row_that_no_message_holds_is_refused(tmp_path: Path, line: dict[str, Any], says: str) -> None:
    result = in_protobuf(tmp_path, {}, line)
    assert result.exit_code == 1
    assert says in result.stderr
    assert "Nothing has been sent." in result.stderr


@pytest.mark.parametrize(
    ("schema", "more", "says"),
    [
        (PROTO, ("--message", "flights.Plane"), ["--message", "the schema has no such type of messages"]),
        (PROTO, ("--json",), ["--message", "flights.Gate, flights.Flight"]),
        ("message M {", ("--json",), ["--protobuf-schema", "not a schema of Protobuf"]),
        ("import 'own.proto'; message M { string id = 1; }", ("--json",), ["--protobuf-schema", "own.proto"]),
        ("message M { string id = 1; M next = 2; }", ("--json",), ["that does not hold itself, and next does"]),
        ("message M { string id = 1; E e = 2; } message E {}", ("--message", "M"), ["and e has none"]),
        ("message M {}", ("--json",), ["of a message that has fields"]),
        (
            "import 'google/protobuf/struct.proto'; message M { repeated google.protobuf.Value v = 1; }",
            ("--json",),
            ["that rows have a value of, and v is google.protobuf.Value"],
        ),
        (PROTO, ("--avro-schema", "x.avsc"), ["--avro-schema", "a body has one format"]),
    ],
)
def test_a_schema_of_protobuf_that_rows_are_not_written_by_is_refused(
    tmp_path: Path, schema: str, more: tuple[str, ...], says: list[str]
) -> None:
    schema = schema if schema.startswith("syntax") else f"syntax = 'proto3'; {schema}"
    result = in_protobuf(tmp_path, {}, schema=schema, more=more)
    assert result.exit_code == 1
    for part in (*says, "Nothing has been sent."):
        assert part in result.stderr
    assert not (tmp_path / "hub.db").exists()


def test_what_proto2_requires_has_to_be_in_each_row(tmp_path: Path) -> None:
    fields = "required string id = 1; required int32 n = 2; optional int32 d = 3 [default = 7];"
    schema = f'syntax = "proto2"; message M {{ {fields} }}'
    assert in_protobuf(tmp_path, {"n": 1, "d": 0}, schema=schema, more=("--json",)).exit_code == 0
    assert sent_bodies(tmp_path) == [b"\x0a\x01a\x10\x01\x18\x00"]
    for line, says in (
        ({"d": 1}, "required fields: n"),
        ({"n": 1}, "the field d is null, which the schema cannot hold"),
    ):
        result = in_protobuf(tmp_path, line, schema=schema, more=("--json",))
        assert result.exit_code == 1
        assert f"row 1: {says}" in result.stderr.replace("Message M is missing ", "")


@pytest.mark.parametrize("form", ["text", "descriptors"])
@pytest.mark.parametrize("name", ["flights.Flight", "flights.Gate", "flights.Flight.Leg"])
def test_rows_in_protobuf_through_a_registry_are_what_confluents_deserializer_reads(
    tmp_path: Path, form: str, name: str
) -> None:
    schema = PROTO if form == "text" else base64.b64decode(compiled(PROTO))
    line = {"name": "B7", "gate": "B7", "n": 5}
    kind = message_class(PROTO, name)
    with closing(RegistryServer()) as server:
        server.register("others-value", '"int"')
        more = ("--message", name, "--registry", server.url)
        assert in_protobuf(tmp_path, line, schema=schema, more=more).exit_code == 0
        bodies = sent_bodies(tmp_path)
        with SchemaRegistryClient({"url": server.url}) as client:
            registered = client.get_latest_version("hub-value")
            assert registered.schema.schema_type == "PROTOBUF"
            assert bodies[0][:5] == b"\0" + registered.schema_id.to_bytes(4, "big")
            context = SerializationContext("hub", MessageField.VALUE)
            same = ProtobufSerializer(kind, client, {"use.deprecated.format": False, "auto.register.schemas": True})
            read = ProtobufDeserializer(kind, {"use.deprecated.format": False}, client)
            (found,) = [read(body, context) for body in bodies]
            again, size = same(found, context), len(found.SerializeToString())
            assert again is not None
            assert bodies[0][5:-size] == again[5:-size]  # the place of the type among those of the file
        columns = pa.schema([(each, pa.string()) for each in ("id", "name", "gate")])
        back = BodyReader(columns, BodyFormat(format="protobuf", registry=server.url, message=name)).read(
            pa.array(bodies)
        )
    assert back.reasons is None
    assert name != "flights.Flight" or found == expected_of(kind)[0]
    own = {field.name for field in kind.DESCRIPTOR.fields}
    values = {"id": "a", "name": "B7", "gate": "B7"}
    assert back.columns.to_pylist() == [{each: values[each] if each in own else None for each in values}]


def test_descriptors_that_import_files_of_yours_are_not_registered(tmp_path: Path) -> None:
    files = (("own.proto", "syntax = 'proto3'; message Own { string id = 1; }"),)
    schema = base64.b64decode(
        compiled("syntax = 'proto3'; import 'own.proto'; message M { Own own = 1; string id = 2; }", files)
    )
    assert in_protobuf(tmp_path, {"own": {"id": "x"}}, schema=schema, more=("--json",)).exit_code == 0
    assert sent_bodies(tmp_path) == [b"\x0a\x03\x0a\x01x\x12\x01a"]
    with closing(RegistryServer()) as server:
        result = in_protobuf(tmp_path, {"own": {"id": "x"}}, schema=schema, more=("--registry", server.url))
        assert not server.requests
    assert result.exit_code == 1
    assert "it imports own.proto, which is not registered with it" in result.stderr


def test_a_message_is_named_for_rows_in_protobuf(tmp_path: Path) -> None:
    rows = write_lines(tmp_path, '{"id":1}')
    result = send(tmp_path, rows, "--partition-key", "id", "--message", "flights.Flight")
    assert result.exit_code == 1
    assert "Give --protobuf-schema as well" in result.stderr


@pytest.mark.parametrize("through", [True, False], ids=["registry", "bare"])
def test_rows_in_protobuf_are_what_a_pipeline_reads(tmp_path: Path, through: bool) -> None:
    rows = [
        {
            "id": "a",
            "delay": 1.5,
            "op": "u",
            "at": 5,
            "paid": "12.50",
            "day": "2026-02-03",
            "seen": "2026-02-03T04:05:06Z",
        },
        {"id": "b", "note": "by hand"},
        {"id": "", "delay": 0.0, "at": 0},
        {"id": "b", "op": "d"},
    ]
    file = write_protobuf(tmp_path)
    lines = write_lines(tmp_path, "\n".join(map(json.dumps, rows)))
    options = ["--partition-key", "id", "--partitions", "1", "--protobuf-schema", str(tmp_path / "flight.proto")]
    with closing(RegistryServer()) as server:
        if through:
            file = write_protobuf(tmp_path, rescue=f'rescue = "rest"\nformat = "protobuf"\nregistry = "{server.url}"')
            options += ["--registry", server.url]
        result = send(tmp_path, lines, *options, "--message", "flights.Flight")
        assert result.exit_code == 0, result.output
        said = CliRunner().invoke(app, ["run", str(file), "--no-spark", "--available-now", "--json"])
    assert said.exit_code == 0, said.output
    assert (tmp_path / "flight.proto").read_text() == FLIGHT
    found = contents(tmp_path)
    assert found["rejected"] == []
    assert [row[:4] for row in found["rows"]] == [("", 0.0, None, 0), ("a", 1.5, "u", 5)]
