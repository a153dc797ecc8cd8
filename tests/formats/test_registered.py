"""Bodies that name their schema, by a registry: what Confluent's own serializer writes, and all that may be wrong."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from leasehold.body_format import BodyFormat
from leasehold.errors import ConfigError, RegistryError, RegistryUnavailable, Verdict
from leasehold.formats import BodyReader, ReadBodies
from leasehold.registries import RegisteredSchema, Schemas, open_registry
from leasehold.registries.known_schemas import KnownSchemas
from leasehold_testkit.emulators.registry import RegistryServer

COLUMNS = pa.schema([("id", pa.string()), ("gate", pa.string()), ("n", pa.int64())])


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with closing(RegistryServer()) as server:
        yield server


def schema(**fields: Any) -> str:
    return json.dumps(
        {"type": "record", "name": "F", "fields": [{"name": name, "type": one} for name, one in fields.items()]}
    )


def reader(url: str, **how: Any) -> BodyReader:
    return BodyReader(COLUMNS, BodyFormat(format="avro", registry=url, **how))


def headed(number: int, body: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + body


def outcome(read: ReadBodies) -> list[Any]:
    reasons = [None] * len(read.columns) if read.reasons is None else read.reasons.to_pylist()
    return [reason or tuple(row.values()) for row, reason in zip(read.columns.to_pylist(), reasons, strict=True)]


def written(client: SchemaRegistryClient) -> list[bytes | None]:
    """Bodies of two schemas, of which the later one has other fields, in another order."""
    context = SerializationContext("flights", MessageField.VALUE)
    old = AvroSerializer(client, schema(id="string", n="int"))
    new = AvroSerializer(client, schema(n="long", gate=["null", "string"], id="string", more="boolean"))
    bodies = []
    for number in range(300):
        if number % 3:
            bodies.append(old({"id": f"o{number}", "n": number}, context))
        else:
            bodies.append(new({"id": f"n{number}", "n": number, "gate": "B7", "more": True}, context))
    return bodies


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


def test_hundreds_of_numbers_that_nobody_knows_are_refused_in_seconds(server: RegistryServer) -> None:
    number = server.register("flights", schema(id="string"))
    bodies = [headed(number, b"\x02a"), *(headed(1000 + n, b"") for n in range(500))]
    read = outcome(reader(server.url).read(pa.array(bodies)))
    assert read[0] == ("a", None, None)
    assert read[1:] == [f"its schema, {1000 + n}, is not known to the registry" for n in range(500)]
    assert sorted(server.requests) == sorted(
        [f"/schemas/ids/{number}", *(f"/schemas/ids/{1000 + n}" for n in range(500) for _ in range(2))]
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
