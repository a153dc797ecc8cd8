"""Bodies whose schemas are named by content types: what the encoder of Azure's registry writes, and what is wrong."""

from __future__ import annotations

import gzip
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("azure.schemaregistry")

from leasehold.body_format import BodyFormat
from leasehold.errors import (
    ConfigError,
    MissingDependency,
    RegistryError,
    RegistryUnavailable,
    UsageError,
    Verdict,
)
from leasehold.formats import BodyReader
from leasehold.formats.content_types import by_content_type
from leasehold.handlers.settings import Bodies
from leasehold.hubs.arrow import TEXT_MAP
from leasehold.registries import RegisteredSchema, open_registry
from leasehold.registries.known_schemas import KnownSchemas
from leasehold.spark.loop.orders import Order, task_order
from leasehold_testkit.emulators.azure_schemas import AzureSchemasServer, ServerAnswer
from tests.azure_registry import TOKEN, AzureRegistry, azure_registry, server_context
from tests.certificates import Authority
from tests.formats.registered import COLUMNS, outcome, schema

NOBODYS = "a" * 32
FORM = "avro/binary+ and the 32 hexadecimal digits of a schema"


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AzureRegistry]:
    with azure_registry(tmp_path, monkeypatch) as found:
        yield found


def reader(registry: AzureRegistry, **how: Any) -> BodyReader:
    return BodyReader(COLUMNS, BodyFormat(**{"format": "avro", "registry": registry.url, **how}))


def headers(stated: Sequence[Mapping[str, str] | str | None], system: bool = False) -> pa.Table:
    """Headers of events, each a content type or all of its properties; `system`: as AMQP has them."""
    maps = [{} if one is None else {"content-type": one} if isinstance(one, str) else one for one in stated]
    texts = pa.array([list(one.items()) for one in maps], TEXT_MAP)
    none = pa.array([[] for _ in maps], TEXT_MAP)
    return pa.table({"properties": none if system else texts, "systemProperties": texts if system else none})


def test_what_azures_encoder_writes_is_read_by_the_schema_of_each_event(registry: AzureRegistry) -> None:
    old, new = schema(id="string", n="int"), schema(n="long", gate=["null", "string"], id="string", more="boolean")
    written = []
    with registry.encoder() as encoder:
        for n in range(300):
            value = {"id": f"o{n}", "n": n} if n % 3 else {"id": f"n{n}", "n": n, "gate": "B7", "more": True}
            written.append(encoder.encode(value, schema=old if n % 3 else new))
    bodies = pa.array([one["content"] for one in written])
    types = headers([one["content_type"] for one in written])
    expected = [(f"o{n}", None, n) if n % 3 else (f"n{n}", "B7", n) for n in range(300)]
    one = reader(registry)
    assert outcome(one.read(bodies, types)) == expected
    assert outcome(one.read(bodies, headers([one["content_type"] for one in written], system=True))) == expected
    assert outcome(one.read(bodies[100:], types.slice(100))) == expected[100:]
    kept = outcome(reader(registry, rescue="rest").read(bodies, types))
    assert kept == [(*row, None if row[1] is None else '{"more":true}') for row in expected]
    asked = registry.asked
    assert len(asked) == len(set(asked)) == 2
    outcome(one.read(bodies, types))
    assert registry.asked == asked
    assert set(registry.identity.resources) == {"https://eventhubs.azure.net"}


def test_what_is_wrong_with_an_event_or_its_schema_rejects_it_alone(registry: AzureRegistry) -> None:
    good = registry.server.register("g", "good", schema(id="string"))
    other, bad = registry.server.register("g", "other", "{}", "Json"), registry.server.register("g", "bad", "{}")
    custom = registry.server.register("g", "custom", "message F {}", "Custom")
    events: list[tuple[bytes | None, Any, Any]] = [
        (b"\x02a", f"avro/binary+{good}", ("a", None, None)),
        (b"\x02b", f" AVRO/Binary+{good.upper()} ", ("b", None, None)),
        (b"\x02c", {"Content-Type": f"avro/binary+{good}", "other": "x"}, ("c", None, None)),
        (None, f"avro/binary+{NOBODYS}", "the event has no body"),
        (b"\x02", f"avro/binary+{good}", "the field id is of 1 bytes, and the body has 0 more"),
        (b"", f"avro/binary+{good}", "the field id is not whole: the body ends within it"),
        (b"\x02a", None, f"it has no content-type, which is to be {FORM}"),
        (b"\x02a", "avro/binary", f'its content-type is "avro/binary", and not {FORM}'),
        (b"\x02a", f"avro/binary+{good}0", f'its content-type is "avro/binary+{good[:27]}…", and not {FORM}'),
        (b"{}", "application/json", f'its content-type is "application/json", and not {FORM}'),
        (b"\x02a", f"avro/binary+{NOBODYS}", f"its schema, {NOBODYS}, is not known to the registry"),
        (b"\x02a", f"avro/binary+{'0' * 32}", f"its schema, {'0' * 32}, is not known to the registry"),
        (b"{}", f"avro/binary+{other}", f"its schema, {other}, is of Json, and the format is Avro"),
        (b"{}", f"avro/binary+{custom}", f"its schema, {custom}, is of Custom, and the format is Avro"),
        (b"\x02d", f"avro/binary+{good}", ("d", None, None)),
    ]
    bodies, types, expected = zip(*events, (b"", f"avro/binary+{bad}", None), strict=True)
    *read, last = outcome(reader(registry).read(pa.array(bodies, pa.binary()), headers(types)))
    assert last.startswith(f"its schema, {bad}, cannot be read: not a schema of Avro")
    assert read == list(expected[:-1])


def test_headers_that_tell_two_things_or_nothing_reject_an_event(registry: AzureRegistry) -> None:
    name = f"avro/binary+{registry.server.register('g', 'good', schema(id='string'))}"
    pairs = [[("content-type", name), ("Content-Type", name)], [("content-type", name), ("CONTENT-TYPE", "text/plain")]]
    maps = pa.table({"properties": pa.array(pairs, TEXT_MAP)})
    assert outcome(reader(registry).read(pa.array([b"\x02a"] * 2), maps)) == [
        ("a", None, None),
        "the header content-type is there twice, with different values",
    ]
    with pytest.raises(UsageError, match="schemas are named by headers"):
        reader(registry).read(pa.array([b"\x02a"]))


_NAMES = st.sampled_from(["content-type", "Content-Type", "x", "", "headersBase64", "headersUnreadable"])
_VALUES = st.sampled_from([None, "", "text/plain", f"avro/binary+{NOBODYS}", f"avro/binary+{'0' * 32}", "[]", "é"])
_MAPS = st.none() | st.lists(st.tuples(_NAMES, _VALUES), max_size=3)


@given(st.lists(st.tuples(_MAPS, _MAPS, st.booleans()), max_size=6), st.integers(0, 2))
def test_headers_of_many_events_say_what_those_of_each_say(events: list[tuple[Any, Any, bool]], skip: int) -> None:
    stated, system, there = zip(*events, strict=True) if events else ((), (), ())
    columns = {"properties": pa.array(stated, TEXT_MAP), "systemProperties": pa.array(system, TEXT_MAP)}
    table, bodies = pa.table(columns).slice(skip), pa.array([b"" if one else None for one in there], pa.binary())[skip:]

    def named(bodies: pa.Array, headers: pa.Table) -> dict[int, Any]:
        found = {}
        for one in by_content_type(bodies, headers):
            for place, row in enumerate(one.rows.to_pylist()):
                found[row] = one.reasons[place] if one.number is None else one.number
        return dict(sorted(found.items()))

    odd = pa.table({name: pa.array([[("headersBase64", "[]")]], TEXT_MAP) for name in columns})  # told one by one
    each = {}
    for row in range(len(bodies)):
        both = pa.concat_tables([table.slice(row, 1), odd])
        each[row] = named(pa.array([bodies[row].as_py(), None], pa.binary()), both)[0]
    assert named(bodies, table) == each


def test_a_reader_that_is_given_schemas_asks_nobody_and_tells_which_it_needs(registry: AzureRegistry) -> None:
    """Numbers of 128 bits, the highest of them among them, on their way to tasks of Spark and back."""
    text, highest = schema(id="string"), "f" * 32
    registry.server.register("g", "good", text, id=highest)
    bodies, types = pa.array([b"\x02a", b"\x02b"]), headers([f"avro/binary+{one}" for one in (highest, NOBODYS)])
    one = reader(registry)
    unknown = pickle.loads(pickle.dumps(one.given({}))).read(bodies, types).unknown  # noqa: S301
    assert unknown == {2**128 - 1, int(NOBODYS, 16)}
    assert not registry.asked
    found = KnownSchemas(open_registry(registry.url), lambda seconds: None).of(unknown)
    assert sorted(registry.asked) == sorted([highest, NOBODYS, NOBODYS])
    assert found == {2**128 - 1: RegisteredSchema("AVRO", text), int(NOBODYS, 16): None}
    assert one.schemas_of(bodies, types) == found
    order = task_order(Order("hub", (), ((),), schemas=found).text(), 0)
    read = pickle.loads(pickle.dumps(one.given(order.schemas))).read(bodies, types)  # noqa: S301
    assert read.unknown == frozenset()
    assert outcome(read) == [("a", None, None), f"its schema, {NOBODYS}, is not known to the registry"]


def test_bodies_may_be_compressed_and_changes_of_debezium(registry: AzureRegistry) -> None:
    name = f"avro/binary+{registry.server.register('g', 'good', schema(id='string'))}"
    bodies = pa.array([gzip.compress(b"\x02a"), b"\x02b", b"\x1f\x8b"])
    read = reader(registry, content_encoding="gzip").read(bodies, headers([name] * 3))
    assert outcome(read) == [("a", None, None), ("b", None, None), "the body is not whole gzip"]
    row = {"type": "record", "name": "V", "fields": [{"name": "id", "type": "string"}]}
    change = schema(op="string", before=["null", row], after=["null", "V"])
    name = f"avro/binary+{registry.server.register('g', 'change', change)}"
    columns = pa.schema([("id", pa.string())])
    changes = BodyReader(columns, BodyFormat(format="debezium", registry=registry.url))
    read = changes.read(pa.array([b"\x02c\0\2\x02a", None], pa.binary()), headers([name, None]))
    assert read.columns.to_pylist()[0] == {"id": "a", "__deleted": False}
    assert (read.reasons, read.passed.to_pylist() if read.passed else None) == (None, [False, True])


def test_a_registry_that_is_away_is_waited_for_and_one_that_refuses_needs_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with azure_registry(tmp_path, monkeypatch) as registry:
        ours = open_registry(registry.url)
        assert ours.schemas([1]) == {1: None}
        registry.identity.token = "of-somebody-else"  # noqa: S105
        with pytest.raises(RegistryError, match="role Schema Registry Reader") as refused:
            ours.schemas([1])
        assert refused.value.verdict is Verdict.MEND
        assert "of-somebody-else" not in str(refused.value)
        registry.identity.token = TOKEN
        with pytest.raises(
            RegistryError, match=r"unable to get local issuer certificate.*Check its certificate"
        ) as tls:
            open_registry(registry.url.partition("?")[0]).schemas([1])
        assert tls.value.verdict is Verdict.MEND
        assert ours.schemas([1]) == {1: None}
        monkeypatch.setenv("IDENTITY_HEADER", "nobody's")
        monkeypatch.setenv("PATH", "")  # az login, and others who might know somebody
        with pytest.raises(RegistryUnavailable, match="azure-identity has given no token"):
            ours.schemas([1])
        monkeypatch.setenv("IDENTITY_HEADER", registry.identity.environment["IDENTITY_HEADER"])
    with pytest.raises(RegistryUnavailable) as away:
        ours.schemas([1])
    assert away.value.verdict is Verdict.PASSES


@pytest.mark.parametrize(
    ("status", "error"), [(429, RegistryUnavailable), (503, RegistryUnavailable), (404, RegistryError)]
)
def test_what_an_answer_means(
    registry: AzureRegistry, monkeypatch: pytest.MonkeyPatch, status: int, error: type[RegistryError]
) -> None:
    """A 404 that is none of the registry's own comes from elsewhere, and rejects no event."""
    answer = ServerAnswer(status, {"Retry-After": "0", "Content-Type": "text/html"}, b"<h1>No</h1>")
    monkeypatch.setattr(AzureSchemasServer, "answer", lambda *_: answer)
    with pytest.raises(RegistryError, match=rf"gives no schema \({status}: ") as found:
        open_registry(registry.url).schemas([1])
    assert type(found.value) is error


def test_an_authority_whose_file_is_not_there(registry: AzureRegistry, tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match=r"nowhere.pem.*Check ca"):
        open_registry(f"azschemas://{registry.server.namespace}?ca={tmp_path}/nowhere.pem").schemas([1])
    other = Authority(tmp_path / "other", "other")
    with (
        closing(AzureSchemasServer(server_context(other))) as server,
        pytest.raises(RegistryError, match="certificate"),
    ):
        open_registry(f"azschemas://{server.namespace}?ca={quoted(registry)}").schemas([1])


def quoted(registry: AzureRegistry) -> str:
    return registry.url.partition("ca=")[2]


@pytest.mark.parametrize("module", ["azure.schemaregistry", "azure.identity"])
def test_what_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependency, match="azschemas"):
        open_registry("azschemas://ns.servicebus.windows.net")


def test_urls_and_combinations_that_are_none_are_refused() -> None:
    for rest in ("", "me:secret@ns.servicebus.windows.net", "ns/group", "ns?connection_string=secret", "ns?ca="):
        with pytest.raises(ConfigError, match="a URL is azschemas://NAMESPACE") as refused:
            open_registry(f"azschemas://{rest}")
        assert "secret" not in str(refused.value)
    there = "azschemas://ns.servicebus.windows.net"
    for how, said in (
        ({"format": "protobuf"}, "registry: .*are of Avro"),
        ({"format": "avro", "envelope": "cloudevents"}, "envelope.*names its schema, and not its envelope"),
    ):
        with pytest.raises(ConfigError, match=said):
            BodyFormat(registry=there, **how)
    with pytest.raises(ConfigError, match=r"registry.*its schemas are named by headers.*the body alone is kept"):
        Bodies("id STRING", BodyFormat(format="avro", registry=there))
